"""Receipts: undoing what one records."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter

from app.http import models
from app.http.dependencies import FacesDep, Operator
from runtime.requests.reversing import Undo, reverse

router = APIRouter(prefix="/v1/receipts", tags=["receipts"])


@router.post(
    "/{receipt_id}/reverse", status_code=201, response_model=models.Reversal, summary="Undo what a receipt records"
)
async def undo(receipt_id: UUID, body: models.Retry, who: Operator, faces: FacesDep) -> dict[str, Any]:
    """Starts a run that undoes the effect. It is judged like any action, and fails if the record was changed since. 409
    says why there is no way back, or that the effect is reversed already.
    """
    asked = Undo(
        who.tenant, faces.settings.workspace, receipt_id, body.reason, who.subject, who.actor, started_by=who.subject
    )
    started = await faces.ask(who.tenant, reverse, faces.definitions, asked)
    return {"receipt_id": receipt_id, "run_id": started.run_id}
