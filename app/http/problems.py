"""Errors as RFC 9457 problems: one table maps an error's code to the status. Answers never leak internal details."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import asyncpg
import structlog
from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from core.budgets import OverLimit
from core.errors import CountersealError, DefinitionError, InputError
from core.outage import is_away

log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
STATUS: Mapping[str, int] = {
    "input": 400,
    "definition": 422,
    "misfit": 422,
    "expression": 422,
    "authentication": 401,
    "authorization": 403,
    "not_found": 404,
    "consistency": 409,
    "transport": 503,
    "timeout": 504,
    "limit": 429,
    "too_costly": 422,
    "configuration": 503,
}
_CODES = {status: code for code, status in STATUS.items()} | {
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    415: "media_type",
    422: "input",
}
_OURS_TO_REPAIR: Mapping[str, str] = {
    "transport": "Something that this needs cannot be reached at the moment; try again.",
    "timeout": "Something that this needs did not answer in time; try again.",
    "configuration": "This installation is not configured for it; its log names the setting.",
}
# Raised by asyncpg, or by the network, if the server goes away in the middle of an exchange.
_WENT_AWAY = (asyncpg.InternalClientError, ConnectionError)
_OF_POSTGRES = (asyncpg.PostgresError, asyncpg.InterfaceError)
# The phrases of RFC 9110, which Python has from 3.13 on.
_PHRASES = {413: "Content Too Large", 422: "Unprocessable Content"}
_HEADERS = {401: {"WWW-Authenticate": 'Bearer realm="counterseal"'}, 503: {"Retry-After": "1"}}


def phrase(status: int) -> str:
    """The reason phrase of a status, the same on every Python (RFC 9110, 15)."""
    return _PHRASES.get(status) or HTTPStatus(status).phrase


def problem(
    status: int, code: str, detail: str = "", headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """One problem document. ``more`` are extension members."""
    content = {
        "type": f"urn:counterseal:problem:{code}",
        "title": phrase(status),
        "status": status,
        "code": code,
        **({"detail": detail} if detail else {}),
        **more,
    }
    answered = {**_HEADERS.get(status, {}), **(headers or {})}
    return JSONResponse(content, status_code=status, media_type=MEDIA_TYPE, headers=answered)


def of_error(error: CountersealError) -> Response:
    """The problem for one of our own errors. A code missing from the table is our bug: 500, without details."""
    status = STATUS.get(error.code)
    if status is None:
        log.error("this error code has no HTTP status", code=error.code, exc_info=error)
        return problem(500, "internal")
    if error.code in _OURS_TO_REPAIR:
        # Addresses and settings go only to the log, for the operator: the caller may be anybody.
        log.warning("something that a request needs is missing", code=error.code, reason=str(error))
        return problem(status, error.code, _OURS_TO_REPAIR[error.code])
    more: dict[str, Any] = {"remedy": error.remedy} if error.remedy else {}
    if isinstance(error, DefinitionError):
        more["problems"] = [asdict(problem) for problem in error.problems]
    elif isinstance(error, OverLimit):
        after = {"Retry-After": str(error.seconds)}
        return problem(status, error.code, error.message, after, **more, limit=error.limit)
    elif isinstance(error, InputError) and error.where:
        more["where"] = error.where
    return problem(status, error.code, error.message, **more)


def of_unexpected(error: Exception) -> Response:
    """The problem for any other error: 503 if PostgreSQL is away or has no room, else 500. The log has the rest."""
    if isinstance(error, _WENT_AWAY) or (isinstance(error, _OF_POSTGRES) and is_away(error)):
        log.warning("the database cannot serve", reason=f"{type(error).__name__}: {error}".partition("\n")[0])
        return problem(503, "transport", "The database is not available at the moment.")
    log.error("a request failed", exc_info=error)
    return problem(500, "internal", "Something failed here; the log has the details.")


def install(application: FastAPI) -> None:
    """Make the application answer every exception inside routing with a problem."""

    @application.exception_handler(CountersealError)
    async def ours(request: Request, error: CountersealError) -> Response:
        if isinstance(error, OverLimit):
            request.state.limit = error.limit  # for the line of the audit
        return of_error(error)

    @application.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        code = _CODES.get(error.status_code, "http")
        if error.status_code in (404, 405) and error.detail == HTTPStatus(error.status_code).phrase:
            words = "There is nothing at this path." if error.status_code == 404 else "This path has no such method."
            return problem(error.status_code, code, words, error.headers, remedy="See /openapi.json for what there is.")
        return problem(error.status_code, code, str(error.detail), error.headers)

    @application.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        faults = [{"where": ".".join(map(str, item["loc"])), "message": item["msg"]} for item in error.errors()]
        return problem(422, "input", "The request is not acceptable.", errors=jsonable_encoder(faults))
