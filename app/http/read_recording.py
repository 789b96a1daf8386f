"""Records who was shown cards, values, receipts and the like, before the first byte of the answer goes out."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import Principal
from app.faces import Faces
from app.http import problems
from core.errors import CountersealError
from runtime.store import audit

CONSOLE, HTTP = "console", "http"
# The database keeps a read for an hour, and records no second one. This cache only spares it the question.
_REMEMBERED_SECONDS, _REMEMBERED_MAX = 300.0, 10_000


class ShownRoute(NamedTuple):
    """The kind of what a route shows, and the parameters of its path that name the run, or the question or task."""

    what: str
    run: str = ""
    thing: str = ""


def _of_run(*parts: str) -> dict[str, ShownRoute]:
    return {f"/v1/runs/{{run_id}}/{part}": ShownRoute(part.partition("/")[0], run="run_id") for part in parts}


# By the path of the route, for the console with its prefix. A route that is not here shows no run, question or person
# (documents, schemas, pauses, figures), or records the read itself (audit streams, bundles, searches).
SHOWN: Mapping[str, ShownRoute] = {
    "/v1/runs": ShownRoute("runs"),
    "/v1/runs/{run_id}": ShownRoute("run", run="run_id"),
    **_of_run(
        "steps", "agents", "checkpoints", "checkpoints/diff", "checkpoints/{number}", "receipts", "timeline", "ledger",
        "graph", "waits", "mutations", "grants",
    ),
    "/v1/approvals": ShownRoute("approvals"),
    "/v1/approvals/{approval_id}": ShownRoute("approval", thing="approval_id"),
    "/v1/approvals/{approval_id}/form": ShownRoute("approval", thing="approval_id"),
    "/v1/tasks": ShownRoute("tasks"),
    "/v1/tasks/{task_id}": ShownRoute("task", thing="task_id"),
    "/v1/waiting": ShownRoute("waiting"),
    "/v1/directory": ShownRoute("directory"),
    "console:/inbox": ShownRoute("approvals"),
    "console:/approvals/{approval}": ShownRoute("approval", thing="approval"),
    "console:/approvals/{approval}/edit": ShownRoute("approval", thing="approval"),
    "console:/approvals/{approval}/list": ShownRoute("approval", thing="approval"),
    "console:/tasks/{task}": ShownRoute("task", thing="task"),
    "console:/runs": ShownRoute("runs"),
    "console:/runs/several": ShownRoute("runs"),
    "console:/runs/{run}": ShownRoute("run", run="run"),
    "console:/people": ShownRoute("directory"),
    "console:/health": ShownRoute("waiting"),
    "console:/evidence/{run}": ShownRoute("verification", run="run"),
    "console:/evidence/{run}/report": ShownRoute("report", run="run"),
}  # fmt: skip


class ReadRecorder:
    """Middleware within the authentication: an answer that shows something leaves only after the read was recorded."""

    def __init__(self, app: ASGIApp, faces: Faces, door: str) -> None:
        self._app, self._faces, self._door = app, faces, door
        self._known: dict[tuple[Any, ...], float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait with the first message of a GET that succeeds. If the record fails, the answer is a problem instead."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        failed = False

        async def sending(message: Message) -> None:
            nonlocal failed
            if message["type"] == "http.response.start" and message["status"] == 200:
                try:
                    await self._record(scope)
                except CountersealError as error:
                    failed = True
                    await problems.of_error(error)(scope, receive, send)
                except Exception as error:
                    failed = True
                    await problems.of_unexpected(error)(scope, receive, send)
            if not failed:
                await send(message)

        await self._app(scope, receive, sending)

    async def _record(self, scope: Scope) -> None:
        path, who = str(getattr(scope.get("route"), "path", "")), _principal(scope)
        shown = SHOWN.get(f"{CONSOLE}:{path.removeprefix('/console')}" if self._door == CONSOLE else path)
        if shown is None or who is None:
            return
        given = scope.get("path_params") or {}
        run, thing = (UUID(str(given[name])) if name else None for name in (shown.run, shown.thing))
        key = (who.tenant, who.actor.kind, who.actor.id, shown.what, run, thing)
        if self._known.get(key, 0.0) > monotonic():
            return
        read = {"run": run, "thing": thing}
        await self._faces.ask(who.tenant, audit.read_by, who.actor, shown.what, self._door, **read)
        if len(self._known) >= _REMEMBERED_MAX:
            self._known.clear()
        self._known[key] = monotonic() + _REMEMBERED_SECONDS


def _principal(scope: Scope) -> Principal | None:
    state = scope.get("state") or {}
    viewer = state.get("viewer")
    return state.get("principal") or (viewer.who if viewer is not None else None)
