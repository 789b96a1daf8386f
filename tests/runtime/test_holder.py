"""The holder of one lease: its time, its commits while PostgreSQL is away, and the step that it holds next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
import structlog

from core.clock import Patience
from core.errors import CountersealError
from runtime.engine.commit import Claim
from runtime.engine.instructions import Over, Perform
from runtime.work.lease import HeldStep, Holder, Lease, LostLease, Move, Moved, Sent
from tests.support.rows import uid

SPAN = timedelta(seconds=30)
CLAIM = Claim("a", uid(1), 4)
AWAY = asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
WRONG = RuntimeError("a fault of ours")
NOTHING: Any = None


def step(key: str = "a", epoch: int = 4, number: int = 0) -> Any:
    return SimpleNamespace(key=key, step_id=uid(number), lease_epoch=epoch)


class Impatient(Patience):
    """Patience without a pause, that says who was how often patient."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[Any] = []

    async def pause(self, who: object, tries: int, error: Exception, **facts: str) -> None:
        self.said.append((who, tries, error, facts))

    def told(self, who: object) -> None:
        self.said.append((who, "told"))


class Appending:
    """An append that ends so, one time after the other; it takes the moves down."""

    def __init__(self, *ends: Any) -> None:
        self.moves: list[Move] = []
        self.how: list[tuple[bool, bool, int]] = []
        self._ends = [*ends]

    async def __call__(self, move: Move) -> Any:
        self.moves.append(move)
        self.how.append((move.goes_on, move.known, len(move.unanswered)))
        move.unanswered.append(NOTHING)
        end = self._ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


def holding(*ends: Any) -> tuple[Holder, Appending, Impatient]:
    """A holder of the step ``a`` since second 100, whose appends end so."""
    patience, append = Impatient(), Appending(*ends)
    holder = Holder(SPAN, patience)
    holder.begin(HeldStep("met", step(), CLAIM, 100.0, append))  # type: ignore[arg-type]
    return holder, append, patience


def moved(work: Any, began: float = 111.0) -> Moved:
    return Moved("met then", work, began)  # type: ignore[arg-type]


def build(*_: Any) -> Any:
    return Over()


def performs(held: Any) -> Perform:
    return Perform(held, NOTHING, NOTHING, None)


def test_a_lease_lasts_from_when_its_claim_was_sent() -> None:
    holder, _, _ = holding()
    assert (holder.step, holder.lease.until, holder.now()) == (holder.now().step, 130.0, holder.hold)


async def test_between_steps_nothing_is_held_and_nothing_appended() -> None:
    holder, append, _ = holding(moved(Over()))
    assert await holder.commit(build) == Over()
    assert (holder.hold, holder.step) == (None, None)
    with pytest.raises(LostLease):
        holder.now()
    with pytest.raises(LostLease):
        await holder.commit(build)
    assert len(append.moves) == 1


@pytest.mark.req("Q-9")
@pytest.mark.parametrize(
    ("next_step", "until"),
    [
        (step("a", 4, number=0), 130.0),
        (step("b", 1, number=9), 141.0),
    ],
)
async def test_the_next_step_is_held_under_the_same_lease_whose_time_begins_anew(next_step: Any, until: float) -> None:
    """An append about the same step extends nothing in the database, so it does not do so here."""
    holder, append, _ = holding(moved(performs(next_step)))
    work = await holder.commit(build)
    assert work == performs(next_step)
    claim = Claim(next_step.key, CLAIM.id, next_step.lease_epoch)
    hold: Any = ("met then", next_step, claim, 111.0, append)
    assert holder.hold == HeldStep(*hold)
    assert holder.lease.until == until


@pytest.mark.parametrize("known", [False, True])
async def test_a_move_says_whose_it_is_and_if_its_outcome_is_known(known: bool) -> None:
    holder, append, patience = holding(moved(Over()))
    await holder.commit(build, known=known)
    (move,) = append.moves
    assert (move.claim, move.build, append.how) == (CLAIM, build, [(True, known, 0)])
    assert patience.said == [], "nobody waited for anything"


