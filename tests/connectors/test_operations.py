from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.catalog import Catalog, Source, catalog_of, load_catalog
from connectors.marks import FORMATS
from connectors.operation import InDoubtRule, Kind, Operation
from connectors.port import Before
from connectors.proposal import action_digest, action_json, build_action, idempotency_key, render
from core.action import Risk, SideEffects
from core.errors import DefinitionError, InputError

NAMES = {
    "servicenow.incident.get",
    "servicenow.incident.query",
    "servicenow.incident.update",
    "servicenow.incident.add_work_note",
    "servicenow.record.get",
    "servicenow.record.query",
    "servicenow.record.update",
    "servicenow.record.create",
    "servicenow.record.delete",
    "slack.message.post",
    "http.request.send",
    "model.chat.complete",
    "bpmn.process.start",
    "bpmn.message.correlate",
    "transform.data.apply",
    "records.put",
    "records.get",
    "records.query",
    "records.delete",
    "agent.tool.call",
}
UPDATE = "servicenow.incident.update"
INCIDENT = "b" * 32


def declaration(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "name": "crm.ticket.set",
        "handler": "crm:set",
        "side_effects": "external_call",
        "risk": "low",
        "summary": "Set {id}",
        "target": "ticket/{id}",
        "in_doubt": "ask",
        "input_schema": {"type": "object", "properties": {"id": {"type": "string"}, "value": {"type": "string"}}},
        "output_schema": {"type": "object"},
    }
    return base | changes


PLACES = {"tenant": "t", "workflow": "w", "run": "r", "step": "s", "reference": "INC1"}


def key_of(operation: Operation, values: dict[str, Any], **context: Any) -> str:
    place = PLACES | context
    return idempotency_key(operation, build_action(operation, values), **place)


def test_the_packaged_operations_are_exactly_these(catalog: Catalog) -> None:
    assert set(catalog.operations) == NAMES


@pytest.mark.req("V-2")
def test_what_has_effects_says_how_doubt_is_resolved(catalog: Catalog) -> None:
    effects = {name: op.in_doubt for name, op in catalog.operations.items() if op.has_effect}
    assert effects == {
        "servicenow.incident.update": InDoubtRule.PROBE,
        "servicenow.incident.add_work_note": InDoubtRule.PROBE,
        "servicenow.record.update": InDoubtRule.PROBE,
        "servicenow.record.create": InDoubtRule.PROBE,
        "servicenow.record.delete": InDoubtRule.PROBE,
        "slack.message.post": InDoubtRule.PROBE,
        "http.request.send": InDoubtRule.ASK,
        "bpmn.process.start": InDoubtRule.PROBE,
        "bpmn.message.correlate": InDoubtRule.ASK,
        "agent.tool.call": InDoubtRule.ASK,
        "records.put": InDoubtRule.IDEMPOTENT,
        "records.delete": InDoubtRule.IDEMPOTENT,
    }
    durable = {name for name, operation in catalog.operations.items() if operation.kind is Kind.DURABLE}
    assert durable == {"bpmn.process.start"}


def test_writes_to_servicenow_outlast_the_transaction_limit(catalog: Catalog) -> None:
    assert catalog.get(UPDATE).timeouts.perform.total_seconds() > 60


def test_an_unknown_operation_names_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(InputError, match=r"Did you mean 'servicenow\.incident\.update'\?"):
        catalog.get("servicenow.incident.updat")
    with pytest.raises(InputError, match="Known here"):
        catalog.get("zzz")


@pytest.mark.req("V-4")
def test_the_digest_changes_with_the_declaration(catalog: Catalog) -> None:
    assert load_catalog().get(UPDATE).digest == catalog.get(UPDATE).digest
    other = Operation.model_validate(declaration(risk="high"))
    assert other.digest != Operation.model_validate(declaration()).digest


def test_fact_types_follow_the_schema(catalog: Catalog) -> None:
    facts = catalog.get(UPDATE).fact_types()
    assert facts["priority"] == "string"
    assert "sys_id" not in facts
    assert catalog.get("servicenow.incident.add_work_note").fact_types() == {"work_notes": "string"}
    properties = {
        "id": {"type": "string"},
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "string"}},
        "m": {"type": "array"},
        "a": {},
    }
    operation = Operation.model_validate(declaration(input_schema={"type": "object", "properties": properties}))
    assert operation.fact_types() == {
        "id": "string",
        "n": "int",
        "x": "double",
        "b": "bool",
        "l": "list<string>",
        "m": "dyn",
        "a": "dyn",
    }


