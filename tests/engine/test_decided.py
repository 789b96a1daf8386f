"""Consequences of a decision: an action is denied, asked about, shared or let out, and an approval is void (Q-14)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from approvals.model import ApprovalKind, Choice
from connectors.proposal import action_digest, build_action
from core.terms import GroupQuorum, Terms, Tier
from evidence.receipts import ReceiptStatus
from policy.evaluate import Decision
from policy.model import Ruling
from runtime.engine import step as steps
from runtime.engine.instructions import Given, Over, Shared
from runtime.engine.intend import Authority, Proposal, binding
from runtime.engine.states import EffectState
from tests.engine.conftest import NOW
from tests.engine.governing import EFFECT
from tests.engine.test_folds import receipt
from tests.engine.test_intents_first import OTHER_RUN, proposal

pytestmark = pytest.mark.req("Q-14")

TERMS = Terms(Tier.HIGH, (GroupQuorum("owners"),))
GROUPS = (GroupQuorum("leads"), GroupQuorum("desk", 2))
GIVEN, FORMER, MADE = UUID(int=70), UUID(int=71), UUID(int=72)
ACTION = build_action(proposal(EFFECT).operation, {"name": "x"})


def decision(outcome: Ruling) -> Decision:
    terms = TERMS if outcome is Ruling.NEEDS_APPROVAL else None
    return Decision(outcome, (), (), (), ("Because.",), terms, {}, in_doubt=GROUPS)


def bound(outcome: Ruling) -> str:
    """The digest that is judged: of the action alone, or with the terms on which people are asked."""
    asks = outcome is Ruling.NEEDS_APPROVAL
    return binding(ACTION, decision(outcome)) if asks else action_digest(ACTION)


def given(digest: str, kind: ApprovalKind = ApprovalKind.ACTION) -> Given:
    return Given(GIVEN, kind, digest, Choice.APPROVE, "", TERMS, (), (), False, NOW)


class Noted:
    """Stands in for what follows a decision, and notes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, outcome: Ruling, *, shares: bool, stands: bool) -> None:
        self.seen: list[Any] = []
        self.outcome, self.shares, self.stands = outcome, shares, stands
        for name in ("judge", "record_decision", "void", "ask_approval", "share", "intend", "still_approved"):
            monkeypatch.setattr(steps, name, getattr(self, name))

    def judge(self, *place: Any, chat: Any) -> Decision:
        self.judged = (*place, chat)
        return decision(self.outcome)

    def record_decision(self, *place: Any) -> UUID:
        self.recorded = place
        return MADE

    def still_approved(self, *_: Any) -> UUID | None:
        return FORMER if self.stands else None

    def void(self, p: Proposal) -> None:
        self.seen.append("void")

    def ask_approval(self, p: Proposal, *asked: Any) -> Over:
        self.seen.append(("asks", *asked))
        return Over()

    def share(self, p: Proposal, action: Any) -> Over | None:
        self.seen.append("looks")
        return Over() if self.shares else None

    def intend(self, p: Proposal, action: Any, key: str, authority: Authority) -> Over:
        self.seen.append((key, authority))
        return Over()


ALLOW, ASK, DENY = Ruling.ALLOW, Ruling.NEEDS_APPROVAL, Ruling.DENY
ANSWERS = ("none", "same", "other", "of a gate", "of a doubt")
FAILED = ("none", "same", "other", "of another run", "done", "no longer approved")


def decided(monkeypatch: pytest.MonkeyPatch, outcome: Ruling, answer: str, before: str, shared: str = "") -> Noted:
    noted = Noted(monkeypatch, outcome, shares=shared == "taken", stands=before != "no longer approved")
    p, judged = proposal(EFFECT), bound(outcome)
    kinds = {"of a gate": ApprovalKind.GATE, "of a doubt": ApprovalKind.IN_DOUBT}
    answered = given("0" * 64 if answer == "other" else judged, kinds.get(answer, ApprovalKind.ACTION))
    row = receipt(ReceiptStatus.SUCCEEDED if before == "done" else ReceiptStatus.FAILED)
    row = replace(row, action_digest="0" * 64 if before == "other" else judged)
    row = replace(row, run_id=OTHER_RUN) if before == "of another run" else row
    known = replace(p.known, given=None if answer == "none" else answered, receipt=None if before == "none" else row)
    known = replace(known, shared=Shared(row, EffectState.BEGUN) if shared else None)
    chat: Any = "chat"
    p = replace(p, known=replace(known, chat=chat))
    assert steps._decide(p, ACTION, "k1") == Over()
    assert noted.judged == (p.transition, p.step, p.workflow, p.policy, ACTION, "chat")
    assert noted.recorded == (p.transition, p.step, decision(outcome), ACTION, judged)
    failed = {**p.transition.run.past, **p.transition.run.steps}["a"].last_error
    assert failed == ({"class": "authorization", "code": "policy_denied", "message": "Because."}
                      if outcome is DENY else None)  # fmt: skip
    return noted


def approval(answer: str, before: str) -> UUID | None:
    """The approval that lets the action out, if policy asks for one."""
    return GIVEN if answer == "same" else FORMER if before == "same" else None


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("before", FAILED)
def test_an_action_that_policy_asks_about_goes_out_by_an_approval_of_just_it(
    monkeypatch: pytest.MonkeyPatch, answer: str, before: str
) -> None:
    noted = decided(monkeypatch, ASK, answer, before)
    by = approval(answer, before)
    if by is not None:
        assert noted.seen == [("k1", Authority(bound(ASK), MADE, by, TERMS, GROUPS))]
    else:
        voided = ["void"] if answer == "other" else []
        assert noted.seen == [*voided, ("asks", ACTION, decision(ASK), bound(ASK))]


@pytest.mark.parametrize("answer", ["none", "other", "of a gate", "of a doubt"])
def test_an_action_that_policy_allows_goes_out_without_an_approval_and_one_of_another_is_void(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    noted = decided(monkeypatch, ALLOW, answer, "none")
    voided = ["void"] if answer == "other" else []
    assert noted.seen == [*voided, ("k1", Authority(bound(ALLOW), MADE, None, None, GROUPS))]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("shared", ["", "free", "taken"])
def test_an_action_that_policy_denies_is_not_shared_and_its_approval_is_void(
    monkeypatch: pytest.MonkeyPatch, answer: str, shared: str
) -> None:
    assert decided(monkeypatch, DENY, answer, "none", shared).seen == ["void"]


@pytest.mark.parametrize("shared", ["free", "taken"])
@pytest.mark.parametrize("outcome", [ALLOW, ASK])
def test_an_effect_is_shared_by_whoever_may_perform_it_and_by_nobody_else(
    monkeypatch: pytest.MonkeyPatch, shared: str, outcome: Ruling
) -> None:
    if outcome is ASK:
        asked = decided(monkeypatch, ASK, "none", "none", shared)
        assert asked.seen == [("asks", ACTION, decision(ASK), bound(ASK))]
    noted = decided(monkeypatch, outcome, "none" if outcome is ALLOW else "same", "none", shared)
    assert noted.seen[0] == "looks"
    assert len(noted.seen) == (1 if shared == "taken" else 2)
