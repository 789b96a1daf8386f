"""Routes for callers that sign instead of sending a token: ServiceNow's business rules, and Slack."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import orjson
import structlog
from fastapi import APIRouter, Request
from pydantic import SecretStr
from slack_bolt.response import BoltResponse
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from app.budgeting import OF_EVENTS
from app.faces import Faces
from app.http import problems
from app.http.dependencies import FacesDep
from app.http.middleware import parse_aside, read_body
from app.metrics import NOBODY
from app.settings import WebhookEndpoint
from app.slack_apps import SlackApps
from approvals.slack.guard import Refusal, SlackEndpoint
from approvals.slack.sockets import Sockets
from core import bounded_json
from core.budgets import OverLimit
from core.canonical import JsonObject
from core.db import check_tenant
from core.errors import InputError, NotFoundError
from core.secret_values import SecretError
from runtime.definition.tenant import Signed
from runtime.requests.starting import Started
from runtime.requests.triggers import Unstarted, start_from_servicenow

router = APIRouter()

CLOCK_SKEW_SECONDS_MAX = 300
# The stand-in for an endpoint that is not configured. No signature fits its secret, so nobody learns which names exist.
_NOWHERE = WebhookEndpoint(secret=SecretStr(secrets.token_urlsafe(32)))
_UNKNOWN = "?"
_UNSIGNED = (
    "X-Counterseal-Signature is missing or does not match the secret of this endpoint, or there is no such endpoint in "
    "COUNTERSEAL_WEBHOOKS."
)
NOTHING: Mapping[int | str, dict[str, Any]] = {200: {"description": "No workflow takes this event"}}
_HEX = re.compile(r"[0-9A-Fa-f]{64}\Z")


@router.post(
    "/webhooks/servicenow/{endpoint}",
    tags=["webhooks"],
    status_code=202,
    summary="An event of ServiceNow, signed",
    responses={401: {"description": "Not signed as it must be"}, **NOTHING},
)
async def servicenow(endpoint: str, request: Request, faces: FacesDep) -> Response:
    """Signed by `X-Counterseal-Timestamp`, Unix seconds within 300 of now, and `X-Counterseal-Signature`: HMAC-SHA256
    with the endpoint's secret over `{timestamp}.{body}`, in hexadecimal or base64, optionally after `sha256=`.

    The answer lists the runs that this event started, now or at an earlier delivery, and the workflows that it should
    start but could not. What waits for further events is in `delayed`.
    200: no workflow takes this event. 422: none of the workflows could be started.
    """
    configured = faces.settings.webhooks.get(endpoint, _NOWHERE)
    tenant = configured.tenant or faces.settings.tenant
    shown = _UNKNOWN if configured is _NOWHERE else endpoint
    hook = Hook(tenant, configured.workspace, endpoint, shown, configured.secret.get_secret_value())
    return await _event(hook, request, faces)


@router.post(
    "/webhooks/servicenow/{tenant}/{endpoint}",
    tags=["webhooks"],
    status_code=202,
    summary="An event of a tenant's own ServiceNow, signed",
    responses={401: {"description": "Not signed as it must be, or there is no such endpoint"}, **NOTHING},
)
async def servicenow_of_tenant(tenant: str, endpoint: str, request: Request, faces: FacesDep) -> Response:
    """An endpoint of the tenant's own settings: signed and answered like `/webhooks/servicenow/{endpoint}`, with the
    secret of that endpoint alone. It starts runs of that tenant only.
    """
    return await _event(await hook_of(tenant, endpoint, faces, (Signed.COUNTERSEAL,)), request, faces)


async def hook_of(tenant: str, endpoint: str, faces: Faces, signed: Collection[Signed]) -> Hook:
    """A tenant's own endpoint with one of these ways to sign; a stand-in that no signature fits if there is none."""
    nowhere = Hook(faces.settings.tenant, None, endpoint, _UNKNOWN, _NOWHERE.secret.get_secret_value())
    found = None
    with suppress(InputError, NotFoundError):
        found = (await faces.outside(check_tenant(tenant))).webhook(endpoint)
    if found is None or found[2] not in signed:
        return nowhere
    incoming, workspace, scheme = found
    try:
        secret = await incoming.value()
    except SecretError as error:
        # Another answer would reveal that this endpoint exists. The sender tries again; `doctor` names the endpoint,
        # too.
        faces.unread.note(tenant, f"webhooks.{endpoint}.secret", str(error))
        return nowhere
    return Hook(tenant, workspace, endpoint, f"{tenant}/{endpoint}", secret, scheme)


