"""The FastAPI application, built from given parts, with the routes for liveness, readiness and metrics."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Security
from fastapi.dependencies.models import Dependant
from fastapi.security import HTTPBearer
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response
from starlette.routing import BaseRoute

from app.budgeting import Counted, charge
from app.console.application import Console
from app.faces import Faces, version
from app.http import (
    actions,
    agents,
    approvals,
    auditing,
    definitions,
    denials,
    events,
    grants,
    mcp,
    operations,
    pauses,
    people,
    permits,
    problems,
    receipts,
    runs,
    schedules,
    several,
    signals,
    signed,
    tasks,
    waiting,
)
from app.http.dependencies import FacesDep, Insider, principal
from app.http.describing import Api
from app.http.middleware import Bearer, Bounded, Observe
from app.http.read_recording import HTTP, ReadRecorder
from app.slack_apps import SlackApps
from core.errors import InputError, nearest
from runtime.requests import pausing
from runtime.store import queue_reads, read_models, replication

router = APIRouter(tags=["system"])
# The most frequent requests come first: a route is found by trying one after the other.
ROUTERS = (
    *(signed.router, events.router),
    *(runs.router, agents.router, signals.extending, approvals.router, tasks.router, signals.router, runs.evidence),
    *(actions.router, permits.router, mcp.router, grants.router),
    *(receipts.router, auditing.router, people.router),
    *(
        definitions.router,
        operations.router,
        pauses.router,
        denials.router,
        several.router,
        schedules.router,
        waiting.router,
        router,
    ),
)

_DESCRIPTION = """
Automation proposes, policy judges, people approve, evidence remains.

Every request but `/healthz` needs a bearer token (`counterseal token create`), or, for ServiceNow and Slack, a
signature. A token belongs to one tenant and has one or more of the roles admin, author, operator, approver, auditor and
trigger; no role contains another. Errors are RFC 9457 problems; lists are pages with a cursor.
"""


async def _known_parameters(request: Request) -> None:
    """Refuse an unknown query parameter: ignoring a mistyped filter would answer another question than was asked."""
    if not request.query_params:
        return
    known = _parameters(request.scope["route"].dependant)
    for name in request.query_params:
        if name not in known:
            remedy = nearest(name, known, "This path takes") or "This path takes no query parameters."
            raise InputError("is not a query parameter of this path.", where=name[:80], remedy=remedy)


def _parameters(part: Dependant) -> set[str]:
    return {field.alias for field in part.query_params}.union(*map(_parameters, part.dependencies))


@cache
def _routes() -> list[BaseRoute]:
    """All routes. They belong to no application, so FastAPI reads their signatures once in a process, which is slow."""
    every = APIRouter(dependencies=[Depends(charge), Depends(_known_parameters)])
    token = [Security(HTTPBearer(auto_error=False, description="`counterseal token create`"))]
    for part in ROUTERS:
        every.include_router(part, dependencies=[] if part in (router, signed.router) else token)
    return every.routes


def create_app(faces: Faces) -> FastAPI:
    """Build the application. It opens nothing and has no lifespan. Use one application per ``Faces``."""
    application = Api(
        title="Counterseal",
        summary="A human-in-the-loop governance runtime",
        description=_DESCRIPTION,
        version=version(),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        routes=_routes(),
    )
    application.state.faces = faces
    application.state.slack = SlackApps(faces)
    problems.install(application)
    # The middleware that is added last is the outermost.
    application.add_middleware(ReadRecorder, faces=faces, door=HTTP)
    application.add_middleware(Bounded)
    application.add_middleware(mcp.Unreadable)
    application.add_middleware(Counted, faces=faces)
    application.add_middleware(Bearer, database=faces.database)
    application.add_middleware(Console, faces=faces)
    application.add_middleware(Observe, metrics=faces.metrics)
    return application


@router.get("/healthz", summary="Whether the process lives")
async def healthz() -> dict[str, str]:
    """Says only that the process is alive, and its version. No other route is open without a token or a signature."""
    return {"status": "ok", "version": version()}


@router.get("/readyz", summary="Whether requests can be served")
async def readyz(request: Request, faces: FacesDep) -> dict[str, Any]:
    """Answers 200 if the database answers on the connections that this process works with, 503 otherwise. Needs any
    valid token.

    `replication` is `synchronous`, `asynchronous`, `none` or `unknown`. Only a synchronous standby has everything that
    was acknowledged when the database fails over to it.
    `paused` lists the pauses of the token's tenant. They are no reason to restart or avoid this process: it still
    serves all requests, and a restart ends no pause.
    """
    await faces.answering()
    held = await faces.ask(principal(request).tenant, pausing.listed)
    async with faces.database.connection() as connection:
        found = await replication.of(connection)
    return {
        "status": "ready",
        "database": "ok",
        "replication": str(found.kind),
        "paused": [f"{one.what} {one.name}".strip() for one in held],
    }


# The upper limit of each count, so that the cost of a request does not grow with the number of rows.
COUNTED_MAX = 10_000


@router.get("/metrics", summary="Figures for Prometheus", response_class=Response)
async def metrics(who: Insider, faces: FacesDep) -> Response:
    """Counters of this process about the token's tenant, and counts of it: up to 10,000 rows of each kind, and the
    statuses and waits of its newest 10,000 runs. Needs any valid token but that of an agent.
    """
    tenant = who.tenant
    async with faces.database.transaction(tenant) as connection:
        queues = await queue_reads.queues(connection, tenant, COUNTED_MAX)
        counted = await read_models.run_counts(connection, tenant, COUNTED_MAX)
        standing = await queue_reads.standing(connection, tenant, COUNTED_MAX)
    return Response(faces.metrics.of(tenant).text(counted, queues, *standing), media_type=CONTENT_TYPE_LATEST)
