"""The pump of a run when something fails: who is told what, whose move goes alone, and what is asked once more."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from core.errors import CountersealError
from runtime.engine.instructions import Over
from runtime.engine.states import StepState
from runtime.engine.windows import NeedsItems
from runtime.store import claims
from runtime.work import pump
from runtime.work.lease import LostLease, Moved
from runtime.work.pump import CONFLICTS_MAX
from tests.support.pumping import DEADLOCK, RUN_ID, Pumping, World, away, fails, moved

REFUSED = asyncpg.CheckViolationError("a row is refused")


def wide(monkeypatch: pytest.MonkeyPatch, count: int, *, known: bool = True, **how: Any) -> Pumping:
    """A worker that drives all steps of a run with so many at once, and has met it, if it is ``known``."""
    pumping = Pumping(World.of(count, **how), monkeypatch, linger=0.0)
    pumping.pump.drives = count
    if known:
        pumping.met()
    return pumping


def short(told: list[str]) -> list[str]:
    """The requests, without what was told by them."""
    return [
        f"{each.partition(':')[0]}{' refused' * each.endswith('refused')}" if ":" in each else each for each in told
    ]


# -- a move that cannot be built -------------------------------------------------------------------------------------


async def test_a_move_that_cannot_be_built_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = wide(monkeypatch, 3)
    wrong = ValueError("a fault of ours")
    moves = [pumping.move("p0"), pumping.move("p1", fails(wrong)), pumping.move("p2")]
    found = await moved(pumping, *moves)
    assert found[1] is wrong
    assert [found[0].work, found[2].work] == [Over(), Over()]
    assert pumping.world.told == [
        "at hand: p0.started p0.succeeded p2.started p2.succeeded, holds p0 p2: version 4, 1 executing"
    ]


@pytest.mark.parametrize("known", [True, False])
async def test_a_single_move_that_cannot_be_built_says_itself_why(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Told as it is, with nothing around it, because the caller looks at its kind."""
    pumping = wide(monkeypatch, 1, known=known)
    wrong = ValueError("a fault of ours")
    assert await moved(pumping, pumping.move("p0", fails(wrong))) == [wrong]
    assert pumping.world.sent == 0


