"""Errands by themselves: what is asked of whom, what each answer comes to, and what a source's completion becomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from connectors.port import Completion, Connectors, Done, InDoubt, NotSent, Refused
from core.errors import ConsistencyError, InputError, TransportError
from evidence.chain import Actor
from runtime.keep import errands
from runtime.keep.dispatcher import Delivered, Later, Undeliverable
from runtime.keep.errands import Completing, Errands
from runtime.requests.signaling import Signal, SignalCode
from runtime.store.outbox import Message
from tests.support.outside import Outside
from tests.support.rows import uid

NOTHING: Any = None
DEFINITIONS: Any = SimpleNamespace(graphs="graphs")


class World:
    """A database of named transactions, and what is asked of the requests and of the store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Any] = []
        self.fails: Exception | None = None
        self.code, self.status, self.over = SignalCode.DELIVERED, "running", False
        self.ending: dict[str, Any] = {"status": "succeeded", "result": {"n": 1}, "error": None}
        self.ending["trigger_ref"] = f"{uid(8)}:a/1/2#3"
        monkeypatch.setattr(errands, "Signaling", self._signaling)
        monkeypatch.setattr(errands, "step_is_over", self._step_is_over)
        monkeypatch.setattr(errands, "cancel_run", self._cancel_run)
        monkeypatch.setattr(errands, "wake", self._noted("wake"))
        monkeypatch.setattr(errands.runs, "ending_of", self._ending_of)
        monkeypatch.setattr(errands.inbox, "processed", self._noted("processed"))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[str]:
        yield "transaction"

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[str]:
        yield "connection"

    def _noted(self, name: str, answer: Any = None) -> Any:
        async def verb(*given: Any) -> Any:
            self.asked.append((name, *given))
            return answer

        return verb

    def _signaling(self, *given: Any) -> Any:
        async def signal(said: Signal) -> Any:
            self.asked.append(("signal", *given, said))
            if self.fails is not None:
                error, self.fails = self.fails, None
                raise error
            return SimpleNamespace(code=self.code)

        return SimpleNamespace(signal=signal)

    async def _step_is_over(self, *given: Any) -> bool:
        self.asked.append(("is over", *given))
        return self.over

    async def _cancel_run(self, *given: Any) -> None:
        self.asked.append(("cancel", *given))
        if self.fails is not None:
            raise self.fails

    async def _ending_of(self, *given: Any) -> Any:
        self.asked.append(("ending", *given))
        return {**self.ending, "status": self.ending["status"] if self.fails is None else self.status}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def message(kind: str, **payload: Any) -> Message:
    return Message(uid(1), "acme", uid(2), kind, payload, 1, 0.0)


async def delivered(world: Any, kind: str, connectors: Any = None, **payload: Any) -> Any:
    handler = Errands(world, DEFINITIONS, connectors).handlers()[kind]
    connection: Any = "the lease's"
    return await (await handler(connection, message(kind, **payload)))()


@pytest.mark.req("Q-15")
async def test_whoever_shares_an_effect_is_woken_by_its_key(world: World) -> None:
    assert await delivered(world, "shared", key="the key") == Delivered()
    assert world.asked == [("wake", world, DEFINITIONS, "acme", "the key")]


def signal(**said: Any) -> Signal:
    return Signal("acme", str(uid(7)), str(uid(7)), Actor("run", str(uid(7))), **said, source="run")


CHILD = {"class": "consistency", "code": "child_canceled", "message": "The run within: It was canceled."}


@pytest.mark.req("P-8", "V-10")
@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ({}, {"output": {"n": 1}}),
        ({"result": None}, {"output": None}),
        ({"result": {}}, {"output": {}}),
        ({"result": 0}, {"output": 0}),
        ({"result": ""}, {"output": ""}),
        ({"status": "canceled", "result": None}, {"error": CHILD}),
    ],
)
async def test_the_end_of_a_run_is_signaled_to_the_run_above_under_its_own_name(
    world: World, ending: dict[str, Any], said: dict[str, Any]
) -> None:
    world.ending |= ending
    assert await delivered(world, "return", run=str(uid(7))) == Delivered()
    assert world.asked == [
        ("ending", "the lease's", uid(7)),
        ("signal", world, DEFINITIONS, signal(**said)),
    ]


