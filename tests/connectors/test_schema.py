"""Schemas of declarations: a misfit is told in one sentence at its place, and marks stand where they are read."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.schema import check_keywords, misfit, validator_of

_TEXT: Any = {"type": "string"}
MARKS = ({"x-evidence": "omit"}, {"x-secret": True}, {"x-language": "mrkdwn"})
# Each keyword under which a schema holds for some values only, with that schema in its place.
CONDITIONAL: tuple[tuple[str, Any], ...] = (
    *((keyword, lambda mark: [mark]) for keyword in ("allOf", "anyOf", "oneOf", "prefixItems")),
    *((keyword, lambda mark: mark) for keyword in ("not", "if", "then", "else")),
    *((keyword, lambda mark: {"a": mark}) for keyword in ("patternProperties", "dependentSchemas")),
)
READ: tuple[tuple[str, Any], ...] = (
    ("properties", lambda mark: {"a": mark}),
    ("items", lambda mark: mark),
    ("additionalProperties", lambda mark: mark),
    ("$defs", lambda mark: {"a": mark}),
)


@pytest.mark.parametrize("mark", MARKS, ids=str)
def test_a_mark_that_holds_for_some_values_only_is_refused(mark: dict[str, Any]) -> None:
    words = "^x-evidence, x-secret and x-language belong in properties, items or additionalProperties$"
    for keyword, inside in CONDITIONAL:
        here, below = {keyword: inside(mark)}, {keyword: inside({"properties": {"b": {"items": mark}}})}
        places: list[Any] = [here, below, {"properties": {"c": here}}, {"properties": {"c": below}}]
        for place in places:
            with pytest.raises(ValueError, match=words):
                check_keywords(place)
    for keyword, inside in READ:
        check_keywords({keyword: inside(mark)})
        with pytest.raises(ValueError, match=words):
            check_keywords({keyword: inside(mark)}, marks=False)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "other.json#/a"}, "$ref 'other.json#/a' leaves the document; only references that start with # are"),
        ({"$ref": ""}, "$ref '' leaves the document"),
        ({"x-evidence": "values"}, "x-evidence is 'values'; it must be one of value, digest, omit"),
        ({"x-evidence": None}, "x-evidence is None; it must be one of value, digest, omit"),
        ({"x-secret": "yes"}, "x-secret must be true or false"),
        ({"x-secret": None}, "x-secret must be true or false"),
        ({"x-language": "sql"}, "x-language is 'sql'; it must be one of mrkdwn, encoded-query, url-part, html"),
    ],
)
def test_a_keyword_that_means_nothing_is_refused_wherever_it_stands(schema: dict[str, Any], words: str) -> None:
    places: list[Any] = [schema, {"properties": {"a": {"items": schema}}}, {"anyOf": [{}, schema]}]
    for place in places:
        with pytest.raises(ValueError) as caught:
            check_keywords(place)
        assert str(caught.value).startswith(words)


def test_what_is_right_is_taken_and_a_property_may_have_the_name_of_a_mark() -> None:
    check_keywords({"$ref": "#/$defs/a", "$defs": {"a": {"x-secret": False}}})
    for evidence in ("value", "digest", "omit"):
        check_keywords({"x-evidence": evidence})
    check_keywords({"properties": {"x-evidence": _TEXT, "x-secret": _TEXT, "x-language": _TEXT}})


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"required": ["a"]}, {}, "input: 'a' is a required property"),
        ({"const": 1}, 2, "input: must be 1"),
        ({"pattern": "^a$"}, "b", "input: must match the pattern ^a$"),
        ({"anyOf": [_TEXT]}, 1, "input: fits none of the forms that are allowed here"),
        ({"oneOf": [_TEXT, {"minLength": 0}]}, "a", "input: must fit exactly one form"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "input: may not have a property named 'ab'"),
        ({"type": ["string", "null"]}, 1, "input: must be null or text"),
        ({"type": ["object"]}, 1, "input: must be an object"),
        ({"type": "array"}, 1, "input: must be a list"),
        ({"type": "integer"}, 1.5, "input: must be a whole number"),
        ({"type": "number"}, "1", "input: must be a number"),
        ({"type": "boolean"}, 1, "input: must be true or false"),
        ({"enum": ["a", 1, None]}, "b", "input: must be one of a, 1, None"),
        ({"minimum": 3}, 2, "input: breaks the rule minimum: 3"),
        ({"maxLength": 2}, "abc", "input: breaks the rule maxLength: 2"),
        ({"format": "email"}, "x", "input: breaks the rule format: email"),
        ({"properties": {"b": _TEXT, "a": _TEXT}}, {"b": 2, "a": 1}, "input.a: must be text (1 more)"),
        ({"items": _TEXT}, ["a", 1, 2, 3], "input[1]: must be text (2 more)"),
        ({"items": {"items": _TEXT}}, [["a"], ["a", 1]], "input[1][1]: must be text"),
    ],
)
def test_a_misfit_is_told_at_its_place_and_without_the_value(schema: Any, value: Any, words: str) -> None:
    assert str(misfit(validator_of(schema), value, where="input")) == words


def test_a_property_that_is_not_declared_is_named() -> None:
    closed = {"properties": {"a": _TEXT}, "additionalProperties": False}
    said = str(misfit(validator_of(closed), {"a": "1", "b": "secret"}, where="with"))
    assert said == "with: Additional properties are not allowed ('b' was unexpected)"