@pytest.mark.req("Q-8")
async def test_an_append_is_tried_until_postgresql_is_back_and_knows_of_all_tries_before() -> None:
    holder, append, patience = holding(AWAY, AWAY, AWAY, AWAY, moved(Over()))
    assert await holder.commit(build, known=True) == Over()
    assert append.how == [(True, True, number) for number in range(5)]
    facts = {"step": str(uid(0))}
    assert patience.said == [*((holder, tries, AWAY, facts) for tries in range(4)), (holder, "told")]


async def test_an_outcome_that_is_settled_alone_is_known_all_the_same() -> None:
    """An outcome may be recorded after its lease ran out, with its next step and without."""
    holder, append, _ = holding(WRONG, AWAY, moved(Over()))
    assert await holder.commit(build, known=True) == Over()
    assert append.how == [(True, True, 0), (False, True, 1), (False, True, 2)]


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        (timedelta(seconds=30), 30.0),
        (timedelta(milliseconds=250), 0.25),
        (timedelta(days=1, milliseconds=1500), 86_401.5),
    ],
)
async def test_a_lease_is_of_its_whole_span_and_nobody_s_before_it_is_held(span: timedelta, seconds: float) -> None:
    lease = Lease(span)
    called: list[str] = []

    async def call() -> None:
        called.append("called")

    assert lease.seconds == seconds
    with pytest.raises(LostLease):
        await lease.call(call)
    assert (called, lease.lost()) == ([], False)


def test_a_beat_that_was_sent_before_the_last_append_shortens_nothing() -> None:
    lease = Lease(SPAN)
    untils = []
    for began in (100.0, 90.0, 100.0, 111.5):
        lease.renewed(began)
        untils.append(lease.until)
    assert untils == [130.0, 130.0, 130.0, 141.5]
    lease.lost()
    lease.renewed(120.0)
    assert lease.until == 150.0, "it is ours again"


async def test_a_call_is_given_up_once() -> None:
    holder, _, _ = holding()
    lease, found = holder.lease, list[bool]()
    lease.until = lease.now() + 30

    async def call() -> None:
        found.extend([lease.lost(), lease.lost()])
        await asyncio.Event().wait()

    with pytest.raises(LostLease):
        await lease.call(call)
    assert (found, lease.until) == ([True, False], 0.0)


@pytest.mark.parametrize(
    ("ends", "raised", "tries"),
    [
        ([LostLease()], LostLease, 1),
        ([AWAY, LostLease()], LostLease, 2),
        ([CountersealError("no")], None, 2),
        ([WRONG], None, 2),
        ([WRONG, WRONG], RuntimeError, 2),
        ([WRONG, AWAY, WRONG], RuntimeError, 3),
        ([asyncpg.CheckViolationError("no"), asyncpg.CheckViolationError("no")], asyncpg.CheckViolationError, 2),
        ([asyncpg.UniqueViolationError("no"), asyncpg.UniqueViolationError("no")], asyncpg.UniqueViolationError, 2),
    ],
)
async def test_a_fault_is_tried_once_more_without_the_next_step_and_then_told(
    ends: list[Exception], raised: type[Exception] | None, tries: int
) -> None:
    """Maybe only the next step could not be begun."""
    holder, append, patience = holding(*ends, moved(Over()))
    hold = holder.hold
    if raised is None:
        assert await holder.commit(build) == Over()
    else:
        with pytest.raises(raised):
            await holder.commit(build)
        assert holder.hold is hold, "whoever sets it back needs to know it"
    assert len(append.moves) == tries
    faults = [type(end) not in (LostLease, type(AWAY)) for end in ends[:tries]]
    alone = [any(faults[:number]) for number in range(tries)]
    assert [goes_on for goes_on, _, _ in append.how] == [not each for each in alone]
    assert [each[1] for each in patience.said] == ([0, "told"] if AWAY in ends else [])


