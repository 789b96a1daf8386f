"""Completions that have to be fetched: recorded before they are acknowledged, and none lost, repeated or misrouted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from app import adapters, processes
from app.access import Role
from app.processes import Duty
from app.settings import Settings
from connectors.port import Completion, Connectors
from core.errors import TransportError
from evidence.chain import Actor
from runtime.keep.errands import Completing
from runtime.requests import policies
from sandbox.bpmn import Bpmn
from sandbox.bpmn_config import BpmnConfig
from sandbox.server import LoopbackServer
from sandbox.watch import Watched

OPENING = """
workflow: opening
version: 1
reference: ${{ trigger.number }}
result: ${{ steps.case.output }}
steps:
  - id: case
    do: probe.case.open
    with: {name: "${{ trigger.number }}"}
"""


@dataclass
class Mailbox(Watched):
    """A source: gives what lies in it to whoever asks, until it is acknowledged. ``faults`` befall the next calls."""

    waiting: dict[str, Completion] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)
    faults: list[Exception | None] = field(default_factory=list)
    asked: int = 0
    polling: bool = False
    left: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def put(self, completion: Completion) -> None:
        self.waiting[completion.id] = completion
        self.changed()

    def _next_fault(self) -> None:
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault

    async def completions(self, *, wait_seconds: float) -> Sequence[Completion]:
        self.asked += 1
        self.polling = True
        self.changed()
        try:
            self._next_fault()
            await self.until(lambda: self.waiting, seconds=wait_seconds)
        except TimeoutError:
            return []
        except asyncio.CancelledError:
            self.left.append("a long poll")
            raise
        finally:
            self.polling = False
        return list(self.waiting.values())

    async def acknowledge(self, completion: Completion) -> None:
        self._next_fault()
        del self.waiting[completion.id]
        self.acknowledged.append(completion.id)
        self.changed()


@pytest.fixture
async def cases(installation: Any) -> Any:
    await installation.add(OPENING)
    return installation


def completing(installation: Any, box: Mailbox, **changes: Any) -> Completing:
    app = installation.app
    given = {"sources": {"probe": box}, "tenant": "default", "pause_seconds": 0.01}
    return Completing(app.database, app.definitions, **given | changes)


async def case(installation: Any, number: str = "C1", tenant: str = "default") -> tuple[UUID, str]:
    run_id = await installation.parked("opening", number, tenant=tenant)
    return run_id, str(installation.outside.effects[-1].correlation_key)


async def taken(installation: Any, box: Mailbox, completion: Completion) -> bool:
    box.put(completion)
    return await completing(installation, box).take("probe", box, completion)


async def result_of(installation: Any, run_id: UUID) -> Any:
    await installation.work()
    run = await installation.books.run(run_id)
    return run.status, run.result, run.error


@pytest.mark.req("V-3", "V-10")
async def test_a_completion_resumes_the_run_and_is_then_acknowledged(cases: Any) -> None:
    (run_id, key), box = await case(cases), Mailbox()
    assert await taken(cases, box, Completion("t1", key, output={"document": "ok"}))
    assert box.acknowledged == ["t1"]
    assert await result_of(cases, run_id) == ("succeeded", {"document": "ok"}, None)
    notice = await cases.books.notice()
    assert (notice.source, notice.id, notice.correlation_key) == ("signal", "probe:t1", key)


async def test_an_error_outside_fails_the_step_with_it(cases: Any) -> None:
    (run_id, key), box = await case(cases), Mailbox()
    assert await taken(cases, box, Completion("t1", key, error={"code": "process_error", "message": "Withdrawn"}))
    status, _, error = await result_of(cases, run_id)
    assert (status, error["code"], error["message"]) == ("failed_terminal", "process_error", "Withdrawn")


@pytest.mark.req("V-10")
async def test_a_lost_acknowledgement_brings_it_back_and_changes_nothing(cases: Any) -> None:
    (run_id, key), box = await case(cases), Mailbox(faults=[TransportError("the line is dead")])
    completion = Completion("t1", key, output={"n": 1})
    assert not await taken(cases, box, completion)
    assert await result_of(cases, run_id) == ("succeeded", {"n": 1}, None)
    assert await completing(cases, box).take("probe", box, completion)
    assert box.acknowledged == ["t1"]
    assert await result_of(cases, run_id) == ("succeeded", {"n": 1}, None)


async def test_what_belongs_to_no_run_stays_where_it_is(cases: Any) -> None:
    await cases.add("""
