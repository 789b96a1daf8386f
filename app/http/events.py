"""The route for signed deliveries of other systems that start runs: Standard Webhooks, GitHub, PagerDuty."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.http import problems, signatures
from app.http.dependencies import FacesDep
from app.http.middleware import read_body
from app.http.signed import NOTHING, answered, hook_of, proved, refused
from approvals.slack.guard import Refusal
from core.errors import InputError
from runtime.definition.tenant import Signed
from runtime.requests.deliveries import WEBHOOK, start_from_delivery

router = APIRouter()


@router.post(
    "/webhooks/events/{tenant}/{endpoint}",
    tags=["webhooks"],
    status_code=202,
    summary="An event of another system, signed as that signs",
    responses={401: {"description": "Not signed as it must be, or there is no such endpoint"}, **NOTHING},
)
async def delivered(tenant: str, endpoint: str, request: Request, faces: FacesDep) -> Response:
    """An endpoint of the tenant's own settings, whose `signed` names the way: `standard` (Standard Webhooks), `github`
    (`X-Hub-Signature-256`) or `pagerduty` (`X-PagerDuty-Signature`). It starts the workflows whose `triggers.webhook`
    name the endpoint, in that tenant only. The same delivery again gets the same answer.

    200: no workflow takes this event. 422: none of the workflows could be started; `unstarted` names the field.
    """
    hook = await hook_of(tenant, endpoint, faces, signatures.SCHEMES)
    place = (faces, hook.tenant, hook.shown, WEBHOOK)
    try:
        body = await read_body(request)
    except HTTPException as error:
        return await refused(Refusal(error.status_code, "too_large", error.detail), *place)
    # The secret of an unknown endpoint fits no request. It is checked as GitHub's, which needs only a signature.
    signed = hook.signed if hook.signed in signatures.SCHEMES else Signed.GITHUB
    found = signatures.read(signed, request.headers, body, hook.secret, faces.now())
    if isinstance(found, Refusal):
        return await refused(found, *place)
    if (over := await proved(request, *place)) is not None:
        return over
    workspace = hook.workspace or faces.settings.workspace
    try:
        # Answer only after the runs are committed (promise 4).
        async with faces.database.transaction(hook.tenant) as connection:
            named = (connection, faces.definitions, hook.tenant, workspace, endpoint)
            started, unstarted = await start_from_delivery(*named, found)
    except InputError as error:
        await refused(Refusal(400, "unusable", ""), *place)
        return problems.of_error(error)
    return answered(started, unstarted, faces, tenant, WEBHOOK)
