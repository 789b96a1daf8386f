"""A retry of a failed run, told whole: what begins anew, what was not taken in yet, and what planning chose (X-18)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from core.errors import ConsistencyError
from evidence.chain import Actor
from evidence.commitments import blind, commit_fields
from runtime.engine import events as e
from runtime.engine.reopening import reopen
from runtime.engine.transition import Transition, finish
from tests.engine.conftest import KEY
from tests.engine.governing import HEAD, Governed, governed
from tests.engine.test_folds import wait

pytestmark = pytest.mark.req("X-18")

ANN = Actor("person", "ann")
ERROR: Any = {"class": "consistency", "code": "unexpected", "message": "No."}
BESIDE = "  - {{id: {0}, needs: [], do: probe.effect.apply, with: {{name: {0}}}{1}}}\n"
CHOICE = (
    "  - if: ${{{{ run.checkpoint == {1} }}}}\n    id: {0}\n    needs: [a]\n"
    "    then: [{{id: {0}_yes, do: probe.effect.apply, with: {{name: x}}}}]\n"
    "    else: [{{id: {0}_no, do: probe.effect.apply, with: {{name: x}}}}]\n"
)
HEADED = HEAD.replace("steps:", "channels: {n: {reduce: sum, initial: 0}}\nsteps:")
TEXT = (
    HEADED
    + BESIDE.format("a", ", reference: R2, set: {n: 2}")
    + BESIDE.format("c", ", reference: R3, set: {n: 3}")
    + BESIDE.format("b", "")
    + CHOICE.format("first", 1)
    + CHOICE.format("second", 9)
)


def given_up(text: str = TEXT) -> Governed:
    """A run that a step has failed before the others of its super-step were taken in."""
    run = governed(text)
    for key in ("a", "c", "b"):
        run.claim(key)
    for key in ("a", "c"):
        run.attempt(key, lambda t, s: finish(t, s, {}))
    run.attempt("b", lambda t, s: t.give_up(s, ERROR))
    assert run.status == "failed_terminal"
    return run


@pytest.mark.parametrize("before", [0, 1, 4])
@pytest.mark.parametrize("reason", ["", "It is there now."])
@pytest.mark.parametrize("bundle", [None, "d" * 64])
def test_a_retry_tells_its_reason_what_begins_anew_and_the_checkpoint_that_it_makes(
    before: int, reason: str, bundle: str | None
) -> None:
    run = given_up()
    view = run.whole()
    view.run.reopened = before
    made = Transition(view, run.workflow.graph)
    reopen(made, ANN, reason, bundle)
    committed = commit_fields(KEY, f"/reopened/{before + 1}", {"reason": reason}) if reason else None
    reopened, *named, checkpoint = made._told
    assert (reopened.event, reopened.actor) == (
        e.RunReopened(bundle, [["b", 1]], bool(reason), committed, reason), ANN,
    )  # fmt: skip
    assert [(one.event, one.step) for one in named] == [
        (e.RunReferenceSet([*commit_fields(KEY, key, {"reference": reference})], reference), key)
        for key, reference in (("a", "R2"), ("c", "R3"))
    ]
    (row,) = made.run.checkpoints
    choices = [["first", True], ["second", False]]
    assert checkpoint.event == e.CheckpointCommitted(1, blind(KEY, row.digest), False, choices)
    assert (made.run.reopened, made.run.state.reference, made.run.state.channels) == (before + 1, "R3", {"n": 5})
    assert [*made.run.steps] == ["b", "first_yes", "second_no"]
    assert [(row.lease_epoch, row.again) for row in made.run.steps.values()] == [(1, before + 1), (0, 0), (0, 0)]


def test_only_the_waits_of_what_begins_anew_are_left_behind() -> None:
    run = given_up()
    view = run.whole()
    rows = [wait(UUID(int=number), key) for number, key in enumerate(("a", "b", "c", "b"), 1)]
    view.run.waits = {row.wait_id: row for row in rows}
    made = Transition(view, run.workflow.graph)
    reopen(made, ANN, "", None)
    assert [row.left for row in made.run.waits.values()] == [False, True, False, True]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("set: {n: 2}", "set: {n: text}"), "takes numbers only"),
        (TEXT.replace("run.checkpoint == 9", "trigger.none == 1"), "Key not found in map"),
    ],
)
def test_a_retry_whose_barrier_would_fail_is_refused_with_the_cause(text: str, why: str) -> None:
    run = given_up(text)
    with pytest.raises(ConsistencyError, match="The run would fail again at once: .*" + why):
        reopen(Transition(run.whole(), run.workflow.graph), ANN, "", None)
