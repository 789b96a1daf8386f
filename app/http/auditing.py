"""The tenant's audit stream, for auditors."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from msgspec import structs
from pydantic import BaseModel

from app.http import models
from app.http.dependencies import Auditor, FacesDep, Moment, Paged, encode_cursor
from runtime.requests import auditing, past, searching
from runtime.requests.auditing import EventFilter
from runtime.requests.past import PastDirectory
from runtime.requests.searching import Asked, Decision, Part

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
    since: Moment | None = None,
    until: Moment | None = None,
    run: UUID | None = None,
) -> dict[str, Any]:
    """Lists what belongs to no run: publications, pauses, tokens, refused requests, erasures, reads of evidence.

    The chain of the whole stream is computed again for every page. 409 names the line at which it is broken.
    `person` is a person's id, account or e-mail: events in which the person acts, or is named. `until` is excluded.
    `type` may end with `.*`: `evidence.*` with `run` is who read evidence of a run. Reading is an event of the stream.
    """
    wanted, before = EventFilter(kind, person, since, until, str(run) if run else None), paging.after(int)
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
    at: Moment | None = None,
    digest: Annotated[str | None, Query(min_length=12, max_length=64, pattern="^[0-9a-f]+$")] = None,
) -> PastDirectory:
    """Shows who was in which group, since when, and by whose publication. Without a moment or a digest: now.

    `digest` may be the beginning of one. 404 if there was none, 409 if the tenant's stream is broken.
    """
    return await faces.ask(who.tenant, past.directory_at, at, digest)


class PoliciesInForce(BaseModel):
    """All policies that were in force at a moment, by name, each with ``name``, ``version``, ``digest``, ``since``,
    ``until`` (null if it is in force now), its ``author``, and whoever agreed (``approver``).
    """

    items: list[dict[str, Any]]


@router.get("/policies/in-force", response_model=PoliciesInForce, summary="The policies in force at a moment")
async def in_force(who: Auditor, faces: FacesDep, at: Moment | None = None) -> dict[str, Any]:
    """Shows which version of each policy was in force, since when, by whose proposal and agreement; now without `at`.

    The tenant's stream is verified for each answer: 409 if it is broken.
    """
    return {"items": [structs.asdict(one) for one in await faces.ask(who.tenant, past.policies_at, at)]}


class FoundRuns(models.Page[dict[str, Any]]):
    """A page of runs. It looked at so many runs (`looked_at`, at most 1,000), so it may be short, and have a `next`.

    A run has those of its `actions` (decisions of the rules) and `questions` with their `answers` that fit, at most 100
    of each (`more` counts the rest); `bundle` says if its evidence is stored.
    """

    looked_at: int


@router.get("/evidence/runs", response_model=FoundRuns, summary="Find runs by who did what in them")
async def find(
    who: Auditor,
    faces: FacesDep,
    paging: Paged,
    person: Text | None = None,
    part: Part | None = None,
    decision: Decision | None = None,
    operation: Text | None = None,
    target: Text | None = None,
    rule: Text | None = None,
    reference: Text | None = None,
    workflow: Text | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> dict[str, Any]:
    """Finds runs, newest first; each parameter narrows the answer.

    `person` is any name of a person, and needs a `part`. `since` and `until` (excluded) bound the vote if `part` is
    `approver`, otherwise the beginning of the run. `target` is the beginning of one. What is shown comes from the run's
    lines, which are verified: 409 if those of a run were altered. Asking is an event of the tenant's stream.
    """
    asked = Asked(person, part, decision, operation, target, rule, reference, workflow, since, until)
    key = paging.after(datetime, UUID)
    after = (key[0], key[1]) if key else searching.NEWEST
    page = await faces.ask(who.tenant, searching.find, faces.definitions, who.actor, asked, paging.limit, after)
    following = None if page.following is None else encode_cursor(page.following)
    items = [{name: value for name, value in row.items() if name != "error"} for row in page.runs]
    return {"items": items, "next": following, "looked_at": page.looked_at}
