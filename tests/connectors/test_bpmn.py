"""The bpmn connector against the stand-in engine, which runs real BPMN models, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import structs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog, catalog_of
from connectors.catalog import Source as Declarations
from connectors.operation import Kind
from connectors.port import (
    CompletionSource,
    Done,
    DurableConnector,
    InDoubt,
    NotSent,
    Outcome,
    Parked,
    Probe,
    ProbeVerdict,
    Refused,
)
from connectors.proposal import build_action
from core.errors import ConfigurationError, InputError, TransportError
from sandbox.bpmn import Bpmn
from sandbox.bpmn_config import BpmnConfig
from sandbox.bpmn_state import Instance
from sandbox.faults import Effect, Fault, FaultKind
from sandbox.server import LoopbackServer
from tests.support.calls import Call

START = "bpmn.process.start"
CORRELATE = "bpmn.message.correlate"
MODEL = "document-request"
LONG_AFTER = 3600.0


@dataclass
class FakeEngine:
    """The stand-in, a clock that the test moves, and what people do at the engine."""

    moment: list[float] = field(default_factory=lambda: [1_800_000_000.0])

    def __post_init__(self) -> None:
        self.bpmn = Bpmn(BpmnConfig(clock=lambda: self.moment[0]))

    @property
    def settings(self) -> BpmnSettings:
        return BpmnSettings(f"{self.bpmn.url}/engine-rest", "counterseal", "sandbox")

    @property
    def instances(self) -> list[Instance]:
        return list(self.bpmn.state.instances.values())

    def fail(self, path: str, kind: int | FaultKind, effect: Effect, method: str = "POST") -> None:
        status = kind if isinstance(kind, int) else 500
        kind = FaultKind.STATUS if isinstance(kind, int) else kind
        self.bpmn.faults.inject(Fault(path, kind, effect, method, status=status))

    def upload(self, instance: Instance, **variables: object) -> None:
        [task] = instance.user_tasks()
        self.bpmn.state.complete_user_task(task.activity_id, variables)


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    engine = FakeEngine()
    async with LoopbackServer(engine.bpmn.app) as server:
        engine.bpmn.url = server.url
        yield engine
        await engine.bpmn.close()


Build = Callable[..., BpmnConnector]


@pytest.fixture
def build(catalog: Catalog, closing: Callable[[Any], Any], engine: FakeEngine) -> Build:
    def make(**changes: Any) -> BpmnConnector:
        connector: BpmnConnector = closing(BpmnConnector(replace(engine.settings, **changes)))
        return connector

    return make


@pytest.fixture
def connector(build: Build) -> BpmnConnector:
    return build()


def start_call(process: str = MODEL, *, key: str | None = None, timeout: float = 60.0, **variables: Any) -> Call:
    values = {"process": process, "variables": variables}
    return Call(START, values, "0" * 64, timeout, None, key or str(uuid.uuid4()))


def message_call(values: dict[str, Any]) -> Call:
    return Call(CORRELATE, {"message": "client-withdrew", **values}, "0" * 64, 60.0)


async def parked(connector: BpmnConnector, call: Call) -> str:
    outcome = await connector.perform(call)
    assert isinstance(outcome, Parked)
    assert outcome.external_id is not None
    return outcome.external_id


# Declarations


@pytest.mark.req("V-2")
def test_starting_a_process_is_declared_durable(catalog: Catalog) -> None:
    operation = catalog.get(START)
    assert operation.kind is Kind.DURABLE
    assert operation.timeouts.complete.days == 7
    shown = operation.model_dump(mode="json")
    assert (shown["side_effects"], shown["in_doubt"], shown["timeouts"]["complete"]) == (
        "human_process",
        "probe",
        "P7D",
    )
    action = build_action(operation, {"process": MODEL, "variables": {"client": "Acme", "pages": [1]}})
    assert (action.summary, action.target) == (f"Start the process {MODEL}", f"process/{MODEL}")
    assert not action.reversible


@pytest.mark.req("V-2")
def test_how_long_a_durable_operation_may_take_is_declared() -> None:
    text = """
operations:
  - {name: bpmn.documents.request, kind: durable, handler: "bpmn:start", side_effects: human_process, risk: low,
     summary: Ask, target: x, in_doubt: probe, timeouts: {complete: P14D},
     input_schema: {type: object}, output_schema: {type: object}}
