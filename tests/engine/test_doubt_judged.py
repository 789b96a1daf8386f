"""A repeat of an action in doubt, judged anew by what it was intended with, and let out by an approval alone (P-10)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from approvals.model import ApprovalKind, Choice
from connectors.port import Probe, ProbeVerdict
from core.action import Action
from policy.evaluate import Decision
from policy.model import Ruling
from runtime.engine import doubt
from runtime.engine.agent_chat import Chat
from runtime.engine.events import ApprovalRequested
from runtime.engine.instructions import Over, Perform
from runtime.engine.intend import Proposal
from runtime.engine.transition import Transition
from tests.engine.governing import ASK, WRITE, governed
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
