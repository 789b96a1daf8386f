"""The list of runs, and actions on several runs at once: a page shows each run before anything happens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.access import Role
from app.console.sessions import Viewer
from app.console.web import HOME, FacesDep, Operator, Page, Posted, Reader, go, identified, page
from app.faces import Faces
from app.http.dependencies import decode_cursor, encode_cursor
from app.outcomes import OPEN, failure_of, state_of
from core.errors import CountersealError
from runtime.engine.model.states import RunState
from runtime.requests import steering
from runtime.store import console, read_models
from runtime.store.console import RunsFilter
from runtime.store.read_models import Row

router = APIRouter(prefix="/runs")

SHOWN = 25
BULK_MAX = 100
# The filter's words for the statuses.
STATES: dict[str, tuple[str, str, tuple[RunState, ...]]] = {
    "waits": ("waiting", "Waiting", (RunState.WAITING_APPROVAL, RunState.WAITING, RunState.QUEUED)),
    "runs": ("executing", "Running", (RunState.RUNNING,)),
    "again": ("paused", "Tries again", (RunState.FAILED_RETRYABLE,)),
    "fails": ("failed", "Failed", (RunState.FAILED_TERMINAL,)),
    "done": ("applied", "Done", (RunState.SUCCEEDED,)),
    "stopped": ("canceled", "Canceled", (RunState.CANCELED,)),
}
VIEWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "open": ("Open or failed", ("waits", "runs", "again", "fails")),
    "attention": ("Failed", ("fails", "again")),
    "all": ("All", tuple(STATES)),
}
SINCE = {"": None, "1": timedelta(days=1), "7": timedelta(days=7), "30": timedelta(days=30)}
_VERBS = {"retry": "Try again", "cancel": "Cancel"}


class Chosen(Struct, frozen=True):
    """A run on the page of several runs: true if the action is possible, or the reason why not."""

    run: Row
    state: tuple[str, str]
    words: str
    possible: bool


@router.get("")
async def listed(request: Request, viewer: Reader, faces: FacesDep) -> Response:
    """List runs, newest first. The address holds every choice, so it can be kept as a bookmark."""
    asked = request.query_params
    view = asked.get("view", "" if "s" in asked or asked.get("q") else "open")
    states = [one for one in asked.getlist("s") if one in STATES] or list(VIEWS.get(view, VIEWS["all"])[1])
    named, workflow, since = asked.get("q", "").strip()[:200], asked.get("workflow", "")[:100], asked.get("since", "")
    shown = await page(request, faces, viewer)
    key = decode_cursor(asked.get("after", "")[:400], datetime, UUID)
    span = SINCE.get(since)
    wanted = RunsFilter(
        statuses=None if len(states) == len(STATES) else [str(one) for name in states for one in STATES[name][2]],
        workflow=workflow or None,
        since=None if span is None else shown.now - span,
        named=named or None,
        person=own_only(viewer),
    )
    start = (key[0], key[1]) if key else console.NEWEST
    rows = await faces.ask(viewer.who.tenant, console.runs, wanted, SHOWN + 1, start)
    names = await faces.ask(viewer.who.tenant, console.workflow_names)
    last = rows[SHOWN - 1] if len(rows) > SHOWN else None
    values: dict[str, Any] = {
        "rows": [(row, state_of(row), failure_of(row)) for row in rows[:SHOWN]],
        "filters": {"q": named, "workflow": workflow, "since": since, "states": states, "view": view},
        "states": STATES,
        "views": VIEWS,
        "names": names,
        "later": bool(key),
        "following": "" if last is None else encode_cursor([last["created_at"], last["run_id"]]),
        "query": [(name, item) for name, item in asked.multi_items() if name not in ("after", "run", "do")],
        "bulk": viewer.has(Role.OPERATOR, Role.ADMIN),
    }
    return shown.show("runs.html", at="runs", **values)


def own_only(viewer: Viewer) -> str | None:
    """The person to whose runs the list is limited: an approver sees only runs that they requested or answered."""
    return None if viewer.has(Role.OPERATOR, Role.ADMIN, Role.AUDITOR) else viewer.who.subject


@router.get("/several")
async def several(request: Request, viewer: Operator, faces: FacesDep) -> Response:
    """Show each chosen run, and what would happen to it. Looking changes nothing."""
    do = request.query_params.get("do", "")
    ids = _ids(request.query_params.getlist("run"))
    if do not in _VERBS or not ids:
        return go(f"{HOME}/runs")
    shown = await page(request, faces, viewer)
    return await _several(faces, shown, do, ids, done="done" in request.query_params)


@router.post("/several")
async def act(request: Request, viewer: Operator, faces: FacesDep, fields: Posted) -> Response:
    """Handle the chosen runs one after the other, each in its own transaction; a refused run gets its reason."""
    do, reason, ids = fields.one("do", 20), fields.one("reason", 2000).strip(), _ids(fields.get("run", []))
    if do not in _VERBS or not ids:
        raise HTTPException(400, "No run was chosen.")
    shown = await page(request, faces, viewer)
    if not reason:
        return await _several(faces, shown, do, ids, status=422, problem="Write a reason: it is kept in the audit.")
    refused: dict[UUID, str] = {}
    for run_id in ids:
        try:
            await steer(faces, viewer, do, run_id, reason)
        except CountersealError as error:
            refused[run_id] = str(error)
    if refused:
        return await _several(faces, shown, do, ids, status=409, refused=refused, reason=reason)
    return go(f"{HOME}/runs/several?do={do}&done&{'&'.join(f'run={one}' for one in ids)}")


async def steer(faces: Faces, viewer: Viewer, do: str, run_id: UUID, reason: str) -> None:
    """Retry or cancel one run, as over HTTP; errors say why not."""
    tenant, verb = viewer.who.tenant, steering.retry_run if do == "retry" else steering.cancel_run
    async with faces.database.transaction(tenant) as connection:
        await verb(connection, faces.definitions, tenant, run_id, viewer.actor, reason)


def _ids(texts: Sequence[str]) -> list[UUID]:
    return [*dict.fromkeys(identified(text) for text in texts)][:BULK_MAX]


async def _several(
    faces: Faces,
    shown: Page,
    do: str,
    ids: Sequence[UUID],
    *,
    status: int = 200,
    done: bool = False,
    problem: str = "",
    reason: str = "",
    refused: dict[UUID, str] | None = None,
) -> Response:
    found = []
    for run_id in ids:
        run = await faces.ask(shown.viewer.who.tenant, read_models.run, run_id)
        if run is None:
            raise HTTPException(404)
        found.append(_chosen(run, do, (refused or {}).get(run_id, "")))
    values: dict[str, Any] = {"do": do, "verb": _VERBS[do], "found": found, "done": done, "problem": problem}
    values |= {"reason": reason, "refused": refused or {}, "possible": sum(one.possible for one in found)}
    return shown.show("several.html", at="runs", status=status, **values)


def _chosen(run: Row, do: str, refused: str) -> Chosen:
    possible = run["status"] == RunState.FAILED_TERMINAL if do == "retry" else run["status"] in OPEN
    if refused:
        words = refused
    elif do == "retry":
        words = "Its failed steps begin anew; what is done stays done" if possible else "It has not failed, so it stays"
    else:
        words = "It ends. What is done stays done" if possible else "It is over, so it stays"
    return Chosen(run, state_of(run), words, possible)
