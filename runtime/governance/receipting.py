"""Keeping receipts inside a transition: what is stored of an action, how intent and outcome are written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from connectors.operation import Kind, Operation
from connectors.port import Before, Call
from core.action import Action
from core.canonical import Json, JsonObject
from core.ids import correlation_id
from evidence.chain import EventType
from evidence.commitments import blind
from evidence.receipts import ReceiptStatus
from runtime.kernel.commit import ReceiptRow
from runtime.kernel.transition import Transition


def action_json(action: Action, before: Before | None) -> JsonObject:
    """What is kept of an action to perform or probe exactly it later."""
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
    key = correlation_of(operation, receipt.run_id, receipt.step_key) if receipt.run_id is not None else None
    return Call(operation.name, action["input"], receipt.idempotency_key, seconds, before, key)


def correlation_of(operation: Operation, run_id: UUID, step_key: str) -> str | None:
    """Under which key the outside reports the end of what this step begins there; the same at every attempt (V-9)."""
    return str(correlation_id(run_id, f"external:{step_key}")) if operation.kind is Kind.DURABLE else None


def record_intent(transition: Transition, receipt: ReceiptRow, decision: str, approval: str | None) -> None:
    """The audit's line for an intent: which action, let out by which decision, on which approval."""
    facts: JsonObject = {
        "receipt": str(receipt.receipt_id),
        "action": blind(transition.view.run_key, receipt.action_digest),
        "operation": receipt.operation,
        "attempt": receipt.attempt,
        "decision": decision,
        "approval": approval,
    }
    transition.record(EventType.ACTION_INTENDED, facts, step=receipt.step_key)


def put_receipt(transition: Transition, receipt: ReceiptRow) -> ReceiptRow:
    """Note a receipt's row as it will be after the commit; the last note of a transition counts.

    It is settled at the time of the audit's line that says so, which binds it.
    """
    settled = receipt.status in (ReceiptStatus.SUCCEEDED, ReceiptStatus.FAILED)
    receipt = replace(receipt, settled_at=transition.view.now if settled else None)
    kept = [row for row in transition.rows.receipts if row.receipt_id != receipt.receipt_id]
    transition.rows.receipts = [*kept, receipt]
    approval = receipt.action.get("approval")
    if isinstance(approval, str) and receipt.status != ReceiptStatus.INTENDED:
        # The card says what became of the action that was approved.
        transition.message("card", UUID(approval), f"{receipt.status}:{receipt.attempt}")
    return receipt
