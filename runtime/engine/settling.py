"""Telling what became of an action, on its receipt and on the card of its approval. Pure."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

from runtime.engine.commit import ReceiptRow
from runtime.engine.events import ActionDoubtResolved, ActionFailed, ActionHeld, ActionInDoubt, ActionSucceeded
from runtime.engine.transition import Transition

Ending: TypeAlias = ActionSucceeded | ActionFailed | ActionInDoubt | ActionHeld | ActionDoubtResolved


def tell_of(transition: Transition, receipt: ReceiptRow, event: Ending) -> ReceiptRow:
    """Tell what became of an action; the receipt afterwards. The card of its approval says so too."""
    transition.tell(event, step=receipt.step_key)
    left = transition.run.receipts[receipt.receipt_id]
    approval = left.action.get("approval")
    if isinstance(approval, str):
        transition.message("card", UUID(approval), f"{left.status}:{left.attempt}")
    return left
