"""Doubt: an intent whose outcome nobody recorded. How it begins, how people are asked, and how it ends. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from approvals.model import ApprovalKind, GroupQuorum, Terms, Tier
from connectors.catalog import build_action, reverse_of
from connectors.operation import Kind, Operation
from core.canonical import Json
from evidence.receipts import ReceiptStatus, Resolution
from runtime.engine import asking, elsewhere
from runtime.engine.asking import CardWords, Question
from runtime.engine.commit import ReceiptRow, StepRow
from runtime.engine.events import ActionDoubtResolved, ActionHeld, ActionInDoubt
from runtime.engine.finishing import finish
from runtime.engine.moves import Nonce
from runtime.engine.receipting import call_of, tell_of
from runtime.engine.transition import Transition

# Who is asked about an action that policy had let out without an approval.
OPERATORS = "operators"

# A call that has not begun so long after its intent does not begin any more.
SEND_WITHIN = timedelta(seconds=5)
# A connector keeps its own deadline; this much later we stop waiting for one that does not.
GRACE = timedelta(seconds=5)


def rest(transition: Transition, operation: Operation, receipt: ReceiptRow) -> timedelta:
    """The time for which an intended call may still arrive at the target; negative once it cannot any more.

    Its call begins within ``SEND_WITHIN`` of the intent, whoever stalls meanwhile, and may overrun its own time limit
    by ``GRACE``. Until then nobody can know that it did not happen, and doing it again might be doing it twice.
    """
    assert receipt.intended_at is not None
    return receipt.intended_at + SEND_WITHIN + operation.timeouts.perform + GRACE - transition.view.now


def mark(transition: Transition, receipt: ReceiptRow, why: str) -> ReceiptRow:
    """Mark a receipt in doubt, if it is not yet."""
    if receipt.status == ReceiptStatus.IN_DOUBT:
        return receipt
    return tell_of(transition, receipt, ActionInDoubt(receipt.receipt_id, why))


def applied(
    transition: Transition,
    step: StepRow,
    operation: Operation,
    receipt: ReceiptRow,
    output: Json,
    how: str,
    nonce: Nonce,
) -> None:
    """The doubt is resolved: it had happened. The step goes on with what the target reports."""
    tell_of(transition, receipt, ActionDoubtResolved(receipt.receipt_id, Resolution.APPLIED, how, output))
    if operation.kind is Kind.DURABLE:
        # What had happened is that it began; its end is still to come.
        elsewhere.park(transition, step, operation, nonce)
    else:
        finish(transition, step, output)


def ask_people(
    transition: Transition, step: StepRow, operation: Operation, receipt: ReceiptRow, evidence: str, nonce: Nonce
) -> None:
    """Nobody can tell what became of it: ask the people who had approved it, or the operators."""
    stored = receipt.action.get("terms")
    terms = Terms(Tier.HIGH, (GroupQuorum(OPERATORS),))
    if isinstance(stored, dict):
        terms = replace(Terms.from_json(stored), remind_seconds=(), escalate=None)
    terms = replace(terms, expires_seconds=asking.DOUBT_EXPIRES_SECONDS)
    call = call_of(operation, receipt)
    action = build_action(operation, call.input, call.before)
    reverse = reverse_of(operation, action, call.before)
    words = CardWords(
        reverse=f"{reverse['operation']} with the values read before" if reverse else "",
        expires_seconds=asking.DOUBT_EXPIRES_SECONDS,
        sensitive=asking.secret_fields(operation),
        evidence=evidence,
        tier=str(terms.tier),
    )
    card = asking.action_card(transition, step, action, None, None, words)
    asking.ask(transition, step, Question(ApprovalKind.IN_DOUBT, receipt.action_digest, terms, card), nonce())


def held(transition: Transition, receipt: ReceiptRow, how: str) -> None:
    """The action is not sent again, for now or for good: what became of the first attempt stays in doubt."""
    tell_of(transition, receipt, ActionHeld(receipt.receipt_id, how))


def given_up(transition: Transition, receipt: ReceiptRow, how: str) -> None:
    """The doubt ends as a failure: people said so, or nobody answered in time."""
    tell_of(transition, receipt, ActionDoubtResolved(receipt.receipt_id, Resolution.FAILED, how))
