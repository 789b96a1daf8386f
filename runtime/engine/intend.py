"""Letting an action out: the intent before it goes, its receipt, the wait for what it begins outside. Pure.

What a durable operation begins outside is waited for by a row that is there before it begins (V-1, V-3, V-9). The
correlation key is derived from the run and the step, so the outside is given the same one at every attempt. The wait
belongs to the lease that intends; a later lease of the step puts its own in the place of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

from msgspec import Struct

from approvals.model import ApprovalKind
from connectors.operation import KeyScope, Kind, Operation
from connectors.port import Before, Call
from core.action import Action
from core.canonical import Json, JsonObject
from core.ids import correlation_id, derived_id
from core.terms import Terms
from evidence.commitments import blind
from policy.evaluate import Decision
from runtime.engine import ask
from runtime.engine.ask import Question
from runtime.engine.commit import ReceiptRow, StepRow, expected_of
from runtime.engine.events import (
    ActionDoubtResolved,
    ActionFailed,
    ActionHeld,
    ActionInDoubt,
    ActionIntended,
    ActionSucceeded,
    WaitCanceled,
    WaitOpened,
)
from runtime.engine.graph import OperationNode
from runtime.engine.instructions import Known, Next, Nonce, Over, Perform
from runtime.engine.judge import ActivePolicy, readable
from runtime.engine.states import WaitKind
from runtime.engine.transition import Transition, seconds
from runtime.engine.workflow import Workflow


class Proposal(Struct, frozen=True):
    """Everything that the deciding of one action needs."""

    transition: Transition
    step: StepRow
    leaf: OperationNode
    operation: Operation
    workflow: Workflow
    policy: ActivePolicy
    known: Known
    nonce: Nonce


class Authority(Struct, frozen=True):
    """By what an action may go out: the digest that was judged, the decision, and the approval that it asked for."""

    bound: str
    decision: UUID
    approval: UUID | None
    terms: Terms | None


def is_own(transition: Transition, step: StepRow, receipt: ReceiptRow) -> bool:
    """True if a receipt is of this very step; a key of a wider scope may have been used by another."""
    return receipt.run_id == transition.view.run_id and receipt.step_key == step.key


def intend(p: Proposal, action: Action, key: str, authority: Authority) -> Next:
    """Record the intent. A crash after its commit leaves doubt, which the next lease resolves (promise 2)."""
    step, previous = p.step, p.known.receipt
    seconds = p.operation.timeouts.perform.total_seconds()
    correlation = None
    if p.operation.kind is Kind.DURABLE:
        correlation = correlation_of(p.transition.view.run_id, step.key)
        expect_end(p.transition, step, p.operation, p.nonce)
    call = Call(action.operation, action.input, key, seconds, p.known.before, correlation)
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
    stored["terms"] = authority.terms.to_json() if authority.terms else None
    receipt_id = derived_id(view.run_id, f"receipt:{key}:{view.version}")
    intended = ActionIntended(
        receipt=receipt_id,
        action=blind(view.run.run_key, authority.bound),
        operation=action.operation,
        attempt=1,
        decision=str(authority.decision),
        approval=authority.approval,
        replaces=previous.receipt_id if previous is not None else None,
        shared=p.operation.idempotency.scope is not KeyScope.STEP,
        key=key,
        digest=authority.bound,
        target=action.target,
        proposed=stored,
        reversible=action.reversible,
        reverse=action.reverse,
    )
    p.transition.tell(intended, step=p.step.key)
    return p.transition.run.receipts[receipt_id]


def void(p: Proposal) -> None:
    """Void the approval that is at hand for an action, and show it on its card; answers of other kinds stay."""
    given = p.known.given
    if given is not None and given.kind is ApprovalKind.ACTION:
        ask.supersede(p.transition, p.step, given.approval_id)


def ask_approval(p: Proposal, action: Action, decision: Decision, bound: str, evidence: str = "") -> Next:
    """Ask the people whom policy names whether exactly this may be done; ``evidence`` is what the card adds to it."""
    assert decision.approval is not None
    terms = decision.approval
    told = (p.transition, p.step, p.operation, action, terms)
    card = ask.action_card(*told, decision=decision, policy=readable(p.policy), evidence=evidence)
    question = Question(ApprovalKind.ACTION, bound, terms, card, action_json(action, p.known.before))
    ask.put(p.transition, p.step, question, p.nonce())
    return Over()


Ending: TypeAlias = ActionSucceeded | ActionFailed | ActionInDoubt | ActionHeld | ActionDoubtResolved


def action_json(action: Action, before: Before | None) -> JsonObject:
    """An action as it is kept, to perform or probe exactly it later."""
    read: Json = None
    if before is not None:
        read = {"values": before.values, "version": before.version, "facts": before.facts}
    return {"input": action.input, "target": action.target, "summary": action.summary, "before": read}


def call_of(operation: Operation, receipt: ReceiptRow) -> Call:
    """The call that a receipt recorded, exactly as it was intended."""
    action: Mapping[str, Any] = receipt.action
    read = action["before"]
    before = None if read is None else Before(read["values"], read["version"], read["facts"])
    seconds = operation.timeouts.perform.total_seconds()
    key = correlation_of(receipt.run_id, receipt.step_key) if operation.kind is Kind.DURABLE else None
    return Call(operation.name, action["input"], receipt.idempotency_key, seconds, before, key)


def correlation_of(run_id: UUID, step_key: str) -> str:
    """The key under which the outside reports the end of what this step begins; the same at every attempt (V-9)."""
    return str(correlation_id(run_id, f"external:{step_key}"))


def intend_again(
    transition: Transition,
    receipt: ReceiptRow,
    decision: UUID,
    how: str | None = None,
    authority: JsonObject | None = None,
) -> ReceiptRow:
    """Tell that the action of this receipt may go out once more, let out by this decision; the receipt afterwards.

    ``how`` says what became of the attempt before; ``authority`` is another approval than that of the first.
    """
    approval = {**receipt.action, **(authority or {})}.get("approval")
    event = ActionIntended(
        receipt=receipt.receipt_id,
        action=blind(transition.view.run.run_key, receipt.action_digest),
        operation=receipt.operation,
        attempt=receipt.attempt + 1,
        decision=str(decision),
        approval=UUID(approval) if isinstance(approval, str) else None,
        resolution=how,
        authority=authority,
    )
    transition.tell(event, step=receipt.step_key)
    return transition.run.receipts[receipt.receipt_id]


def tell_of(transition: Transition, receipt: ReceiptRow, event: Ending) -> ReceiptRow:
    """Tell what became of an action; the receipt afterwards. The card of its approval says so too."""
    transition.tell(event, step=receipt.step_key)
    left = transition.run.receipts[receipt.receipt_id]
    approval = left.action.get("approval")
    if isinstance(approval, str):
        transition.message("card", UUID(approval), f"{left.status}:{left.attempt}")
    return left


def expect_end(transition: Transition, step: StepRow, operation: Operation, nonce: Nonce) -> None:
    """Write the wait with the intent of a durable operation: what is begun then, and answers at once, finds it (V-9).

    A crash after this commit leaves the receipt in doubt and this wait open; the next lease closes both.
    """
    due, context, correlation = _outside(transition, step, operation)
    wait = expected_of(transition.view.run_id, step)
    opened = WaitOpened(wait, WaitKind.EXTERNAL, seconds(due), nonce(), context, correlation)
    transition.tell(opened, step=step.key)


def expect_no_more(transition: Transition, step: StepRow) -> None:
    """Cancel the wait opened with the intent: nothing was started (refused, not sent, in doubt), or it has ended."""
    transition.tell(WaitCanceled(expected_of(transition.view.run_id, step), WaitKind.EXTERNAL), step=step.key)


def park_outside(
    transition: Transition, step: StepRow, operation: Operation, nonce: Nonce, *, expected: bool = False
) -> None:
    """Park a step whose action goes on outside: it holds nothing. ``expected`` says that the wait is there."""
    wait = expected_of(transition.view.run_id, step)
    if expected:
        transition.park_on(step, wait, WaitKind.EXTERNAL)
    else:
        transition.park(step, WaitKind.EXTERNAL, nonce(), *_outside(transition, step, operation), wait=wait)


def _outside(transition: Transition, step: StepRow, operation: Operation) -> tuple[timedelta, JsonObject, str]:
    """The time limit of what goes on outside, the context for its resume, and the key that it will name."""
    leaf = transition.graph.leaf(step.key)
    assert isinstance(leaf, OperationNode)
    key = correlation_of(transition.view.run_id, step.key)
    return leaf.timeout or operation.timeouts.complete, {"operation": operation.name}, key
