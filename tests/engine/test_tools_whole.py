"""Tools as a model is offered them, whole; what it may give, name by name; and every limit at its very edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.errors import InputError
from runtime.engine.tools import (
    DESCRIPTION_CHARS_MAX,
    NAME_CHARS_MAX,
    TOOLS_MAX,
    Tool,
    ToolKind,
    of_operation,
    of_people,
    of_workflow,
    problems,
    tool_name,
)
from tests.engine.test_tools import SECRET, operation

pytestmark = pytest.mark.req("P-14")
TEXT = {"type": "string"}
QUESTION = {
    "type": "object",
    "additionalProperties": False,
    "required": ["question"],
    "properties": {"question": {"type": "string", "minLength": 1, "maxLength": 2000}},
}


def offered(name: str, description: str, parameters: Any) -> Any:
    words = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": {key: value for key, value in words.items() if value}}


def described(words: str) -> Any:
    return operation({}).model_copy(update={"description": words})


NOTHING_TO_GIVE = {"type": "object", "properties": {}}
LONG = "d" * DESCRIPTION_CHARS_MAX
RUN = "Run the workflow {}, and wait for its result."


@pytest.mark.parametrize(
    ("made", "offer"),
    [
        (lambda: of_operation(operation({})), offered("http_thing_send", "http.thing.send", NOTHING_TO_GIVE)),
        (lambda: of_operation(operation({}), name="x.y"), offered("x_y", "http.thing.send", NOTHING_TO_GIVE)),
        (lambda: of_operation(described("Sends it.")), offered("http_thing_send", "Sends it.", NOTHING_TO_GIVE)),
        (lambda: of_operation(described(LONG)), offered("http_thing_send", LONG, NOTHING_TO_GIVE)),
        (lambda: of_operation(described(f"{LONG}d")), offered("http_thing_send", f"{LONG[:-1]}…", NOTHING_TO_GIVE)),
        (lambda: of_workflow("w@1", "", None), offered("w_1", RUN.format("w@1"), NOTHING_TO_GIVE)),
        (lambda: of_workflow("w@1", "Check", None, name="n.m"), offered("n_m", RUN.format("Check"), NOTHING_TO_GIVE)),
        (
            lambda: of_workflow("w@1", "", {"properties": {"a": TEXT, "b": TEXT}, "required": ["a", "b"]}, fixed=["a"]),
            offered("w_1", RUN.format("w@1"), {"type": "object", "properties": {"b": TEXT}, "required": ["b"]}),
        ),
        (
            lambda: of_workflow("w@1", "", {"properties": {"a": TEXT}, "required": ["a"]}, fixed=["a"]),
            offered("w_1", RUN.format("w@1"), NOTHING_TO_GIVE),
        ),
        (lambda: of_people("who", "Find it", {}), offered("who", "Ask a person: Find it.", QUESTION)),
        (
            lambda: of_people("who-is.it", "Find it", {"properties": {"b": {}, "a": {}}}),
            offered("who-is_it", "Ask a person: Find it. The answer holds b, a.", QUESTION),
        ),
        (lambda: Tool("n", ToolKind.PEOPLE, "s", "", {}), offered("n", "", NOTHING_TO_GIVE)),
    ],
)
def test_a_tool_is_offered_with_its_name_its_words_and_its_parameters(made: Callable[[], Tool], offer: Any) -> None:
    assert made().offer() == offer


def test_a_tool_is_of_what_its_calls_become_whatever_its_name_is() -> None:
    form: Any = {"properties": {"a": TEXT}}
    made = [
        of_operation(DECLARED, fixed=["a"], name="n.m"), of_operation(DECLARED), of_people("who.is", "Find it", form),
        of_workflow("w@1", "Check", form, fixed=["a"], name="n.m"), of_workflow("w@1", "Check", None),
    ]  # fmt: skip
    assert [(one.name, one.kind, one.source, {*one.fixed}, {*one.params}) for one in made] == [
        ("n_m", ToolKind.OPERATION, "http.thing.send", {"a"}, {"c"}),
        ("http_thing_send", ToolKind.OPERATION, "http.thing.send", set(), {"c"}),
        ("who_is", ToolKind.PEOPLE, "who.is", set(), set()),
        ("n_m", ToolKind.WORKFLOW, "w@1", {"a"}, set()),
        ("w_1", ToolKind.WORKFLOW, "w@1", set(), set()),
    ]
    assert [one.schema for one in made] == [
        DECLARED.input_schema, DECLARED.input_schema, QUESTION, form, {"type": "object"},
    ]  # fmt: skip
    assert of_workflow("w@1", "", {}).schema == {}


# Schemas that hold themselves.
NESTED = {"properties": {"a": {"$ref": "#/$defs/l"}}, "$defs": {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}}}
CHAIN = {
    "required": ["a"],
    "properties": {"a": {"$ref": "#/$defs/l"}},
    "$defs": {"l": {"required": ["next"], "properties": {"next": {"$ref": "#/$defs/l"}}}},
}
SHOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "itself": (NESTED, {"type": "object", **NESTED}),
    "a chain": (CHAIN, {"type": "object", **CHAIN}),
    "a secret that is told of at the top": (
        {
            "properties": {"o": {"required": ["a", "b"], "properties": {"a": {"$ref": "#/$defs/s"}, "b": TEXT}}},
            "$defs": {"s": SECRET},
        },
        {
            "type": "object",
            "properties": {"o": {"required": ["b"], "properties": {"b": TEXT}}},
            "$defs": {"s": {"type": "string"}},
        },
    ),
    "our marks": (
        {"x-a": 1, "properties": {"b": {"type": "string", "x-c": 1}}},
        {"type": "object", "properties": {"b": TEXT}},
    ),
    "a secret": (
        {"required": ["a", "b"], "properties": {"a": SECRET, "b": TEXT}},
        {"type": "object", "required": ["b"], "properties": {"b": TEXT}},
    ),
    "secrets in lists": (
        {"properties": {"a": {"items": {"items": SECRET}}, "b": {"items": {"x-secret": "true"}}}},
        {"type": "object", "properties": {"b": {"items": {}}}},
    ),
    "other members": (
        {"properties": {"a": {"additionalProperties": SECRET}, "b": {"additionalProperties": TEXT}}},
        {
            "type": "object",
            "properties": {"a": {"additionalProperties": False}, "b": {"additionalProperties": TEXT}},
        },
    ),
    "values": (
        {"properties": {"a": {"const": {"x-b": 1}}, "c": {"enum": [{"x-d": 1}], "default": {"x-e": 1}}}},
        {
            "type": "object",
            "properties": {"a": {"const": {"x-b": 1}}, "c": {"enum": [{"x-d": 1}], "default": {"x-e": 1}}},
        },
    ),
    "examples": (
        {"properties": {"a": {"examples": [{"x-b": 1}]}}},
        {"type": "object", "properties": {"a": {"examples": [{"x-b": 1}]}}},
    ),
    "names like keywords": (
        {"properties": {"x-a": TEXT, "required": TEXT, "properties": {"properties": {"b": SECRET}}}},
        {"type": "object", "properties": {"x-a": TEXT, "required": TEXT, "properties": {"properties": {}}}},
    ),
    "what only the input needs": (
        {
            "$schema": "s", "$id": "i", "enum": [1], "const": 1, "not": {}, "if": {}, "then": {}, "else": {},
            "allOf": [], "anyOf": [], "oneOf": [], "dependentSchemas": {}, "dependentRequired": {}, "title": "t",
            "properties": {"a": {"enum": [1], "not": {}}},
        },
        {"type": "object", "title": "t", "properties": {"a": {"enum": [1], "not": {}}}},
    ),
    "alternatives": (
        {"properties": {"a": {"anyOf": [{"properties": {"b": SECRET, "c": {}}, "required": ["b"]}]}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"properties": {"c": {}}}]}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SHOWN)
def test_a_model_sees_this_much_of_a_schema(what: str) -> None:
    schema, shown = SHOWN[what]
    assert of_workflow("w@1", "", {"type": "object", **schema}).parameters == shown


OPEN = {"properties": {"a": TEXT, "b": TEXT, "c": TEXT, "s": SECRET}}
DECLARED = operation(OPEN).model_copy(update={"params": {"c": "by the declaration"}})


@pytest.mark.parametrize(
    ("given", "fixed", "found"),
    [
        ('{"b": "1"}', {}, {"b": "1"}),
        ("", {}, {}),
        ("  ", {"a": "0"}, {"a": "0"}),
        ('{"b": "1"}', {"a": "0"}, {"a": "0", "b": "1"}),
        ('{"a": "1"}', {}, "arguments.a: is fixed, so it cannot be given"),
        ('{"b": "1"}', {"b": "0"}, "arguments.b: is fixed, so it cannot be given"),
        ('{"c": "1", "a": "1"}', {}, "arguments.a: is fixed, so it cannot be given"),
        ('{"c": "1"}', {}, "arguments.c: is fixed, so it cannot be given"),
        ('{"s": "1"}', {}, "arguments.s: is secret, so a model cannot give it"),
        ('{"b": "1"}', {"s": "0"}, {"b": "1", "s": "0"}),
        ('{"b": 1}', {}, "arguments.b: must be text"),
    ],
)
def test_a_model_gives_what_is_neither_fixed_nor_secret(given: str, fixed: dict[str, Any], found: Any) -> None:
    tool = of_operation(DECLARED, fixed=["a"])
    if isinstance(found, dict):
        assert tool.read(given, fixed) == found
        return
    with pytest.raises(InputError) as raised:
        tool.read(given, fixed)
    assert str(raised.value) == found


NEEDS = "http.thing.send: needs {}, which is secret and never offered to a model; fix {}"
INNER = {"required": ["k", "n"], "properties": {"k": SECRET, "n": TEXT}}
CLOSED = {"additionalProperties": False, "properties": {"a": TEXT}}


@pytest.mark.parametrize(
    ("schema", "fixed", "found"),
    [
        (CHAIN, [], []),
        ({"required": ["s"], "properties": {"s": SECRET}}, [], [NEEDS.format("s", "s")]),
        ({"required": ["s"], "properties": {"s": SECRET}}, ["s"], []),
        ({"required": ["a"], "properties": {"a": TEXT, "s": SECRET}}, [], []),
        ({"required": ["l"], "properties": {"l": {"items": SECRET}}}, [], [NEEDS.format("l", "l")]),
        ({"required": ["o"], "properties": {"o": INNER}}, [], [NEEDS.format("o.k", "o")]),
        ({"required": ["o"], "properties": {"o": INNER}}, ["o"], []),
        ({"required": ["o"], "properties": {"o": INNER}}, ["k", "o.k"], [NEEDS.format("o.k", "o")]),
        ({"properties": {"o": INNER}}, [], []),
        (
            {"required": ["q"], "properties": {"q": {"required": ["o"], "properties": {"o": INNER}}}},
            [],
            [NEEDS.format("q.o.k", "q")],
        ),
        (CLOSED, ["a"], []),
        (CLOSED, ["c", "a", "b"], [f"http.thing.send: fixes '{name}', which is no input of it" for name in "bc"]),
        ({**CLOSED, "additionalProperties": True}, ["b"], []),
        ({**CLOSED, "additionalProperties": TEXT}, ["b"], []),
        ({"properties": {"a": TEXT}}, ["b"], []),
    ],
)
def test_what_cannot_be_given_has_to_be_fixed_and_what_is_fixed_has_to_be_an_input(
    schema: Any, fixed: list[str], found: list[str]
) -> None:
    assert [*problems([of_operation(operation(schema), fixed=fixed)])] == found


@pytest.mark.parametrize(
    ("more", "said"), [(-1, []), (0, []), (1, ["an agent has 128 tools at most, and this one has 129"])]
)
def test_an_agent_has_so_many_tools_and_no_more(more: int, said: list[str]) -> None:
    tools = [of_workflow(f"w{n}@1", "", None) for n in range(TOOLS_MAX + more)]
    assert [*problems(tools)] == said


def test_each_name_that_is_there_again_is_told_with_the_first_that_has_it() -> None:
    tools = [of_workflow(f"{name}@1", "", None) for name in ("a.b", "c", "a_b", "a-b", "a/b")]
    words = "{} and {} are both called 'a_b_1'; give one of them a name of its own"
    assert [*problems(tools)] == [words.format("a.b@1", "a_b@1"), words.format("a.b@1", "a/b@1")]
    twice = [of_operation(operation({"required": ["s"], "properties": {"s": SECRET}})) for _ in range(2)]
    both = "http.thing.send and http.thing.send are both called 'http_thing_send'; give one of them a name of its own"
    assert [*problems(twice)] == [NEEDS.format("s", "s"), both, NEEDS.format("s", "s")]


@pytest.mark.parametrize("length", [NAME_CHARS_MAX - 1, NAME_CHARS_MAX, NAME_CHARS_MAX + 1, 2 * NAME_CHARS_MAX])
def test_a_long_name_ends_in_a_digest_of_the_whole(length: int) -> None:
    source = "a." * (length // 2) + "b" * (length % 2)
    name = tool_name(source)
    if length <= NAME_CHARS_MAX:
        assert name == source.replace(".", "_")
    else:
        assert (len(name), name[:55]) == (NAME_CHARS_MAX, source.replace(".", "_")[:55])
        assert name != tool_name(f"{source}x")
        assert name != tool_name(source.replace(".", "/")), "a name that looks alike is of another thing"
