"""Views of checkpoints and of steps that wait for a retry, and a run that is followed without its graph."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from core.errors import ExpressionError, InputError
from evidence.chain import Actor
from runtime.engine import events as e
from runtime.engine import past
from runtime.engine.commit import CheckpointRow, StepRow, step_id_of
from runtime.engine.graph import NO_GRAPH
from runtime.engine.past import Past, _made_of, _note, blindly, graph_of, step_rows
from runtime.engine.plan import PlanError
from runtime.engine.run import Run
from runtime.engine.states import StepState, WaitKind
from runtime.engine.told import Diverged, Told
from tests.engine.conftest import NOW, RUN_ID
from tests.engine.test_folds import READY, RUNNING, W, run_of, step

pytestmark = pytest.mark.req("X-15")

DONE, FAILED = StepState.SUCCEEDED, StepState.FAILED_TERMINAL
ENGINE = Actor("engine", "counterseal")


@pytest.mark.parametrize(
    ("anew", "extensions", "planned", "source"),
    [
        ({}, 0, 0, "loop"),
        ({}, 1, 0, "extension"),
        ({}, 2, 1, "extension"),
        ({}, 1, 1, "loop"),
        ({}, 2, 2, "loop"),
        ({"a": 0}, 0, 0, "retry"),
        ({"a": 3}, 2, 1, "retry"),
        ({"a": 3}, 2, 2, "retry"),
    ],
)
def test_a_checkpoint_says_why_it_was_made(anew: Any, extensions: int, planned: int, source: str) -> None:
    run = run_of(anew=anew, extensions=extensions)
    assert _made_of(Past(run, planned=planned)) == {"source": source, "writes": [], "channels": []}


def test_the_first_checkpoint_is_made_of_the_input_and_writes_every_channel() -> None:
    run = run_of(checkpointed=False, channels={"n": 1, "m": None}, anew={"a": 1}, extensions=1)
    assert _made_of(Past(run)) == {"source": "input", "writes": [], "channels": ["n", "m"]}


def test_a_checkpoint_is_made_of_what_its_own_steps_wrote_in_their_order() -> None:
    def row(key: str, index: int, status: StepState = DONE, superstep: int = 3, **writes: Any) -> StepRow:
        return replace(step(key, status, superstep), index=index, writes=writes or None)

    rows = (
        row("each[10].w", 4, n=10),
        row("each[9].w", 4, n=9),
        row("late", 2, n="late", m=[]),
        row("first", 1, **{"n": "first", "$reference": "R2"}),
        row("names", 0, **{"$reference": "R1"}),
        row("before", 0, superstep=2, n="before"),
        row("counted", 0, n="counted"),
        row("fails", 0, FAILED, n="fails"),
        row("runs", 0, RUNNING, n="runs"),
        row("writes_nothing", 0),
    )
    run = run_of(*rows)
    run.state.status = {"counted": "succeeded"}
    assert _made_of(Past(run)) == {
        "source": "loop",
        "writes": [
            {"step": "first", "channel": "n", "value": "first"},
            {"step": "late", "channel": "n", "value": "late"},
            {"step": "late", "channel": "m", "value": []},
            {"step": "each[9].w", "channel": "n", "value": 9},
            {"step": "each[10].w", "channel": "n", "value": 10},
        ],
        "channels": ["n", "n", "m", "n", "n"],
    }


@pytest.mark.parametrize("status", [*StepState])
@pytest.mark.parametrize("pause", [None, timedelta(0), timedelta(minutes=5)])
def test_a_step_says_when_it_goes_on_only_while_it_waits_for_its_retry(
    status: StepState, pause: timedelta | None
) -> None:
    run = run_of(replace(step("a", status), eligible_in=pause))
    retried, ended = NOW + timedelta(hours=1), NOW + timedelta(hours=2)
    (row,) = step_rows(Past(run, begun={"a": NOW}, retried={"a": retried}, ended={"a": ended}))
    waits = status is StepState.FAILED_RETRYABLE and pause is not None
    assert row["next_eligible_at"] == (retried + (pause or timedelta(0)) if waits else None)
    assert (row["created_at"], row["finished_at"]) == (NOW, ended)


def test_a_step_is_shown_with_all_that_it_has() -> None:
    made = StepRow(
        UUID(int=9), "each[1].a", 4, "o", 7, DONE, attempt=2, lease_epoch=5, lease_owner="w", idempotency_key="k",
        output={"n": 1}, writes={"c": 1}, usage={"cost": "1"}, last_error={"class": "x"}, again=6,
    )  # fmt: skip
    (row,) = step_rows(Past(run_of(made), begun={"each[1].a": NOW}))
    assert row == {
        "step_id": UUID(int=9), "step_key": "each[1].a", "step_index": 4, "operation": "o", "superstep": 7,
        "status": "succeeded", "attempt": 2, "output": {"n": 1}, "usage": {"cost": "1"}, "last_error": {"class": "x"},
        "next_eligible_at": None, "created_at": NOW, "finished_at": None,
    }  # fmt: skip


@pytest.mark.parametrize(("planned", "extensions"), [(0, 0), (0, 2), (1, 2), (2, 2)])
def test_each_checkpoint_notes_how_often_the_graph_was_extended_before_it(planned: int, extensions: int) -> None:
    run = run_of(extensions=extensions, checkpoints=[CheckpointRow(4, {}, "d")])
    found = Past(run, planned=planned, versions={"n": 1, "m": 1})
    made_of = {"source": "loop", "writes": [], "channels": ["n", "n"]}
    _note(found, Told(e.CheckpointCommitted(4, "#", False), ENGINE, NOW), (4,), made_of)
    assert (found.planned, found.versions) == (extensions, {"n": 4, "m": 1})
    seen = found.checkpoints[0]["versions_seen"]
    found.versions["n"] = 9
    assert seen == {"n": 4, "m": 1}, "a later checkpoint changes nothing of it"


def test_every_policy_of_a_decision_is_noted() -> None:
    found = Past(run_of())
    policies: Any = [{"name": name, "version": 1, "digest": name * 4} for name in "ab"]
    _note(found, Told(e.DecisionMade(UUID(int=1), "#", "o", "allow", policies, [], []), ENGINE, NOW, "a"), (), {})
    assert found.policies == {"aaaa", "bbbb"}


def test_an_event_is_folded_in_the_graph_of_its_time_and_an_extension_in_the_one_that_it_makes() -> None:
    graphs: Any = ["published", "once", "twice"]
    for extensions in (0, 1):
        run = run_of(extensions=extensions)
        assert graph_of(run, Told(e.StepCanceled(), ENGINE, NOW, "a"), graphs) == graphs[extensions]
        extended = Told(e.RunExtended(1, [], [], {}, {}), ENGINE, NOW)
        assert graph_of(run, extended, graphs) == graphs[extensions + 1]


ERRORS = [
    InputError("odd"), PlanError("if_1", ExpressionError("odd")), KeyError("odd"), IndexError("odd"), TypeError("odd"),
    ValueError("odd"), AttributeError("odd"), StopIteration("odd"),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS)
def test_a_line_that_does_not_follow_is_named_with_its_place_and_the_cause(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(past, "fold", fails)
    for key, place in (("a", "line 7 (step.canceled of a)"), (None, "line 7 (step.canceled)")):
        with pytest.raises(Diverged, match=r"does not follow from what was before: .*odd") as raised:
            past.refold(run_of(), [Told(e.StepCanceled(), ENGINE, NOW, key, 7)], [NO_GRAPH])
        assert str(raised.value).startswith(place)
        assert raised.value.__cause__ is error


# -- without its graph -------------------------------------------------------------------------------------------------


def followed(run: Run, *events: tuple[e.Event, str | None]) -> Run:
    told = (Told(event, ENGINE, NOW + timedelta(seconds=at), key) for at, (event, key) in enumerate(events))
    return blindly(run, told)


def test_a_run_without_its_graph_has_the_steps_that_its_book_names() -> None:
    run = run_of(step("ends", DONE, 3), step("waits", StepState.WAITING, 3), checkpointed=False)
    run.past["each[0].new"] = step("each[0].new", FAILED, 1)
    run = followed(
        run,
        (e.CheckpointCommitted(8, "#", False), None),
        (e.StepStarted("probe.case.open", 2, 4), "each[0].new"),
        (e.StepStarted("probe.effect.apply", 0, 5), "waits"),
    )
    assert (run.superstep, run.checkpointed, [*run.past], [*run.steps]) == (
        8,
        True,
        ["each[0].new", "ends"],
        ["waits", "each[0].new"],
    )
    new = run.steps["each[0].new"]
    assert (new.step_id, new.key, new.index) == (step_id_of(RUN_ID, "each[0].new"), "each[0].new", 0)
    assert (new.operation, new.superstep, new.status, new.lease_epoch) == ("probe.case.open", 8, RUNNING, 4)
    assert run.steps["waits"] == step("waits", StepState.WAITING, 3), "what does not follow is passed over"


def test_a_run_without_its_graph_is_followed_past_what_cannot_be() -> None:
    gone = UUID(int=77)
    run = followed(
        run_of(step("a")),
        (e.StepSucceeded([]), "never begun"),
        (e.ActionSucceeded(gone), "a"),
        (e.WaitPostponed(gone, WaitKind.TIMER, 5), "a"),
        (e.WaitCompleted(gone, WaitKind.TIMER), "a"),
        (e.StepParked(W, WaitKind.TIMER), "a"),
        (e.StepSucceeded([]), "a"),
    )
    assert (run.steps["a"].status, [*run.waits], run.receipts) == (StepState.WAITING, [W], {})


def test_only_a_step_that_ends_is_behind_a_barrier_that_is_followed_without_the_graph() -> None:
    rows = [step(str(status), status, 3) for status in StepState]
    run = followed(run_of(*rows), (e.CheckpointCommitted(4, "#", False), None))
    over = {"succeeded", "failed_terminal", "canceled"}
    assert ({*run.past}, {*run.steps}) == (over, {str(status) for status in StepState} - over)
    assert run.steps["ready"] == step("ready", READY, 3)