@pytest.mark.req("Q-16")
def test_an_action_is_complete(catalog: Catalog) -> None:
    before = Before({"priority": "3"}, "4", {"number": "INC0010001", "short_description": "Mail is down"})
    action = build_action(catalog.get(UPDATE), {"sys_id": INCIDENT, "fields": {"priority": "1"}}, before)
    assert (action.operation, action.target) == (UPDATE, f"incident/{INCIDENT}")
    assert action.fields == {"priority": "1"}
    assert (action.risk, action.side_effects, action.target_version) == (Risk.MEDIUM, SideEffects.EXTERNAL_CALL, "4")
    assert [(one.field, one.before, one.after) for one in action.changes] == [("priority", "3", "1")]
    assert action.summary == "Update incident INC0010001 (Mail is down): priority"


def test_all_that_a_probe_needs_is_kept_of_an_action(catalog: Catalog) -> None:
    before = Before({"priority": "3"}, "4", {"sys_updated_by": "ana"})
    values: Any = {"sys_id": "a" * 32, "fields": {"priority": "1"}}
    action = build_action(catalog.get("servicenow.incident.update"), values, before)
    read = {"values": {"priority": "3"}, "version": "4", "facts": {"sys_updated_by": "ana"}}
    told = {"input": values, "target": action.target, "summary": action.summary}
    assert action_json(action, before) == {**told, "before": read}
    assert action_json(action, None) == {**told, "before": None}
    assert action_json(replace(action, system="s"), None) == {**told, "before": None, "system": "s"}