async def test_the_next_step_that_cannot_be_begun_is_the_fault_of_its_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of three steps is the last one, and its mover takes the next: that fails, and the others go."""
    wrong = ValueError("a fault of ours")
    monkeypatch.setattr(pump, "begin", fails(wrong))
    pumping = wide(monkeypatch, 2)
    found = await moved(pumping, pumping.move("p0", goes_on=True), pumping.move("p1"))
    assert found[0] is wrong
    assert found[1].work == Over()
    assert pumping.world.told == ["at hand: p1.started p1.succeeded, holds p1: version 4, 1 executing"]


async def test_needed_items_are_no_fault_of_a_move_even_on_the_book(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = wide(monkeypatch, 2)
    needs = NeedsItems()
    found = await moved(pumping, pumping.move("p0", fails(needs)), pumping.move("p1"))
    assert found[0] is needs
    assert found[1].work == Over()


# -- what PostgreSQL refuses -----------------------------------------------------------------------------------------


async def test_what_is_refused_of_one_is_refused_of_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = wide(monkeypatch, 3)

    def refuses() -> None:
        raise REFUSED

    # The append of all, and then that of the second one alone.
    pumping.world.before = {0: refuses, 2: refuses}
    found = await moved(pumping, *(pumping.move(f"p{n}") for n in range(3)))
    assert (type(found[0]), found[1], type(found[2])) == (Moved, REFUSED, Moved)
    assert [each.partition(":")[0] for each in pumping.world.told][-1:] == ["on the book"]
    assert set(pumping.world.claims) == {"p1"}


async def test_each_hears_why_while_postgresql_is_away_and_nothing_is_tried_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pumping = wide(monkeypatch, 3)
    error = away()
    pumping.world.before = {0: lambda: fails(error)()}
    moves = [pumping.move(f"p{n}") for n in range(3)]
    assert await moved(pumping, *moves) == [error] * 3
    assert (pumping.world.sent, pumping.world.told) == (1, [])
    assert [[sent.works.keys() for sent in move.unanswered] for move in moves] == [
        [{each.claim for each in moves}] for _ in moves
    ]


async def test_a_victim_of_a_deadlock_appends_on_the_book_until_it_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = wide(monkeypatch, 1)
    pumping.world.before = {0: fails(DEADLOCK), 1: fails(DEADLOCK)}
    (found,) = await moved(pumping, pumping.move("p0"))
    assert found.work == Over()
    assert short(pumping.world.told) == [
        *["locks p0", "reads lock since version 3", "finds nothing"] * 2, "on the book, strict"
    ]  # fmt: skip


@pytest.mark.parametrize("refusals", [CONFLICTS_MAX - 1, CONFLICTS_MAX])
async def test_who_loses_every_race_gives_up_and_says_so(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    pumping = wide(monkeypatch, 1, known=False)
    pumping.world.before = dict.fromkeys(range(refusals), pumping.world.gate_moves)
    (found,) = await moved(pumping, pumping.move("p0"))
    assert short(pumping.world.told).count("on the book, strict refused") == refusals
    if refusals < CONFLICTS_MAX:
        assert found.work == Over()
    else:
        assert (type(found), str(found)) == (
            CountersealError, f"Run {RUN_ID} changed during every attempt to append to it.",
        )  # fmt: skip


# -- leases ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-9")
@pytest.mark.parametrize(
    ("lease", "known", "recorded"),
    [
        ("ours", False, True),
        ("ours", True, True),
        ("over", False, False),
        ("over", True, True),
        ("another's", False, False),
        ("another's", True, False),
        ("gone", False, False),
        ("gone", True, False),
    ],
)
async def test_whose_lease_is_not_good_any_more_records_a_known_outcome_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, lease: str, known: bool, recorded: bool
) -> None:
    """And the move beside it, whose lease is good, is made whatever becomes of this one."""
    pumping = wide(monkeypatch, 3)
    world = pumping.world
    move, beside = pumping.move("p0", goes_on=True, known=known), pumping.move("p1", goes_on=True)
    if lease == "over":
        world.over.add("p0")
    elif lease == "another's":
        world.lease("p0", epoch=2)
    elif lease == "gone":
        del world.claims["p0"]
    found = await moved(pumping, move, beside)
    assert found[1].work == Over()
    assert (isinstance(found[0], Moved), isinstance(found[0], LostLease)) == (recorded, not recorded)
    assert (move.goes_on, beside.goes_on) == (lease == "ours", True)
    steps = "p0.started p0.succeeded p1.started p1.succeeded" if recorded else "p1.started p1.succeeded"
    assert (
        [each for each in world.told if "refused" not in each][-1]
        .partition(", holds")[0]
        .startswith(f"at hand: {steps}" if lease == "ours" else f"on the book: {steps}: version 4")
    )
    assert ("p0" in world.claims) == (not recorded and lease != "gone")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("status", ["over", "of the past"])
async def test_a_step_that_is_over_is_settled_by_nobody_whatever_the_lease_says(
    monkeypatch: pytest.MonkeyPatch, known: bool, status: str
) -> None:
    pumping = wide(monkeypatch, 2, known=status == "over")
    world = pumping.world
    claim = world.claims["p0"]
    world.elsewhere("p0")
    if status == "of the past":
        world.elsewhere("p1")
    world.claims["p0"] = claim  # by whatever fault the row is still there
    if status == "over":
        pumping.met()
    del world.told[:]
    (found,) = await moved(pumping, pumping.move("p0", known=known))
    assert isinstance(found, LostLease)
    assert (world.sent, [each for each in world.told if "at hand" in each or "on the book" in each]) == (
        1 if status == "over" else 2, [],
    )  # fmt: skip


async def test_the_rows_of_the_leases_are_locked_before_the_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = wide(monkeypatch, 2, known=False)
    await moved(pumping, pumping.move("p0"))
    assert [each.partition(" ")[0] for each in pumping.world.told[:2]] == ["locks", "reads"]


async def test_a_lease_that_ran_out_is_taken_back_to_record_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step is ready again: it is begun under the old lease, and takes no next step."""
    pumping = wide(monkeypatch, 1, known=False)
    pumping.world.over.add("p0")
    monkeypatch.setattr(pump, "begin", fails(AssertionError("no step is begun")))
    (found,) = await moved(pumping, pumping.move("p0", goes_on=True, known=True))
    assert found.work == Over()
    assert pumping.world.told[-1] == ("on the book, strict: p0.started p0.succeeded committed: version 4, 1 executing")


