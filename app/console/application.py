"""The console's application: its routes, its files, its headers, and errors as pages."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import structlog
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.console import (
    approvals,
    definitions,
    editing,
    entrance,
    entrance_oidc,
    evidence,
    health,
    inbox,
    lists,
    run,
    runs,
    tasks,
)
from app.console.web import HOME, Elsewhere, drawn
from app.faces import Faces
from app.http import problems
from app.http.read_recording import CONSOLE, ReadRecorder
from core.errors import CountersealError

log = structlog.get_logger(__name__)

ROUTERS = (
    *(
        entrance.router,
        entrance_oidc.router,
        inbox.router,
        lists.router,
        approvals.router,
        editing.router,
        tasks.router,
    ),
    *(tasks.router, runs.router, run.router, definitions.router, health.router, evidence.router),
)
# htmx works under this policy too: by its configuration in the page, it adds no styles and no evaluated code.
CSP = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_STATIC = {
    "counterseal.css": "text/css",
    "htmx.min.js": "text/javascript",
    "keys.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_WORDS = {
    400: "This request cannot be read",
    401: "You are not logged in",
    403: "This was refused",
    404: "There is nothing here",
    409: "This has changed meanwhile",
    413: "This is too large",
    415: "This is no form",
    422: "Something is missing",
    503: "Something cannot be reached",
}


class Console:
    """Middleware that takes the console's paths, and leaves all others to the API behind it."""

    def __init__(self, app: ASGIApp, faces: Faces) -> None:
        self._app, self._console = app, ReadRecorder(create_console(faces), faces, CONSOLE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer below ``HOME``. The bare address of the installation leads there."""
        path = scope["path"]
        if path == "/" and scope["method"] in ("GET", "HEAD"):
            await RedirectResponse(HOME, status_code=307)(scope, receive, send)
            return
        ours = path == HOME or path.startswith(f"{HOME}/")
        if not ours:
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name for name, _ in message["headers"]}
                given = HEADERS | {"cache-control": "no-store"}
                more = [(n.encode(), v.encode()) for n, v in given.items() if n.encode() not in there]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        await self._console(scope, receive, sending)


def create_console(faces: Faces) -> FastAPI:
    """Build the console's application. It describes nothing in the API's schema."""
    application = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, routes=_routes())
    application.state.faces = faces
    _install(application)
    return application


@cache
def _routes() -> list[Any]:
    every = APIRouter()
    every.add_api_route(f"{HOME}/static/{{name}}", static, methods=["GET"])
    for part in ROUTERS:
        every.include_router(part, prefix=HOME)
    return every.routes


@cache
def _file(name: str) -> bytes:
    return (Path(__file__).parent / "static" / name).read_bytes()


async def static(name: str) -> Response:
    """A file of ours, without a login: the page for the login needs it too."""
    if name not in _STATIC:
        raise HTTPException(404)
    return Response(_file(name), media_type=_STATIC[name], headers={"cache-control": "public, max-age=300"})


def _install(application: FastAPI) -> None:
    """Make the application answer every exception with a page."""

    @application.exception_handler(Elsewhere)
    async def elsewhere(request: Request, error: Elsewhere) -> Response:
        # If a region refreshes itself, the whole page goes to the login: the form must not appear in the region.
        if request.headers.get("hx-request"):
            return Response(status_code=204, headers={"hx-redirect": error.location})
        return RedirectResponse(error.location, status_code=303)

    @application.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        detail = "" if error.detail == problems.phrase(error.status_code) else str(error.detail)
        return _problem(request, error.status_code, detail)

    @application.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _problem(request, 404, "")

    @application.exception_handler(CountersealError)
    async def ours(request: Request, error: CountersealError) -> Response:
        status = problems.STATUS.get(error.code, 500)
        if status >= 500:
            log.warning("a page needs what is missing", code=error.code, reason=str(error))
            return _problem(request, status, "Something that this page needs cannot be reached. Runs go on meanwhile.")
        return _problem(request, status, error.message, error.remedy)

    @application.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        if isinstance(error, ClientDisconnect):
            raise error
        # `of_unexpected` logs the error, and its status tells if the database is unreachable.
        status = problems.of_unexpected(error).status_code
        return _problem(request, status, "This page could not be made. Runs go on; the log has the details.")


def _problem(request: Request, status: int, detail: str, remedy: str = "") -> Response:
    viewer = getattr(request.state, "viewer", None)
    title = _WORDS.get(status, "Something failed here")
    return drawn("problem.html", status, viewer=viewer, title=title, detail=detail, remedy=remedy, code=status)
