"""Ends of declarations, and what is empty in them: the last of several, the second of two, null, zero, ""."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from connectors.disclosure import resolved, secret_names
from connectors.languages import InputLanguages
from connectors.marks import Writer, check_marks, kind_at, records_of, writer_at
from connectors.operation import Operation
from connectors.port import Before
from connectors.proposal import action_json, build_action, diff_fields, fill, rebuilt_action
from connectors.schema import check_keywords
from core.escaping import Language
from core.origins.matching import ArgumentKind
from tests.connectors.test_disclosure import PLAIN, SECRET, obj, shown
from tests.connectors.test_proposed_actions import READ, VALUES, declared

pytestmark = pytest.mark.req("V-2")

LIST: Any = {"type": "array"}


# Schemas


@pytest.mark.parametrize("order", [("value", "value", "omit"), ("value", "omit", "value"), ("omit", "value", "value")])
@pytest.mark.parametrize("secret", [None, 0, 1, 2])
def test_a_list_is_as_closed_as_any_of_the_parts_of_its_items(order: tuple[str, ...], secret: int | None) -> None:
    parts = {f"p{at}": {**PLAIN, "x-evidence": mark, "title": f"{at}"} for at, mark in enumerate(order)}
    if secret is not None:
        parts[f"p{secret}"]["x-secret"] = True
    schema = {**obj(many={**LIST, "items": obj(**parts)}), "x-evidence": "value"}
    assert shown(schema, {"many": [1]}) == {"/many": "omit" if secret is None else "secret"}


NAMES = ("a/b", "a~b", "~1", "~0", "~01", "a~1b", "/", "~")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_read_from_a_pointer_as_it_is_written_into_one(name: str) -> None:
    """A tilde is written first and read last, or the name ``~1`` becomes a slash."""
    step = name.replace("~", "~0").replace("/", "~1")
    root: Any = {"$defs": {name: SECRET}, **obj(f={"$ref": f"#/$defs/{step}"})}
    assert resolved(root, {"$ref": f"#/$defs/{step}"}) == SECRET
    assert shown(root, {"f": "1"}) == {"/f": "secret"}
    assert secret_names(obj(**{name: SECRET}), {name: "1"}) == (name,)
    output: Any = {"type": "object", "properties": {name: LIST | {"x-written-by": "people"}}, "x-written-by": "system"}
    assert writer_at(output, f"/{step}") is Writer.PEOPLE
    check_marks({**output, "x-records": f"/{step}"}, output=True)


def test_records_are_found_behind_references() -> None:
    pages = {"pages": {"$ref": "#/$defs/pages"}}
    defined = {"pages": {"type": "object", "properties": {"rows": {"$ref": "#/$defs/rows"}}}, "rows": LIST}
    schema: Any = {"type": "object", "properties": pages, "$defs": defined}
    for pointer in ("", "/pages", "/pages/rows"):
        check_marks({**schema, "x-records": pointer}, output=True)
        assert records_of({**schema, "x-records": pointer}) == pointer
    with pytest.raises(ValueError, match="declares no such property"):
        check_marks({**schema, "x-records": "/pages/row"}, output=True)
    assert records_of(schema) is None


@pytest.mark.parametrize("place", ["properties", "items", "additionalProperties"])
def test_whoever_writes_any_part_writes_the_whole(place: str) -> None:
    """A schema may say something of its members, of its items and of other names at once."""
    parts: dict[str, Any] = {"items": {}, "additionalProperties": {}, "properties": {"a": {}, "b": {}}}
    parts[place] = {"a": {}, "b": {"x-written-by": "people"}} if place == "properties" else {"x-written-by": "people"}
    root: Any = {"x-written-by": "system", "type": "object", "properties": {"r": parts, "other": {}}}
    assert [writer_at(root, pointer) for pointer in ("", "/r", "/other")] == [
        Writer.PEOPLE,
        Writer.PEOPLE,
        Writer.SYSTEM,
    ]


def test_a_list_of_what_refers_to_itself_is_walked_to_its_end() -> None:
    node = obj(next={"$ref": "#/$defs/node"}, name=PLAIN, last=SECRET)
    schema = obj(many={**LIST, "items": {"$ref": "#/$defs/node"}}) | {"$defs": {"node": node}}
    assert shown(schema, {"many": [1]}) == {"/many": "secret"}
    del node["properties"]["last"]
    assert shown(schema, {"many": [1]}) == {"/many": "digest"}
    assert secret_names(schema, {"many": [1]}) == ()


@pytest.mark.parametrize("pointer", ["", "/a"])
def test_an_input_has_no_records(pointer: str) -> None:
    schema: Any = {"type": "object", "properties": {"a": LIST}, "x-records": pointer}
    with pytest.raises(ValueError, match="x-records belongs at the top of output_schema"):
        check_marks(schema, output=False)


@pytest.mark.parametrize("keyword", ["const", "enum", "default", "examples"])
@pytest.mark.parametrize("output", [False, True])
def test_a_value_in_a_schema_is_no_schema(keyword: str, output: bool) -> None:
    """Take an example for an example, even if a part of it looks like a mark."""
    for value in ({"x-argument": "no"}, {"x-written-by": "no"}, {"format": "no"}, {"x-records": "no"}):
        check_marks({"type": "object", "properties": {"a": {keyword: [value]}}}, output=output)
        check_marks({"type": "object", "properties": {"a": {keyword: value}}}, output=output)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_of_several_schemas_is_looked_at(place: int) -> None:
    several: list[Any] = [{}, {}, {}]
    for mark, value in (("x-argument", "word"), ("format", "emial"), ("format", "Date")):
        several[place] = {mark: value}
        with pytest.raises(ValueError, match=f"^{mark} is '{value}'"):
            check_marks({"type": "object", "anyOf": several}, output=False)
    several[place] = {"x-secret": True}
    with pytest.raises(ValueError, match="x-evidence, x-secret and x-language belong in"):
        check_keywords({"anyOf": several})
    several[place] = {"$ref": "file.json"}
    with pytest.raises(ValueError, match=r"\$ref 'file.json' leaves the document"):
        check_keywords({"properties": {"a": {"oneOf": several}}})


def test_an_argument_is_of_the_kind_that_is_named_nearest_above_it() -> None:
    rest = [*ArgumentKind][-1]
    inner = {
        "properties": {"own": {"x-argument": "flag"}, "plain": {}},
        "additionalProperties": {"x-argument": str(rest)},
    }
    schema: Any = {"properties": {"deep": {"x-argument": "text", **inner}, "a": {}}}
    assert [
        kind_at(schema, path) for path in (("deep",), ("deep", "own"), ("deep", "plain"), ("deep", "z"), ("a",))
    ] == [
        ArgumentKind.TEXT,
        ArgumentKind.FLAG,
        ArgumentKind.TEXT,
        rest,
        ArgumentKind.VALUE,
    ]


def test_a_language_is_that_of_the_items_and_of_what_the_root_refers_to() -> None:
    html: Any = {"x-language": "html"}
    mrkdwn: Any = {"x-language": "mrkdwn"}
    rows: Any = {"properties": {"rows": {**mrkdwn, "items": {**html, "items": {}}}, "more": {**mrkdwn, "items": {}}}}
    languages = InputLanguages(rows)
    assert [languages.at(path) for path in (("rows",), ("rows", 0), ("rows", 1, 2), ("more", 0))] == [
        Language.MRKDWN,
        Language.HTML,
        Language.HTML,
        Language.MRKDWN,
    ]
    referred = InputLanguages({"$ref": "#/$defs/a", "$defs": {"a": {**html, "properties": {"b": {}}}}})
    assert [referred.at(path) for path in ((), ("b",))] == [Language.HTML, Language.HTML]
    free = InputLanguages({"properties": {"own": {}}, "additionalProperties": html})
    assert [free.at(("own",)), free.at(("other",))] == [None, Language.HTML]
    assert [free.within(("own",)), free.within(("other",)), free.within(())] == [False, True, True]
    assert InputLanguages({"additionalProperties": html}).at(("any",)) is Language.HTML


# Declarations


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reverse": {"operation": "crm.ticket.set", "input": {"a": ["{id}", "{nope}"]}}}, "nothing fills: nope"),
        ({"reverse": {"operation": "crm.ticket.set", "input": {"a": "{id}", "b": "{nope}"}}}, "nothing fills: nope"),
        ({"diff": {}, "reverse": {"operation": "crm.ticket.set", "input": {"a": "{zz}"}}}, "nothing fills: zz"),
        ({"summary": "{id} {input.id}"}, "nothing fills: input.id"),
        ({"summary": "{id|fields.level|nope}"}, "nothing fills: nope"),
        ({"target": "{id} {params.table}"}, "does not declare: params"),
        ({"kind": "durable", "timeouts": {"park": "P1D", "complete": "P2D"}}, "declare one of them"),
        ({"kind": "durable", "timeouts": {"park": "P2D", "complete": "P1D"}}, "declare one of them"),
        ({"kind": "durable", "in_doubt": ...}, "must say how doubt is resolved"),
        ({"side_effects": "internal_db", "in_doubt": ...}, "must say how doubt is resolved"),
        ({"side_effects": "human_process", "in_doubt": ...}, "must say how doubt is resolved"),
        ({"handler": "crmx:set"}, "must belong to the connector 'crm'"),
        ({"output_schema": {}}, "needs `type: object`"),
        ({"input_schema": {"properties": {"id": PLAIN}}}, "needs `type: object`"),
    ],
)
def test_a_declaration_is_refused_wherever_its_fault_stands(changes: dict[str, Any], words: str) -> None:
    base: dict[str, Any] = {
        "name": "crm.ticket.set", "handler": "crm:set", "side_effects": "external_call", "risk": "low",
        "summary": "s", "target": "t", "in_doubt": "ask", "output_schema": {"type": "object"},
        "input_schema": obj(id=PLAIN, fields=obj(level=PLAIN)), "params": {"table": "t", "other": "o"},
    }  # fmt: skip
    whole = {name: value for name, value in (base | changes).items() if value is not ...}
    with pytest.raises(ValueError, match=words):
        Operation.model_validate(whole)
    assert Operation.model_validate(base | {"summary": "{table} {other}", "target": "{other.x}"})


def test_a_field_is_a_list_of_texts_only_if_it_is_a_list() -> None:
    made = declared(input_schema=obj(id=PLAIN, fields=obj(a={**PLAIN, "items": PLAIN}, b={"items": PLAIN})))
    assert made.fact_types() == {"a": "string", "b": "dyn"}


def test_a_handler_and_its_owner_are_told_apart_from_a_name() -> None:
    owned = declared(name="other.system.ticket.set", connector="crm")
    assert (owned.connector, owned.function) == ("crm", "set")
    assert declared(name="crm.a.b.c").connector == "crm"
    assert owned.model_dump(mode="json")["connector"] == "crm"
    assert "connector" not in declared().model_dump(mode="json")


# Actions


def test_only_the_declaration_sets_what_is_fixed() -> None:
    """The input of this declaration is open, and what a caller adds to it does not take the place of a param."""
    forged = build_action(declared(), {**VALUES, "table": "salaries"}, READ)
    assert forged == build_action(declared(), VALUES, READ)
    assert forged.input["table"] == "tickets"
    assert rebuilt_action(declared(), {**VALUES, "table": "salaries"}, READ) == forged
    listed = declared(input_schema={**obj(id=PLAIN, fields=obj()), "additionalProperties": False})
    kept = build_action(listed, {"id": "7", "fields": {}}, None)
    for table in ("tickets", "salaries", None):
        assert rebuilt_action(listed, {**kept.input, "table": table}, None) == kept


def test_what_was_empty_before_is_restored_to_empty() -> None:
    """Keep of the action what was read beside the fields that are written, and do not write it back."""
    before = Before({"level": None, "note": "", "log": "z"}, "")
    action = build_action(declared(), VALUES, before)
    assert action.reverse is not None
    assert action.reverse["input"] == {"id": "7", "fields": {"level": None, "note": ""}, "why": "undo ticket/7"}
    assert (action.reversible, action.before, action.target_version) == (True, before.values, "")
    assert build_action(declared(), VALUES, replace(before, version=None)).target_version is None
    falsy = Before({"level": 0, "note": False}, "0")
    restored: Any = build_action(declared(), VALUES, falsy).reverse
    assert restored["input"]["fields"] == {"level": 0, "note": False}


def test_a_template_keeps_what_is_null_in_it() -> None:
    values: Any = {"a": None, "z": 0, "f": False, "e": "", "l": []}
    template: Any = {"n": None, "a": "{a}", "z": "{z}", "f": "{f}", "e": "{e}", "l": "{l}", "t": ["{a}", None, "{z}"]}
    assert fill(template, values) == {
        "n": None, "a": None, "z": 0, "f": False, "e": None, "l": [], "t": [None, None, 0],
    }  # fmt: skip
    assert fill("{a|e|z}", values) == 0
    assert fill("{zz|f}", values) is False
    assert fill("{z.x|l}", values) == []


@pytest.mark.parametrize(
    ("diff", "read"),
    [
        ({"appended": ["note", "log"]}, ("level",)),
        ({"appended": ["log", "note"]}, ("level",)),
        ({"fields": ["why", "note", "log", "level"], "appended": ["log", "note"]}, ("level", "why")),
        ({"fields": ["z", "a"]}, ("a", "z")),
        ({"fields": ["a", "a"]}, ("a",)),
    ],
)
def test_what_is_appended_is_not_read_first(diff: dict[str, Any], read: tuple[str, ...]) -> None:
    values: Any = {"id": "7", "fields": {"note": "x", "level": "gold", "log": "y"}}
    assert diff_fields(declared(diff=diff), values) == read


@pytest.mark.parametrize("system", ["", "https://a.example"])
@pytest.mark.parametrize("before", [None, Before({"a": 1}, None), Before({"a": 1}, ""), Before({}, "4", {"f": None})])
def test_an_action_is_kept_as_it_was_read(system: str, before: Before | None) -> None:
    action = replace(build_action(declared(), VALUES, READ), system=system)
    read = None if before is None else {"values": before.values, "version": before.version, "facts": before.facts}
    told = {"input": action.input, "target": "ticket/7", "summary": action.summary, "before": read}
    assert action_json(action, before) == (told | {"system": system} if system else told)
