"""One call of a connector, from its sending to what is kept of it, and what is told of it under a lost lease."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
import structlog
from msgspec.structs import replace

from connectors.port import (
    NOT_CONFIGURED,
    Connectors,
    Done,
    InDoubt,
    NotSent,
    Parked,
    Probe,
    ProbeVerdict,
    Refused,
)
from core.errors import ConsistencyError, CountersealError
from core.ids import new_nonce
from evidence.chain import Actor
from evidence.events import EventType
from evidence.receipts import LateAnswer
from runtime.engine import late
from runtime.engine.doubt import PROBE_AFTER
from runtime.engine.events import ActionLate
from runtime.engine.graph import NO_GRAPH
from runtime.engine.instructions import Over, Perform, Unfit
from runtime.store import audit
from runtime.store.views import Purged
from runtime.work import calling
from runtime.work.calling import Calling
from runtime.work.lease import LostLease
from tests.support.driving import RUN, TRANSITION, Driving, step
from tests.support.rows import uid

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=3)
RECEIPT: Any = SimpleNamespace(receipt_id=uid(5), attempt=2)
CALL: Any = SimpleNamespace(timeout_seconds=7.0)
WORK = Perform(step("b"), SimpleNamespace(connector="probe"), CALL, RECEIPT)  # type: ignore[arg-type]
AWAY = asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
WRONG = ConsistencyError("a fault of ours")
LATE = ActionLate(uid(5), 2, 1, LateAnswer.UNANSWERED, "sent", None)


class Connector:
    """A connector that notes its call, and answers so."""

    target = ""

    def __init__(self, answer: Any) -> None:
        self.calls: list[Any] = []
        self._answer = answer

    async def perform(self, call: Any) -> Any:
        self.calls.append(call)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Patient:
    """Patience without a pause, that notes who was patient."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    async def pause(self, who: Any, tries: int, error: Exception, **facts: str) -> None:
        self.said.append((who, tries, error, facts))

    def told(self, who: Any) -> None:
        self.said.append((who, "told"))


class One:
    """A call of the held step, with this connector."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Any = None, work: Perform = WORK) -> None:
        self.driving = Driving(monkeypatch)
        self.connector = Connector(answer)
        known: Any = {} if answer is None else {"probe": self.connector}
        connectors: Any = Connectors(known)
        self.driving.tools.connectors = connectors
        self.missing = str(connectors.missing("probe"))
        hold: Any = self.driving.drive._holding.hold
        times = iter([NOON, LATER])
        hold.met.clock = SimpleNamespace(now=lambda: next(times))
        patience: Any = Patient()
        self.patience = patience
        self.call = Calling(self.driving.tools, patience, self.driving.drive._holding, hold, work)
        monkeypatch.setattr(random, "random", lambda: 0.25)

    @property
    def told(self) -> list[Any]:
        return self.driving.told


# -- what is kept of an answer ---------------------------------------------------------------------------------------

NAN: Any = {"n": float("nan")}
PROBLEM = "The output"


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (Done({"n": 1}, "e1"), Done({"n": 1}, "e1")),
        (Parked("case-1", {"n": 1}), Parked("case-1", {"n": 1})),
        (Parked("case-1", NAN), Parked("case-1", {})),
        (Refused("404", "not there"), Refused("404", "not there")),
        (NotSent("busy", 1e300), NotSent("busy", 24 * 3600.0)),
        (InDoubt("timeout"), InDoubt("timeout")),
        (RuntimeError("no"), InDoubt("The connector failed: RuntimeError: no")),
        ("what", InDoubt("The connector answered with str, which is no outcome.")),
    ],
)
async def test_an_answer_is_kept_as_far_as_it_can_be_stored(
    monkeypatch: pytest.MonkeyPatch, answer: Any, kept: Any
) -> None:
    one = One(monkeypatch, answer)
    assert await one.call._send() == kept
    assert one.connector.calls == [CALL]
    assert (one.call._sent, one.call._answered) == (NOON, LATER)


async def test_when_it_was_sent_is_known_while_the_call_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease may be lost before there is an answer."""
    one = One(monkeypatch, Done({}))
    known: list[Any] = []

    async def perform(_: Any) -> Any:
        known.append((one.call._sent, one.call._answered))
        return InDoubt("no answer")

    monkeypatch.setattr(one.connector, "perform", perform)
    await one.call._send()
    assert (known, one.call._sent, one.call._answered) == ([(NOON, None)], NOON, LATER)


