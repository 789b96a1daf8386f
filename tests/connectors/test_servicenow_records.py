"""Making and removing records of an instance that drops answers, conditions and values without a word."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from connectors.port import Before, Call, Done, InDoubt, NotSent, ProbeVerdict, Refused
from connectors.proposal import build_action, unchanged
from connectors.servicenow.client import BasicAuth, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from core.errors import InputError
from sandbox.faults import Effect, Fault, FaultKind
from sandbox.servicenow import ServiceNow
from sandbox.servicenow_access import INTEGRATION_USER, AclRule, FieldRule
from sandbox.world import SandboxConfig, sandbox_world
from tests.support.calls import packaged

pytestmark = pytest.mark.req("promise 2")

KEY = "7" * 64
CREATE, DELETE = "servicenow.record.create", "servicenow.record.delete"
MADE = {"table": "incident", "fields": {"short_description": "new", "urgency": "2", "work_notes": "why"}}
GOES = {"table": "incident", "sys_id": "old"}
CORRELATION = "correlation_id"


@pytest.fixture
async def instance() -> AsyncIterator[ServiceNow]:
    async with sandbox_world(SandboxConfig()) as world:
        row = {"number": "INC7", "sys_mod_count": "4", "short_description": "bad", "comments": "c", CORRELATION: "x"}
        world.servicenow.state.seed("incident", {"sys_id": "other"})  # a table without any record proves nothing
        world.servicenow.state.seed("incident", {"sys_id": "old", **row})
        yield world.servicenow


@pytest.fixture
def connector(instance: ServiceNow, closing: Callable[[Any], Any]) -> ServiceNowConnector:
    settings = ServiceNowSettings(instance.url, BasicAuth(INTEGRATION_USER, "sandbox"))
    made: ServiceNowConnector = closing(ServiceNowConnector(settings))
    return made


def call(name: str, values: Any, before: Before | None = None) -> Call:
    return Call(name, values, KEY, 5.0, before, declared=packaged().get(name))


def writes(instance: ServiceNow) -> list[str]:
    return [write.operation for write in instance.state.writes("incident", user=INTEGRATION_USER)]


FAULTS = [
    Fault("/table/incident", kind, effect, "*", status=status)
    for kind, status in ((FaultKind.RESET, 500), (FaultKind.STATUS, 503))
    for effect in Effect
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: f"{one.kind}-{one.effect}")
@pytest.mark.parametrize(("name", "values", "verb"), [(CREATE, MADE, "insert"), (DELETE, GOES, "delete")])
async def test_a_lost_answer_is_found_out_and_nothing_is_done_twice(
    instance: ServiceNow, connector: ServiceNowConnector, name: str, values: Any, verb: str, fault: Fault
) -> None:
    before = await connector.read_before(call(name, values))
    assert isinstance(before, Before)
    once = call(name, values, before)
    method = "POST" if verb == "insert" else "DELETE"
    instance.faults.inject(Fault(fault.path, fault.kind, fault.effect, method, status=fault.status))
    assert isinstance(await connector.perform(once), InDoubt)
    early = await connector.probe(once, seconds_since_intent=20)
    late = await connector.probe(once, seconds_since_intent=61)
    if fault.effect is Effect.LANDED:
        assert (early.verdict, late.verdict) == (ProbeVerdict.APPLIED, ProbeVerdict.APPLIED)
    else:
        assert (early.verdict, late.verdict) == (ProbeVerdict.CANNOT_TELL, ProbeVerdict.NOT_APPLIED)
        assert early.retry_after_seconds == pytest.approx(41)
    first, second = await connector.perform(once), await connector.perform(once)
    assert (isinstance(first, Done), isinstance(second, Done), writes(instance)) == (True, True, [verb])


async def test_a_record_that_is_made_bears_its_key_and_the_oldest_of_copies_is_it(
    instance: ServiceNow, connector: ServiceNowConnector
) -> None:
    done = await connector.perform(call(CREATE, MADE))
    assert isinstance(done, Done)
    (write,) = instance.state.writes("incident")
    assert (write.changes[CORRELATION], done.external_id) == (("", KEY), f"{write.sys_id}@0")
    assert (done.altered, done.output["sys_id"]) == ({}, write.sys_id)
    instance.state.seed("incident", {"sys_id": "copy", CORRELATION: KEY, "sys_created_on": "2099-01-01 00:00:00"})
    probe = await connector.probe(call(CREATE, MADE), seconds_since_intent=1)
    assert probe.done is not None
    assert probe.done.output["sys_id"] == write.sys_id


@pytest.mark.parametrize(("operation", "ends"), [("read", "not_correlated"), ("write", "altered")])
async def test_an_instance_that_drops_the_key_makes_no_second_record(
    instance: ServiceNow, connector: ServiceNowConnector, operation: str, ends: str
) -> None:
    """A condition on a field that is hidden selects everything, and a value for a protected one is dropped."""
    instance.access.fields = (FieldRule("incident", CORRELATION, operation),)
    outcome = await connector.perform(call(CREATE, MADE))
    if ends == "altered":
        assert isinstance(outcome, Done)
        assert [*outcome.altered] == [CORRELATION], "people have to know: it is not found again"
    else:
        assert isinstance(outcome, Refused)
        assert outcome.code == ends
    probe = await connector.probe(call(CREATE, MADE), seconds_since_intent=99)
    assert (probe.verdict, len(writes(instance))) == (ProbeVerdict.CANNOT_TELL, int(ends == "altered")), probe


def test_the_field_with_the_key_is_nobody_elses() -> None:
    for more in ({}, {"correlate_by": "urgency"}):
        fields = {"short_description": "x", str(more.get("correlate_by", CORRELATION)): "y"}
        with pytest.raises(InputError, match="found again"):
            build_action(packaged().get(CREATE), {"table": "incident", "fields": fields, **more})


async def test_all_that_goes_is_read_and_would_be_made_again(
    instance: ServiceNow, connector: ServiceNowConnector
) -> None:
    before = await connector.read_before(call(DELETE, GOES))
    assert isinstance(before, Before)
    action = build_action(packaged().get(DELETE), GOES, before)
    assert [(one.field, one.before, one.after) for one in action.changes] == [("short_description", "bad", None)]
    again: Any = {"table": "incident", "fields": {"short_description": "bad"}, "restores": "old"}
    assert (action.reversible, action.reverse) == (True, {"operation": CREATE, "input": again})
    restoring = await connector.read_before(call(CREATE, again))
    assert isinstance(restoring, Refused)
    assert (restoring.code, unchanged(packaged().get(DELETE), action, before)) == ("changed_since", None)
    done = await connector.perform(call(DELETE, GOES, before))
    assert isinstance(done, Done)
    assert (done.output, done.external_id) == ({"sys_id": "old", "number": "INC7", "deleted": True}, "old@4")
    gone = await connector.read_before(call(DELETE, GOES))
    assert isinstance(gone, Before)
    empty = build_action(packaged().get(DELETE), GOES, gone)
    nothing = {"sys_id": "old", "deleted": False}
    assert (unchanged(packaged().get(DELETE), empty, gone), empty.reverse) == (nothing, None)
    assert isinstance(await connector.read_before(call(CREATE, again)), Before)


@pytest.mark.parametrize("case", ["version", "changed", "kept", "hidden record", "hidden table", "no right"])
async def test_nothing_is_deleted_nor_said_to_be(
    instance: ServiceNow, connector: ServiceNowConnector, case: str
) -> None:
    before = await connector.read_before(call(DELETE, GOES))
    assert isinstance(before, Before)
    values, code = {**GOES, **({"if_version": "3"} if case == "version" else {})}, {
        "version": "version_conflict", "kept": "not_deleted", "no right": "forbidden",
    }.get(case, "not_found")  # fmt: skip
    if case == "changed":
        instance.state.update("incident", "old", {"urgency": "1"}, "ana.lee")
    instance.keeps = lambda _: case == "kept"
    instance.hides = lambda row: case == "hidden record" and row["sys_id"] == "old"
    rights = {"hidden table": "read", "no right": "delete"}
    instance.access.acl = (AclRule("incident", rights[case]),) if case in rights else ()
    outcome = await connector.perform(call(DELETE, values, before))
    if case == "changed":
        assert isinstance(outcome, NotSent), "it is read and judged anew"
    else:
        assert isinstance(outcome, Refused)
        assert outcome.code == code
    assert writes(instance) == []
    if case.startswith("hidden"):
        assert isinstance(await connector.read_before(call(DELETE, values)), Refused)
        probe = await connector.probe(call(DELETE, values, before), seconds_since_intent=99)
        assert probe.verdict is ProbeVerdict.CANNOT_TELL
