"""A worker drives a claimed step to its end, and the run within it: who is told of errors, and what is left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
import structlog

from core.ids import new_nonce
from runtime.engine import records, waits
from runtime.engine.commit import Claim
from runtime.engine.instructions import LookUp, OtherRun, Over, StartRun
from runtime.store import claims
from runtime.store.records import RecordRefused
from runtime.work import driving
from runtime.work.driving import Drive
from runtime.work.lease import HeldStep, LostLease
from tests.support.driving import CLAIM, RUN, SPAN, TRANSITION, Driving, step
from tests.support.rows import uid

OTHER = uid(2)
AWAY = asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
WRONG = RuntimeError("a fault of ours")
RECORD: Any = {
    "run": {"run_id": str(RUN)},
    "step": {"step_key": "a", "lease_id": str(CLAIM.id), "lease_epoch": 1, "lease_owner": "owner"},
}


@pytest.fixture
def driving_(monkeypatch: pytest.MonkeyPatch) -> Driving:
    return Driving(monkeypatch)


def goes(found: Driving, monkeypatch: pytest.MonkeyPatch, *ends: Any) -> None:
    """Let the step begin, and then look things up, with these answers or errors one after the other."""
    left, during = [*ends], list[int]()

    async def next_of(name: str, *given: Any) -> Any:
        found.told.append((name, *given))
        during.append(found.pump.drives)
        assert during == [1] * len(during)
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    async def begin(record: Any, claim: Claim, began: float) -> Any:
        return await next_of("begins", record, claim, began)

    async def look_up(_: Drive, work: Any) -> Any:
        return await next_of("looks up", work)

    monkeypatch.setattr(found.drive, "_begin", begin)
    monkeypatch.setitem(Drive._CARRY_OUT, LookUp, look_up)
    monkeypatch.setattr(driving, "set_back", found.asked("sets back"))


def look_up(key: str) -> LookUp:
    return LookUp(step(), key, None)  # type: ignore[arg-type]


def at_rest(found: Driving) -> bool:
    """Nothing is held, and nothing is driven any more."""
    return (found.drive._holding.hold, found.drive.held, found.drive.leased, found.pump.drives) == (None, None, [], 0)


async def test_a_step_is_driven_until_there_is_nothing_more_to_do(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = look_up("one"), look_up("other")
    goes(driving_, monkeypatch, one, other, Over())
    await driving_.drive.run(RECORD, 70.0)
    assert driving_.told == [("begins", RECORD, CLAIM, 70.0), ("looks up", one), ("looks up", other)]
    assert at_rest(driving_)


async def test_a_step_that_is_over_at_once_is_left_at_once(driving_: Driving, monkeypatch: pytest.MonkeyPatch) -> None:
    goes(driving_, monkeypatch, Over())
    await driving_.drive.run(RECORD, 70.0)
    assert driving_.told == [("begins", RECORD, CLAIM, 70.0)]
    assert at_rest(driving_)


async def test_other_drives_of_the_same_run_are_still_counted(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their number a pump knows for whom it waits."""
    during: list[int] = []

    async def begin(*_: Any) -> Any:
        during.append(driving_.pump.drives)
        return Over()

    monkeypatch.setattr(driving_.drive, "_begin", begin)
    driving_.pump.drives = 2
    await driving_.drive.run(RECORD, 70.0)
    assert (during, driving_.pump.drives) == ([3], 2)


