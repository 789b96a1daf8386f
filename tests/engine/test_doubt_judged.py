"""A repeat of an action in doubt, judged anew by what it was intended with, and let out by an approval alone (P-10)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from approvals.model import ApprovalKind, Choice
from connectors.port import InDoubt, Probe, ProbeVerdict
from core.action import Action
from policy.evaluate import Decision
from policy.model import Ruling
from runtime.engine import doubt
from runtime.engine.agent_chat import Chat
from runtime.engine.commit import expected_of
from runtime.engine.events import ApprovalRequested
from runtime.engine.instructions import Inquire, Over, Perform
from runtime.engine.intend import Proposal
from runtime.engine.outside import call_of
from runtime.engine.step import performed
from runtime.engine.transition import Transition
from tests.engine.conftest import NOW, RUN_ID
from tests.engine.governing import ASK, DEDUPES, EFFECT, MAIL, WRITE, governed
from tests.engine.test_every_doubt import proposal, receipt_of, terms
from tests.runtime.conftest import ALLOW_ALL

pytestmark = pytest.mark.req("P-10")

NO = Probe(ProbeVerdict.NOT_APPLIED, "none")
READ: Any = {"values": {"priority": "3"}, "version": "7", "facts": {"vip": True}}


class Judged:
    """Stands in for policy: notes what is judged, and denies it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[Any] = []
        monkeypatch.setattr(doubt, "judge", self)

    def __call__(self, *given: Any, **more: Any) -> Decision:
        self.seen.append((given, more))
        return Decision(Ruling.DENY, (), (), (), ("Never.",), None, {})


def again(p: Proposal) -> Any:
    receipt = doubt.mark(p.transition, receipt_of(p), "gone")
    return doubt.inquired(p, receipt, NO)


@pytest.mark.parametrize("chat", [None, Chat])
@pytest.mark.parametrize("read", [None, READ])
@pytest.mark.parametrize("system", ["", "two"])
def test_a_repeat_is_judged_with_all_that_the_action_was_intended_with(
    monkeypatch: pytest.MonkeyPatch, chat: Any, read: Any, system: str
) -> None:
    p = proposal("probes", "plain", "allow", "none")
    receipt = receipt_of(p)
    stored = {**receipt.action, "before": read} | ({"system": system} if system else {})
    receipt = replace(receipt, action=stored)
    p.transition.run.receipts[receipt.receipt_id] = receipt
    p.transition.run.state.shaped["run"] = ["updater  person:ana"]
    p = replace(p, known=replace(p.known, receipt=receipt, chat=chat))
    judged = Judged(monkeypatch)
    assert again(p) == Over()
    ((given_to, more),) = judged.seen
    action: Action = given_to[-1]
    assert given_to[:-1] == (p.transition, p.step, p.workflow, p.policy)
    assert more == {"counted": True, "chat": chat}
    assert (action.operation, action.input, action.system) == (receipt.operation, stored["input"], system)
    assert (action.target_version, action.before) == ((None, None) if read is None else ("7", {"priority": "3"}))
    assert action.shaped == ("updater:person:ana",)


def test_a_question_before_a_repeat_shows_and_keeps_what_was_read_before_the_first() -> None:
    run = governed(WRITE, ALLOW_ALL).drive(dies=True).dead().rule_by(ASK)
    run.said = [NO]
    (asked,) = run.drive().book_of_questions()
    (receipt,) = run.whole().run.receipts.values()
    proposed: Any = asked.proposed
    shown: Any = asked.shown
    assert proposed["before"] == {"values": {"priority": "3"}, "version": "7", "facts": {}}
    assert proposed == {name: receipt.action[name] for name in proposed}
    assert [(one["field"], one["before"], one["after"]) for one in shown["changes"]] == [("priority", "3", "1")]
    assert asked.digest == receipt.action_digest
    assert ([one["id"] for one in shown["rules"]], shown["policy_name"]) == (["acts"], "ask")
    assert shown["evidence"].startswith("It was sent before, and is in doubt.")


ANSWERS = [
    ("none", False), ("approved", True), ("approved otherwise", False), ("approved of another", False),
]  # fmt: skip


@pytest.mark.parametrize(("said", "sent"), ANSWERS)
def test_a_repeat_that_policy_asks_about_goes_out_by_an_approval_of_just_it_on_just_its_terms(
    said: str, sent: bool
) -> None:
    p = proposal("probes", "plain", "ask", said)
    work = again(p)
    assert isinstance(work, Perform) is sent
    assert not isinstance(work, Perform) or work.step == p.transition.run.steps[p.step.key]
    assert [str(told.event.TYPE) for told in p.transition._told].count("approval.requested") == (not sent)


