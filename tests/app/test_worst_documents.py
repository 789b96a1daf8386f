"""The worst document of each reader of a tenant's text, searched by a seeded grammar: its work grows as its bytes do.

Counted are calls, of Python and of what is written in C: never time. A reader is asked for the worst small document of
many; the same grown to twelve times its size may cost little more for each byte. A document that is refused has cost
what it took to refuse it.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from connectors.catalog import load_catalog
from connectors.schema import check_references, validator_of
from core.canonical import canonical_bytes
from core.documents import load_document
from core.errors import CountersealError
from core.expressions import WORKFLOW_LIMITS, Environment
from core.globs import Glob
from core.templates import compile_template
from runtime.definition.catalog import Definitions
from runtime.engine.book.barrier import Distinct
from runtime.requests.publishing import check_workflow

TRIES, SMALL, GROWTH, EACH_BYTE = 12, 640, 12, 1.6
CATALOG = load_catalog()
DEFINITIONS = Definitions(CATALOG)
SCOPE = Environment({"a": "dyn", "b": "dyn", "s": "dyn"}, WORKFLOW_LIMITS)
# No document repeats a number of an earlier one: what was compiled before costs nothing.
_NUMBERS = count(1)
# The work of an expression may grow faster than its text, up to the limit of its units.
BOUNDED = {"expressions"}
Recipe = list[str]
Reader = tuple[list[str], Callable[[Recipe, int], Any], Callable[[Any], object], float]


def calls(read: Callable[[Any], object], document: Any) -> int:
    """The calls that reading takes, until it is read or refused."""
    found = 0

    def note(frame: object, event: str, _: object) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        read(document)
    except CountersealError:
        pass
    finally:
        sys.setprofile(None)
    return found


def filled(parts: Recipe, size: int, between: str = "", first: str = "", last: str = "") -> str:
    """The parts one after the other, again and again, each ``{n}`` a number of its own, up to this size."""
    begun = next(_NUMBERS) * 10_000
    first = first.replace("{n}", str(begun))
    made, length = [first], len(first) + len(last)
    for number in count():
        part = parts[number % len(parts)].replace("{n}", str(begun + number))
        length += len(part) + len(between)
        if length > size:
            return between.join(made[1:]).join((first, last)) if len(made) > 1 else first + last
        made.append(part)
    raise AssertionError("it ends above")


def yaml(parts: Recipe, size: int) -> str:
    return filled(parts, size, "\n", "top: &top [1]\n")


def workflow(parts: Recipe, size: int) -> str:
    head = "workflow: w{n}\nversion: 1\nreference: r\nchannels: {found: {}}\nsteps:\n"
    return filled(parts, size, "\n", head)


def policy(parts: Recipe, size: int) -> str:
    return filled(parts, size, "\n", "policy: p{n}\nversion: 1\nrules:\n")


def schema(parts: Recipe, size: int) -> Any:
    defs = '"$defs":{"z":{"type":"string"},"y":{"allOf":[{"$ref":"#/$defs/z"},{"$ref":"#/$defs/z"}]}}'
    return json.loads(filled(parts, size, ",", '{"type":"object",' + defs + ',"properties":{', "}}"))


def expression(parts: Recipe, size: int) -> tuple[str, Any]:
    half = size // 2
    return filled(parts, min(half, 3_000), " && ", "true && "), list(range(half // 4))


def evaluate(given: tuple[str, Any]) -> None:
    source, items = given
    SCOPE.compile(source, "bool").value(SCOPE.bind({"a": items, "b": items, "s": "x" * len(items)}))


def deep(parts: Recipe, size: int) -> Any:
    return json.loads(filled(parts, size, ",", "[", "]"))


def read_schema(found: Any) -> None:
    check_references(found)
    validator_of(found).is_valid({"k1": "x"})


RULE = "  - {id: r{n}, match: {operation: servicenow.incident.update}, outcome: deny, because: x"
# For each reader the words of its grammar, what makes a document of them, what reads it, and the most calls a byte.
READERS: dict[str, Reader] = {
    "yaml": (
        ["k{n}: v", "k{n}: [a, b, [c, {d: e}]]", "k{n}: *top", "k{n}: &a{n} [*top, *top]", 'k{n}: "\\u0041\\n"',
         "k{n}: {a: {b: {c: {}}}}", "k{n}: |\n  x\n  y", "? [k{n}]\n: x", "k{n}: !!str 1", "k: twice", "k{n}: 1.5e3",
         "k{n}: [,]", "- k{n}", "<<: *top", "k{n}: '#'  # x"],
        yaml, lambda text: load_document(text, "d.yaml"), 150.0,
    ),
    "workflows": (
        ["  - {set: {found: 1}}", '  - {set: {found: "${{ trigger.a + {n} }}"}}', "  - {wait: {for: PT1H}}",
         '  - {if: "${{ trigger.a == {n} }}", steps: [{set: {found: 2}}]}', "  - {id: s{n}, wait: {for: PT1H}}",
         '  - {do: transform.value.make, with: {value: "${{ trigger.a{n} }}"}}', "  - {set: {other: 1}}", "  - {id: s}",
         '  - {for: x, in: "${{ trigger.a }}", max: 9, steps: [{set: {found: "${{ x }}"}}]}',
         "  - &a {set: {found: 1}}"],
        workflow, lambda text: check_workflow(CATALOG, text, "w.yaml"), 150.0,
    ),
    "policies": (
        [RULE + "}", RULE + ", when: \"run.requested_by != 'x{n}'\"}", RULE + ", when: 'counters.writes_in_run < {n}'}",
         "  - {id: r{n}, match: {operation: '*a*b*c*{n}'}, outcome: deny, because: x}", "  - {id: r}",
         "  - {id: r{n}, match: {connector: '*'}, outcome: allow, when: \"action.target.startsWith('{n}')\"}"],
        policy, lambda text: DEFINITIONS.compile_policy(text, "p.yaml"), 120.0,
    ),
    "schemas": (
        ['"k{n}":{"type":"string"}', '"k{n}":{"$ref":"#/$defs/z"}', '"k{n}":{"$ref":"#/$defs/y"}', '"k{n}":{}',
         '"k{n}":{"anyOf":[{"$ref":"#/$defs/y"},{"$ref":"#/$defs/y"}]}', '"k{n}":{"enum":[1,2,3,4]}', '"k{n}":true',
         '"k{n}":{"properties":{"a":{"items":{"$ref":"#/$defs/y"}}}}', '"k{n}":{"pattern":"(a+)+$"}'],
        schema, read_schema, 30.0,
    ),
    "expressions": (
        ["a.all(x, x == x) || a == {n}", "a.exists(x, x == {n})",
         "a.all(x, b == b) || a == {n}", "a.map(x, x).size() > {n}",
         "[{n}, a] == [b]",
         "a.all(x, a.all(y, x == y)) || a == {n}", "s.contains('{n}')",
         "a.filter(x, x in b).size() > 0",
         "s.matches('(x|y)*z')",
         "[a, b, a] == [a, b, a]", "a.exists_one(x, x > {n})", "s.split('').size() > 1"],
        expression, evaluate, 400.0,
    ),
    "texts that are rendered": (
        ["${{ s }}", "${{ a.size() }} of ", "{{ x }}", "$${{ x }}", "${{ s + s }}", "${{", "}}", "${{ b.map(x, x) }}"],
        lambda parts, size: filled(parts, size), lambda text: compile_template(SCOPE, text).render(
            {"a": [1], "b": [1, 2], "s": "x"}
        ), 150.0,
    ),
    "canonical bytes": (
        ["1", "1.5", '"x"', '"\\u00e9\\ud83d\\ude00"', "[]", "{}", '{"b":1,"a":{n}}', "[[[[]]]]", "null", "1e21"],
        deep, canonical_bytes, 20.0,
    ),
    "folds of a union": (
        ["1", "{n}", '"x{n}"', '{"a":[{n}]}', "[[{n}]]", "[]", "1.0", "true"],
        deep, Distinct.of, 20.0,
    ),
    "globs": (
        ["*", "a", "*a", "a*", "**", "*aa*", "b", ".", "*z"],
        lambda parts, size: filled(parts, size),
        lambda text: [Glob.of(text).matches(name) for name in ("a" * len(text), text.replace("*", "a"))], 6.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_the_worst_document_that_a_search_finds_costs_as_much_as_it_is_long(name: str) -> None:
    words, make, read, most = READERS[name]
    chance = random.Random(43)
    read_first = make([words[0]], SMALL)
    calls(read, read_first)  # what is imported and compiled once is no document's

    def cost(recipe: Recipe, size: int) -> float:
        return calls(read, make(recipe, size)) / size

    found = max(([word] for word in words), key=lambda one: cost(one, SMALL))
    for _ in range(TRIES):
        other = (
            [*found, chance.choice(words)] if chance.random() < 0.5 else chance.choices(words, k=chance.randint(1, 5))
        )
        found = max(found, other, key=lambda one: cost(one, SMALL))
    small, large = cost(found, SMALL), cost(found, SMALL * GROWTH)
    assert large <= most, f"{found}: {large:.1f} calls a byte"
    assert name in BOUNDED or large <= small * EACH_BYTE + 1, (
        f"{found}: {small:.1f} calls a byte, and {large:.1f} when it has grown"
    )