@pytest.mark.req("P-8")
@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize(("place", "step"), [("a/1/2#3", "a/1/2"), ("a", "a"), ("a:b", "a:b")])
async def test_the_end_of_a_run_waits_for_the_run_above_unless_that_has_gone_on(
    world: World, place: str, step: str, over: bool
) -> None:
    world.code, world.over = SignalCode.KEPT, over
    world.ending["trigger_ref"] = f"{uid(8)}:{place}"
    result = await delivered(world, "return", run=str(uid(7)))
    assert result == (Delivered() if over else Later("The run that waits for it is not parked yet."))
    told = {"code": "already_ended", "run": str(uid(8)), "step": step}
    assert world.asked[2:] == [
        ("is over", "transaction", "acme", uid(8), step, "graphs"),
        *([("processed", "transaction", "acme", "run", str(uid(7)), told)] if over else []),
    ]


@pytest.mark.parametrize("code", set(SignalCode) - {SignalCode.KEPT})
async def test_the_end_of_a_run_that_was_heard_is_not_told_again(world: World, code: SignalCode) -> None:
    world.code = code
    assert await delivered(world, "return", run=str(uid(7))) == Delivered()
    assert [what for what, *_ in world.asked] == ["ending", "signal"]


WHY = "The run that waits for it ended."
CANCELED = ("cancel", "transaction", DEFINITIONS, "acme", uid(9), Actor("engine", "parent"), WHY)


@pytest.mark.req("V-13")
@pytest.mark.parametrize(
    ("status", "result"),
    [
        ("running", Later("It has moved.")),
        ("waiting", Later("It has moved.")),
        ("canceled", Delivered()),
        ("failed_terminal", Delivered()),
        ("succeeded", Delivered()),
    ],
)
async def test_a_run_that_cannot_be_canceled_is_canceled_later_unless_it_is_over(
    world: World, status: str, result: Any
) -> None:
    world.status, world.fails = status, ConsistencyError("It has moved.")
    assert await delivered(world, "cancel", run=str(uid(9))) == result
    assert world.asked == [CANCELED, ("ending", "transaction", uid(9))]


@pytest.mark.req("V-13")
@pytest.mark.parametrize("by", ["run", "wait"])
async def test_a_run_that_nobody_waits_for_is_canceled_by_its_id_or_by_the_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, world: World, by: str
) -> None:
    async def wait(_: Any, wait_id: Any) -> Any:
        assert wait_id == uid(4)
        return {"wait": {"kind": "child", "context": {"run": str(uid(9))}}, "run_id": uid(2)}

    monkeypatch.setattr(errands.runs, "wait", wait)
    assert await delivered(world, "cancel", **{by: str(uid(9) if by == "run" else uid(4))}) == Delivered()
    assert world.asked == [CANCELED]


