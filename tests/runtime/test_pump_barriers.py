"""The barrier that the pump of a run appends when the last step has left, and the steps that it takes along."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from runtime.engine.commit import Claim
from runtime.engine.instructions import Over, Perform
from runtime.engine.states import WaitKind
from runtime.engine.transition import Transition
from runtime.engine.windows import NeedsItems
from runtime.work import pump
from runtime.work.lease import LostLease
from runtime.work.pump import CONFLICTS_MAX
from tests.support.pumping import RUN_ID, Pumping, World, away, fails, moved, settles

LAST = "at hand: p0.started p0.succeeded, holds p0: version 5, 0 executing"
NOTHING: Any = None


def last_of_two(monkeypatch: pytest.MonkeyPatch) -> Pumping:
    """A worker whose step is the last to leave, which it does not know: another's left after it had read the run."""
    pumping = Pumping(World.of(2, leased=1), monkeypatch, linger=0.0)
    pumping.pump.drives = 1
    pumping.met()
    pumping.world.elsewhere("p1")
    del pumping.world.told[:]
    return pumping


async def test_the_last_one_reads_the_book_and_appends_the_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = last_of_two(monkeypatch)
    (found,) = await moved(pumping, pumping.move("p0"))
    assert found.work == Over()
    assert pumping.world.told == [
        LAST,
        "reads since version 3",
        "at hand, strict: committed: version 6, 1 executing",
    ]
    met = pumping.recent[RUN_ID]
    assert (met.seen, met.view.version, met.drifted, met.exact is met.view) == (6, 6, False, True)
    assert met.view.run.state.channels == {"seen": ["p0"]}


async def test_who_is_not_the_last_appends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = Pumping(World.of(3, leased=1), monkeypatch, linger=0.0)
    pumping.met()
    pumping.world.elsewhere("p1")
    await moved(pumping, pumping.move("p0"))
    assert pumping.world.told[1:] == ["at hand: p0.started p0.succeeded, holds p0: version 5, 1 executing"]


@pytest.mark.parametrize("ended", ["canceled", "waits"])
async def test_a_run_that_is_over_or_waits_owes_no_barrier(monkeypatch: pytest.MonkeyPatch, ended: str) -> None:
    """Its steps have left, and so has what comes after them."""
    pumping = Pumping(World.of(1), monkeypatch, linger=0.0)
    world = pumping.world
    claim = world.claims["p0"]
    if ended == "canceled":
        world.canceled()
    else:
        view = world.view()
        transition = Transition(view, world.run.workflow.graph)
        transition.park(transition.started(view.run.steps["p0"]), WaitKind.SIGNAL, "t")
        assert world.append("elsewhere", transition.commit()) is not None
    view = world.view()
    assert (view.run.executing, view.run.finished) == (0, ended == "canceled")
    world.claims["p0"] = claim  # by whatever fault the row is still there
    del world.told[:]
    (found,) = await moved(pumping, pumping.move("p0"))
    assert isinstance(found, LostLease)
    assert world.told == ["locks p0", "reads lock"]


