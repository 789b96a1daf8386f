"""Denials over HTTP: deny an operation until a time, and lift that (promise 11)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter
from msgspec import to_builtins
from pydantic import BaseModel, Field

from app.http import models
from app.http.dependencies import FacesDep, Operator, Reader
from runtime.requests import denying

router = APIRouter(prefix="/v1/denials", tags=["pauses"])
Operation = Annotated[str, Field(min_length=1, max_length=100, pattern=models.PRINTABLE)]


class Lift(models.In):
    """The operation whose denial ends."""

    operation: Operation


class Deny(models.In):
    """The operation to deny, until when, and why; cards and evidence show the reason."""

    operation: Operation
    until: datetime
    reason: Annotated[str, Field(min_length=1, max_length=1000)]


class DenialOut(BaseModel):
    """A denial; `over` says that its time has passed, `changed` that this request changed something."""

    operation: str
    until: str
    reason: str
    by: str
    over: bool
    changed: bool


@router.get("", response_model=models.Page[DenialOut], summary="Every denial that was not lifted")
async def listed(who: Reader, faces: FacesDep) -> dict[str, Any]:
    """Lists the denials by operation."""
    return {"items": [to_builtins(one) for one in await faces.ask(who.tenant, denying.listed)]}


@router.post("", response_model=DenialOut, summary="Deny an operation until a time")
async def deny(body: Deny, who: Operator, faces: FacesDep) -> dict[str, Any]:
    """Denies the operation, by a policy of one rule that is in force at once. After the answer no such action goes out.
    Open questions about it become void.
    """
    async with faces.database.transaction(who.tenant) as connection:
        place = (connection, faces.definitions, who.tenant, body.operation)
        done = await denying.deny(*place, body.until, body.reason, who.actor)
    found: dict[str, Any] = to_builtins(done)
    return found


@router.post("/lift", response_model=DenialOut, summary="Lift a denial")
async def lift(body: Lift, who: Operator, faces: FacesDep) -> dict[str, Any]:
    """Ends a denial. `changed` is false if it was lifted before."""
    async with faces.database.transaction(who.tenant) as connection:
        done = await denying.lift(connection, faces.definitions, who.tenant, body.operation, who.actor)
    found: dict[str, Any] = to_builtins(done)
    return found