@pytest.mark.parametrize("choice", [Choice.AGAIN, Choice.HAPPENED, Choice.APPROVE])
def test_an_answer_about_a_doubt_approves_no_repeat_even_if_it_is_of_this_action_and_on_these_terms(
    choice: Choice,
) -> None:
    p = proposal("probes", "plain", "ask", "again")
    assert p.known.given is not None
    answer = replace(p.known.given, terms=terms(), choice=choice)
    assert (answer.kind, answer.digest) == (ApprovalKind.IN_DOUBT, receipt_of(p).action_digest)
    assert again(replace(p, known=replace(p.known, given=answer))) == Over()
    types = [str(told.event.TYPE) for told in p.transition._told]
    assert "approval.requested" in types
    assert "action.intended" not in types


@pytest.mark.parametrize("system", ["", "two"])
@pytest.mark.parametrize("read", [None, READ])
def test_people_are_shown_the_action_that_was_sent_where_it_was_sent_and_who_shaped_it(
    monkeypatch: pytest.MonkeyPatch, system: str, read: Any
) -> None:
    chosen: list[Any] = []
    whom = doubt.asked_about
    monkeypatch.setattr(doubt, "asked_about", lambda *given: chosen.append(given) or whom(*given))
    run = governed(WRITE, ALLOW_ALL).drive(dies=True).dead()
    (receipt,) = run.whole().run.receipts.values()
    stored = {**receipt.action, "before": read} | ({"system": system} if system else {})
    receipt = replace(receipt, action=stored, status="in_doubt")
    made = Transition(run.view(), run.workflow.graph)
    made.systems = {"probe": "another"}
    made.run.receipts[receipt.receipt_id] = receipt
    made.run.state.shaped["run"] = ["updater  person:ana"]
    row = made.started(replace(made.run.steps["a"], lease_owner="w", lease_epoch=9))
    doubt.ask_people(made, row, run.workflow.operations[row.operation], receipt, "Look.", lambda: "n1")
    assert chosen == [(made, receipt, frozenset({"updater  person:ana"}))]
    (asked,) = [told.event for told in made._told if isinstance(told.event, ApprovalRequested)]
    shown: Any = asked.shown
    people: Any = asked.contributors
    changes = [("priority", None if read is None else "3", "1")]
    assert (asked.kind, asked.digest, asked.proposed, asked.nonce) == ("in_doubt", receipt.action_digest, None, "n1")
    assert (shown["system"], shown["evidence"], shown["target"]) == (system, "Look.", receipt.target)
    assert [(one["field"], one["before"], one["after"]) for one in shown["changes"]] == changes
    assert [(one["role"], one["principal"]) for one in people] == [("requester", "someone"), ("updater", "person:ana")]


@pytest.mark.parametrize("text", ["probes", "dedupes", "asks"])
def test_nobody_is_asked_about_an_action_that_may_still_arrive(text: str) -> None:
    p = proposal(text, "open", "allow", "none")
    soon = receipt_of(p).intended_at + timedelta(seconds=9)
    p.transition.view = replace(p.transition.view, now=soon)
    receipt = doubt.mark(p.transition, receipt_of(p), "gone")
    if text == "probes":
        doubt.inquired(p, receipt, Probe(ProbeVerdict.CANNOT_TELL, "Who knows."))
    else:
        doubt.resolve(p, receipt)
    assert [str(one.event.TYPE) for one in p.transition._told][2:3] == ["step.retry_scheduled"]
    error: Any = p.transition.run.steps["a"].last_error
    assert (error["open"], error["looks"], error["setbacks"], error["leases"]) == (True, 4, 1, 2)


@pytest.mark.parametrize("text", ["dedupes", "asks"])
def test_a_pause_stops_a_repeat_before_anything_is_used_up_or_waited_for(text: str) -> None:
    p = proposal(text, "paused", "allow", "again")
    p.transition.view = replace(p.transition.view, now=receipt_of(p).intended_at + timedelta(seconds=9))
    assert doubt.resolve(p, receipt_of(p)) == Over()
    (wait,) = [row for row in p.transition.run.waits.values() if row.status == "waiting"]
    assert (str(wait.kind), wait.due_in, wait.context) == ("pause", None, {"paused": "tenant"})
    assert {"approval.consumed", "decision.made"}.isdisjoint(str(one.event.TYPE) for one in p.transition._told)


def test_a_target_is_told_how_long_ago_the_action_was_intended_last() -> None:
    p = proposal("probes", "plain", "allow", "none")
    p.transition.run.opened_at = NOW
    receipt = replace(receipt_of(p), intended_at=NOW + timedelta(seconds=100))
    p.transition.run.receipts[receipt.receipt_id] = receipt
    work = doubt.resolve(p, receipt)
    assert isinstance(work, Inquire)
    assert work.seconds_since_intent == (p.transition.view.now - NOW).total_seconds() - 100
    assert (work.receipt, work.known) == (p.transition.run.receipts[receipt.receipt_id], p.known)
    assert work.receipt.status == "in_doubt"