async def test_an_outcome_that_is_built_again_has_the_chance_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a pause before a retry is the same, however often its append is made."""
    one = One(monkeypatch, NotSent("busy"))
    chances = iter((0.25, 0.5, 0.75))
    monkeypatch.setattr(random, "random", lambda: next(chances))
    monkeypatch.setattr(calling, "performed", one.driving.noted("performed"))

    async def twice(build: Any, *, known: bool) -> Any:
        assert known
        return [build(TRANSITION, one.driving.step, "the workflow", "the policy") for _ in range(2)][-1]

    monkeypatch.setattr(one.driving.drive._holding, "commit", twice)
    assert await one.call.perform() == Over()
    assert [given[-1]["chance"] for given in one.told] == [0.25, 0.25]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (RuntimeError("no"), {"event": "connector raised", "log_level": "error", "exc_info": True}),
        (
            "what",
            {"event": "connector returned no Outcome; the call is in doubt", "kind": "str", "log_level": "error"},
        ),
        (Refused("404", "no"), None),
    ],
)
async def test_a_connector_that_breaks_its_word_is_told_in_the_log(
    monkeypatch: pytest.MonkeyPatch, answer: Any, said: Any
) -> None:
    one = One(monkeypatch, answer)
    with structlog.testing.capture_logs() as logs:
        await one.call._send()
    assert logs == ([] if said is None else [said])


async def test_a_result_that_cannot_be_stored_says_why_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await One(monkeypatch, Done(NAN, "e1")).call._send()
    assert isinstance(found, Unfit)
    assert (found.done, found.problem.startswith(PROBLEM)) == (Done({}, "e1"), True)


async def test_a_target_that_cannot_be_asked_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connector is missing, or it gave no answer."""
    one = One(monkeypatch)
    asked: Any = SimpleNamespace(operation=SimpleNamespace(connector="probe"), call=CALL, seconds_since_intent=1.0)
    later = PROBE_AFTER.total_seconds()
    found = await calling.inquire(one.driving.tools.connectors, asked)
    assert found == Probe(ProbeVerdict.CANNOT_TELL, one.missing, retry_after_seconds=later)
    assert await calling.read_before(one.driving.tools.connectors, asked) == Refused(NOT_CONFIGURED, one.missing)

    async def silent(_: Any, *, seconds_since_intent: float) -> Any:
        assert seconds_since_intent == 1.0
        raise RuntimeError("no")

    connectors: Any = Connectors({"probe": SimpleNamespace(probe=silent)})
    found = await calling.inquire(connectors, asked)
    assert found == Probe(ProbeVerdict.CANNOT_TELL, "The connector failed: RuntimeError: no", retry_after_seconds=later)


async def test_without_its_connector_nothing_is_sent_and_that_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    one = One(monkeypatch)
    assert await one.call._send() == Refused(NOT_CONFIGURED, one.missing)
    assert (one.call._sent, one.call._answered) == (None, None)


async def test_an_outcome_is_committed_as_one_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    one = One(monkeypatch, Done({"n": 1}, "e1"))
    monkeypatch.setattr(calling, "performed", one.driving.noted("performed"))
    assert await one.call.perform() == Over()
    mine = replace(WORK, step=one.driving.step)
    how = {"nonce": new_nonce, "chance": 0.25}
    assert one.told == [
        "commits a known outcome", ("performed", TRANSITION, mine, Done({"n": 1}, "e1"), how)
    ]  # fmt: skip


# -- under a lost lease ----------------------------------------------------------------------------------------------


