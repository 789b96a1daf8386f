"""The tenant's audit stream, for auditors."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel

from app.http import models
from app.http.dependencies import Auditor, FacesDep, Paged
from runtime.requests import auditing
from runtime.requests.auditing import Wanted

router = APIRouter(prefix="/v1", tags=["evidence"])

Text = Annotated[str, Query(max_length=200, pattern=models.PRINTABLE)]


class ActorOut(BaseModel):
    """The actor of an event: its kind, such as ``person`` or ``token``, and its id."""

    kind: str
    id: str


class TenantEventOut(BaseModel):
    """One event of the tenant: its place in the stream, its time, its type, its actor and its data."""

    seq: int
    at: datetime
    type: str
    actor: ActorOut
    data: dict[str, Any]


class VerifiedOut(BaseModel):
    """The whole stream, as its chain was computed again for this answer: how many lines, and the head they come to."""

    lines: int
    head: str


class TenantEvents(models.Page[TenantEventOut]):
    """A page of events. ``verified`` is about the whole stream, whatever the filters leave of it."""

    verified: VerifiedOut


@router.get("/audit", response_model=TenantEvents, summary="The tenant's audit stream, newest first")
async def tenant_events(
    who: Auditor,
    faces: FacesDep,
    paging: Paged,
    kind: Annotated[str | None, Query(alias="type", max_length=200, pattern=models.PRINTABLE)] = None,
    person: Text | None = None,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
) -> dict[str, Any]:
    """What belongs to no run: publications, pauses, tokens, refused requests, erasures, reads of evidence.

    The chain of the whole stream is computed again for every page. 409 names the line at which it is broken.
    `person` is a person's id, account or e-mail: events in which the person acts, or is named. `until` is excluded.
    Reading is an event of the stream.
    """
    wanted, before = Wanted(kind, person, since, until), paging.after(int)
    seen = await faces.ask(who.tenant, auditing.look, wanted, who.actor, paging.limit + 1, *before)
    rows = [{**event, "at": event["ts"]} for event in seen.events]
    return {**paging.page(rows, "seq"), "verified": {"lines": seen.head.count, "head": seen.head.hash}}
