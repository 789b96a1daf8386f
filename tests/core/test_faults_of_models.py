"""The problems of documents of made models: alternatives, names that stand twice, and each kind of fault."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from core.documents import load_document
from core.errors import DefinitionError
from core.validation import EMPTY, EMPTY_REMEDY, validate


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pear(Strict):
    pear: str = "p"
    colour: str = ""


class Inner(Strict):
    weight: int = 0
    length: int = 0


class Nest(Strict):
    within: Inner = Inner()
    twig: str = ""


class Apple(Strict):
    """One whose tag is the name of one of its keys, too."""

    apple: Inner = Inner()
    taste: str = Field("", min_length=1, pattern="^[a-z]*$")


def tag_of(value: Any) -> str | None:
    return next((name for name in ("apple", "pear") if name in value), None) if isinstance(value, dict) else None


class Basket(Strict):
    fruit: Annotated[Annotated[Apple, Tag("apple")] | Annotated[Pear, Tag("pear")], Discriminator(tag_of)] | None = None
    either: tuple[Pear, ...] | dict[str, Inner] | None = None
    named: dict[str, Inner] = {}
    nested: tuple[Pear, ...] | dict[str, Nest] | None = None
    size: Literal["small", "large"] | None = None
    kind: Annotated[Pear | Inner, Field(union_mode="left_to_right")] | None = None
    many: tuple[Inner, ...] = Field((), min_length=1)
    inside: tuple[Basket, ...] = ()
    other: int = Field(0, alias="else", le=3)
    any_: Any = Field(None, alias="any")


def told(text: str) -> list[str]:
    with pytest.raises(DefinitionError) as refused:
        validate(load_document(text, "d.yaml"), Basket)
    return [str(one).removeprefix("d.yaml:") for one in refused.value.problems]


GONE = f"{EMPTY}. {EMPTY_REMEDY}"
INT = "input should be a valid integer."
PATTERN = "string should match pattern '^[a-z]*$'."
NEITHER = "it cannot be told what this is. One of apple, pear."
LONG = "m" * 90


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        # A part of the place names an alternative first, and a key after it.
        ("fruit: {apple: {}, tast: a}", ["1:20: fruit: unknown key 'tast'. Did you mean 'taste'?"]),
        ("fruit: {apple: {wight: 1}}", ["1:17: fruit.apple: unknown key 'wight'. Did you mean 'weight'?"]),
        ("fruit: {apple: {zzz: 1}}", ["1:17: fruit.apple: unknown key 'zzz'. Known keys: length, weight."]),
        ("fruit: {pear: x, color: y}", ["1:18: fruit: unknown key 'color'. Did you mean 'colour'?"]),
        ("fruit: {plum: 1}", [f"1:1: fruit: {NEITHER}"]),
        ("fruit: 7", [f"1:1: fruit: {NEITHER}"]),
        # Where the place does not say which alternative it is, the keys of all are known.
        (
            "either: [{colr: x}]",
            [
                "1:1: either: input should be an object.",
                "1:11: either[0]: unknown key 'colr'. Did you mean 'colour'?",
            ],
        ),
        (
            "either: {a: {wigth: 1}}",
            [
                "1:1: either: input should be a valid array.",
                "1:14: either.a: unknown key 'wigth'. Did you mean 'weight'?",
            ],
        ),
        (
            "kind: {colr: x}",
            [
                "1:8: kind: unknown key 'colr'. Did you mean 'colour'?",
                "1:8: kind: unknown key 'colr'. Known keys: length, weight.",
            ],
        ),
        (
            "nested: {a: {within: {wigth: 1}}}",
            [
                "1:1: nested: input should be a valid array.",
                "1:23: nested.a.within: unknown key 'wigth'. Did you mean 'weight'?",
            ],
        ),
        # A name of a map may be that of a key, a tag or a model.
        ("named: {apple: {wigth: 1}}", ["1:17: named.apple: unknown key 'wigth'. Did you mean 'weight'?"]),
        ("named: {Inner: {wigth: 1}}", ["1:17: named.Inner: unknown key 'wigth'. Did you mean 'weight'?"]),
        ("named: {weight: {zzz: 1}}", ["1:18: named.weight: unknown key 'zzz'. Known keys: length, weight."]),
        # A model that holds itself, and a key that is called otherwise than its field.
        (
            "inside: [{inside: [{named: {a: {lenght: 1}}}]}]",
            ["1:33: inside[0].inside[0].named.a: unknown key 'lenght'. Did you mean 'length'?"],
        ),
        ("inside: [{nmaed: 1}]", ["1:11: inside[0]: unknown key 'nmaed'. Did you mean 'named'?"]),
        ("inside: [{fruit: {apple: {}, taste: X}}]", [f"1:30: inside[0].fruit.taste: {PATTERN}"]),
        ("other: 1", ["1:1: unknown key 'other'. Did you mean 'either'?"]),
        ("else: 4", ["1:1: else: input should be less than or equal to 3."]),
        # Each kind of fault in its words.
        ("size: medium", ['1:1: size: "medium" is not accepted. One of small, large.']),
        ("size: \u00e9", ['1:1: size: "\u00e9" is not accepted. One of small, large.']),
        (f"size: {LONG[:78]}", [f'1:1: size: "{LONG[:78]}" is not accepted. One of small, large.']),
        (f"size: {LONG}", [f'1:1: size: "{LONG[:79]} is not accepted. One of small, large.']),
        ("many: []", ["1:1: many: holds 0 of at least 1 items."]),
        ("many: [{wieght: 1}]", ["1:9: many[0]: unknown key 'wieght'. Did you mean 'weight'?"]),
        ("many: [{weight: x}, {length: y}]", [f"1:9: many[0].weight: {INT}", f"1:22: many[1].length: {INT}"]),
        ("fruit: {apple: {}, taste: ''}", [f"1:20: fruit.taste: {GONE}"]),
        ("fruit: {apple: {}, taste: ' '}", [f"1:20: fruit.taste: {GONE}"]),
        ("fruit: {apple: {}, taste: 'A B'}", [f"1:20: fruit.taste: {PATTERN}"]),
        # A key without a value is refused, unless its type is any; of other faults only those are told.
        ("fruit:", [f"1:1: fruit: {GONE}"]),
        ("inside: [{size: }, {fruit: }]", [f"1:11: inside[0].size: {GONE}", f"1:21: inside[1].fruit: {GONE}"]),
        ("named: {a: }", ["1:9: named.a: input should be an object."]),
        ("any: \nsize: \nelse: 9", ["3:1: else: input should be less than or equal to 3."]),
        ("any: \nsize: \n", [f"2:1: size: {GONE}"]),
    ],
)
def test_each_fault_is_told_at_its_place_with_the_keys_that_are_known_there(text: str, problems: list[str]) -> None:
    assert told(text) == problems
