"""Doubt: an intent whose outcome nobody recorded is resolved, never repeated blindly (promise 2). Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from approvals.model import ApprovalKind, Choice, GroupQuorum, Terms, Tier
from connectors.catalog import build_action, reverse_of
from connectors.operation import InDoubtRule, Kind, Operation
from core.canonical import Json, JsonObject
from evidence.chain import EventType
from evidence.receipts import RECEIPT, ReceiptEvent, ReceiptStatus, Resolution
from runtime.governance import asking, elsewhere
from runtime.governance.asking import CardWords, Question
from runtime.governance.finishing import finish
from runtime.governance.moves import Inquire, Known, Next, Nonce, Over, Perform
from runtime.governance.receipting import call_of, put_receipt, record_intent
from runtime.kernel.commit import ApprovalMove, ReceiptRow, StepRow
from runtime.kernel.transition import Transition

# Who is asked about an action that policy had let out without an approval.
OPERATORS = "operators"


def resolve(
    transition: Transition,
    step: StepRow,
    operation: Operation,
    known: Known,
    receipt: ReceiptRow,
    nonce: Nonce,
) -> Next:
    """An earlier lease recorded an intent and no outcome: find out, never repeat blindly (promise 2)."""
    receipt = mark(transition, receipt, "the worker that intended it is gone")
    given = known.given
    if given is not None and given.kind is ApprovalKind.IN_DOUBT and given.digest == receipt.action_digest:
        transition.rows.approvals.append(ApprovalMove(given.approval_id, "approved", consumed=True))
        if given.choice is Choice.HAPPENED:
            applied(transition, step, operation, receipt, {}, f"a person said it happened: {given.reason}", nonce)
            return Over()
        how = f"a person said to do it again: {given.reason}"
        return again(transition, step, operation, receipt, how, nonce)
    if transition.view.canceling is not None and operation.in_doubt is not InDoubtRule.PROBE:
        # Nothing more goes out for this run, and nobody can be asked: the evidence says that it is in doubt.
        transition.cancel_step(step)
        return Over()
    if operation.in_doubt is InDoubtRule.IDEMPOTENT:
        return again(transition, step, operation, receipt, "sent again: the target dedupes by its key", nonce)
    if operation.in_doubt is InDoubtRule.PROBE:
        since = (transition.view.now - _intended(receipt)).total_seconds()
        return Inquire(step, operation, call_of(operation, receipt), receipt, since)
    ask_people(transition, step, operation, receipt, "This operation cannot be asked what became of it.", nonce)
    return Over()


def _intended(receipt: ReceiptRow) -> datetime:
    assert receipt.intended_at is not None
    return receipt.intended_at


def mark(transition: Transition, receipt: ReceiptRow, why: str) -> ReceiptRow:
    """Mark a receipt in doubt, if it is not yet."""
    if receipt.status == ReceiptStatus.IN_DOUBT:
        return receipt
    doubtful = replace(receipt, status=RECEIPT.next(ReceiptStatus(receipt.status), ReceiptEvent.DOUBT), resolution=why)
    put_receipt(transition, doubtful)
    transition.record(EventType.ACTION_IN_DOUBT, {"receipt": str(receipt.receipt_id)}, step=receipt.step_key)
    return doubtful


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
    status = RECEIPT.next(ReceiptStatus(receipt.status), ReceiptEvent.RESOLVE_APPLIED)
    put_receipt(transition, replace(receipt, status=status, output=output, resolution=how))
    facts: JsonObject = {"receipt": str(receipt.receipt_id), "resolution": str(Resolution.APPLIED)}
    transition.record(EventType.ACTION_DOUBT_RESOLVED, facts, step=step.key)
    if operation.kind is Kind.DURABLE:
        # What had happened is that it began; its end is still to come.
        elsewhere.park(transition, step, operation, nonce)
    else:
        finish(transition, step, transition.graph.leaf(step.key), output)


def again(
    transition: Transition, step: StepRow, operation: Operation, receipt: ReceiptRow, how: str, nonce: Nonce
) -> Next:
    """The doubt is resolved: it had not happened, or the target dedupes it. The same action is intended once more.

    In a run that is being canceled it is not: nothing more goes out.
    """
    if transition.view.canceling is not None:
        given_up(transition, receipt, f"{how}; the run is being canceled")
        transition.cancel_step(step)
        return Over()
    facts: JsonObject = {"receipt": str(receipt.receipt_id), "resolution": str(Resolution.NOT_APPLIED)}
    transition.record(EventType.ACTION_DOUBT_RESOLVED, facts, step=step.key)
    retried = replace(
        receipt,
        status=RECEIPT.next(ReceiptStatus(receipt.status), ReceiptEvent.RETRY),
        attempt=receipt.attempt + 1,
        lease_epoch=step.lease_epoch,
        resolution=how,
        intended_at=transition.view.now,
    )
    put_receipt(transition, retried)
    approval = receipt.action.get("approval")
    record_intent(transition, retried, str(receipt.action["decision"]), str(approval) if approval else None)
    elsewhere.expect(transition, step, operation, nonce)
    return Perform(step, operation, call_of(operation, receipt), retried)


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


def given_up(transition: Transition, receipt: ReceiptRow, how: str) -> None:
    """The doubt ends as a failure: people said so, or nobody answered in time."""
    status = RECEIPT.next(ReceiptStatus(receipt.status), ReceiptEvent.RESOLVE_FAILED)
    put_receipt(transition, replace(receipt, status=status, resolution=how))
    facts: JsonObject = {"receipt": str(receipt.receipt_id), "resolution": str(Resolution.FAILED)}
    transition.record(EventType.ACTION_DOUBT_RESOLVED, facts, step=receipt.step_key)
