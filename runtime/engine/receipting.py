"""Keeping receipts inside a transition: what is stored of an action, how intent and outcome are written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from uuid import UUID

from connectors.operation import Kind, Operation
from connectors.port import Before, Call
from core.action import Action
from core.canonical import Json, JsonObject
from core.ids import correlation_id
from evidence.commitments import blind
from runtime.engine.commit import ReceiptRow
from runtime.engine.events import (
    ActionDoubtResolved,
    ActionFailed,
    ActionHeld,
    ActionInDoubt,
    ActionIntended,
    ActionSucceeded,
)
from runtime.engine.transition import Transition

Outcome: TypeAlias = ActionSucceeded | ActionFailed | ActionInDoubt | ActionHeld | ActionDoubtResolved


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
        action=blind(transition.view.run_key, receipt.action_digest),
        operation=receipt.operation,
        attempt=receipt.attempt + 1,
        decision=str(decision),
        approval=UUID(approval) if isinstance(approval, str) else None,
        resolution=how,
        authority=authority,
    )
    transition.tell(event, step=receipt.step_key)
    return transition.run.receipts[receipt.receipt_id]


def tell_of(transition: Transition, receipt: ReceiptRow, event: Outcome) -> ReceiptRow:
    """Tell what became of an action; the receipt afterwards. The card of its approval says so too."""
    transition.tell(event, step=receipt.step_key)
    left = transition.run.receipts[receipt.receipt_id]
    approval = left.action.get("approval")
    if isinstance(approval, str):
        transition.message("card", UUID(approval), f"{left.status}:{left.attempt}")
    return left
