"""The health page: the doctor's findings about this tenant, figures, the longest waits, dead letters, pauses."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app import doctor
from app.console.marks import due, length
from app.console.web import HOME, FacesDep, Operator, Page, Posted, go, page
from app.doctor import State
from app.faces import Faces
from app.why import longest
from approvals.model import ApprovalKind
from core.errors import CountersealError
from core.terms import Stopped
from runtime.engine.model.states import CommandState
from runtime.requests import pausing
from runtime.store import console, queue_reads

router = APIRouter(prefix="/health")

COUNTED_MAX = 10_000
QUESTIONS_MAX = 200
DEAD_SHOWN = 25
WAITING_SHOWN = 10
_STATES = {
    State.OK: ("applied", "Works"),
    State.MISSING: ("waiting", "Not configured"),
    State.WARNING: ("waiting", "Look at it"),
    State.BROKEN: ("failed", "Broken"),
}


@router.get("")
async def look(request: Request, viewer: Operator, faces: FacesDep) -> Response:
    """Show the page. Outside systems are asked only on request, and only for the installation's own tenant."""
    return await _drawn(faces, await page(request, faces, viewer), ask="ask" in request.query_params)


@router.post("/{do}")
async def hold(request: Request, do: str, viewer: Operator, faces: FacesDep, fields: Posted) -> Response:
    """Pause or resume, by the same verbs as over HTTP; the reason is kept if it is refused."""
    if do not in ("pause", "resume"):
        raise HTTPException(404)
    what, name, reason = fields.one("what", 20), fields.one("name", 100), fields.one("reason", 1000).strip()
    try:
        verb = pausing.pause if do == "pause" else pausing.resume
        given = (viewer.who.tenant, Stopped(what), name.strip(), reason, viewer.actor)
        await verb(faces.database, faces.definitions, *given)
    except (CountersealError, ValueError) as error:
        shown = await page(request, faces, viewer)
        words = str(error) if isinstance(error, CountersealError) else "Choose what to pause"
        typed = {"what": what, "name": name, "reason": reason}
        return await _drawn(faces, shown, status=422, problem=words, typed=typed)
    return go(f"{HOME}/health#h-pa")


async def _drawn(faces: Faces, shown: Page, *, ask: bool = False, status: int = 200, **values: Any) -> Response:
    tenant = shown.viewer.who.tenant
    checks = [check async for check in doctor.of_server(tenant, faces.database)]
    checks += [check async for check in doctor.of_tenant(tenant, faces.database, faces.definitions)]
    own = tenant == faces.settings.tenant
    outside = await doctor.outside(faces.settings) if ask and own else []
    async with faces.database.transaction(tenant) as connection:
        (queue,) = await queue_reads.queues(connection, tenant, COUNTED_MAX)
    async with faces.database.transaction(tenant) as connection:
        asked = await console.open_questions(connection, tenant, QUESTIONS_MAX)
        dead = await console.dead_letters(connection, tenant, DEAD_SHOWN + 1)
    waits = await longest(faces, tenant, WAITING_SHOWN + 1)
    doubts = [one for one in asked if one.stored.approval.kind is ApprovalKind.IN_DOUBT]
    alarms = [check for check in (*checks, *outside) if check.state in (State.BROKEN, State.WARNING)]
    given: dict[str, Any] = {"problem": "", "typed": {"what": "tenant", "name": "", "reason": ""}}
    given |= {
        "alarms": alarms,
        "doubts": doubts,
        "need": len(alarms) + bool(doubts) + bool(dead),
        "checks": [(check, _STATES[check.state]) for check in (*checks, *outside)],
        "own": own,
        "queue": queue,
        "gauges": _gauges(queue, asked, doubts, shown.now),
        "longest": waits[:WAITING_SHOWN],
        "longest_more": len(waits) > WAITING_SHOWN,
        "dead": dead[:DEAD_SHOWN],
        "dead_more": len(dead) > DEAD_SHOWN,
        "kinds": [str(kind) for kind in Stopped if kind is not Stopped.SUSPENDED],
    }
    return shown.show("health.html", at="health", status=status, **{**given, **values})


def _gauges(queue: queue_reads.TenantQueue, asked: list[Any], doubts: list[Any], now: datetime) -> list[Any]:
    """Six figures, each with the age of its oldest item: name, figure, words, and true if somebody has to look."""
    waiting = [one for one in queue.messages if one.status != CommandState.FAILED]
    failed = [one for one in queue.messages if one.status == CommandState.FAILED]
    oldest = queue.oldest_pending_seconds
    return [
        ("Ready steps", queue.steps["pending"], "none waits" if oldest is None else f"oldest {_span(oldest)}", False),
        ("Running steps", queue.slots_used, f"of {queue.slots} at once", False),
        ("Outbox", sum(one.count for one in waiting), _oldest([one.oldest_seconds for one in waiting]), False),
        ("Open questions", _at_most(asked), due(asked[0].stored.approval.expires_at, now) if asked else "none", False),
        ("In doubt", len(doubts), length(now - min(d.stored.created_at for d in doubts)) if doubts else "none", True),
        ("Dead letters", sum(one.count for one in failed), _oldest([one.oldest_seconds for one in failed]), True),
    ]


def _at_most(found: list[Any]) -> str:
    return f"{len(found)} or more" if len(found) == QUESTIONS_MAX else str(len(found))


def _span(seconds: float) -> str:
    return length(timedelta(seconds=seconds))


def _oldest(ages: list[float]) -> str:
    return f"oldest {_span(max(ages))}" if ages else "none"
