"""Grants over HTTP: what approvers of a run have allowed in advance, and taking one back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from msgspec import to_builtins
from pydantic import BaseModel, Field

from app.http import models
from app.http.dependencies import FacesDep, Reader, Steerer
from runtime.requests import granting

router = APIRouter(prefix="/v1/runs", tags=["grants"])


class GrantOut(BaseModel):
    """A grant. ``state`` is `open`, or why it is over: `expired`, `used_up`, `revoked`, `votes_lost`."""

    grant: UUID
    run: UUID
    approval: UUID
    state: str
    uses: int
    used: int
    until: datetime
    agent: str
    of: dict[str, Any]
    by: list[str]


class RevokeIn(models.In):
    """The reason why a grant is taken back, which the evidence keeps."""

    reason: Annotated[str, Field(min_length=1, max_length=1000)]


@router.get("/{run_id}/grants", response_model=models.Page[GrantOut], summary="What approvers have allowed in advance")
async def listed(run_id: UUID, who: Reader, faces: FacesDep) -> dict[str, Any]:
    """Lists the grants of a run, the oldest first."""
    found = await faces.ask(who.tenant, granting.grants_of, faces.definitions, run_id)
    return {"items": [to_builtins(one) for one in found]}


@router.post("/{run_id}/grants/{grant_id}/revoke", status_code=204, summary="Take a grant back")
async def revoke(run_id: UUID, grant_id: UUID, body: RevokeIn, who: Steerer, faces: FacesDep) -> None:
    """Takes a grant back: after the answer, no action goes out by it. 409 if it is over."""
    named = (faces.definitions, run_id, grant_id, who.actor, body.reason)
    await faces.ask(who.tenant, granting.revoke_grant, *named)
