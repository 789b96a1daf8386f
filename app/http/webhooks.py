"""ServiceNow's business rules call here. Acknowledged only after the runs are committed (promise 4)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from app.http import problems
from app.http.middleware import read_body
from app.http.parts import FacesDep, RefusalsDep
from app.settings import WebhookEndpoint
from app.wiring import Faces
from approvals.slack.guard import Refusal
from core import bounded_json
from core.canonical import JsonObject
from core.errors import InputError, NotFoundError
from runtime.requests.triggers import start_from_servicenow

router = APIRouter(prefix="/webhooks", tags=["webhooks"])

CLOCK_SKEW_SECONDS_MAX = 300
_HEX = re.compile(r"[0-9A-Fa-f]{64}\Z")


@router.post(
    "/servicenow/{endpoint}",
    status_code=202,
    summary="An event of ServiceNow, signed",
    responses={401: {"description": "Not signed as it must be"}, 404: {"description": "No such endpoint"}},
)
async def servicenow(endpoint: str, request: Request, faces: FacesDep, refusals: RefusalsDep) -> Response:
    """`X-Counterseal-Timestamp`: Unix seconds, within 300 of now. `X-Counterseal-Signature`: HMAC-SHA256 with the
    endpoint's secret over `{timestamp}.{body}`, in hexadecimal or base64, optionally after `sha256=`.

    The answer lists the runs that this event has started, now or at an earlier delivery of the same event.
    """
    configured = faces.settings.webhooks.get(endpoint)
    if configured is None:
        raise NotFoundError("There is no webhook endpoint of this name.", remedy="Configure COUNTERSEAL_WEBHOOKS.")
    tenant = configured.tenant or faces.settings.tenant
    event = await _event(request, configured, faces.now())
    if isinstance(event, Refusal):
        return await _refused(event, faces, refusals, tenant, endpoint)
    workspace = configured.workspace or faces.settings.workspace
    try:
        async with faces.database.transaction(tenant) as connection:
            started = await start_from_servicenow(connection, faces.definitions, tenant, workspace, endpoint, event)
    except InputError as error:
        await _refused(Refusal(400, "unusable", ""), faces, refusals, tenant, endpoint)
        return problems.of_error(error)
    runs = [{"run_id": str(run.run_id), "created": run.created, "reference": run.reference} for run in started]
    return JSONResponse({"runs": runs}, status_code=202)


async def _event(request: Request, configured: WebhookEndpoint, now: float) -> JsonObject | Refusal:
    try:
        body = await read_body(request)
    except HTTPException as error:
        return Refusal(error.status_code, "too_large", error.detail)
    refusal = verify(request.headers, body, configured.secret.get_secret_value(), now)
    if refusal is not None:
        return refusal
    try:
        return bounded_json.parse_object(body)
    except InputError as error:
        return Refusal(400, "malformed", str(error))


def verify(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> Refusal | None:
    """None if the body was signed with ``secret`` within 300 seconds of ``now`` (Unix)."""
    timestamp = headers.get("x-counterseal-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return Refusal(401, "timestamp", "X-Counterseal-Timestamp is missing or not Unix seconds.")
    given = _signature(headers.get("x-counterseal-signature", ""))
    expected = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).digest()
    if given is None or not hmac.compare_digest(given, expected):
        return Refusal(401, "signature", "X-Counterseal-Signature is missing or does not match.")
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


async def _refused(refusal: Refusal, faces: Faces, refusals: RefusalsDep, tenant: str, endpoint: str) -> Response:
    faces.metrics.refusal("servicenow", refusal.code)
    await refusals.note(tenant, f"servicenow:{endpoint}", refusal.code)
    headers = {"WWW-Authenticate": "Counterseal-Signature"} if refusal.status == 401 else None
    return problems.problem(refusal.status, refusal.code, refusal.detail, headers)
