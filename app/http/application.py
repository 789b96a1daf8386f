"""The FastAPI application, from parts that are given to it."""

from __future__ import annotations

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer

from app.http import (
    approvals,
    definitions,
    evidence,
    extending,
    problems,
    runs,
    signals,
    signed,
    system,
    tasks,
)
from app.http.middleware import Bearer, Bounded, Observe
from app.refusals import RefusalLog
from app.wiring import Faces, version

_DESCRIPTION = """
Automation proposes, policy judges, people approve, evidence remains.

Every request but `/healthz` needs a bearer token (`counterseal token create`), or, for ServiceNow and Slack, a
signature. A token belongs to one tenant and has one or more of the roles admin, operator, approver, auditor, trigger;
no role contains another. Errors are RFC 9457 problems; lists are pages with a cursor.
"""


def create_app(faces: Faces) -> FastAPI:
    """Everything is given: nothing is opened here, and there is no lifespan. Use one application per ``Faces``."""
    application = FastAPI(
        title="Counterseal",
        summary="A human-in-the-loop governance runtime",
        description=_DESCRIPTION,
        version=version(),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    application.state.faces = faces
    application.state.refusals = RefusalLog(faces.database)
    application.state.slack = signed.slack_endpoint_of(faces)
    problems.install(application)
    token = [Security(HTTPBearer(auto_error=False, description="`counterseal token create`"))]
    for module in (runs, extending, evidence, approvals, tasks, signals, definitions):
        application.include_router(module.router, dependencies=token)
    for module in (system, signed):
        application.include_router(module.router)
    # The last one added is the outermost.
    application.add_middleware(Bounded)
    application.add_middleware(Bearer, database=faces.database)
    application.add_middleware(Observe, metrics=faces.metrics)
    return application
