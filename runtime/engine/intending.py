"""Letting an action out: the question to people, and the intent that is recorded before it goes (Q-4). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from approvals.model import ApprovalKind
from connectors.catalog import reverse_of
from connectors.operation import Operation, Scope
from connectors.port import Before, Call
from core.action import Action
from core.ids import derived_id
from evidence.commitments import blind
from policy.evaluate import ApprovalTerms, Decision
from runtime.engine import asking, elsewhere
from runtime.engine.active_policy import ActivePolicy, readable
from runtime.engine.asking import CardWords, Question
from runtime.engine.commit import ReceiptRow, StepRow
from runtime.engine.events import ActionIntended
from runtime.engine.graph import OperationNode
from runtime.engine.moves import Known, Next, Nonce, Over, Perform
from runtime.engine.receipting import action_json, correlation_of, intend_again
from runtime.engine.transition import Transition
from runtime.engine.workflow import Workflow


@dataclass(frozen=True, slots=True)
class Proposal:
    """Everything that the deciding of one action needs."""

    transition: Transition
    step: StepRow
    leaf: OperationNode
    operation: Operation
    workflow: Workflow
    policy: ActivePolicy
    known: Known
    nonce: Nonce


@dataclass(frozen=True, slots=True)
class Authority:
    """By what an action may go out: the digest that was judged, the decision, and the approval that it asked for."""

    bound: str
    decision: UUID
    approval: UUID | None
    terms: ApprovalTerms | None


def is_own(transition: Transition, step: StepRow, receipt: ReceiptRow) -> bool:
    """Whether a receipt is of this very step; a key of a wider scope may have been used by another."""
    return receipt.run_id == transition.view.run_id and receipt.step_key == step.key


def intend(p: Proposal, action: Action, key: str, authority: Authority) -> Next:
    """Record the intent. A crash after its commit leaves doubt, which the next lease resolves (promise 2)."""
    step, previous = p.step, p.known.receipt
    seconds = p.operation.timeouts.perform.total_seconds()
    correlation = correlation_of(p.operation, p.transition.view.run_id, step.key)
    call = Call(action.operation, action.input, key, seconds, p.known.before, correlation)
    elsewhere.expect(p.transition, step, p.operation, p.nonce)
    if not p.operation.has_effect:
        return Perform(step, p.operation, call, None)
    if previous is not None and previous.action_digest == authority.bound and is_own(p.transition, step, previous):
        receipt = intend_again(p.transition, previous, authority.decision)
    else:
        receipt = _new_receipt(p, action, key, authority)
    return Perform(p.transition.run.steps[step.key], p.operation, call, receipt)


def _new_receipt(p: Proposal, action: Action, key: str, authority: Authority) -> ReceiptRow:
    """A first attempt, or one at another action than the attempt that failed, which held the key."""
    view, previous = p.transition.view, p.known.receipt
    stored = action_json(action, p.known.before)
    stored["decision"] = str(authority.decision)
    stored["approval"] = str(authority.approval) if authority.approval else None
    stored["terms"] = asking.terms_of(authority.terms).to_json() if authority.terms else None
    receipt_id = derived_id(view.run_id, f"receipt:{key}:{view.version}")
    intended = ActionIntended(
        receipt=receipt_id,
        action=blind(view.run_key, authority.bound),
        operation=action.operation,
        attempt=1,
        decision=str(authority.decision),
        approval=authority.approval,
        replaces=previous.receipt_id if previous is not None else None,
        shared=p.operation.idempotency.scope is not Scope.STEP,
        key=key,
        digest=authority.bound,
        target=action.target,
        proposed=stored,
        reversible=action.reversible,
        reverse=reverse_of(p.operation, action, p.known.before),
    )
    p.transition.tell(intended, step=p.step.key)
    return p.transition.run.receipts[receipt_id]


def void(p: Proposal) -> None:
    """Void the approval that is at hand for an action, and show it on its card; answers of other kinds stay."""
    given = p.known.given
    if given is not None and given.kind is ApprovalKind.ACTION:
        asking.supersede(p.transition, p.step, given.approval_id)


def ask_approval(p: Proposal, action: Action, decision: Decision, bound: str, evidence: str = "") -> Next:
    """Ask the people whom policy names whether exactly this may be done; ``evidence`` is what the card adds to it."""
    assert decision.approval is not None
    terms = asking.terms_of(decision.approval)
    words = CardWords(
        reverse=_reverse_words(p.operation, action, p.known.before),
        expires_seconds=terms.expires_seconds or 0,
        sensitive=asking.secret_fields(p.operation),
        evidence=evidence,
        tier=str(terms.tier),
    )
    card = asking.action_card(p.transition, p.step, action, decision, readable(p.policy), words)
    question = Question(ApprovalKind.ACTION, bound, terms, card, action_json(action, p.known.before))
    asking.ask(p.transition, p.step, question, p.nonce())
    return Over()


def _reverse_words(operation: Operation, action: Action, before: Before | None) -> str:
    if not action.reversible:
        return ""
    reverse = reverse_of(operation, action, before)
    return f"{reverse['operation']} with the values read before" if reverse else "It leaves nothing to undo."
