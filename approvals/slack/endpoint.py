"""The HTTP endpoint for Slack: bounded reading, the guard, then bolt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slack_bolt.adapter.starlette.async_handler import to_starlette_response
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from approvals.slack.guard import BODY_BYTES_MAX, Refusal, check


class SlackEndpoint:
    """``await endpoint(request)`` answers one request of Slack's. ``now`` gives Unix seconds."""

    def __init__(self, bolt: AsyncApp, *, signing_secret: str, now: Callable[[], float]) -> None:
        self._bolt = bolt
        self._secret = signing_secret
        self._now = now

    async def __call__(self, request: Request) -> Response:
        """Never raises for anything that was sent."""
        body = b""
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES_MAX:
                    break
        except ClientDisconnect:
            return Response(status_code=400)
        refusal = check(request.headers, body, secret=self._secret, now=self._now())
        if refusal is not None:
            return _refused(refusal)
        headers: dict[str, str | Sequence[str]] = dict(request.headers.items())
        answer = await self._bolt.async_dispatch(AsyncBoltRequest(body=body.decode(), headers=headers))
        return to_starlette_response(answer)


def _refused(refusal: Refusal) -> Response:
    content = {"type": "about:blank", "status": refusal.status, "code": refusal.code, "detail": refusal.detail}
    return JSONResponse(content, status_code=refusal.status, media_type="application/problem+json")