async def test_who_only_begins_a_step_while_the_last_one_leaves_appends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An append that lets no step leave owes no barrier, even if the answer says that none executes."""
    pumping = Pumping(World.of(2, leased=1), monkeypatch, linger=0.0)
    pumping.met()
    world = pumping.world
    world.run.executing = 0

    def begins(transition: Transition, step: Any, _: Any, __: Any) -> Perform:
        return Perform(step, NOTHING, NOTHING, None)

    (found,) = await moved(pumping, pumping.move("p0", begins))
    assert isinstance(found.work, Perform)
    assert world.told == ["at hand: p0.started, holds p0: version 4, 0 executing"]


@pytest.mark.parametrize("meanwhile", ["gate", "barrier", "over"])
async def test_a_barrier_that_another_has_appended_is_appended_by_nobody_else(
    monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    pumping = last_of_two(monkeypatch)
    world, load = pumping.world, pumping.world.load

    async def read(*given: Any, **how: Any) -> Any:
        if meanwhile == "gate":
            world.gate_moves()
        elif meanwhile == "over":
            world.canceled()
        else:
            view = world.view()
            transition = Transition(view, world.run.workflow.graph)
            transition.left()
            assert world.append("elsewhere", transition.commit()) is not None
        return await load(*given, **how)

    monkeypatch.setattr(pump, "load", read)
    (found,) = await moved(pumping, pumping.move("p0"))
    assert found.work == Over()
    assert [each for each in world.told[1:] if not each.startswith("elsewhere")] == ["reads since version 3"]


@pytest.mark.parametrize("refusals", [1, CONFLICTS_MAX - 1, CONFLICTS_MAX, CONFLICTS_MAX + 1])
async def test_a_barrier_that_is_refused_is_decided_again(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    """Others append in between what does not cross it, time and again; the sweeper is left to do it in the end."""
    pumping = last_of_two(monkeypatch)
    world = pumping.world

    def another() -> None:
        world.run.version += 1

    world.before = dict.fromkeys(range(2, 2 + refusals), another)
    await moved(pumping, pumping.move("p0"))
    tries = min(refusals, CONFLICTS_MAX)
    assert world.told.count("at hand, strict: committed: refused") == tries
    crossed = [each for each in world.told if "committed: version" in each]
    assert len(crossed) == (refusals < CONFLICTS_MAX)


async def test_a_barrier_that_needs_items_which_are_not_kept_reads_the_book_from_its_first_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pumping = last_of_two(monkeypatch)
    left, needs = Transition.left, iter([True, False])

    def once(transition: Transition) -> None:
        if not transition.run.executing and next(needs):
            raise NeedsItems
        left(transition)

    monkeypatch.setattr(Transition, "left", once)
    await moved(pumping, pumping.move("p0"))
    assert pumping.world.told == [
        LAST,
        "reads since version 3",
        "reads afresh since version 5",
        "at hand, strict: committed: version 6, 1 executing",
    ]


async def test_a_barrier_that_cannot_be_appended_costs_the_settle_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = last_of_two(monkeypatch)
    pumping.world.before = {2: fails(away())}
    with structlog.testing.capture_logs() as logs:
        (found,) = await moved(pumping, pumping.move("p0"))
    assert found.work == Over()
    assert pumping.world.told == [LAST, "reads since version 3"]
    assert logs == [
        {
            "event": "barrier not appended; the sweeper will append it", "log_level": "warning", "run": str(RUN_ID),
            "reason": "ConnectionDoesNotExistError: connection was closed in the middle of operation",
        }
    ]  # fmt: skip


# -- the next step under the same lease ------------------------------------------------------------------------------


def begins(transition: Transition, step: Any, *_: Any) -> Perform:
    return Perform(step, NOTHING, NOTHING, None)


@pytest.mark.parametrize("goes_on", [True, False])
async def test_who_goes_on_begins_the_next_step_in_the_same_append(
    monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    pumping = Pumping(World.of(1), monkeypatch, linger=0.0)
    pumping.met()
    monkeypatch.setattr(pump, "begin", begins)
    claim = pumping.world.claims["p0"]
    (found,) = await moved(pumping, pumping.move("p0", goes_on=goes_on))
    if goes_on:
        assert (found.work.step.key, found.work.step.lease_owner, found.work.step.lease_epoch) == ("z", "me", 1)
        assert pumping.world.told == [
            "at hand, strict: p0.started p0.succeeded committed z.started, holds p0: version 4, 1 executing"
        ]
        assert pumping.world.claims == {"z": Claim("z", claim.id, 1)}
    else:
        assert found.work == Over()
        assert (pumping.world.told, pumping.world.claims) == (
            ["at hand, strict: p0.started p0.succeeded committed, holds p0: version 4, 1 executing"], {},
        )  # fmt: skip


async def test_who_goes_on_goes_on_until_a_step_needs_the_outside_or_none_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pumping = Pumping(World.of(1), monkeypatch, linger=0.0)
    pumping.met()
    monkeypatch.setattr(pump, "begin", lambda transition, step, *_: settles()(transition, step, NOTHING, NOTHING))
    (found,) = await moved(pumping, pumping.move("p0", goes_on=True))
    assert found.work == Over()
    assert pumping.world.told == [
        (
            "at hand, strict: p0.started p0.succeeded committed z.started z.succeeded committed closed,"
            " holds p0: version 4, 0 executing"
        )
    ]
    assert RUN_ID not in pumping.recent, "a run that is over is not kept"


async def test_what_is_to_be_done_with_its_own_step_comes_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move whose step goes on by itself takes no other."""
    pumping = Pumping(World.of(2), monkeypatch, linger=0.0)
    pumping.met()
    monkeypatch.setattr(pump, "begin", fails(AssertionError("no step is begun")))
    (found,) = await moved(pumping, pumping.move("p0", begins, goes_on=True))
    assert found.work.step.key == "p0"


async def test_each_of_several_moves_takes_a_step_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps end together, and one is behind them: who is first takes it, the other one has nothing left to do."""
    pumping = Pumping(World.of(2), monkeypatch, linger=0.0)
    pumping.pump.drives = 2
    pumping.met()
    monkeypatch.setattr(pump, "begin", begins)
    ids = {key: claim.id for key, claim in pumping.world.claims.items()}
    found = await moved(pumping, *(pumping.move(key, goes_on=True) for key in ("p1", "p0")))
    assert [type(each.work) for each in found] == [Perform, Over]
    assert pumping.world.claims == {"z": Claim("z", ids["p1"], 1)}
