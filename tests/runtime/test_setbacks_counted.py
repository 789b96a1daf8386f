"""Setbacks and lost leases of a step, counted in its book: the last that is borne, and the first that is not."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from core.errors import ConsistencyError
from evidence.receipts import ReceiptStatus
from runtime.engine import doubt
from runtime.engine.commit import Claim
from runtime.engine.states import StepState, WaitKind
from runtime.engine.transition import Transition
from runtime.store import claims
from runtime.work import setbacks
from runtime.work.setbacks import LEASES_MAX, SETBACKS_MAX, lease_over, leased, set_back, set_back_wait
from tests.support.pumping import RUN_ID, World
from tests.support.rows import uid

NOTHING: Any = None
WRONG = ConsistencyError("a fault of ours")


def facts(code: str, count: int, message: str = "ConsistencyError: a fault of ours", **more: Any) -> dict[str, Any]:
    counter = {"unexpected": "setbacks", "lease_lost": "leases"}[code]
    return {"class": "consistency", "code": code, "message": message, counter: count, **more}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A run with two steps at once, both leased, whose book the setbacks are written to."""
    found = World.of(2)

    async def load_to_end(connection: Any, run_id: Any, graphs: Any, *, lock: bool, leased: str | None = None) -> Any:
        assert (connection, run_id, graphs, lock) == ("the transaction", RUN_ID, "the graphs", True)
        found.told.append("reads" if leased is None else f"reads {leased}")
        return found.view()

    async def apply(connection: Any, commit: Any) -> Any:
        assert connection == "the transaction"
        return found.append("sets back", commit)

    monkeypatch.setattr(claims, "hold", found.hold)
    monkeypatch.setattr(setbacks, "load_to_end", load_to_end)
    monkeypatch.setattr(setbacks, "apply", apply)
    return found


class Definitions:
    graphs = "the graphs"


CONNECTION: Any = "the transaction"
DEFINITIONS: Any = Definitions()


async def sets_back(world: World, key: str = "p0", claim: Claim | None = None) -> None:
    await set_back(CONNECTION, DEFINITIONS, RUN_ID, claim or world.claims[key], "me", WRONG)


def last_error(world: World, key: str = "p0") -> Any:
    return world.view().run.steps[key].last_error


def said(world: World) -> list[str]:
    return [orjson.loads(line)["type"] for line in world.run.lines]


@pytest.mark.req("Q-8")
async def test_a_step_is_set_back_a_bounded_number_of_times(world: World) -> None:
    for count in range(1, SETBACKS_MAX):
        await sets_back(world)
        step = world.view().run.steps["p0"]
        assert (step.status, step.lease_owner, step.lease_epoch) == (StepState.RUNNING, "me", 1)
        assert step.last_error == facts("unexpected", count, epoch=1)
    begun = "locks p0", "reads p0", "sets back, strict: p0.started p0.set_back: version 4, 2 executing"
    assert world.told[:3] == [*begun]
    assert len(world.told) == 3 * (SETBACKS_MAX - 1)
    await sets_back(world)
    assert world.told[-1] == "sets back, strict: p0.failed: version 8, 1 executing"
    step = world.view().run.steps["p0"]
    assert (step.status, step.last_error) == (StepState.FAILED_TERMINAL, facts("unexpected", SETBACKS_MAX, epoch=1))
    assert not world.view().run.finished, "the other step is still at work"
    for _ in range(SETBACKS_MAX):
        await sets_back(world, "p1")
    assert world.view().run.finished
    assert world.view().run.error == facts("unexpected", SETBACKS_MAX, epoch=1, step="p1")


@pytest.mark.req("Q-9")
@pytest.mark.parametrize("lease", ["over", "another's", "gone", "of a step that is over"])
async def test_a_lease_that_is_not_ours_sets_nothing_back(world: World, lease: str) -> None:
    claim = world.claims["p0"]
    if lease == "over":
        world.over.add("p0")
    elif lease == "another's":
        world.lease("p0", epoch=2)
    elif lease == "gone":
        del world.claims["p0"]
    else:
        world.elsewhere("p0")
        world.claims["p0"] = claim
    before = world.run.version
    await sets_back(world, claim=claim)
    assert (world.run.version, world.told[-2:]) == (before, ["locks p0", "reads p0"])


# -- leases that ran out ---------------------------------------------------------------------------------------------


def runs_out(world: World, key: str = "p0") -> None:
    """The lease of the step's newest owner runs out, and a sweeper finds it."""
    transition = Transition(world.view(), world.run.workflow.graph)
    step = leased(transition, world.claims[key], "gone")
    assert step is not None
    lease_over(transition, step)
    commit = transition.commit()
    assert world.append("sweeps", commit) is not None
    if commit.requeued:
        world.lease(key, epoch=world.claims[key].epoch + 1)


@pytest.mark.req("Q-8")
async def test_leases_that_run_out_without_a_word_are_counted_and_the_last_one_fails_the_step(world: World) -> None:
    words = (
        "The lease of this step ran out {} times in a row without an outcome (last of gone). Look in the workers' logs"
        " for what ends or stalls them at this step."
    )
    for count in range(1, LEASES_MAX):
        runs_out(world)
        assert last_error(world) == facts("lease_lost", count, words.format(count))
        assert world.view().run.steps["p0"].status is StepState.READY
    runs_out(world)
    step = world.view().run.steps["p0"]
    assert step.status is StepState.FAILED_TERMINAL
    assert step.last_error == facts("lease_lost", LEASES_MAX, words.format(LEASES_MAX))


