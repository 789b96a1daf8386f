"""Small parts of the engine: what a workflow needs, who has a lease, what is still asked, what a line shows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from core.canonical import digest
from runtime.definition.workflow import load_workflow
from runtime.engine.ask import gate_still_asks
from runtime.engine.commit import Claim
from runtime.engine.facts import result_origins
from runtime.engine.instructions import leased
from runtime.engine.outside import own_token
from runtime.engine.told import Diverged, shown_values
from runtime.engine.transition import Transition
from runtime.engine.waits import still_asks
from tests.engine.conftest import KEY, RUN_ID
from tests.engine.governing import ALLOW_ALL, CATALOG, EFFECT, GATE, WRITE, governed
from tests.engine.test_whole_books import HANDS_OUT, SCENES, TASK, asked, book_of

pytestmark = pytest.mark.req("X-3")


@pytest.mark.parametrize(
    ("limits", "cap"), [("", ""), ("caps: {max_concurrency: 2}\n", "w"), ("caps: {max_runs_per_min: 3}\n", "w")]
)
def test_a_workflow_says_what_it_needs_and_whether_it_is_counted_apart(limits: str, cap: str) -> None:
    text = EFFECT.replace("steps:\n", f"{limits}steps:\n")
    found = load_workflow(text, "test.yaml", CATALOG)
    operation = CATALOG.operations["probe.effect.apply"]
    assert (found.cap, found.connectors) == (cap, ("probe",))
    assert found.frozen_operations == {"probe.effect.apply": operation.model_dump(mode="json")}
    assert found.definition_digest == digest([found.digest, {"probe.effect.apply": operation.digest}])


def test_a_lease_is_taken_on_a_step_that_is_open() -> None:
    view = governed(EFFECT).view()
    claim = Claim("a", UUID(int=5), 7)
    found = leased(view, claim, "w2")
    assert found == replace(view.run.steps["a"], lease_owner="w2", lease_epoch=7)
    view.run.steps.clear()
    with pytest.raises(Diverged, match="on the step a, which is not open"):
        leased(view, claim, "w2")


def test_a_gate_and_a_task_still_ask_what_they_have_asked() -> None:
    run = asked(GATE)
    (row,) = run.view().run.approvals.values()
    transition = Transition(run.view(), run.workflow.graph)
    step = run.rows["a"]
    assert gate_still_asks(transition, step, row.action_digest)
    assert not gate_still_asks(transition, step, "0" * 64)
    other = asked(WRITE)
    assert not gate_still_asks(Transition(other.view(), other.workflow.graph), other.rows["a"], row.action_digest)
    task = asked(TASK, ALLOW_ALL)
    transition = Transition(task.view(), task.workflow.graph)
    assert still_asks(transition, task.rows["a"], task.waits["a"])
    changed = replace(task.waits["a"], context={**(task.waits["a"].context or {}), "title": "Another"})
    assert not still_asks(transition, task.rows["a"], changed)


def test_a_step_that_hands_out_its_token_has_the_same_at_every_attempt() -> None:
    run = governed(HANDS_OUT)
    first = own_token(run.view().run, run.rows["a"])
    assert own_token(run.view().run, run.rows["a"]) == first
    assert own_token(run.view().run, replace(run.rows["a"], again=1)) != first
    assert SCENES["case-hands-out-its-token"]().waits["a"].token == first
    assert SCENES["case-waits"]().waits["a"].token == "n1"


def test_a_result_has_origins_if_there_is_one() -> None:
    run = SCENES["loop-of-few"]()
    assert result_origins(run.view(), run.workflow) == [
        [["seen"], [["trigger:test"]]],
        [["last"], [["workflow"]]],
    ]
    alone = SCENES["effect"]()
    assert result_origins(alone.view(), alone.workflow) == []


def test_the_values_of_a_line_are_shown_as_it_binds_them() -> None:
    run = SCENES["effect"]()
    book = book_of(run)
    (at,) = [n for n, told in enumerate(book) if told.event.TYPE == "action.succeeded"]
    shown = shown_values(book[at], run.lines[at], KEY)
    assert shown is not None
    other = replace(book[at], event=replace(book[at].event, external_id="e2"))
    assert shown_values(other, run.lines[at], KEY) is None
    (empty,) = [n for n, told in enumerate(book) if told.event.TYPE == "step.started"]
    assert shown_values(book[empty], run.lines[empty], KEY) is None
    names: list[Any] = [commitment[0] for commitment in shown if isinstance(commitment, list)]
    assert [str(name).split("/", 2)[2] for name in names] == ["external_id", "output/value"]


def test_a_run_has_a_definition_of_its_own() -> None:
    view = governed(EFFECT).view()
    found = view.definition
    assert (found.run_id, found.tenant_id, found.extensions, found.run_key) == (RUN_ID, "acme", 0, KEY)