# -- answers that were lost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [True, False])
async def test_an_append_without_an_answer_is_looked_for_before_it_is_made_again(
    monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    pumping = wide(monkeypatch, 3, leased=2)
    world = pumping.world
    unanswered: list[list[Any]] = [[], []]
    if landed:
        world.unheard = {0}
    else:
        world.before = {0: fails(away())}

    def moves() -> list[Any]:
        return [pumping.move(f"p{n}", unanswered=unanswered[n], claim=leases[n]) for n in range(2)]

    leases = [world.claims[f"p{n}"] for n in range(2)]
    assert {type(each) for each in await moved(pumping, *moves())} == {asyncpg.ConnectionDoesNotExistError}
    assert [len(each) for each in unanswered] == [1, 1]
    del world.told[:]
    found = await moved(pumping, *moves())
    assert [each.work for each in found] == [Over(), Over()]
    assert short(world.told) == [
        "locks p0 p1", "reads lock since version 3", *(["finds it"] if landed else ["finds nothing", "on the book"])
    ]  # fmt: skip
    assert [line.count(b'"step.succeeded"') for line in [b" ".join(world.run.lines)]] == [3]


@pytest.mark.parametrize("lost", [("p0",), ("p1",), ("p0", "p1"), ()])
async def test_one_answer_that_was_lost_sends_all_that_go_along_to_the_book(
    monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...]
) -> None:
    pumping = wide(monkeypatch, 3, leased=2)
    world, noted = pumping.world, {"p0": list[Any](), "p1": list[Any]()}
    if lost:
        world.before = {0: fails(away())}
        await moved(pumping, *(pumping.move(key, unanswered=noted[key], claim=world.claims[key]) for key in lost))
    assert [key for key, sent in noted.items() if sent] == [*lost]
    del world.told[:]
    found = await moved(pumping, *(pumping.move(key, unanswered=noted[key]) for key in noted))
    assert [each.work for each in found] == [Over(), Over()]
    assert world.told[0].partition(":")[0] == ("locks p0 p1" if lost else "at hand")
    assert world.told[-1].partition(":")[0] == ("on the book" if lost else "at hand")


@pytest.mark.parametrize("status", StepState)
async def test_only_a_step_that_executes_is_moved_on_the_state_at_hand(
    monkeypatch: pytest.MonkeyPatch, status: StepState
) -> None:
    """By any other state the lease is lost, or the state is old: the book is asked which of both it is."""
    pumping = wide(monkeypatch, 2, leased=2)
    steps = pumping.recent[RUN_ID].view.run.steps
    steps["p0"] = replace(steps["p0"], status=status)
    (found,) = await moved(pumping, pumping.move("p0"))
    hand = status in (StepState.READY, StepState.RUNNING)
    assert (found.work, pumping.world.told[0].partition(":")[0]) == (Over(), "at hand" if hand else "locks p0")


async def test_an_answer_that_is_lost_on_the_book_is_noted_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = wide(monkeypatch, 2, known=False, leased=1)
    pumping.world.unheard = {0}
    move = pumping.move("p0")
    (found,) = await moved(pumping, move)
    assert (type(found), [sent.works for sent in move.unanswered]) == (
        asyncpg.ConnectionDoesNotExistError, [{move.claim: Over()}],
    )  # fmt: skip


async def test_what_was_not_sent_is_not_noted_as_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = wide(monkeypatch, 2, known=False)
    error = away()
    monkeypatch.setattr(claims, "hold", fails(error))
    move = pumping.move("p0")
    assert await moved(pumping, move) == [error]
    assert move.unanswered == []


async def test_the_last_settle_landed_unheard_and_its_barrier_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = wide(monkeypatch, 2, leased=1)
    world, unanswered = pumping.world, list[Any]()
    claim = world.claims["p0"]
    # Another's settle comes before ours, whose answer is lost: nobody knows that it was the last.
    world.before[0] = lambda: world.elsewhere("p1")
    world.unheard = {0}
    await moved(pumping, pumping.move("p0", unanswered=unanswered))
    assert world.run.executing == 0
    del world.told[:]
    (found,) = await moved(pumping, pumping.move("p0", unanswered=unanswered, claim=claim))
    assert found.work == Over()
    assert world.told == [
        "locks p0",
        "reads lock since version 3",
        "finds it",
        "reads since version 5",
        "at hand, strict: committed: version 6, 1 executing",
    ]
