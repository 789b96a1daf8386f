"""Pauses over HTTP: pause a tenant, a workflow, a connector, an agent or a run, and resume it (promise 11)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from app.http import models
from app.http.dependencies import FacesDep, Operator, Reader
from core.terms import Stopped
from runtime.requests import pausing
from runtime.requests.pausing import Changed

router = APIRouter(prefix="/v1/pauses", tags=["pauses"])


class Resume(models.In):
    """The target of a pause: ``name`` is the name of a workflow, connector or agent, or a run's id."""

    what: Stopped
    name: Annotated[str, Field(max_length=100, pattern=models.PRINTABLE)] = ""
    reason: Annotated[str, Field(max_length=1000)] = ""


class Pause(Resume):
    """The target to pause, and the reason, which is shown wherever the pause is."""

    reason: Annotated[str, Field(min_length=1, max_length=1000)]


@router.get("", response_model=models.Page[models.PauseOut], summary="Everything that is paused")
async def listed(who: Reader, faces: FacesDep) -> dict[str, Any]:
    """Lists the pauses in force, the oldest first."""
    return {"items": await faces.ask(who.tenant, pausing.listed)}


@router.post("", summary="Pause")
async def pause(body: Pause, who: Operator, faces: FacesDep) -> Changed:
    """Pauses the target. After the answer no new action is intended and no new call begins; calls under way end first.
    Votes, signals and starts are still taken. `changed` is false if it was paused before.
    """
    return await pausing.pause(
        faces.database, faces.definitions, who.tenant, body.what, body.name, body.reason, who.actor
    )


@router.post("/resume", summary="Resume")
async def resume(body: Resume, who: Operator, faces: FacesDep) -> Changed:
    """Ends a pause: the waiting steps go on within seconds. `changed` is false if it was not paused."""
    return await pausing.resume(
        faces.database, faces.definitions, who.tenant, body.what, body.name, body.reason, who.actor
    )
