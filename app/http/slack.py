"""Slack calls here: clicks on cards, and submitted modals."""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Request
from slack_bolt.authorization import AuthorizeResult
from starlette.responses import Response

from app.http import problems
from app.http.parts import FacesDep, RefusalsDep
from app.slack import Interactions, TaskInteractions
from app.wiring import Faces
from approvals.slack.endpoint import SlackEndpoint
from approvals.slack.handlers import build_bolt
from core.errors import NotFoundError

router = APIRouter(tags=["slack"])


def endpoint_of(faces: Faces) -> SlackEndpoint | None:
    """The endpoint, where a bot token and a signing secret are configured."""
    settings = faces.settings
    if faces.slack is None or settings.slack_bot_token is None or settings.slack_signing_secret is None:
        return None
    secret, token = settings.slack_signing_secret.get_secret_value(), settings.slack_bot_token.get_secret_value()

    async def authorize(**_: object) -> AuthorizeResult:
        # The signature has proved that Slack sent this for our app; no call is needed to say so again.
        return AuthorizeResult(enterprise_id=None, team_id=None, bot_token=token)

    bolt = build_bolt(
        signing_secret=secret,
        authorize=authorize,
        client=faces.slack,
        service=Interactions(faces),
        tasks=TaskInteractions(faces),
    )
    return SlackEndpoint(bolt, signing_secret=secret, now=faces.now)


@router.post("/slack/events", summary="An interaction in Slack, signed by Slack", response_class=Response)
async def events(request: Request, faces: FacesDep, refusals: RefusalsDep) -> Response:
    """The request URL of the Slack app's interactivity. A click is answered after its vote is committed."""
    endpoint: SlackEndpoint | None = request.app.state.slack
    if endpoint is None:
        raise NotFoundError(
            "Slack is not configured here.",
            remedy="Set COUNTERSEAL_SLACK_BOT_TOKEN and COUNTERSEAL_SLACK_SIGNING_SECRET.",
        )
    answer = await endpoint(request)
    if 400 <= answer.status_code < 500:
        code = _code(answer)
        faces.metrics.refusal("slack", code)
        await refusals.note(faces.settings.tenant, "slack", code)
    return answer


def _code(answer: Response) -> str:
    """The closed set of codes of the guard; what bolt refuses is malformed or not of ours."""
    if answer.media_type == problems.MEDIA_TYPE:
        return str(orjson.loads(answer.body).get("code", "malformed"))
    return "unhandled" if answer.status_code == 404 else "malformed"
