"""The tenant's audit stream, for auditors."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel

from app.http import models
from app.http.dependencies import Auditor, FacesDep, Paged
from runtime.requests import auditing, past
from runtime.requests.auditing import Wanted
from runtime.requests.past import PastDirectory

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
    """Lists what belongs to no run: publications, pauses, tokens, refused requests, erasures, reads of evidence.

    The chain of the whole stream is computed again for every page. 409 names the line at which it is broken.
    `person` is a person's id, account or e-mail: events in which the person acts, or is named. `until` is excluded.
    Reading is an event of the stream.
    """
    wanted, before = Wanted(kind, person, since, until), paging.after(int)
    seen = await faces.ask(who.tenant, auditing.look, wanted, who.actor, paging.limit + 1, *before)
    rows = [{**event, "at": event["ts"]} for event in seen.events]
    return {**paging.page(rows, "seq"), "verified": {"lines": seen.head.count, "head": seen.head.hash}}


class MembershipOut(BaseModel):
    """A member of a group, since the publication of that time, by that person; null if an older release made it."""

    group: str
    person: str
    since: datetime | None
    by: str | None


class DirectoryOut(BaseModel):
    """A directory and its use; `until` is null if it is in use now. `source` and `members` are null for a directory of
    an older release, which kept only the digest.
    """

    name: str
    version: int
    digest: str
    since: datetime
    until: datetime | None
    by: str
    source: str | None
    members: list[MembershipOut] | None


@router.get("/directory", response_model=DirectoryOut, summary="The directory that was in use at a moment")
async def directory(
    who: Auditor,
    faces: FacesDep,
    at: AwareDatetime | None = None,
    digest: Annotated[str | None, Query(min_length=12, max_length=64, pattern="^[0-9a-f]+$")] = None,
) -> PastDirectory:
    """Shows who was in which group, since when, and by whose publication. Without a moment or a digest: now.

    `digest` may be the beginning of one. 404 if there was none, 409 if the tenant's stream is broken.
    """
    return await faces.ask(who.tenant, past.directory_at, at, digest)
