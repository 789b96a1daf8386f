"""Open waits over HTTP: who waits for whom, the longest first, in the words of `counterseal waiting`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel

from app.http import models
from app.http.dependencies import FacesDep, Paged, Reader
from app.why import longest
from runtime.engine.model.states import WaitKind

router = APIRouter(prefix="/v1/waiting", tags=["runs"])


class WaitingOut(BaseModel):
    """An open wait: its run and step, for whom or what it waits, since when, until when, and the command for it."""

    wait_id: UUID
    since: datetime
    waits_for: str
    kind: WaitKind
    run_id: UUID
    reference: str | None
    workflow: str
    step_key: str
    until: datetime | None
    command: str


@router.get("", response_model=models.Page[WaitingOut], summary="What waits, the longest first")
async def listed(who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """Lists the open waits of the token's tenant, each with whom or what it waits for: people by group, with those who
    may still decide; agents; other systems; time; rates.
    """
    rows = await longest(faces, who.tenant, paging.limit + 1, *paging.after(datetime, UUID))
    return paging.page(rows, "since", "wait_id")
