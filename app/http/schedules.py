"""Schedules over HTTP: the next moment of each, and what became of the last ones."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query
from msgspec import structs
from pydantic import BaseModel

from app.http import models
from app.http.dependencies import FacesDep, Reader
from runtime.store import schedules

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


class ScheduleOut(BaseModel):
    """The schedule of a workflow's newest version. `next_at` is null until a keeper has seen it; `missed` counts."""

    workflow: str
    version: int
    cron: str
    timezone: str
    next_at: datetime | None
    since: datetime
    last_at: datetime | None
    last_outcome: str | None
    last_run: UUID | None
    last_reason: str | None
    missed: int


class MomentOut(BaseModel):
    """A moment of a schedule: `started` with its run, `skipped`, `failed` or `missed` with the reason."""

    moment: datetime
    outcome: str
    run_id: UUID | None
    reason: str | None


@router.get("", response_model=models.Page[ScheduleOut], summary="Every schedule")
async def listed(who: Reader, faces: FacesDep) -> dict[str, Any]:
    """Lists the schedules by workflow."""
    return {"items": [structs.asdict(one) for one in await faces.ask(who.tenant, schedules.listed)]}


@router.get("/{workflow}/moments", response_model=models.Page[MomentOut], summary="The moments of a schedule")
async def moments(
    workflow: Annotated[str, Path(max_length=100, pattern=models.PRINTABLE)],
    who: Reader,
    faces: FacesDep,
    last: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """Lists the last moments, the newest first, and what became of each: no moment is left out."""
    return {"items": await faces.ask(who.tenant, schedules.moments, workflow, last)}