@dataclass(frozen=True)
class Hook:
    """An endpoint for events: whose it is, its name, its name in the audit, its secret, and how it signs."""

    tenant: str
    workspace: str | None
    endpoint: str
    shown: str
    secret: str
    signed: Signed = Signed.COUNTERSEAL


async def _event(hook: Hook, request: Request, faces: Faces) -> Response:
    tenant, shown, endpoint = hook.tenant, hook.shown, hook.endpoint
    try:
        body = await read_body(request)
    except HTTPException as error:
        return await refused(Refusal(error.status_code, "too_large", error.detail), faces, tenant, shown)
    refusal = verify(request.headers, body, hook.secret, faces.now())
    if refusal is not None:
        return await refused(refusal, faces, tenant, shown)
    if (over := await proved(request, faces, tenant, shown)) is not None:
        return over
    try:
        event = bounded_json.object_of(await parse_aside(body))
    except InputError as error:
        return await refused(Refusal(400, "malformed", str(error)), faces, tenant, shown)
    workspace = hook.workspace or faces.settings.workspace
    try:
        # Answer only after the runs are committed (promise 4).
        async with faces.database.transaction(tenant) as connection:
            place = (connection, faces.definitions, tenant, workspace, endpoint)
            outside = await faces.outsides.of(connection, tenant)
            own = outside.settings.servicenow_username or None
            started, unstarted = await start_from_servicenow(*place, event, own)
    except InputError as error:
        await refused(Refusal(400, "unusable", ""), faces, tenant, shown)
        return problems.of_error(error)
    return answered(started, unstarted, faces, tenant, "servicenow")


async def proved(request: Request, faces: Faces, tenant: str, shown: str, kind: str = "servicenow") -> Response | None:
    """Charge a request to the tenant whose signature it bears. The answer if a limit is reached; else None."""
    request.state.proved = True
    structlog.contextvars.bind_contextvars(tenant=tenant)
    try:
        faces.budgets.take(tenant, OF_EVENTS)
    except OverLimit as error:
        await refused(Refusal(429, error.limit, ""), faces, tenant, shown, kind)
        return problems.of_error(error)
    return None


def answered(
    started: Sequence[Started], unstarted: Sequence[Unstarted], faces: Faces, tenant: str, kind: str
) -> Response:
    """The answer to an event: the runs that it started, and the workflows that it should start but could not."""
    runs = [{"run_id": str(run.run_id), "created": run.created, "reference": run.reference} for run in started]
    failed = [one.to_json() for one in unstarted if not one.ignored]
    waiting = [one.to_json() for one in unstarted if one.until is not None]
    ignored = [one.to_json() for one in unstarted if one.ignored and one.until is None]
    if failed and not runs and not waiting:
        faces.metrics.of(tenant).refusal(kind, "unstarted")
        return problems.problem(422, "unstarted", "No workflow could be started by this event.", unstarted=failed)
    words = f"{len(runs)} started, {len(failed)} could not be started." if failed else f"{len(runs)} started."
    nothing = "Nothing is started: no workflow that is published here takes this event."
    nothing = f"Nothing is started. {ignored[0]['reason']}" if ignored else nothing
    nothing = f"Nothing is started yet. {waiting[0]['reason']}" if waiting else nothing
    answer = {"runs": runs, "unstarted": failed, "sentence": words if runs else nothing}
    answer |= {"ignored": ignored} if ignored else {}
    answer |= {"delayed": waiting} if waiting else {}
    return JSONResponse(answer, status_code=202 if runs or waiting else 200)