@pytest.mark.req("Q-9")
@pytest.mark.parametrize("error", [LostLease(), Purged("The run is over.")])
async def test_what_is_known_of_a_call_is_told_when_its_commit_comes_too_late(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    one = One(monkeypatch, Done({"n": 1}, "e1"))
    one.driving.fails = [error]
    monkeypatch.setattr(Calling, "_tell", one.driving.asked("tells"))
    with pytest.raises(LostLease):
        await one.call.perform()
    assert one.told == ["commits a known outcome", ("tells", one.call, Done({"n": 1}, "e1"))]


async def test_of_a_call_that_its_lease_forbade_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    one = One(monkeypatch, Done({}))
    one.driving.now = one.driving.drive._holding.lease.until
    monkeypatch.setattr(Calling, "_tell", one.driving.asked("tells"))
    with pytest.raises(LostLease):
        await one.call.perform()
    assert (one.told, one.connector.calls) == ([("tells", one.call, None)], [])


async def test_an_error_of_the_commit_is_not_told_as_late(monkeypatch: pytest.MonkeyPatch) -> None:
    one = One(monkeypatch, Done({}))
    one.driving.fails = [WRONG]
    monkeypatch.setattr(Calling, "_tell", one.driving.asked("tells"))
    with pytest.raises(ConsistencyError):
        await one.call.perform()
    assert one.told == ["commits a known outcome"]


@pytest.mark.parametrize("missing", ["receipt", "sent", "event", None])
async def test_only_what_may_have_had_an_effect_is_told(monkeypatch: pytest.MonkeyPatch, missing: str | None) -> None:
    one = One(monkeypatch, Done({}), replace(WORK, receipt=None) if missing == "receipt" else WORK)
    one.call._sent, one.call._answered = None if missing == "sent" else NOON, LATER
    event = None if missing == "event" else LATE
    monkeypatch.setattr(late, "known_of", one.driving.noted("knows", event))
    monkeypatch.setattr(Calling, "_append", one.driving.asked("appends"))
    with structlog.testing.capture_logs() as logs:
        await one.call._tell(Done({"n": 1}))
    knows = ("knows", RECEIPT, 1, NOON, LATER, Done({"n": 1}))
    if missing is None:
        assert one.told == [knows, ("appends", one.call, LATE)]
        assert logs == [
            {
                "event": "lease lost during a call; recording action.late", "log_level": "warning",
                "known": "unanswered", "run": str(RUN), "step": "a", "receipt": str(uid(5)),
            }
        ]  # fmt: skip
        assert one.patience.said == [(one.call, "told")]
    else:
        assert (one.told, logs) == ([knows] if missing == "event" else [], [])
    # From when it tells something on, the heartbeat leaves its lease alone.
    assert (one.driving.drive._holding.hold is None) is (missing is None)


@pytest.mark.parametrize("answered", [None, LATER])
async def test_when_it_was_answered_is_told_although_nobody_has_the_answer(
    monkeypatch: pytest.MonkeyPatch, answered: datetime | None
) -> None:
    """The lease may be lost between the answer and its use."""
    one = One(monkeypatch, Done({}))
    one.call._sent, one.call._answered = NOON, answered
    monkeypatch.setattr(late, "known_of", one.driving.noted("knows"))
    await one.call._tell(None)
    assert one.told == [("knows", RECEIPT, 1, NOON, answered, None)]


@pytest.mark.parametrize("error", [WRONG, None])
async def test_it_is_told_until_postgresql_is_back_and_given_up_for_a_fault(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    one, ends = One(monkeypatch, Done({})), [*[AWAY] * 9, error]
    one.call._sent = NOON
    monkeypatch.setattr(late, "known_of", lambda *_: LATE)

    async def append(_: Any, event: ActionLate) -> None:
        assert event is LATE
        end = ends.pop(0)
        if end is not None:
            raise end

    monkeypatch.setattr(Calling, "_append", append)
    with structlog.testing.capture_logs() as logs:
        await one.call._tell(None)
    facts = {"step": "the id of a"}
    assert one.patience.said == [*((one.call, tries, AWAY, facts) for tries in range(9)), (one.call, "told")]
    assert ends == []
    where = {"run": str(RUN), "step": "a", "receipt": str(uid(5))}
    given_up = {"event": "action.late could not be recorded", "log_level": "error", "reason": str(WRONG), **where}
    assert logs[1:] == ([given_up] if error else [])


class Book:
    """A run that a late answer is appended to: ``told`` says that it is there already."""

    def __init__(self, one: One, monkeypatch: pytest.MonkeyPatch, *, told: bool = False, applied: bool = True) -> None:
        def drafted(view: Any, graph: Any) -> Any:
            assert (view, graph) == ("the view without rows", NO_GRAPH)
            return SimpleNamespace(commit=lambda: "the commit")

        noted = one.driving.noted
        monkeypatch.setattr(calling, "load", one.driving.asked("loads", "the view"))
        monkeypatch.setattr(calling, "Transition", drafted)
        monkeypatch.setattr(calling, "apply", one.driving.asked("applies", applied))
        monkeypatch.setattr(late, "without_rows", lambda view: f"{view} without rows")
        monkeypatch.setattr(late, "is_told", lambda transition, event: told and event is LATE)
        monkeypatch.setattr(late, "tell", lambda transition, *given: noted("tells")(*given))
        monkeypatch.setattr(audit, "record", one.driving.asked("audits"))


LOADS = ("loads", "the transaction", RUN, "the graphs", {"lock": True, "whole": True})
ME = Actor("worker", "me")


@pytest.mark.parametrize("told", [False, True])
async def test_it_is_told_once_in_the_whole_book_of_a_locked_run(monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    one = One(monkeypatch, Done({}))
    one.call._answered = LATER
    Book(one, monkeypatch, told=told)
    await one.call._append(LATE)
    appends = [("tells", LATE, ME), ("applies", "the transaction", "the commit")]
    assert one.told == [LOADS, *([] if told else appends)]


async def test_a_locked_run_that_moves_on_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    one = One(monkeypatch, Done({}))
    Book(one, monkeypatch, applied=False)
    with pytest.raises(CountersealError) as caught:
        await one.call._append(LATE)
    assert str(caught.value) == f"Run {RUN} moved on although it was locked."


async def test_of_a_run_that_retention_has_emptied_the_facts_go_to_its_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    one = One(monkeypatch, Done({}))
    Book(one, monkeypatch)
    monkeypatch.setattr(calling, "load", one.driving.asked("loads", Purged("The run is over.")))
    event = ActionLate(uid(5), 2, 1, LateAnswer.SUCCEEDED, "sent", "answered", output={"n": 1}, external_id="e1")
    await one.call._append(event)
    loads, (name, *given) = one.told
    facts = given.pop()
    assert (loads, name) == (LOADS, "audits")
    assert given == ["the transaction", "acme", EventType.ACTION_LATE, ME]
    assert facts == {
        "run": str(RUN), "receipt": str(uid(5)), "attempt": 2, "epoch": 1, "known": "succeeded", "sent": "sent",
        "answered": "answered",
    }  # fmt: skip