workflow: paying
version: 1
reference: ${{ trigger.number }}
steps:
  - id: paid
    wait: {signal: paid, correlate: "${{ run.reference }}"}
""")
    await cases.parked("paying", "P")
    box = Mailbox()
    # The key of a wait for a signal is anybody's to choose, so it says nothing about whose run is meant.
    for key in ("nobody's", "paid:P", ""):
        assert not await taken(cases, box, Completion(f"t-{key}", key, output={}))
    assert box.acknowledged == []
    assert await cases.books.notices() == []


async def test_what_cannot_be_kept_is_named_in_its_place(cases: Any) -> None:
    (run_id, key), box = await case(cases), Mailbox()
    assert await taken(cases, box, Completion("t1", key, output={"text": "x" * (300 * 1024)}))
    status, _, error = await result_of(cases, run_id)
    assert (status, error["class"]) == ("failed_terminal", "expression"), "this workflow reads what is missing"


async def test_what_comes_too_late_is_recorded_and_acknowledged(cases: Any) -> None:
    (run_id, key), box = await case(cases), Mailbox()
    assert await taken(cases, box, Completion("t1", key, output={"n": 1}))
    await cases.work()
    assert await taken(cases, box, Completion("t2", key, output={"n": 2}))
    assert box.acknowledged == ["t1", "t2"]
    assert await result_of(cases, run_id) == ("succeeded", {"n": 1}, None)
    (ignored,) = await cases.tenant_events("signal.ignored")
    assert (ignored["data"]["code"], ignored["actor"]) == ("already_ended", {"kind": "connector", "id": "probe"})


async def test_a_completion_ends_a_wait_of_the_tenant_whose_system_it_comes_from_and_no_other(cases: Any) -> None:
    await cases.publish("other")
    await cases.add(OPENING, "other")
    (mine, key), (theirs, their_key) = await case(cases), await case(cases, "C2", "other")
    box = Mailbox()
    theirs_too = Completion("t1", their_key, output={"whose": "theirs"})
    assert not await taken(cases, box, theirs_too)
    assert (await cases.status(mine), await cases.status(theirs)) == ("waiting", "waiting")
    assert await completing(cases, box, tenant="other").take("probe", box, theirs_too)
    assert await result_of(cases, theirs) == ("succeeded", {"whose": "theirs"}, None)
    assert await taken(cases, box, Completion("t2", key, output={"whose": "mine"}))
    assert await result_of(cases, mine) == ("succeeded", {"whose": "mine"}, None)


@pytest.fixture
async def looping() -> Any:
    """Runs loops, and ends them with the test."""
    stops: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    def begin(work: Callable[[asyncio.Event], Awaitable[None]]) -> tuple[asyncio.Event, asyncio.Task[None]]:
        stop = asyncio.Event()
        task: asyncio.Task[None] = asyncio.ensure_future(work(stop))
        stops.append((stop, task))
        return stop, task

    yield begin
    for stop, task in stops:
        stop.set()
        await task


async def test_the_loop_survives_faults_and_stops_at_once_when_it_is_told_to(cases: Any, looping: Any) -> None:
    (run_id, key), box = await case(cases), Mailbox(faults=[TransportError("away"), RuntimeError("a fault of ours")])
    stop, task = looping(completing(cases, box).run)
    await box.until(lambda: box.asked >= 3)
    box.put(Completion("strange", "nobody's", output={}))
    box.put(Completion("t1", key, output={}))
    await box.until(lambda: box.acknowledged == ["t1"])
    del box.waiting["strange"]
    assert (await result_of(cases, run_id))[0] == "succeeded"
    await box.until(lambda: box.polling)
    stop.set()
    async with asyncio.timeout(60):
        await task
    assert box.left == ["a long poll"]


async def test_a_source_with_nothing_to_say_is_not_asked_in_a_spin(cases: Any, looping: Any) -> None:
    box = Mailbox()
    began = asyncio.get_running_loop().time()
    looping(completing(cases, box, wait_seconds=0.0, pause_seconds=0.05).run)
    await box.until(lambda: box.asked >= 4)
    assert asyncio.get_running_loop().time() - began >= 0.15


async def test_without_sources_there_is_nothing_to_do(installation: Any) -> None:
    async with asyncio.timeout(60):
        await completing(installation, Mailbox(), sources={}).run(asyncio.Event())


@pytest.mark.req("V-10")
async def test_the_keepers_fetch_completions(cases: Any, looping: Any) -> None:
    (run_id, key), box = await case(cases), Mailbox()
    cases.app.outsides.given.connectors["mail"] = box

    async def work(stop: asyncio.Event) -> None:
        await processes.run(cases.app, frozenset({Duty.WORK, Duty.KEEP}), stop, lambda _: None)

    stop, task = looping(work)
    box.put(Completion("t1", key, output={"n": 1}))
    await box.until(lambda: box.acknowledged)
    stop.set()
    await task
    assert await result_of(cases, run_id) == ("succeeded", {"n": 1}, None)


REQUESTING = """
workflow: requesting
version: 1
reference: ${{ trigger.number }}
result: ${{ steps.documents.output.page }}
steps:
  - id: documents
    do: bpmn.process.start
    with: {process: "${{ trigger.number }}", variables: {client: Acme}}
    timeout: P14D
