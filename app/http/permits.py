"""Permits of tools that agents carry out themselves: fetched, held by heartbeats, answered by a report."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from app.faces import Faces
from app.http.actions import POLL_SECONDS, Action, answered
from app.http.dependencies import Agent, FacesDep, wait_until_over
from app.http.models import In
from core.budgets import most
from runtime.engine.life.permits import Outcome
from runtime.requests import permits
from runtime.requests.acting import ActionStatus
from runtime.requests.permits import PermitDecision, Permits

router = APIRouter(prefix="/v1/actions", tags=["actions"])

DIGEST = r"^[0-9a-f]{64}$"
# A report is settled by a worker, most often at once: its answer waits for that for so long.
SETTLE_SECONDS = 2.0
# A wait is woken once for the end of the question, and once for the intent; more often if people are asked again.
WAKES_MAX = 6


class FetchPermit(In):
    """A fetch of a permit: a nonce that the agent has made up, and the digest of the call that it would make."""

    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{32,64}$")]
    digest: Annotated[str, Field(pattern=DIGEST)]
    wait: Annotated[float, Field(ge=0, le=50)] = 0


class PermitAnswer(BaseModel):
    """The answer to a fetch. An agent runs its tool only on ``permit`` with its own nonce and its own digest."""

    decision: PermitDecision
    id: UUID
    nonce: str
    digest: str
    status: ActionStatus
    detail: str | None = None
    permit: str | None = None
    expires_at: datetime | None = None
    lease_seconds: int | None = None
    poll_after: int | None = None


class Heartbeat(In):
    """A sign that the agent is still at it."""

    permit: Annotated[str, Field(pattern=DIGEST)]


class Beaten(BaseModel):
    """The end of the lease now."""

    id: UUID
    expires_at: datetime


class ReportOutcome(In):
    """A report of what came of a call that the agent has carried out. ``digest`` is that of the call that ran."""

    permit: Annotated[str, Field(pattern=DIGEST)]
    outcome: Outcome
    digest: Annotated[str, Field(pattern=DIGEST)]
    output: Any = None
    detail: Annotated[str, Field(max_length=1000)] = ""


_WAITS: dict[int | str, dict[str, Any]] = {202: {"model": PermitAnswer, "description": "Fetch again later"}}


@router.post(
    "/{action_id}/permit",
    response_model=PermitAnswer,
    response_model_exclude_none=True,
    summary="Fetch the permit of an action",
    responses=_WAITS,
)
async def fetch(
    action_id: UUID, body: FetchPermit, who: Agent, faces: FacesDep, request: Request, response: Response
) -> dict[str, Any]:
    """Fetches the permit of an action that is let out. It is judged anew, and intended, before the permit goes out.

    409: the digest is of another call, or the permit was fetched by another nonce. The same nonce gets it again.
    """
    desk, agent, loop = _desk(faces), _agent(who, action_id), asyncio.get_running_loop()
    until = loop.time() + body.wait
    found = await desk.fetch(agent, body.nonce, body.digest)
    for _ in range(WAKES_MAX):
        if found.decision is not PermitDecision.WAIT or (left := until - loop.time()) <= 0:
            break
        await wait_until_over(request, faces, action_id, left)
        found = await desk.fetch(agent, body.nonce, body.digest)
    document: dict[str, Any] = {"decision": found.decision, "id": action_id, "nonce": body.nonce, "digest": body.digest}
    document |= {"status": found.status}
    if found.decision is PermitDecision.PERMIT:
        response.headers["Cache-Control"] = "no-store"
        return {**document, "permit": found.permit, "expires_at": found.expires_at, "lease_seconds": found.seconds}
    if found.decision is PermitDecision.DENY:
        return {**document, "detail": found.detail}
    response.status_code = 202
    response.headers["Retry-After"] = str(POLL_SECONDS)
    return {**document, "poll_after": POLL_SECONDS}


@router.post("/{action_id}/heartbeat", response_model=Beaten, summary="Extend the lease of a permit")
async def beat(action_id: UUID, body: Heartbeat, who: Agent, faces: FacesDep) -> dict[str, Any]:
    """Extends the lease, up to four hours in all. 409: it is over, or this is not the permit."""
    return {"id": action_id, "expires_at": await _desk(faces).beat(_agent(who, action_id), body.permit)}


@router.post("/{action_id}/outcome", response_model=Action, summary="Report what came of an action")
async def report(
    action_id: UUID, body: ReportOutcome, who: Agent, faces: FacesDep, request: Request, response: Response
) -> dict[str, Any]:
    """Takes the report of the agent: it counts if it is of the very call, within the lease. Else people decide.

    The same report again gets the same answer. 409: another one was taken, or this is not the permit.
    """
    outcome = permits.Report(body.permit, body.outcome, body.digest, body.output, body.detail)
    await _desk(faces).report(_agent(who, action_id), outcome)
    shown = await answered(request, faces, who, action_id, SETTLE_SECONDS, response)
    response.status_code = 200  # the report is taken, whatever becomes of it
    return shown


def _agent(who: Agent, action_id: UUID) -> permits.Agent:
    return permits.Agent(who.tenant, who.subject, who.actor, action_id)


def _desk(faces: Faces) -> Permits:
    seconds = (most("permit_seconds"), most("permit_most_seconds"))
    return Permits(faces.database, faces.definitions, *seconds)
