"""An action as it is built from a declaration and an input: whole actions, and the texts and values of its parts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from connectors.operation import Operation
from connectors.port import Before
from connectors.proposal import (
    action_digest,
    build_action,
    diff_fields,
    fill,
    idempotency_key,
    rebuilt_action,
    render,
    versioned_digest,
    writes_of,
)
from core.action import Action, Change, Risk, SideEffects
from core.canonical import JsonObject, digest
from core.errors import InputError

TEXT = {"type": "string"}
FIELDS = {"type": "object", "properties": {"level": TEXT, "note": TEXT, "log": TEXT}}
REVERSE = {"operation": "crm.ticket.set", "input": {"id": "{id}", "fields": "{before}", "why": "undo {target}"}}


def declared(**changes: Any) -> Operation:
    base: dict[str, Any] = {"name": "crm.ticket.set", "handler": "crm:set", "side_effects": "external_call"}
    base |= {"risk": "high", "summary": "Set {id}: {fields} ({facts.name|before.level})", "target": "ticket/{id}"}
    schema = {"type": "object", "required": ["id"], "properties": {"id": TEXT, "fields": FIELDS, "why": TEXT}}
    base |= {"input_schema": schema, "output_schema": {"type": "object"}, "in_doubt": "ask", "writes": "fields"}
    return Operation.model_validate(base | {"reverse": REVERSE, "diff": {}, "params": {"table": "tickets"}} | changes)


VALUES: JsonObject = {"id": "7", "fields": {"level": "gold", "note": "x"}}
READ = Before({"level": "iron", "note": "y"}, "4", {"name": "Acme"})


def test_an_action_is_built_whole() -> None:
    assert build_action(declared(), VALUES, READ) == Action(
        operation="crm.ticket.set",
        input={"id": "7", "fields": {"level": "gold", "note": "x"}, "table": "tickets"},
        fields={"level": "gold", "note": "x"},
        target="ticket/7",
        target_version="4",
        before={"level": "iron", "note": "y"},
        risk=Risk.HIGH,
        side_effects=SideEffects.EXTERNAL_CALL,
        reversible=True,
        summary="Set 7: level, note (Acme)",
        reverse={
            "operation": "crm.ticket.set",
            "input": {"id": "7", "fields": {"level": "iron", "note": "y"}, "why": "undo ticket/7"},
        },
        connector="crm",
        facts=READ.facts,
        labels={},
        shown={"facts.name": "Acme"},
        writers=READ.writers,
    )
    unread = build_action(declared(), VALUES)
    assert (unread.target_version, unread.before, unread.reverse, unread.reversible) == (None, None, None, False)
    assert unread.summary == "Set 7: level, note (?)"
    assert unread.changes == (Change("level", None, "gold"), Change("note", None, "x"))
    same = build_action(declared(), {"id": "7", "fields": {"level": "iron", "note": "x"}}, READ)
    assert same.changes == (Change("note", "y", "x"),)
    owned = build_action(declared(connector="mail", handler="mail:set"), VALUES)
    assert owned.connector == "mail"


@pytest.mark.parametrize(
    ("before", "changes"),
    [
        (None, [("a", None, None), ("b", None, 1), ("c", None, "")]),
        ({}, [("a", None, None), ("b", None, 1), ("c", None, "")]),
        ({"a": None, "b": 1, "c": ""}, []),
        ({"a": "", "b": "1", "c": None, "d": 5}, [("a", "", None), ("b", "1", 1), ("c", None, "")]),
    ],
)
def test_what_was_not_read_may_change_to_anything_even_to_nothing(
    before: JsonObject | None, changes: list[tuple[str, Any, Any]]
) -> None:
    fields: JsonObject = {"a": None, "b": 1, "c": ""}
    action = Action("x.y.z", fields, fields, "t", None, before, Risk.LOW, SideEffects.EXTERNAL_CALL, False, "s")
    assert action.changes == tuple(Change(*one) for one in changes)


@pytest.mark.req("Q-4")
@pytest.mark.parametrize(
    ("changes", "fields", "before", "reversible", "restored"),
    [
        ({}, {"level": "gold"}, READ, True, {"level": "iron"}),
        ({}, {"level": "gold", "log": "x"}, READ, False, {"level": "iron"}),
        ({}, {"log": "x"}, READ, False, None),
        ({}, {}, READ, False, None),
        ({"reverse": None}, {"level": "gold"}, READ, False, None),
        (
            {"diff": {"appended": ["log"], "harmless": ["log"]}},
            {"level": "g", "log": "x"},
            READ,
            True,
            {"level": "iron"},
        ),
        ({"diff": {"appended": ["log"], "harmless": ["log"]}}, {"log": "x"}, READ, True, None),
        ({"diff": {"appended": ["log"], "harmless": ["log"]}}, {"log": "x"}, None, True, None),
        ({"diff": {"appended": ["log"]}}, {"log": "x"}, READ, False, None),
        ({"diff": None}, {"level": "gold"}, None, False, None),
        ({"side_effects": "none", "reverse": None}, {"level": "gold"}, None, True, None),
        ({"side_effects": "internal_db", "reverse": None}, {"level": "gold"}, None, False, None),
    ],
)
def test_what_was_read_can_be_restored(
    changes: dict[str, Any], fields: Any, before: Before | None, reversible: bool, restored: Any
) -> None:
    action = build_action(declared(**changes), {"id": "7", "fields": fields}, before)
    back = {"id": "7", "fields": restored, "why": "undo ticket/7"}
    reverse = None if restored is None else {"operation": "crm.ticket.set", "input": back}
    assert (action.reversible, action.reverse) == (reversible, reverse)


def test_an_input_that_does_not_fit_or_sets_what_is_fixed_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        build_action(declared(), {"fields": {}})
    assert str(caught.value) == "input: 'id' is a required property"
    numbered: Any = {"id": "7", "fields": {1: "x"}}
    with pytest.raises(InputError) as caught:
        build_action(declared(), numbered)
    assert str(caught.value).startswith("input: is not JSON: ")
    kept = build_action(declared(), VALUES, READ)
    forged = rebuilt_action(declared(), kept.input | {"table": "salaries"}, READ)
    assert forged == kept, "only the declaration sets its params"


@pytest.mark.parametrize(("length", "cut"), [(298, False), (299, False), (300, False), (301, True), (302, True)])
def test_a_summary_has_its_longest(length: int, cut: bool) -> None:
    action = build_action(declared(summary="{id}"), {"id": "x" * length})
    assert action.summary == ("x" * 299 + "…" if cut else "x" * length)


@pytest.mark.parametrize(
    ("changes", "written", "read"),
    [
        ({}, {"note": "x", "level": "gold"}, ("level", "note")),
        ({"diff": None}, {"note": "x", "level": "gold"}, ()),
        ({"diff": {"appended": ["note"]}}, {"note": "x", "level": "gold"}, ("level",)),
        ({"diff": {"fields": ["z", "a", "log"], "appended": ["log"]}}, {"note": "x", "level": "gold"}, ("a", "z")),
        ({"writes": ["why", "id"]}, {"id": "7", "why": "w"}, ("id", "why")),
        ({"writes": ["why"]}, {"why": "w"}, ("why",)),
        (
            {"writes": None},
            {"id": "7", "fields": {"note": "x", "level": "gold"}, "why": "w"},
            ("fields", "id", "why"),
        ),
    ],
)
def test_what_is_written_is_read_before(changes: dict[str, Any], written: Any, read: tuple[str, ...]) -> None:
    values: JsonObject = {"id": "7", "fields": {"note": "x", "level": "gold"}, "why": "w"}
    operation = declared(**changes)
    assert (writes_of(operation, values), diff_fields(operation, values)) == (written, read)
    missing = writes_of(operation, {})
    assert missing == {}


WORDS: JsonObject = {"a": "x", "n": 0, "f": False, "e": "", "z": None, "l": [1, "y"], "o": {"k": 1, "m": 2}, "d": {}}


@pytest.mark.parametrize(
    ("template", "filled", "text"),
    [
        ("{a}", "x", "x"),
        ("{n}", 0, "0"),
        ("{f}", False, "false"),
        ("{e}", None, "?"),
        ("{z}", None, "?"),
        ("{nope}", None, "?"),
        ("{l}", [1, "y"], '[1,"y"]'),
        ("{o}", {"k": 1, "m": 2}, "k, m"),
        ("{d}", {}, "?"),
        ("{o.k}", 1, "1"),
        ("{a.b}", None, "?"),
        ("{e|z|n|a}", 0, "0"),
        ("{nope|a}", "x", "x"),
        ("{a}{n}", "x0", "x0"),
        ("<{a}>", "<x>", "<x>"),
        ("plain", "plain", "plain"),
    ],
)
def test_a_placeholder_is_its_first_value(template: str, filled: Any, text: str) -> None:
    assert (fill(template, WORDS), render(template, WORDS)) == (filled, text)
    nested: JsonObject = {"k": [template, 7, None, {"{a}": template}]}
    assert fill(nested, WORDS) == {"k": [filled, 7, None, {"{a}": filled}]}


@pytest.mark.req("Q-14")
def test_a_key_of_a_reference_needs_one() -> None:
    operation = declared(idempotency={"scope": "reference", "key": ["id"]})
    action = build_action(operation, VALUES)
    place = {"tenant": "t", "workflow": "w", "run": "r", "step": "s"}
    for none in (None, ""):
        with pytest.raises(InputError) as caught:
            idempotency_key(operation, action, reference=none, **place)
        words = "crm.ticket.set is idempotent within the run's reference, and this run has none."
        assert str(caught.value) == f"reference: {words} Give the workflow a reference."
    key = idempotency_key(operation, action, reference="INC1", **place)
    other = build_action(operation, {"id": "7", "fields": {"level": "tin"}, "why": "because"})
    assert key == idempotency_key(operation, other, reference="INC1", **place | {"run": "r2", "step": "s2"})
    assert key != idempotency_key(operation, action, reference="INC2", **place)
    tenant = declared(idempotency={"scope": "tenant", "key": ["id"]})
    assert idempotency_key(tenant, action, reference=None, **place) != key


@pytest.mark.req("Q-3")
def test_what_an_approval_binds_is_exactly_this() -> None:
    """Approvals that are stored bind by it: another form of the same would void all of them."""
    action = build_action(declared(), VALUES, READ)
    bound: dict[str, Any] = {
        "asked": {"tier": "high"},
        "before": {"level": "iron", "note": "y"},
        "input": {"id": "7", "fields": {"level": "gold", "note": "x"}, "table": "tickets"},
        "operation": "crm.ticket.set",
        "shown": {"facts.name": "Acme"},
        "target": "ticket/7",
    }
    assert action_digest(action, {"tier": "high"}) == digest(bound)
    assert action_digest(action) == digest(bound | {"asked": None})
    system = replace(action, system="https://a.example")
    assert action_digest(system) == digest(bound | {"asked": None, "system": "https://a.example", "shaped": []})
    shaped = replace(action, shaped=("editor:person:ann",))
    assert action_digest(shaped) == digest(bound | {"asked": None, "system": "", "shaped": ["editor:person:ann"]})
    del bound["shown"]
    assert versioned_digest(action, {"tier": "high"}) == digest(bound | {"target_version": "4"})


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(
    ("idempotency", "hashed"),
    [
        ({}, ["step", "t", "w", "r", "s", "crm.ticket.set", {}]),
        ({"key": ["why", "id"]}, ["step", "t", "w", "r", "s", "crm.ticket.set", {"id": "7", "why": None}]),
        ({"scope": "tenant", "key": ["id"]}, ["tenant", "t", "crm.ticket.set", "ticket/7", {"id": "7"}]),
        (
            {"scope": "tenant"},
            [
                *("tenant", "t", "crm.ticket.set", "ticket/7"),
                {"id": "7", "fields": {"level": "gold", "note": "x"}, "table": "tickets"},
            ],
        ),
        (
            {"scope": "reference", "key": ["id"]},
            ["reference", "t", "INC1", "crm.ticket.set", "ticket/7", {"id": "7"}],
        ),
    ],
)
def test_a_key_of_a_call_is_made_of_exactly_this(idempotency: dict[str, Any], hashed: list[Any]) -> None:
    """A call that was begun before an upgrade is known by its key after it."""
    operation = declared(idempotency=idempotency)
    place = {"tenant": "t", "workflow": "w", "run": "r", "step": "s", "reference": "INC1"}
    assert idempotency_key(operation, build_action(operation, VALUES), **place) == digest(hashed)