"""
POLICY = """
policy: processes
version: 2
rules:
  - {id: all, match: {connector: bpmn}, outcome: allow, because: It is a test.}
"""


@pytest.fixture
async def engine(settings: Settings, serve: Any) -> AsyncIterator[tuple[Any, Bpmn]]:
    """An installation, and a BPMN engine that is configured by settings and can call it back."""
    installation = await serve()
    await installation.publish()
    await installation.add(REQUESTING)
    await _publish_policy(installation)
    bpmn = Bpmn(BpmnConfig(callback_token=await installation.token(Role.TRIGGER, subject="processes")))
    async with LoopbackServer(bpmn.app) as server:
        bpmn.url = server.url
        changes = {
            "bpmn_url": f"{server.url}/engine-rest",
            "bpmn_username": bpmn.config.username,
            "bpmn_password": SecretStr(bpmn.config.password),
            "bpmn_callback_url": installation.url,
        }
        app = installation.app
        connectors: Connectors = adapters.connectors_of(app.settings.model_copy(update=changes))
        app.outsides.given.connectors["bpmn"] = connectors["bpmn"]
        yield installation, bpmn
        await connectors.aclose()
        await bpmn.close()


@pytest.mark.req("V-10", "V-15")
@pytest.mark.parametrize("model", ["document-request", "document-request-callback"])
async def test_a_process_of_a_real_model_completes_the_run_that_started_it(
    engine: tuple[Any, Bpmn], looping: Any, model: str
) -> None:
    """One reports by an external task that a keeper fetches, the other by a signal over HTTP."""
    installation, bpmn = engine
    if model == "document-request":
        looping(installation.app.completions().run)
    run_id = await installation.parked("requesting", model)
    (instance,) = bpmn.state.instances.values()
    (task,) = instance.user_tasks()
    bpmn.state.complete_user_task(task.activity_id, {"complete": True, "page": 7})
    # The engine goes on after the signal is committed.
    await bpmn.state.until(lambda: instance.ended is not None)
    assert await result_of(installation, run_id) == ("succeeded", 7, None)


@pytest.mark.req("V-13", "V-15")
async def test_canceling_a_run_ends_its_process(engine: tuple[Any, Bpmn]) -> None:
    installation, bpmn = engine
    run_id = await installation.parked("requesting", "document-request")
    client = await installation.client(Role.OPERATOR)
    assert (await client.post(f"/v1/runs/{run_id}/cancel", json={})).status_code == 200
    await installation.work()
    (instance,) = bpmn.state.instances.values()
    assert instance.ended is not None
    assert await installation.status(run_id) == "canceled"


async def _publish_policy(installation: Any) -> None:
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(
            connection, faces.definitions, "default", POLICY, "policy.yaml", Actor("test", "tester")
        )