"""
    [operation] = catalog_of([Declarations("extra.yaml", text)]).operations.values()
    assert operation.timeouts.complete.days == 14


@pytest.mark.parametrize(
    ("operation", "values"),
    [
        (START, {}),
        (START, {"process": "../engine"}),
        (START, {"process": MODEL, "variables": {"counterseal_callback_url": "http://evil.example"}}),
        (START, {"process": MODEL, "variables": {"not a name": 1}}),
        (START, {"process": MODEL, "variables": {"text": "x" * 4001}}),
        (CORRELATE, {"message": "client-withdrew"}),
    ],
)
def test_inputs_that_the_engine_could_not_take_are_refused(catalog: Catalog, operation: str, values: Any) -> None:
    with pytest.raises(InputError):
        build_action(catalog.get(operation), values)


async def test_it_is_a_durable_connector_and_a_source_of_completions(connector: BpmnConnector) -> None:
    assert isinstance(connector, DurableConnector)
    assert isinstance(connector, CompletionSource)


# Starting


@pytest.mark.req("V-15")
@pytest.mark.req("V-9")
async def test_a_process_starts_with_the_correlation_key_as_its_business_key(
    connector: BpmnConnector, engine: FakeEngine
) -> None:
    values = {"text": "Zoë", "yes": True, "n": 7, "big": 2**40, "ratio": 0.5, "none": None, "list": [1, {"a": "b"}]}
    call = start_call(**values)
    external_id = await parked(connector, call)
    [instance] = engine.instances
    assert (instance.instance_id, instance.business_key) == (external_id, call.correlation_key)
    assert instance.execution.variables == {**values, "counterseal_correlation_key": call.correlation_key}
    assert [task.name for task in instance.user_tasks()] == ["Upload document"]


@pytest.mark.req("V-9")
async def test_starting_twice_is_one_process(connector: BpmnConnector, engine: FakeEngine) -> None:
    call = start_call()
    assert await parked(connector, call) == await parked(connector, call)
    assert len(engine.instances) == 1
    await parked(connector, start_call())
    assert len(engine.instances) == 2


@pytest.mark.req("V-9")
async def test_a_process_that_has_ended_is_not_started_again(connector: BpmnConnector, engine: FakeEngine) -> None:
    call = start_call()
    external_id = await parked(connector, call)
    engine.bpmn.state.delete(external_id)
    assert await parked(connector, call) == external_id
    assert len(engine.instances) == 1


@pytest.mark.req("V-9")
@pytest.mark.parametrize("effect", [Effect.LOST, Effect.LANDED])
@pytest.mark.parametrize("kind", [FaultKind.RESET, FaultKind.HANG, 500, 503])
async def test_a_start_whose_answer_is_lost_ends_as_one_process(
    connector: BpmnConnector, engine: FakeEngine, kind: int | FaultKind, effect: Effect
) -> None:
    engine.fail("/start$", kind, effect)
    call = start_call(timeout=0.3 if kind is FaultKind.HANG else 60.0)
    assert isinstance(await connector.perform(call), InDoubt)
    again = structs.replace(call, timeout_seconds=60.0)
    verdict = (await connector.probe(again, seconds_since_intent=LONG_AFTER)).verdict
    assert verdict is (ProbeVerdict.APPLIED if effect is Effect.LANDED else ProbeVerdict.NOT_APPLIED)
    external_id = await parked(connector, again)
    assert [instance.instance_id for instance in engine.instances] == [external_id]


async def test_a_key_that_a_called_process_or_another_model_has_is_not_ours(
    connector: BpmnConnector, engine: FakeEngine
) -> None:
    call = start_call()
    engine.bpmn.state.start("document-request-callback", call.correlation_key, {})
    external_id = await parked(connector, call)
    assert engine.instances[1].instance_id == external_id
    queries = engine.bpmn.faults.count("process-instance$", "GET")
    assert queries == 2


async def test_the_engine_allows_what_the_connector_does_not(connector: BpmnConnector, engine: FakeEngine) -> None:
    call = start_call()
    first = engine.bpmn.state.start(MODEL, call.correlation_key, {})
    engine.bpmn.state.start(MODEL, call.correlation_key, {})
    assert await parked(connector, call) == first.instance_id
    assert len(engine.instances) == 2


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (start_call("no-such-process"), "not_found", "No matching process definition with key: no-such-process"),
        (start_call(text="x" * 4001), "invalid_variable", "holds 4001 characters"),
        (structs.replace(start_call(), correlation_key=None), "no_correlation_key", "needs a correlation key"),
        (structs.replace(start_call(), input={}), "no_process", "names no process"),
    ],
)
async def test_starts_that_are_refused(
    connector: BpmnConnector, engine: FakeEngine, call: Call, code: str, words: str
) -> None:
    outcome = await connector.perform(call)
    assert isinstance(outcome, Refused)
    assert outcome.code == code
    assert words in outcome.message
    assert engine.instances == []


async def test_wrong_credentials_are_refused_everywhere(build: Build, engine: FakeEngine) -> None:
    connector, call = build(password="wrong"), start_call()
    outcome = await connector.perform(call)
    assert isinstance(outcome, Refused)
    assert outcome.code == "unauthorized"
    assert isinstance(await connector.cancel(call, "x"), Refused)
    assert (await connector.probe(call, seconds_since_intent=LONG_AFTER)).verdict is ProbeVerdict.CANNOT_TELL
    well, words = await connector.check()
    assert not well
    assert "COUNTERSEAL_BPMN_URL" in words
    with pytest.raises(TransportError, match="401"):
        await connector.completions(wait_seconds=0)


async def test_an_engine_that_is_away_was_sent_nothing(build: Build, closed_url: str) -> None:
    connector, call = build(url=f"{closed_url}/engine-rest"), start_call()
    assert isinstance(await connector.perform(call), NotSent)
    assert isinstance(await connector.cancel(call, "x"), NotSent)
    probe = await connector.probe(call, seconds_since_intent=LONG_AFTER)
    assert probe.verdict is ProbeVerdict.CANNOT_TELL
    assert probe.retry_after_seconds is not None
    with pytest.raises(TransportError, match="cannot be fetched"):
        await connector.completions(wait_seconds=0)


async def test_an_address_without_an_engine_is_no_proof_of_anything(build: Build, engine: FakeEngine) -> None:
    external_id = await parked(build(), start_call())
    connector = build(url=f"{engine.bpmn.url}/elsewhere")
    for outcome in (await connector.perform(start_call()), await connector.cancel(start_call(), external_id)):
        assert isinstance(outcome, Refused)
        assert outcome.code == "no_engine"
        assert "check COUNTERSEAL_BPMN_URL" in outcome.message
    well, _ = await connector.check()
    assert not well


async def test_a_query_that_cannot_be_made_starts_nothing(connector: BpmnConnector, engine: FakeEngine) -> None:
    engine.fail("/history/process-instance", 500, Effect.LOST, "GET")
    outcome: Outcome = await connector.perform(start_call())
    assert isinstance(outcome, NotSent)
    assert engine.instances == []


STRANGER = '[{"id": "stranger", "businessKey": "other"}]'


@pytest.mark.parametrize(
    ("found", "started", "expected"),
    [
        (STRANGER, '{"id": "new"}', Parked("new")),
        ("{}", '{"id": "new"}', NotSent("the BPMN engine answered without a list of processes")),
        ("[]", "{}", InDoubt("the BPMN engine answered the start of a process without its id")),
        ("[]", "<html>log in</html>", InDoubt),
        ("<html>log in</html>", '{"id": "new"}', NotSent),
    ],
)
async def test_answers_that_an_engine_would_not_give_prove_nothing(
    build: Build, found: str, started: str, expected: Any
) -> None:
    async def answer(request: Request) -> Response:
        assert "authorization" not in request.headers
        return Response(found if request.method == "GET" else started, media_type="application/json")

    async with LoopbackServer(Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])) as server:
        outcome = await build(url=server.url, username=None, password=None).perform(start_call())
    assert outcome == expected if not isinstance(expected, type) else isinstance(outcome, expected)


async def test_the_check_says_what_can_be_seen(connector: BpmnConnector) -> None:
    assert await connector.check() == (True, "reachable and authorised; 2 process definitions can be seen")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": "bpm.example"}, "COUNTERSEAL_BPMN_URL"),
        ({"username": None}, "only one of them is set"),
        ({"callback_url": "counterseal"}, "COUNTERSEAL_BPMN_CALLBACK_URL"),
    ],
)
async def test_settings_that_cannot_work_are_said(
    engine: FakeEngine, catalog: Catalog, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        BpmnConnector(replace(engine.settings, **changes))


# Probing


@pytest.mark.req("V-9")
async def test_a_process_that_is_not_there_may_still_be_about_to_start(connector: BpmnConnector) -> None:
    call = start_call()
    early = await connector.probe(call, seconds_since_intent=10)
    assert (early.verdict, early.retry_after_seconds) == (ProbeVerdict.CANNOT_TELL, 51.0)
    late = await connector.probe(call, seconds_since_intent=61)
    assert late.verdict is ProbeVerdict.NOT_APPLIED
    assert str(call.correlation_key) in late.evidence


async def test_what_is_there_is_found_whether_it_runs_or_has_ended(
    connector: BpmnConnector, engine: FakeEngine
) -> None:
    call = start_call()
    external_id = await parked(connector, call)
    running = await connector.probe(call, seconds_since_intent=0)
    assert (running.verdict, running.done) == (ProbeVerdict.APPLIED, Done({}, external_id))
    assert "ACTIVE" in running.evidence
    engine.bpmn.state.delete(external_id)
    ended: Probe = await connector.probe(call, seconds_since_intent=0)
    assert ended.done == Done({}, external_id)
    assert "EXTERNALLY_TERMINATED" in ended.evidence


# Canceling


@pytest.mark.req("V-15")
async def test_canceling_ends_the_process_once(connector: BpmnConnector, engine: FakeEngine) -> None:
    call = start_call()
    external_id = await parked(connector, call)
    assert await connector.cancel(call, external_id) == Done({"canceled": [external_id]}, external_id)
    assert engine.instances[0].state == "EXTERNALLY_TERMINATED"
    assert await connector.cancel(call, external_id) == Done({"canceled": []}, external_id)


async def test_canceling_what_was_never_started_or_is_known_by_its_key_alone(
    connector: BpmnConnector, engine: FakeEngine
) -> None:
    call = start_call()
    assert await connector.cancel(call, None) == Done({"canceled": []}, None)
    assert await connector.cancel(call, "unknown") == Done({"canceled": []}, "unknown")
    external_id = await parked(connector, call)
    duplicate = engine.bpmn.state.start(MODEL, call.correlation_key, {})
    outcome = await connector.cancel(call, None)
    assert outcome == Done({"canceled": [external_id, duplicate.instance_id]}, external_id)
    assert not list(engine.bpmn.state.running())


async def test_a_cancel_whose_answer_is_lost_can_be_repeated(connector: BpmnConnector, engine: FakeEngine) -> None:
    call = start_call()
    external_id = await parked(connector, call)
    engine.fail("/process-instance/", FaultKind.RESET, Effect.LANDED, "DELETE")
    assert isinstance(await connector.cancel(call, external_id), InDoubt)
    assert isinstance(await connector.cancel(call, external_id), Done)


# Completions


@pytest.mark.req("V-15")
async def test_an_uploaded_document_completes_the_wait_once(connector: BpmnConnector, engine: FakeEngine) -> None:
    call = start_call(client="Acme")
    await parked(connector, call)
    engine.upload(engine.instances[0], complete=True, pages=[{"n": 1}])
    [completion] = await connector.completions(wait_seconds=0)
    assert completion.correlation_key == call.correlation_key
    assert completion.output == {"client": "Acme", "complete": True, "pages": [{"n": 1}]}
    assert completion.error is None
    assert await connector.completions(wait_seconds=0) == []
    await connector.acknowledge(completion)
    assert engine.instances[0].state == "COMPLETED"
    engine.moment[0] += 61
    assert await connector.completions(wait_seconds=0) == []
    await connector.acknowledge(completion)


@pytest.mark.req("V-15")
async def test_what_is_not_acknowledged_is_said_again_to_any_worker(build: Build, engine: FakeEngine) -> None:
    await parked(build(), start_call())
    engine.upload(engine.instances[0], complete=True)
    first = await build().completions(wait_seconds=0)
    engine.moment[0] += 59
    assert await build().completions(wait_seconds=0) == []
    engine.moment[0] += 2
    assert await build().completions(wait_seconds=0) == first
    await build().acknowledge(first[0])
    assert engine.instances[0].state == "COMPLETED"


@pytest.mark.req("V-15")
async def test_a_rejected_document_is_an_error(connector: BpmnConnector, engine: FakeEngine) -> None:
    call = start_call()
    await parked(connector, call)
    engine.upload(engine.instances[0], complete=False)
    [completion] = await connector.completions(wait_seconds=0)
    assert completion.correlation_key == call.correlation_key
    assert completion.error == {"code": "process_error", "message": "The document is incomplete"}
    assert completion.output is None


@pytest.mark.parametrize("reported", [True, 7, ""])
async def test_an_error_that_is_no_text_is_an_error_nevertheless(
    connector: BpmnConnector, engine: FakeEngine, reported: object
) -> None:
    await parked(connector, start_call())
    engine.upload(engine.instances[0], complete=True, counterseal_error=reported)
    [completion] = await connector.completions(wait_seconds=0)
    assert completion.error == {"code": "process_error", "message": "the process reported an error without a text"}


async def test_an_error_that_is_null_is_none(connector: BpmnConnector, engine: FakeEngine) -> None:
    await parked(connector, start_call())
    engine.upload(engine.instances[0], complete=True, counterseal_error=None)
    [completion] = await connector.completions(wait_seconds=0)
    assert completion.output == {"complete": True}


async def test_a_long_poll_answers_as_soon_as_there_is_something(connector: BpmnConnector, engine: FakeEngine) -> None:
    await parked(connector, start_call())
    polling = asyncio.create_task(connector.completions(wait_seconds=30))
    await engine.bpmn.faults.until(lambda: engine.bpmn.faults.count("fetchAndLock"))
    assert not polling.done()
    engine.upload(engine.instances[0], complete=True)
    async with asyncio.timeout(60):
        assert len(await polling) == 1


async def test_a_long_poll_ends_without_anything(connector: BpmnConnector) -> None:
    assert await connector.completions(wait_seconds=0.05) == []


async def test_an_output_that_cannot_be_recorded_names_what_is_missing(
    connector: BpmnConnector, engine: FakeEngine
) -> None:
    for value in (["x" * 300_000], 2**60):
        call = start_call()
        await parked(connector, call)
        engine.upload(engine.instances[-1], complete=True, value=value)
        [completion] = await connector.completions(wait_seconds=0)
        assert completion.correlation_key == call.correlation_key
        assert completion.error is None
        assert "$not_kept" in str(completion.output)
        await connector.acknowledge(completion)


async def test_a_strangers_process_becomes_an_incident_of_the_engine(
    connector: BpmnConnector, engine: FakeEngine
) -> None:
    stranger = engine.bpmn.state.start(MODEL, None, {})
    engine.upload(stranger, complete=True)
    assert await connector.completions(wait_seconds=0) == []
    [task] = stranger.external.values()
    assert task.retries == 0
    assert "no business key" in task.error_message
    engine.moment[0] += 3600
    assert await connector.completions(wait_seconds=0) == []


async def test_a_process_without_business_key_may_have_inherited_ours(
    connector: BpmnConnector, engine: FakeEngine
) -> None:
    called = engine.bpmn.state.start(MODEL, None, {"counterseal_correlation_key": "k-1"})
    engine.upload(called, complete=True)
    [completion] = await connector.completions(wait_seconds=0)
    assert completion.correlation_key == "k-1"


async def test_whoever_completes_a_user_task_cannot_choose_whose_wait_ends(
    connector: BpmnConnector, engine: FakeEngine
) -> None:
    call = start_call()
    await parked(connector, call)
    engine.upload(engine.instances[0], complete=True, counterseal_correlation_key="somebody-else")
    [completion] = await connector.completions(wait_seconds=0)
    assert completion.correlation_key == call.correlation_key


async def test_another_topic_is_not_ours(build: Build, engine: FakeEngine) -> None:
    await parked(build(), start_call())
    engine.upload(engine.instances[0], complete=True)
    assert await build(topic="elsewhere").completions(wait_seconds=0) == []


@pytest.mark.parametrize("kind", [FaultKind.RESET, 500])
async def test_an_acknowledgement_that_fails_is_said(
    connector: BpmnConnector, engine: FakeEngine, kind: int | FaultKind
) -> None:
    await parked(connector, start_call())
    engine.upload(engine.instances[0], complete=True)
    [completion] = await connector.completions(wait_seconds=0)
    engine.fail("/complete$", kind, Effect.LANDED)
    with pytest.raises(TransportError, match="cannot be completed"):
        await connector.acknowledge(completion)
    await connector.acknowledge(completion)
    assert engine.instances[0].state == "COMPLETED"


async def test_a_task_that_another_worker_has_taken_is_not_ours_to_acknowledge(
    build: Build, engine: FakeEngine
) -> None:
    await parked(build(), start_call())
    engine.upload(engine.instances[0], complete=True)
    [completion] = await build().completions(wait_seconds=0)
    engine.moment[0] += 61
    assert len(await build(worker_id="other").completions(wait_seconds=0)) == 1
    with pytest.raises(TransportError, match="locked by worker 'other'"):
        await build().acknowledge(completion)


async def test_an_answer_that_is_no_list_is_said(connector: BpmnConnector, engine: FakeEngine) -> None:
    engine.bpmn.faults.inject(Fault("fetchAndLock", status=200, body={"no": "list"}))
    with pytest.raises(TransportError, match="without a list"):
        await connector.completions(wait_seconds=0)


# Callback


@pytest.mark.req("V-15")
async def test_a_process_is_told_where_to_report_and_does(build: Build, engine: FakeEngine) -> None:
    received: list[tuple[str, Any]] = []

    async def signals(request: Request) -> Response:
        received.append((request.url.path, await request.json()))
        return Response(status_code=202)

    call = start_call("document-request-callback", client="Acme")
    async with LoopbackServer(Starlette(routes=[Route("/{path:path}", signals, methods=["POST"])])) as counterseal:
        await parked(build(callback_url=f"{counterseal.url}/"), call)
        [instance] = engine.instances
        expected = f"{counterseal.url}/v1/signals/{call.correlation_key}"
        assert instance.execution.variables["counterseal_callback_url"] == expected
        engine.upload(instance, complete=True)
        await engine.bpmn.state.until(lambda: instance.state == "COMPLETED")
    [(path, body)] = received
    assert path == f"/v1/signals/{call.correlation_key}"
    assert body["output"] == {"client": "Acme", "complete": True}


# Messages


async def test_a_message_reaches_the_one_process_that_waits_for_it(
    connector: BpmnConnector, engine: FakeEngine
) -> None:
    call, other = start_call(), start_call()
    external_id, _ = await parked(connector, call), await parked(connector, other)
    values = {"business_key": call.correlation_key, "variables": {"why": "moved away"}}
    outcome = await connector.perform(message_call(values))
    assert outcome == Done({"process_instance_id": external_id}, external_id)
    [completion] = await connector.completions(wait_seconds=0)
    assert (completion.correlation_key, completion.error) == (
        call.correlation_key,
        {"code": "process_error", "message": "The client withdrew"},
    )
    assert engine.instances[0].execution.variables["why"] == "moved away"
    again = await connector.perform(message_call({"process_instance_id": external_id}))
    assert isinstance(again, Refused)
    assert "Cannot correlate message 'client-withdrew'" in again.message


async def test_whether_a_message_arrived_nothing_tells(connector: BpmnConnector, engine: FakeEngine) -> None:
    external_id = await parked(connector, start_call())
    engine.fail("/message$", FaultKind.RESET, Effect.LANDED)
    call = message_call({"process_instance_id": external_id})
    assert isinstance(await connector.perform(call), InDoubt)
    probe = await connector.probe(call, seconds_since_intent=LONG_AFTER)
    assert (probe.verdict, probe.retry_after_seconds) == (ProbeVerdict.CANNOT_TELL, None)


async def test_nothing_is_read_before_and_unknown_functions_are_refused(engine: FakeEngine, closing: Any) -> None:
    declared = {
        "name": "bpmn.process.pause", "handler": "bpmn:pause", "side_effects": "none", "risk": "low", "summary": "x",
        "target": "x", "input_schema": {"type": "object"}, "output_schema": {"type": "object"},
    }  # fmt: skip
    extra = catalog_of([Declarations("extra.yaml", json.dumps({"operations": [declared]}))])
    connector = closing(BpmnConnector(engine.settings))
    call = Call("bpmn.process.pause", {}, "0" * 64, 5.0, declared=extra.get("bpmn.process.pause"))
    outcome = await connector.perform(call)
    assert isinstance(outcome, Refused)
    assert outcome.code == "unknown_handler"
    assert isinstance(await connector.read_before(call), Refused)