def verify(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> Refusal | None:
    """None if the body was signed with ``secret`` within 300 seconds of ``now`` (Unix)."""
    timestamp = headers.get("x-counterseal-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return Refusal(401, "timestamp", "X-Counterseal-Timestamp is missing or not Unix seconds.")
    given = _signature(headers.get("x-counterseal-signature", ""))
    expected = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).digest()
    if given is None or not hmac.compare_digest(given, expected):
        return Refusal(401, "signature", _UNSIGNED)
    if abs(now - int(timestamp)) > CLOCK_SKEW_SECONDS_MAX:
        return Refusal(401, "stale", "The request is too old or from the future; check the clocks.")
    return None


def _signature(text: str) -> bytes | None:
    text = text.strip().removeprefix("sha256=")
    if _HEX.match(text):
        return bytes.fromhex(text)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


async def refused(refusal: Refusal, faces: Faces, tenant: str, endpoint: str, kind: str = "servicenow") -> Response:
    """The answer to a request that is not taken, with a line in the audit."""
    faces.metrics.of(tenant).refusal(kind, refusal.code)
    if endpoint != _UNKNOWN:  # nobody writes audit lines who knows no endpoint
        await faces.refusals.note(tenant, f"{kind}:{endpoint}", refusal.code)
    headers = {"WWW-Authenticate": "Counterseal-Signature"} if refusal.status == 401 else None
    return problems.problem(refusal.status, refusal.code, refusal.detail, headers)


async def sockets_of(faces: Faces, apps: SlackApps) -> Sockets | None:
    """The Socket Mode connection for Slack's requests, besides HTTP, if an app-level token is configured.

    It belongs to the app in the environment, and so to the tenant that COUNTERSEAL_TENANT names.
    """
    tenant, token = faces.settings.tenant, faces.settings.slack_app_token
    outside = await faces.outside(tenant)
    if token is None or outside.chat is None or outside.content is not None or await apps.of(tenant) is None:
        return None

    async def dispatch(payload: JsonObject) -> BoltResponse:
        structlog.contextvars.bind_contextvars(tenant=tenant)
        endpoint = await apps.of(tenant)
        answer = BoltResponse(status=404, body="") if endpoint is None else await endpoint.answer(payload)
        if 400 <= answer.status < 500:
            code = "unhandled" if answer.status == 404 else "malformed"
            faces.metrics.of(tenant).refusal("slack", code)
            await faces.refusals.note(tenant, "slack", code)
        return answer

    return Sockets(outside.chat.client, token.get_secret_value(), dispatch)


@router.post(
    "/slack/events", tags=["slack"], summary="An interaction in Slack, signed by Slack", response_class=Response
)
async def events(request: Request, faces: FacesDep) -> Response:
    """The request URL of the Slack app of the tenant that COUNTERSEAL_TENANT names. A click is answered after its vote
    is committed.
    """
    tenant = faces.settings.tenant
    endpoint = await cast("SlackApps", request.app.state.slack).of(tenant)
    if endpoint is None:
        remedy = "Set COUNTERSEAL_SLACK_BOT_TOKEN and COUNTERSEAL_SLACK_SIGNING_SECRET."
        raise NotFoundError("Slack is not configured here.", remedy=remedy)
    return await _answered(endpoint, request, faces, tenant, "slack")


@router.post(
    "/slack/events/{app}",
    tags=["slack"],
    summary="An interaction with a tenant's own Slack app, signed by Slack",
    response_class=Response,
    responses={401: {"description": "Not signed as it must be, or there is no such app"}},
)
async def events_of_app(app: str, request: Request, faces: FacesDep) -> Response:
    """The request URL of the Slack app of a tenant with settings of its own: `app` is the tenant's name. The request is
    checked with the secret of that app alone, and acts in that tenant only.
    """
    endpoint = await cast("SlackApps", request.app.state.slack).named(app)
    return await _answered(endpoint, request, faces, app, f"slack:{app}")


async def _answered(endpoint: SlackEndpoint, request: Request, faces: Faces, tenant: str, name: str) -> Response:
    nobody = cast("SlackApps", request.app.state.slack).is_nobody(endpoint)
    if not nobody:
        structlog.contextvars.bind_contextvars(tenant=tenant)
    answer = await endpoint(request)
    if 400 <= answer.status_code < 500:
        # Codes are a closed set: the guard's codes, or "unhandled" and "malformed" for refusals by Bolt.
        code, detail = "unhandled" if answer.status_code == 404 else "malformed", "Nothing here takes this request."
        if answer.media_type == problems.MEDIA_TYPE:
            problem = orjson.loads(answer.body)
            code, detail = str(problem.get("code", "malformed")), str(problem.get("detail", ""))
        faces.metrics.of(NOBODY if nobody else tenant).refusal("slack", code)
        if not nobody:  # nobody writes lines of no tenant
            await faces.refusals.note(tenant, name, code)
        headers = {"WWW-Authenticate": "Slack-Signature"} if answer.status_code == 401 else None
        return problems.problem(answer.status_code, code, detail, headers)
    request.state.proved = True
    return answer