# -- a call that has just ended without an outcome ---------------------------------------------------------------------

NOTED: Any = {"class": "timeout", "code": "in_doubt", "message": "Old.", "looks": 4, "setbacks": 1, "open": True}


def unanswered(text: str, attempt: int, early: bool, receipt_of_call: bool = True) -> Any:
    """The step whose call has ended without an outcome, and what was told of it."""
    run = governed(text, ALLOW_ALL).drive(dies=True)
    view = run.view()
    view = replace(view, now=view.now if early else view.now + timedelta(hours=1))
    made = Transition(view, run.workflow.graph)
    row = made.run.steps["a"] = replace(made.run.steps["a"], attempt=attempt, last_error=NOTED)
    operation, (receipt,) = run.workflow.operations[row.operation], made.run.receipts.values()
    work = Perform(row, operation, call_of(operation, receipt), receipt if receipt_of_call else None)
    performed(made, work, InDoubt("Broke."), nonce=lambda: "n1", chance=0.0)
    told = [str(one.event.TYPE) for one in made._told]
    return {**made.run.past, **made.run.steps}["a"], told


TELLS = ["action.in_doubt", "step.retry_scheduled", "checkpoint.committed"]
NEW: Any = {"class": "timeout", "code": "in_doubt", "message": "Broke."}
PUT_OFF: Any = {**NEW, "looks": 4, "setbacks": 1, "open": True}
ASKS = ["action.in_doubt", "approval.requested", "step.parked", "checkpoint.committed"]
DOUBTS: list[tuple[str, int, bool, Any, int, list[str]]] = [
    (EFFECT, 0, True, {**NEW, "looks": 1}, 1, TELLS),
    (EFFECT, 0, False, {**NEW, "looks": 1}, 1, TELLS),
    (EFFECT, 9, False, {**NEW, "looks": 1}, 10, TELLS),
    (DEDUPES, 0, True, NEW, 1, TELLS),
    (DEDUPES, 1, True, PUT_OFF, 1, TELLS),
    (DEDUPES, 1, False, NOTED, 1, ASKS),
    (MAIL, 0, True, PUT_OFF, 0, TELLS),
    (MAIL, 0, False, NOTED, 0, ASKS),
]


@pytest.mark.parametrize(("text", "attempt", "early", "error", "then", "lines"), DOUBTS)
def test_a_call_without_an_outcome_begins_a_doubt_of_its_own(
    text: str, attempt: int, early: bool, error: Any, then: int, lines: list[str]
) -> None:
    row, told = unanswered(text, attempt, early)
    assert (row.attempt, told) == (then, lines)
    assert row.last_error == (None if lines == ASKS else error)


@pytest.mark.parametrize(("attempt", "status"), [(0, "failed_retryable"), (9, "failed_terminal")])
def test_a_call_without_an_effect_is_in_no_doubt_and_tried_again(attempt: int, status: str) -> None:
    row, told = unanswered(EFFECT, attempt, early=True, receipt_of_call=False)
    assert (str(row.status), "action.in_doubt" in told) == (status, False)


@pytest.mark.parametrize("output", [{}, {"n": 1}, None])
def test_what_had_happened_is_done_with_what_the_target_reports(output: Any) -> None:
    p = proposal("probes", "plain", "allow", "none")
    receipt = doubt.mark(p.transition, receipt_of(p), "gone")
    doubt.applied(p.transition, p.step, p.operation, receipt, output, "probe: applied.", p.nonce)
    left, row = p.transition.run.receipts[receipt.receipt_id], p.transition.run.past["a"]
    assert (left.status, left.output, left.resolution) == ("succeeded", output, "probe: applied.")
    assert (row.status, row.output) == ("succeeded", output)


def test_what_had_begun_outside_is_waited_for_on_the_wait_of_this_lease() -> None:
    p = proposal("goes on outside", "plain", "allow", "none")
    receipt = doubt.mark(p.transition, receipt_of(p), "gone")
    doubt.applied(p.transition, p.step, p.operation, receipt, {"ref": 1}, "probe: applied.", p.nonce)
    (wait,) = [row for row in p.transition.run.waits.values() if row.status == "waiting" and row.parked]
    assert (wait.wait_id, str(wait.kind)) == (expected_of(RUN_ID, p.step), "external")
    assert p.transition.run.receipts[receipt.receipt_id].output == {"ref": 1}
