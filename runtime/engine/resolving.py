"""Resolving a doubt: find out, never repeat blindly, and let policy judge every repetition (promises 1, 2). Pure.

What is sent again is the action that was intended, with its digest and its key. Whatever causes that, it is judged by
the policy of that moment, and the commit is guarded by it like that of a first intent.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from approvals.model import ApprovalKind, Choice, Terms
from connectors.catalog import build_action
from connectors.operation import InDoubtRule
from connectors.port import Probe, ProbeVerdict
from core.canonical import JsonObject
from evidence.receipts import Resolution
from policy.evaluate import Decision
from policy.model import Outcome
from runtime.engine import asking, doubt, elsewhere, settling
from runtime.engine.commit import ReceiptRow
from runtime.engine.deciding import judge, record_decision
from runtime.engine.events import ActionDoubtResolved, ApprovalConsumed
from runtime.engine.intending import Proposal, ask_approval, void
from runtime.engine.moves import Inquire, Next, Over, Perform
from runtime.engine.receipting import call_of, intend_again


def resolve(p: Proposal, receipt: ReceiptRow) -> Next:
    """An earlier lease recorded an intent and no outcome: find out what became of it."""
    transition, given, rule = p.transition, p.known.given, p.operation.in_doubt
    receipt = doubt.mark(transition, receipt, "the worker that intended it is gone")
    if given is not None and given.kind is ApprovalKind.IN_DOUBT and given.digest == receipt.action_digest:
        if given.choice is Choice.HAPPENED:
            _consume(p)
            how = f"a person said it happened: {given.reason}"
            doubt.applied(transition, p.step, p.operation, receipt, {}, how, p.nonce)
            return Over()
        return _again(p, receipt, f"a person said to do it again: {given.reason}")
    if transition.view.canceling is not None and rule is not InDoubtRule.PROBE:
        # Nothing more goes out for this run, and nobody can be asked: the evidence says that it is in doubt.
        transition.cancel_step(p.step)
        return Over()
    if rule is InDoubtRule.PROBE:
        assert receipt.intended_at is not None
        since = (transition.view.now - receipt.intended_at).total_seconds()
        return Inquire(p.step, p.operation, call_of(p.operation, receipt), receipt, p.known, since)
    if given is not None and given.kind is ApprovalKind.ACTION:
        # Asked for on the way to doing it again, which somebody had said, or the target's own deduping allows.
        return _again(p, receipt, "people approved that it is done again")
    if rule is InDoubtRule.IDEMPOTENT and not settling.is_for_people(p.step):
        return _again(p, receipt, "sent again: the target dedupes by its key")
    _ask(p, receipt, "This operation cannot be asked what became of it.")
    return Over()


def inquired(p: Proposal, receipt: ReceiptRow, probe: Probe) -> Next:
    """Act on what the target said about an earlier intent; the evidence goes into the receipt."""
    match probe.verdict:
        case ProbeVerdict.APPLIED:
            void(p)
            output = probe.done.output if probe.done else {}
            how = f"probe: applied. {probe.evidence}"
            doubt.applied(p.transition, p.step, p.operation, receipt, output, how, p.nonce)
            return Over()
        case ProbeVerdict.NOT_APPLIED:
            return _again(p, receipt, f"probe: not applied. {probe.evidence}", absent=True)
        case ProbeVerdict.CANNOT_TELL:
            error: JsonObject = {"class": "timeout", "code": "in_doubt", "message": probe.evidence}
            seconds = probe.retry_after_seconds
            if seconds is None or not settling.look_later(p.transition, p.step, error, timedelta(seconds=seconds)):
                _ask(p, receipt, probe.evidence)
            return Over()


def _ask(p: Proposal, receipt: ReceiptRow, evidence: str) -> None:
    """Ask people, who may say *again*: so not before what was intended can no longer arrive."""
    if not settling.put_off(p.transition, p.step, p.operation, receipt, evidence):
        doubt.ask_people(p.transition, p.step, p.operation, receipt, evidence, p.nonce)


def _again(p: Proposal, receipt: ReceiptRow, how: str, *, absent: bool = False) -> Next:
    """Intend the same action once more, if policy lets it out now. ``absent``: the target says that it is not there.

    In a run that is being canceled nothing more goes out. A target that dedupes may be sent the same at any time; else
    it is waited until the first one can no longer arrive.
    """
    transition = p.transition
    if transition.view.canceling is not None:
        _consume(p)
        doubt.given_up(transition, receipt, f"{how}; the run is being canceled")
        transition.cancel_step(p.step)
        return Over()
    dedupes = p.operation.in_doubt is InDoubtRule.IDEMPOTENT
    if not dedupes and settling.put_off(transition, p.step, p.operation, receipt, how):
        return Over()
    _consume(p)
    call = call_of(p.operation, receipt)
    action = build_action(p.operation, call.input, call.before)
    decision = judge(transition, p.step, p.workflow, p.policy, action, counted=True)
    bound = receipt.action_digest
    decision_id = record_decision(transition, p.step, p.policy, decision, action.operation, bound)
    if decision.outcome is Outcome.DENY:
        return _denied(p, receipt, how, decision, absent=absent)
    terms = asking.terms_of(decision.approval) if decision.approval is not None else None
    if decision.outcome is Outcome.ALLOW or _covers(receipt, terms):
        void(p)
        return _intend(p, receipt, how, decision_id)
    given = p.known.given
    if given is None or given.kind is not ApprovalKind.ACTION or (given.digest, given.terms) != (bound, terms):
        void(p)
        p = replace(p, known=replace(p.known, before=call.before))
        doubt.held(transition, receipt, f"{how}; policy asks for an approval before it is sent")
        return ask_approval(p, action, decision, bound, f"It was sent before, and is in doubt. {how}")
    # From now on this approval is what lets the action out, and its people are those who are asked about it.
    authority: JsonObject = {"approval": str(given.approval_id), "terms": given.terms.to_json()}
    return _intend(p, receipt, how, decision_id, authority)


def _consume(p: Proposal) -> None:
    """Use up the answer that people gave about the doubt: it is acted on once."""
    given = p.known.given
    if given is not None and given.kind is ApprovalKind.IN_DOUBT:
        p.transition.tell(ApprovalConsumed(given.approval_id), step=p.step.key)


def _covers(receipt: ReceiptRow, terms: Terms | None) -> bool:
    """True if the approval that let this very action out asked for what policy asks for now."""
    stored = receipt.action.get("terms")
    return receipt.action.get("approval") is not None and isinstance(stored, dict) and Terms.from_json(stored) == terms


def _denied(p: Proposal, receipt: ReceiptRow, how: str, decision: Decision, *, absent: bool) -> Next:
    """Policy stops it. What is known of the first attempt stays on record: not done, or in doubt for good.

    A crash before this is committed leaves the doubt; whoever claims the step next judges anew.
    """
    void(p)
    words = f"{how}; not sent again, because policy denies it now"
    if absent:
        doubt.given_up(p.transition, receipt, words)
    else:
        doubt.held(p.transition, receipt, words)
    facts: JsonObject = {"class": "authorization", "code": "policy_denied"}
    p.transition.fail(p.step, {**facts, "message": " ".join(decision.reasons)})
    return Over()


def _intend(p: Proposal, receipt: ReceiptRow, how: str, decision: UUID, authority: JsonObject | None = None) -> Next:
    """Record the intent to send it again. A crash after its commit leaves doubt again, for the next lease."""
    p.transition.tell(ActionDoubtResolved(receipt.receipt_id, Resolution.NOT_APPLIED, how), step=p.step.key)
    retried = intend_again(p.transition, receipt, decision, how, authority)
    elsewhere.expect(p.transition, p.step, p.operation, p.nonce)
    return Perform(p.step, p.operation, call_of(p.operation, receipt), retried)