async def test_a_lease_that_runs_out_after_a_setback_is_the_pause_after_it(world: World) -> None:
    """Count it once, as the setback. The next one, under which nothing was noted, is counted by itself."""
    await sets_back(world)
    noted = last_error(world)
    runs_out(world)
    assert last_error(world) == noted
    runs_out(world)
    assert last_error(world)["leases"] == 1
    await sets_back(world)
    assert last_error(world) == facts("unexpected", 1, epoch=3)


@pytest.mark.req("Q-8")
@pytest.mark.parametrize(("status", "marked"), [(None, False), *((each, each == "intended") for each in ReceiptStatus)])
def test_a_step_that_is_given_up_leaves_its_intent_in_doubt(
    monkeypatch: pytest.MonkeyPatch, status: ReceiptStatus | None, marked: bool
) -> None:
    """First the doubt is told, and then the end of the step. What is settled stays as it is."""
    told: list[Any] = []
    receipt = None if status is None else SimpleNamespace(status=status)

    def last(run: Any, key: str) -> Any:
        assert (run, key) == ("the run", "p0")
        return receipt

    monkeypatch.setattr(setbacks, "last_receipt", last)
    monkeypatch.setattr(doubt, "mark", lambda *given: told.append(("doubts", *given)))
    transition: Any = SimpleNamespace(run="the run", give_up=lambda *given: told.append(("gives up", *given)))
    step: Any = SimpleNamespace(key="p0")
    setbacks._give_up(transition, step, {"code": "x"})
    doubts = [("doubts", transition, receipt, "its outcome could not be recorded")]
    assert told == [*(doubts if marked else []), ("gives up", step, {"code": "x"})]


@pytest.mark.parametrize(("status", "begun"), [("ready", 2), ("running", 1), ("waiting", None), ("over", None)])
async def test_a_leased_step_is_begun_if_its_owner_has_not_begun_it(
    world: World, status: str, begun: int | None
) -> None:
    claim = world.claims["p0"]
    before = Transition(world.view(), world.run.workflow.graph)
    if status != "ready":
        step = before.started(before.view.run.steps["p0"])
        if status == "waiting":
            before.park(step, WaitKind.SIGNAL, "t")
        elif status == "over":
            before.succeed(step, None, {})
        assert world.append("elsewhere", before.commit()) is not None
    transition = Transition(world.view(), world.run.workflow.graph)
    found = leased(transition, Claim("p0", claim.id, 7), "owner")
    if begun is None:
        assert found is None
    else:
        assert found is not None
        assert (found.status, found.lease_owner, found.lease_epoch) == (StepState.RUNNING, "owner", 7)
    assert len(transition._told) == (1 if status == "ready" else 0)
    assert leased(transition, Claim("none", claim.id, 7), "owner") is None


# -- waits that are due ----------------------------------------------------------------------------------------------


@pytest.mark.req("Q-8")
async def test_a_due_wait_is_put_off_for_longer_each_time_and_then_its_step_fails(world: World) -> None:
    transition = Transition(world.view(), world.run.workflow.graph)
    transition.park(transition.started(transition.view.run.steps["p0"]), WaitKind.SIGNAL, "t", timedelta(seconds=1))
    assert world.append("elsewhere", transition.commit()) is not None
    (wait,) = world.view().run.waits.values()
    back = [CONNECTION, DEFINITIONS, RUN_ID, "p0", wait.wait_id, WRONG]
    dues = []
    for count in range(1, SETBACKS_MAX):
        await set_back_wait(*back)
        (now,) = world.view().run.waits.values()
        assert (now.status, now.context) == ("waiting", {"setbacks": count})
        dues.append(orjson.loads(world.run.lines[-1])["data"]["due"])
    assert dues == [30, 60, 90, 120]
    await set_back_wait(*back)
    assert world.told[-1].startswith("sets back, strict: p0.timed_out p0.failed: version ")
    step = world.view().run.steps["p0"]
    assert (step.status, step.last_error) == (StepState.FAILED_TERMINAL, facts("unexpected", SETBACKS_MAX))


@pytest.mark.parametrize("what", ["another step", "no wait", "another wait"])
async def test_a_wait_that_is_none_any_more_is_not_set_back(world: World, what: str) -> None:
    transition = Transition(world.view(), world.run.workflow.graph)
    transition.park(transition.started(transition.view.run.steps["p0"]), WaitKind.SIGNAL, "t")
    assert world.append("elsewhere", transition.commit()) is not None
    (wait,) = world.view().run.waits.values()
    key, wait_id = {
        "another step": ("none", wait.wait_id), "no wait": ("p1", wait.wait_id), "another wait": ("p0", uid(9))
    }[what]  # fmt: skip
    before = world.run.version
    await set_back_wait(CONNECTION, DEFINITIONS, RUN_ID, key, wait_id, WRONG)
    assert world.run.version == before


@pytest.mark.parametrize(
    ("noted", "count"),
    [(None, 1), ({}, 1), ({"setbacks": 0}, 1), ({"setbacks": 4}, 5), ({"setbacks": "4"}, 1), ({"leases": 4}, 1)],
)
def test_setbacks_are_counted_in_a_row(noted: Any, count: int) -> None:
    assert setbacks._count(noted) == count