@pytest.mark.parametrize(
    ("values", "where", "words"),
    [
        ({"sys_id": INCIDENT, "fields": {"priority": 1}}, "input.fields.priority", "must be text"),
        ({"fields": {"priority": "1"}}, "input", "'sys_id' is a required property"),
        ({"sys_id": "../sys_user/x", "fields": {"priority": "1"}}, "input.sys_id", "must match"),
        ({"sys_id": INCIDENT, "fields": {"sys_created_by": "x"}}, "input.fields", "'sys_created_by'"),
        ({"sys_id": INCIDENT, "fields": {}}, "input.fields", "minProperties"),
        ({"sys_id": INCIDENT, "fields": {"state": "1"}, "x": 1}, "input", "'x' was unexpected"),
    ],
)
def test_a_wrong_input_is_named_by_its_path(catalog: Catalog, values: Any, where: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        build_action(catalog.get(UPDATE), values)
    assert caught.value.where == where
    assert words in caught.value.message


def test_a_wrong_input_is_never_repeated(catalog: Catalog) -> None:
    with pytest.raises(InputError) as caught:
        build_action(
            catalog.get("http.request.send"),
            {"method": "GET", "url": "https://a.example", "headers": {"Authorization": ["Bearer hunter2"]}},
        )
    assert caught.value.where == "input.headers.Authorization"
    assert "hunter2" not in str(caught.value)


@pytest.mark.req("Q-4")
@pytest.mark.req("Q-22")
@pytest.mark.parametrize(
    ("fields", "before", "reversible", "restored"),
    [
        ({"priority": "1"}, {"priority": "3"}, True, {"priority": "3"}),
        ({"priority": "1", "work_notes": "why"}, {"priority": "3"}, True, {"priority": "3"}),
        ({"work_notes": "why"}, {}, True, None),
        ({"priority": "1", "comments": "to the caller"}, {"priority": "3"}, False, {"priority": "3"}),
        ({"priority": "1", "u_new": "x"}, {"priority": "3"}, False, {"priority": "3"}),
    ],
)
def test_what_can_be_undone_and_how(
    catalog: Catalog, fields: Any, before: Any, reversible: bool, restored: Any
) -> None:
    operation, read = catalog.get(UPDATE), Before(before, "4")
    action = build_action(operation, {"sys_id": INCIDENT, "fields": fields}, read)
    assert action.reversible is reversible
    reverse = action.reverse
    if restored is None:
        assert reverse is None
        return
    assert reverse == {"operation": UPDATE, "input": {"sys_id": INCIDENT, "fields": restored}}
    build_action(operation, reverse["input"])


@pytest.mark.req("Q-4")
def test_without_a_pre_read_nothing_is_reversible(catalog: Catalog) -> None:
    operation = catalog.get(UPDATE)
    action = build_action(operation, {"sys_id": INCIDENT, "fields": {"priority": "1"}})
    assert not action.reversible
    assert action.reverse is None
    post = catalog.get("slack.message.post")
    assert not build_action(post, {"channel": "C0OPS", "text": "hi"}).reversible


def test_what_touches_nothing_is_reversible(catalog: Catalog) -> None:
    assert build_action(catalog.get("transform.data.apply"), {"value": [1, {"a": None}]}).reversible


BOUND: dict[str, Any] = {
    "operation": "crm.ticket.put", "input": {"id": "2"}, "target": "ticket/2", "shown": {"facts.name": "x"},
    "before": {"value": "y"}, "system": "https://b.example", "shaped": ("updater:person:ben",),
}  # fmt: skip
FREE: dict[str, Any] = {"summary": "Another summary", "risk": Risk.HIGH, "reversible": True, "target_version": "5"}


@pytest.mark.req("Q-3")
@pytest.mark.parametrize("field", [*BOUND, *FREE])
@pytest.mark.parametrize("system", ["", "https://a.example"])
def test_an_approval_binds_to_whatever_is_performed(field: str, system: str) -> None:
    """Nothing of what people approve can change unseen (promise 3); how it is shown may."""
    values = {"id": "1", "value": "x"}
    action = build_action(Operation.model_validate(declaration()), values, Before({"value": "z"}, "4"))
    action = replace(action, system=system, shaped=("updater:person:ann",) if system else ())
    other = replace(action, **{field: {**BOUND, **FREE}[field]})
    assert (action_digest(action) != action_digest(other)) is (field in BOUND)
    assert action_digest(action) != action_digest(action, {"terms": {}})


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(
    ("scope", "places"),
    [
        ("step", {"tenant", "workflow", "run", "step"}),
        ("reference", {"tenant", "reference"}),
        ("tenant", {"tenant"}),
    ],
)
def test_a_key_tells_apart_what_its_scope_tells_apart(scope: str, places: set[str]) -> None:
    operation = Operation.model_validate(declaration(idempotency={"scope": scope}))
    usual = key_of(operation, {"id": "1"})
    told = {place for place in PLACES if key_of(operation, {"id": "1"}, **{place: "other"}) != usual}
    assert told == places


@pytest.mark.parametrize("scope", ["step", "reference", "tenant"])
@pytest.mark.parametrize("key", [[], ["value"]])
def test_a_key_tells_operations_targets_and_values_apart(scope: str, key: list[str]) -> None:
    """A wider scope compares what is called and of whom; a step is one effect by the key that it declares."""
    idempotency = {"scope": scope, "key": key}
    usual, other = ({"id": "1", "value": "A"}, {"id": "2", "value": "A"})
    operation = Operation.model_validate(declaration(idempotency=idempotency))
    named = Operation.model_validate(declaration(idempotency=idempotency, name="crm.ticket.put"))
    assert key_of(named, usual) != key_of(operation, usual)
    assert (key_of(operation, other) != key_of(operation, usual)) is (scope != "step")
    changed = key_of(operation, {"id": "1", "value": "B"}) != key_of(operation, usual)
    assert changed is (scope != "step" or bool(key))


@pytest.mark.req("Q-2")
def test_setting_a_then_b_then_a_is_three_effects(catalog: Catalog) -> None:
    operation = catalog.get(UPDATE)
    values = [{"sys_id": INCIDENT, "fields": {"priority": priority}} for priority in ("1", "2", "1")]
    keys = {key_of(operation, value, step=f"s{index}") for index, value in enumerate(values)}
    assert len(keys) == 3
    assert key_of(operation, values[0]) == key_of(operation, values[0])


@pytest.mark.req("V-2")
def test_a_wider_scope_makes_the_same_call_one_effect() -> None:
    properties = {"id": {"type": "string"}, "value": {"type": "string"}}
    schema = {"type": "object", "properties": properties}
    by_reference = Operation.model_validate(declaration(idempotency={"scope": "reference"}, input_schema=schema))
    a, b = {"id": "1", "value": "A"}, {"id": "1", "value": "B"}
    assert key_of(by_reference, a, run="r1", step="s1") == key_of(by_reference, a, run="r2", step="s9")
    assert key_of(by_reference, a) != key_of(by_reference, b)
    assert key_of(by_reference, a) != key_of(by_reference, a, reference="INC2")
    assert key_of(by_reference, a) != key_of(by_reference, a, tenant="other")
    with pytest.raises(InputError, match="Give the workflow a reference"):
        key_of(by_reference, a, reference=None)
    keyed = declaration(idempotency={"scope": "tenant", "key": ["id"]}, input_schema=schema)
    by_tenant = Operation.model_validate(keyed)
    assert key_of(by_tenant, a, reference="x") == key_of(by_tenant, b, reference=None)
    assert key_of(by_tenant, a) != key_of(by_tenant, {"id": "2", "value": "A"})


@pytest.mark.req("V-2")
@pytest.mark.parametrize("known", FORMATS)
def test_every_format_that_may_be_declared_is_asserted(known: str) -> None:
    properties = {"id": {"type": "string", "format": known}, "format": {"type": "string", "default": "none"}}
    schema = {"type": "object", "properties": properties}
    operation = Operation.model_validate(declaration(input_schema=schema, output_schema={"type": "object"}))
    assert not operation.input_validator.is_valid({"id": "no {such thing\n" + "("})


def test_scopes_never_share_a_key() -> None:
    keys = {
        key_of(Operation.model_validate(declaration(idempotency={"scope": scope})), {"id": "1"})
        for scope in ("step", "reference", "tenant")
    }
    assert len(keys) == 3


@pytest.mark.req("Q-19")
def test_backoff_grows_with_jitter_and_a_cap() -> None:
    retry = Operation.model_validate(declaration()).retry
    assert [retry.delay_seconds(attempt, chance=0.5) for attempt in (1, 2, 3, 4, 9)] == [5, 30, 120, 600, 600]
    assert retry.delay_seconds(1, chance=0.0) == pytest.approx(4)
    assert retry.delay_seconds(1, chance=1.0) == pytest.approx(6)
    assert retry.delay_seconds(4, chance=1.0) == 600


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"handler": "other:set"}, "must belong to the connector 'crm'"),
        ({"writes": "value"}, "not an object property"),
        ({"target": "ticket/{nope}"}, "does not declare: nope"),
        ({"summary": "{nope}"}, "placeholders that nothing fills: nope"),
        ({"input_schema": {"type": "array"}}, "needs `type: object`"),
        ({"input_schema": {"type": "object", "properties": {"id": {"type": "strng"}}}}, "not a JSON Schema"),
        ({"output_schema": {"type": "object", "x-evidence": "show"}}, "x-evidence is 'show'"),
        ({"output_schema": {"type": "object", "allOf": [{"x-secret": True}]}}, "belong in properties"),
        ({"output_schema": {"type": "object", "$ref": "https://evil.example/s"}}, "leaves the document"),
        ({"input_schema": {"type": "object", "properties": {"id": {"format": "emial"}}}}, "format is 'emial'"),
        ({"output_schema": {"type": "object", "properties": {"a": {"format": "uuid"}}}}, "asserts nothing in output"),
        ({"diff": {"harmless": ["a"]}}, "harmless names fields that are not in appended"),
        ({"reverse": {"operation": "crm.ticket.unset", "input": {}}}, "does not exist"),
        ({"retry": {"attempts": 0}}, "attempts"),
        ({"timeouts": {"perform": "soon"}}, "timeouts.perform"),
        ({"colour": "red"}, "unknown key 'colour'"),
    ],
)
@pytest.mark.req("V-2")
def test_a_wrong_declaration_is_refused_with_its_place(changes: Any, words: str) -> None:
    text = json.dumps({"operations": [declaration(**changes)]}, indent=1)
    with pytest.raises(DefinitionError) as caught:
        catalog_of([Source("crm.yaml", text)])
    assert words in str(caught.value)
    assert all(problem.file == "crm.yaml" and problem.line > 0 for problem in caught.value.problems)


