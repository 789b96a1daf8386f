"""A gate and an action before people are asked: what is void first, who is looked for, in which order (Q-14, U-5)."""

from __future__ import annotations

from dataclasses import replace as copied
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Refused
from core.terms import GroupQuorum, GroupSource, Terms, Tier
from policy.model import Ruling
from runtime.engine import ask, asking
from runtime.engine.ask import begin_gate
from runtime.engine.commit import ApprovalMove
from runtime.engine.instructions import Known, Over, Resolve
from runtime.engine.tracing import Trace
from tests.engine.governing import ASK, EFFECT, WRITE, governed
from tests.engine.test_asks import LEAF, bound, gated, given, passes, told
from tests.engine.test_decided import ACTION, decision
from tests.engine.test_folds import A, approval, step
from tests.engine.test_intents_first import proposal

pytestmark = pytest.mark.req("Q-14")

SLACK = Terms(Tier.HIGH, (GroupQuorum("S1", 1, GroupSource.SLACK_GROUP),))


def answered(**run: Any) -> Any:
    made = gated(**run)
    made.run.approvals[A], made.run.answers[A] = approval("gate"), ApprovalMove(A, "approved")
    return made


def test_an_answer_that_is_void_is_forgotten_before_slack_is_asked_who_may_answer() -> None:
    made, leaf = answered(), copied(LEAF, terms=SLACK.to_json())
    work = begin_gate(made, step(), leaf, Known(given=given("0" * 64)), lambda: "n1")
    assert isinstance(work, Resolve)
    assert (work.known, work.groups) == (Known(), SLACK.approvers)
    assert told(made) == ["approval.superseded", f"card {A}"]


@pytest.mark.parametrize("reason", ["", "Why not."])
def test_a_gate_hands_on_the_reason_of_its_answer_as_it_was_given(reason: str) -> None:
    made = answered()
    assert passes(made, replace(given(bound(made)), reason=reason)) == Over()
    assert made.run.past["a"].output == {"approved": True, "reason": reason}


@pytest.mark.parametrize(("shapers", "asks"), [((), True), (("ana",), True), (("ana", "ben"), False)])
def test_whoever_shaped_anything_before_a_gate_is_not_counted_on_to_answer(
    shapers: tuple[str, ...], asks: bool
) -> None:
    made = gated(shaped={"state.unread": [f"updater  person:{name}" for name in shapers]})
    assert passes(made, None) == Over()
    assert ("approval.requested" in told(made)) is asks
    assert ("preflight.failed" in told(made)) is not asks


def test_those_who_shaped_a_step_are_those_of_the_state_as_it_is_now() -> None:
    made = gated()
    made.run.state.shaped["run"] = ["updater  person:ana"]
    assert ask.marks_of(made, step()) == {"updater  person:ana"}
    assert made.view.run.state.shaped == {}


# -- an action ---------------------------------------------------------------------------------------------------------


def test_slack_is_not_asked_who_may_answer_about_what_cannot_be_called() -> None:
    p = proposal(EFFECT)
    p.transition.ready = lambda *_: Refused("away", "No way.")
    judged = replace(decision(Ruling.NEEDS_APPROVAL), approval=SLACK)
    assert asking.ask_approval(p, ACTION, judged, "b" * 64) == Over()
    failed: Any = p.transition.run.past["a"].last_error
    assert (failed["code"], str(p.transition._told[0].event.TYPE)) == ("away", "preflight.failed")


FACTS: Any = {"origin.name": [["model"]], "carries.name": []}


@pytest.mark.parametrize("of_agent", [True, False])
def test_a_question_keeps_where_values_came_from_only_if_nobody_can_find_it_again(of_agent: bool) -> None:
    run = governed(WRITE, ASK).drive()
    (asked,) = run.book_of_questions()
    assert "origins" not in (asked.proposed or {})
    p = proposal(EFFECT)
    p.transition.traces["a"] = trace = Trace(FACTS, {"matcher": 1, "arguments": {}}, of_agent)
    p.transition.view = replace(p.transition.view, directory=run.view().directory)
    assert asking.ask_approval(p, ACTION, decision(Ruling.NEEDS_APPROVAL), "b" * 64) == Over()
    (kept,) = [row.action for row in p.transition.run.approvals.values()]
    assert (kept or {}).get("origins") == (trace.kept()["origins"] if of_agent else None)