async def test_a_wait_that_is_gone_is_not_canceled(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    async def wait(*_: Any) -> None:
        return None

    monkeypatch.setattr(errands.runs, "wait", wait)
    assert await delivered(world, "cancel", wait=str(uid(4))) == Undeliverable("There is no such wait.")


class Ending(World):
    """A wait for something outside, which nobody waits for any more; ``let`` is what becomes of its share."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, context: Any, receipt: Any, let: Any) -> None:
        super().__init__(monkeypatch)
        self.wait = {"kind": "external", "step_key": "s/1/2", "wait_id": str(uid(4)), "context": context}
        self.run: Any = SimpleNamespace(receipts="receipts")
        self.view: Any = SimpleNamespace(run=self.run, definition="definition")
        self.let = let

        async def leave(_: Any, *given: Any) -> Any:
            self.asked.append(("leave", *given))
            return self.let

        async def outside(_: Any, *given: Any) -> str:
            self.asked.append(("outside", *given))
            return "ended outside"

        monkeypatch.setattr(errands.runs, "wait", self._noted("wait", {"wait": self.wait, "run_id": uid(2)}))
        monkeypatch.setattr(errands, "load", self._load)
        monkeypatch.setattr(errands, "last_receipt", lambda run, key: (run, key) == (self.run, "s/1/2") and receipt)
        monkeypatch.setattr(Errands, "_leave", leave)
        monkeypatch.setattr(Errands, "_cancel_outside", outside)

    async def _load(self, *given: Any, **how: Any) -> Any:
        self.asked.append(("load", *given, how))
        return self.view


def receipt(**more: Any) -> Any:
    return SimpleNamespace(**{"shared": False, "idempotency_key": "its key", **more})


OWN, SHARED, THEIRS = receipt(), receipt(shared=True), receipt(idempotency_key="another")


@pytest.mark.req("V-3", "Q-15")
@pytest.mark.parametrize(
    ("context", "own", "let", "key", "result", "ends"),
    [
        (None, OWN, None, None, "ended outside", OWN),
        ({}, None, None, None, "ended outside", None),
        (None, SHARED, (None, SHARED), "its key", "ended outside", SHARED),
        (None, SHARED, (Delivered(), None), "its key", Delivered(), None),
        ({"shared": "the wait's"}, OWN, (None, THEIRS), "the wait's", "ended outside", THEIRS),
        ({"shared": "the wait's"}, SHARED, (Later("x"), None), "the wait's", Later("x"), None),
        ({"shared": "the wait's"}, None, (None, None), "the wait's", "ended outside", None),
    ],
)
async def test_what_a_wait_began_outside_is_ended_unless_others_share_it(
    monkeypatch: pytest.MonkeyPatch, context: Any, own: Any, let: Any, key: Any, result: Any, ends: Any
) -> None:
    world = Ending(monkeypatch, context, own, let)
    definitions: Any = SimpleNamespace(graphs="graphs", of_run=world._noted("workflow", "the workflow"))
    database: Any = world
    keeper = Errands(database, definitions, NOTHING)
    assert await keeper._cancel(message("cancel", wait=str(uid(4)))) == result
    assert world.asked == [
        ("wait", "transaction", uid(4)),
        ("load", "transaction", uid(2), "graphs", {"whole": True}),
        ("workflow", "transaction", "definition"),
        *([] if key is None else [("leave", "transaction", "acme", key, uid(4), own)]),
        *([("outside", "the workflow", ends)] if result == "ended outside" else []),
    ]


class Durable(Outside):
    """A system that ends what it has begun as it is told to."""

    def __init__(self, outcome: Any, target: str) -> None:
        super().__init__()
        self.outcome, self.target = outcome, target
        self.ended: list[Any] = []

    async def cancel(self, call: Any, external_id: Any) -> Any:
        self.ended.append((call, external_id))
        return self.outcome


class Simple:
    """A connector that begins nothing."""

    target = "here"


@pytest.mark.req("V-3")
@pytest.mark.parametrize(
    ("outcome", "begun", "now", "result"),
    [
        (Done({}), "here", "here", Delivered()),
        (Done({}), "", "here", Delivered()),
        (Refused("404", "It is gone."), "here", "here", Undeliverable("404: It is gone.")),
        (NotSent("busy", 7.0), "here", "here", Later("busy", 7.0)),
        (NotSent("busy"), "", "", Later("busy")),
        (InDoubt("no answer"), "here", "here", Later("no answer")),
        (Done({}), "there", "here", Undeliverable("It was begun at there, and here is called now.")),
        (Done({}), "there", "", Undeliverable("It was begun at there, and another system is called now.")),
    ],
)
async def test_what_was_begun_is_ended_where_it_was_begun(
    monkeypatch: pytest.MonkeyPatch, outcome: Any, begun: str, now: str, result: Any
) -> None:
    system = Durable(outcome, now)
    monkeypatch.setattr(errands, "call_of", lambda operation, row: ("call", operation.name, row.receipt_id))
    operations = {"o": SimpleNamespace(name="o", connector="probe"), "p": SimpleNamespace(name="p", connector="none")}
    workflow: Any = SimpleNamespace(operations=operations)
    row: Any = SimpleNamespace(operation="o", receipt_id=uid(5), external_id="e1", action={"system": begun})
    keeper = Errands(NOTHING, DEFINITIONS, Connectors({"probe": system}))
    assert await keeper._cancel_outside(workflow, row) == result
    called = not isinstance(result, Undeliverable) or "404" in result.message
    assert system.ended == ([(("call", "o", uid(5)), "e1")] if called else [])


async def test_what_nobody_can_end_is_not_tried() -> None:
    operations = {"o": SimpleNamespace(name="o", connector="probe"), "p": SimpleNamespace(name="p", connector="none")}
    workflow: Any = SimpleNamespace(operations=operations)
    simple: Any = Simple()
    keeper = Errands(NOTHING, DEFINITIONS, Connectors({"probe": simple}))
    assert await keeper._cancel_outside(workflow, None) == Undeliverable("Nothing was begun outside.")
    row: Any = SimpleNamespace(operation="o", receipt_id=uid(5), external_id="e1", action={"system": "there"})
    assert await keeper._cancel_outside(workflow, row) == Undeliverable(
        "The connector of o cannot end what it has begun."
    )
    row.operation = "p"
    found = await keeper._cancel_outside(workflow, row)
    assert isinstance(found, Later)
    assert (found.counted, found.seconds, "none" in found.message) == (True, None, True)


class Source:
    """A source of completions, by turns."""

    def __init__(self, *turns: Any) -> None:
        self.turns = list(turns)
        self.asked: list[float] = []
        self.acknowledged: list[str] = []
        self.fails: Exception | None = None

    async def completions(self, *, wait_seconds: float) -> Any:
        self.asked.append(wait_seconds)
        found = self.turns.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def acknowledge(self, completion: Completion) -> None:
        if self.fails is not None:
            raise self.fails
        self.acknowledged.append(completion.id)


def completing(world: Any, source: Any = None, **more: Any) -> Completing:
    return Completing(world, DEFINITIONS, {"bpmn": source}, **more)


@pytest.fixture
def tenant(monkeypatch: pytest.MonkeyPatch, world: World) -> World:
    async def tenant_of(connection: Any, key: str) -> str | None:
        assert connection == "connection"
        return {"k1": "acme"}.get(key)

    monkeypatch.setattr(errands.inbox, "tenant_of", tenant_of)
    return world


def told(**said: Any) -> Signal:
    return Signal("acme", "k1", "bpmn:t1", Actor("connector", "bpmn"), **said)


@pytest.mark.req("V-10")
@pytest.mark.parametrize("said", [{"output": {"n": 1}}, {"error": {"code": "c"}}, {"output": 0, "error": {}}])
async def test_a_completion_is_a_signal_of_its_connector_and_acknowledged_then(
    tenant: World, said: dict[str, Any]
) -> None:
    source = Source()
    with capture_logs() as logs:
        assert await completing(tenant).take("bpmn", source, Completion("t1", "k1", **said))
    assert (tenant.asked, source.acknowledged, logs) == ([("signal", tenant, DEFINITIONS, told(**said))], ["t1"], [])


@pytest.mark.req("V-10")
async def test_a_completion_that_cannot_be_kept_ends_its_wait_with_an_error(tenant: World) -> None:
    tenant.fails, source = InputError("is no\0text", where="output"), Source()
    assert await completing(tenant).take("bpmn", source, Completion("t1", "k1", output={"n": 1}))
    error = {"class": "transport", "code": "unusable_output", "message": "output: is no\ufffdtext"}
    assert [said for *_, said in tenant.asked] == [told(output={"n": 1}), told(error=error)]
    assert source.acknowledged == ["t1"]


@pytest.mark.req("V-10")
async def test_a_completion_that_nobody_waits_for_is_left_and_told_of(tenant: World) -> None:
    source = Source()
    with capture_logs() as logs:
        assert not await completing(tenant).take("bpmn", source, Completion("t1", "\0" + "x" * 300))
    words = "completion ignored: no run waits for its key"
    key = "\ufffd" + "x" * 198 + "…"
    assert logs == [{"event": words, "log_level": "warning", "connector": "bpmn", "key": key}]
    assert (tenant.asked, source.acknowledged) == ([], [])


@pytest.mark.req("V-10")
@pytest.mark.parametrize("at", ["signal", "acknowledge"])
async def test_a_completion_that_cannot_be_recorded_or_acknowledged_is_offered_again(tenant: World, at: str) -> None:
    source = Source()
    if at == "signal":
        tenant.fails = TransportError("It is away.")
    else:
        source.fails = TransportError("It is away.")
    with capture_logs() as logs:
        assert not await completing(tenant).take("bpmn", source, Completion("t1", "k1"))
    assert source.acknowledged == []
    assert logs == [
        {
            "event": "completion not recorded; it is offered again",
            "log_level": "warning",
            "connector": "bpmn",
            "completion": "t1",
            "reason": "TransportError: It is away.",
        }
    ]


@pytest.mark.parametrize(
    ("found", "seconds", "again"),
    [
        (["t1"], 0.0, True),
        (["t1", "t2"], 0.0, True),
        (["t2", "t1"], 0.0, True),
        (["t2"], 0.0, False),
        ([], 0.0, False),
        (None, 0.0, False),
        ([], 19.9, False),
        ([], 20.0, True),
        ([], 21.0, True),
    ],
)
async def test_a_source_that_gave_nothing_at_once_rests(
    monkeypatch: pytest.MonkeyPatch, tenant: World, found: list[str] | None, seconds: float, again: bool
) -> None:
    """A source that was asked for as long as it may take has waited itself."""
    clock = iter((100.0, 100.0 + seconds))
    loop = SimpleNamespace(get_running_loop=lambda: SimpleNamespace(time=lambda: next(clock)))
    keys = {"t1": "k1", "t2": "unknown"}
    source = Source([Completion(one, keys[one]) for one in found] if found is not None else None)
    turns: list[Any] = []

    async def repeat(stop: Any, turn: Any, rest: float, words: str, **facts: str) -> None:
        turns.append((await turn(), rest, words, facts))

    async def unless(_: Any, asking: Any) -> Any:
        return await asking

    monkeypatch.setattr(errands, "asyncio", loop)
    monkeypatch.setattr(errands, "repeat", repeat)
    monkeypatch.setattr(errands, "unless", unless)
    await completing(tenant)._follow("bpmn", source, NOTHING)
    assert turns == [(again, 1.0, "a source of completions could not be asked", {"connector": "bpmn"})]
    assert (source.asked, source.acknowledged) == ([20.0], [one for one in found or () if one == "t1"])


async def test_sources_are_asked_side_by_side(world: World) -> None:
    stop, asked = asyncio.Event(), set()

    class Waiting(Source):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        async def completions(self, *, wait_seconds: float) -> Any:
            asked.add(self.name)
            if len(asked) == 2:
                stop.set()
            await asyncio.Event().wait()

    database: Any = world
    async with asyncio.timeout(20):
        await Completing(database, DEFINITIONS, {"a": Waiting("a"), "b": Waiting("b")}).run(stop)
    assert asked == {"a", "b"}