_SAME = "extend_to is not later than park: nothing could be put off."


def test_effects_without_a_rule_for_doubt_are_refused() -> None:
    wrong = declaration()
    del wrong["in_doubt"]
    with pytest.raises(ValueError, match="in_doubt"):
        Operation.model_validate(wrong)


def test_an_extra_document_adds_and_never_replaces(catalog: Catalog) -> None:
    added = load_catalog([Source("crm.yaml", json.dumps({"operations": [declaration()]}))])
    assert set(added.operations) == NAMES | {"crm.ticket.set"}
    again = json.dumps({"operations": [declaration(name="slack.message.post", handler="slack:post")]})
    with pytest.raises(DefinitionError, match=r"declared in connectors/slack/operations\.yaml already"):
        load_catalog([Source("mine.yaml", again)])


def test_rendering_never_fails_and_never_reads_values_as_templates() -> None:
    values: dict[str, Any] = {"a": "{b}", "b": {"c": 1, "d": None}, "e": [1, "x"], "n": ""}
    assert render("{a} {b} {b.c} {b.d} {e} {zz} {n|b.c} {", values) == '{b} c, d 1 ? [1,"x"] ? 1 {'


def test_a_long_summary_shows_that_it_goes_on(catalog: Catalog) -> None:
    action = build_action(catalog.get("slack.message.post"), {"channel": "C0OPS", "text": "x" * 1000})
    assert len(action.summary) == 300
    assert action.summary.endswith("…")