@pytest.mark.parametrize("error", [OSError("no"), TimeoutError(), AWAY])
async def test_a_network_that_is_away_is_waited_for(error: Exception) -> None:
    holder, append, patience = holding(error, moved(Over()))
    assert await holder.commit(build) == Over()
    assert (len(append.moves), patience.said[0][:3]) == (2, (holder, 0, error))


async def test_what_passes_by_itself_but_not_at_once_is_for_the_next_lease() -> None:
    holder, append, patience = holding(asyncpg.InvalidAuthorizationSpecificationError("no"), moved(Over()))
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await holder.commit(build)
    assert (len(append.moves), patience.said) == (1, [])


async def test_a_step_that_is_settled_alone_is_told_in_the_log() -> None:
    holder, _, _ = holding(WRONG, moved(Over()))
    with structlog.testing.capture_logs() as logs:
        await holder.commit(build)
    assert logs == [
        {
            "event": "step settled alone; its next step could not be begun", "log_level": "warning",
            "reason": "a fault of ours",
        }
    ]  # fmt: skip


# -- the moves of one append -----------------------------------------------------------------------------------------


def sent(works: dict[Claim, Any]) -> Sent:
    return Sent(NOTHING, NOTHING, NOTHING, works, 50.0)


def move(claim: Claim) -> Move:
    return Move(claim, build, True, False, [])


async def test_each_move_that_is_in_an_append_is_given_its_own_result() -> None:
    other, third = Claim("b", uid(2), 1), Claim("c", uid(3), 1)
    moves = [move(CLAIM), move(other), move(third), move(Claim("a", uid(9), 4))]
    moves[1].done.cancel()
    failed = move(other)
    failed.fail(LostLease())
    moves.append(failed)
    works: dict[Claim, Any] = {CLAIM: Over(), other: "other", third: "third"}
    given: Any = "met"
    sent(works).settle(moves, given)
    assert [each.done.done() for each in moves] == [True, True, True, False, True]
    assert type(failed.done.exception()) is LostLease
    assert moves[0].done.result() == Moved(given, Over(), 50.0)
    assert moves[1].done.cancelled()
    assert moves[2].done.result() == Moved(given, works[third], 50.0)


async def test_a_move_notes_the_append_that_it_was_in_and_no_other() -> None:
    moves = [move(CLAIM), move(Claim("b", uid(2), 1))]
    append = sent({CLAIM: Over()})
    append.unanswered(moves)
    assert [each.unanswered for each in moves] == [[append], []]
    again = sent({CLAIM: Over()})
    again.unanswered(moves)
    assert [[id(one) for one in each.unanswered] for each in moves] == [[id(append), id(again)], []]


async def test_a_move_fails_once_and_not_after_it_was_made() -> None:
    made, failed = move(CLAIM), move(CLAIM)
    sent({CLAIM: Over()}).settle([made], NOTHING)
    for each in (made, failed):
        each.fail(WRONG)
        each.fail(LostLease())
    assert made.done.result().work == Over()
    assert failed.done.exception() is WRONG


async def test_a_call_that_ends_by_itself_in_time_is_no_lost_lease() -> None:
    """A deadline of its own is its own affair if the lease is still good."""
    holder, _, _ = holding()
    lease = holder.lease
    lease.until = lease.now() + 60

    async def ends(then: Callable[[], Any]) -> Any:
        return then()

    assert await lease.call(lambda: ends(lambda: 7)) == 7
    assert lease._call is None

    for error in (WRONG, TimeoutError("its own")):

        def wrong(error: Exception = error) -> Any:
            raise error

        with pytest.raises(type(error), match=str(error)):
            await lease.call(partial(ends, wrong))
        assert (lease._call, lease.until > lease.now()) == (None, True)

    def lost() -> Any:
        lease.lost()
        raise TimeoutError("its own, when the lease is lost")

    with pytest.raises(LostLease):
        await lease.call(lambda: ends(lost))
    lease.until = lease.now() + 60
    assert not lease.lost()
    assert lease.until == 0.0
    with pytest.raises(LostLease):
        await asyncio.wait_for(lease.call(lambda: ends(lambda: 7)), 20)