@pytest.mark.parametrize("when", [0, 1])
async def test_a_record_that_is_refused_fails_the_step_and_nothing_else(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """And its worker goes on with what follows, whichever of its appends was refused."""
    ends = [look_up("one"), Over()]
    goes(driving_, monkeypatch, *ends[:when], RecordRefused("no"), Over())
    monkeypatch.setattr(records, "refused", driving_.noted("refuses"))
    await driving_.drive.run(RECORD, 70.0)
    assert driving_.told[-2:] == ["commits", ("refuses", TRANSITION, driving_.step)]
    assert at_rest(driving_)


@pytest.mark.parametrize("held", [True, False])
async def test_a_lease_that_is_lost_is_told_and_is_nobody_s_fault(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    if not held:
        driving_.drive._holding.hold = None
    driving_.step.key = "held"
    goes(driving_, monkeypatch, LostLease())
    with structlog.testing.capture_logs() as logs:
        await driving_.drive.run(RECORD, 70.0)
    told = {"event": "lease lost", "run": str(RUN), "step": "held" if held else "a", "log_level": "warning"}
    assert logs == [told]
    assert len(driving_.told) == 1
    assert at_rest(driving_)


async def test_an_outage_is_the_worker_s_and_no_setback_of_the_step(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes(driving_, monkeypatch, AWAY)
    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        await driving_.drive.run(RECORD, 70.0)
    assert [each[0] for each in driving_.told] == ["begins"]
    assert at_rest(driving_)


@pytest.mark.req("Q-8")
@pytest.mark.parametrize("held", [True, False])
async def test_an_error_of_ours_sets_the_step_back_that_is_held_now(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """Most often that is another one than was claimed."""
    now = Claim("next", uid(1), 1)
    hold = driving_.drive._holding.hold
    assert hold is not None
    driving_.drive._holding.hold = HeldStep(hold.met, hold.step, now, 1.0, hold.append) if held else None
    goes(driving_, monkeypatch, look_up("one"), WRONG)
    await driving_.drive.run(RECORD, 70.0)
    claim = now if held else CLAIM
    back = ("sets back", "the transaction", driving_.tools.definitions, RUN, claim, "owner", WRONG)
    assert driving_.told[-1] == back
    assert at_rest(driving_)


# -- another run -----------------------------------------------------------------------------------------------------


@pytest.mark.req("X-13")
@pytest.mark.parametrize("problem", [None, "There is no such workflow."])
@pytest.mark.parametrize("waited", [True, False])
async def test_a_run_that_is_waited_for_is_driven_at_once_and_looked_at_then(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch, waited: bool, problem: str | None
) -> None:
    work = StartRun(step("b"), OTHER, "other", 3, {"n": 1}, waited)
    started = OtherRun(
        "queued", {"n": 7}, {"code": "a"}, shaped=("before",), origins=[1], used={"calls": 1}, problem=problem
    )
    seen = OtherRun("succeeded", {"n": 8}, {"code": "b"}, shaped=("then",), origins=[2], used={"calls": 2})
    monkeypatch.setattr(driving, "start_other", driving_.asked("starts", started))
    monkeypatch.setattr(driving, "look", driving_.asked("looks", seen))
    monkeypatch.setattr(driving_.drive, "_drive_within", driving_.asked("drives"))
    monkeypatch.setattr(waits, "started", driving_.noted("is told", Over()))
    tools, hold = driving_.tools, driving_.drive._holding.hold
    assert hold is not None
    assert await driving_.drive._CARRY_OUT[StartRun](driving_.drive, work) == Over()
    within = waited and problem is None
    drives = [("drives", OTHER), ("looks", "the connection", work, tools.definitions)]
    mine = StartRun(driving_.step, OTHER, "other", 3, {"n": 1}, waited)
    assert driving_.told == [
        ("starts", tools.database, tools.definitions, hold.view, work),
        *(drives if within else []),
        "commits",
        ("is told", TRANSITION, mine, seen if within else started, new_nonce),
    ]


class Within:
    """Drives of a run within: each is told what it was given, and what the drive above knew of it."""

    def __init__(self, found: Driving, monkeypatch: pytest.MonkeyPatch, taken: list[Any], fails: Any = None) -> None:
        self.ran: list[Any] = []
        self.claimed: list[Any] = []
        self._found, self._claims, self._fails = found, taken, fails
        monkeypatch.setattr(driving, "Drive", self._drive)
        monkeypatch.setattr(claims, "claim_of_run", self._claim)

    def _drive(self, *given: Any) -> Any:
        assert given == (self._found.tools, self._found.drive._patience)
        return SimpleNamespace(run=self._run, leased=[(OTHER, Claim("c", uid(4), 1))])

    async def _run(self, record: Any, began: float) -> None:
        self.ran.append((record, began, len(self._found.drive.leased)))
        self._found.now += 1
        if self._fails is not None:
            raise self._fails

    async def _claim(self, *given: Any) -> list[Any]:
        self.claimed.append(given)
        self._found.now += 0.25
        return [self._claims.pop(0), "another"] if self._claims else []


async def test_a_run_within_is_driven_step_by_step_until_none_is_left(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = Within(driving_, monkeypatch, ["one", "two"])
    with structlog.testing.capture_logs() as logs:
        await driving_.drive._drive_within(OTHER)
    assert logs == []
    # Each with the time before its claim was sent, and beaten with the lease above.
    assert within.ran == [("one", 100.0, 2), ("two", 101.25, 2)]
    assert within.claimed == [("the connection", "me", SPAN, OTHER)] * 3
    assert driving_.drive._within is None


async def test_an_error_in_a_run_within_leaves_it_to_its_leases_and_fails_nothing_above(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = Within(driving_, monkeypatch, ["one", "two"], AWAY)
    with structlog.testing.capture_logs() as logs:
        await driving_.drive._drive_within(OTHER)
    assert [each[0] for each in within.ran] == ["one"]
    assert [(each["event"], each["run"]) for each in logs] == [
        ("child run abandoned until its lease runs out", str(OTHER))
    ]
    assert driving_.drive._within is None


@pytest.mark.parametrize(("above", "within"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_beat_is_told_to_the_run_within_as_well(driving_: Driving, above: bool, within: bool) -> None:
    """Calls are under way above, within, or nowhere, when a lease is not ours any more."""
    told: list[Any] = []

    def beaten(*given: Any, **named: Any) -> bool:
        told.append((given, named))
        return within

    drive: Any = driving_.drive
    drive._within = SimpleNamespace(beaten=beaten)
    calls: list[float] = []
    if above:
        drive._holding.lease._call = SimpleNamespace(reschedule=calls.append)
    assert drive.beaten(CLAIM, 90.0, ours=False) is above
    assert told == [((CLAIM, 90.0), {"ours": False})]
    assert calls == ([0.0] if above else [])
    assert drive.beaten(Claim("other", uid(9), 1), 95.0, ours=True) is within
    assert told[1:] == [((Claim("other", uid(9), 1), 95.0), {"ours": True})]
    lease, until = drive._holding.lease, drive._holding.lease.until
    for before in (Claim("b", CLAIM.id, CLAIM.epoch), Claim(CLAIM.key, CLAIM.id, CLAIM.epoch + 1)):
        assert drive.beaten(before, until + 1, ours=True) is within, "the same lease has gone on to another step"
        assert drive.beaten(before, until + 1, ours=False) is within
        assert lease.until == until or above
