"""A stand-in for a Slack workspace: Web API, interactivity with signatures, and pages on which people click."""

from __future__ import annotations

import hmac
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from sandbox.faults import FaultMiddleware, FaultTable
from sandbox.slack_api import SlackApi
from sandbox.slack_args import ApiError, Arguments
from sandbox.slack_blocks import message_problems
from sandbox.slack_control import control_routes
from sandbox.slack_interact import Interactivity
from sandbox.slack_page import page_routes
from sandbox.slack_sockets import Sockets
from sandbox.slack_state import BOT_USER, RESPONSE_URL_USES, Message, ResponseUrl, SlackState
from sandbox.web import BadRequest, control, is_json, json_object

_POSTS = frozenset({"chat.postMessage", "chat.postEphemeral"})


@dataclass(frozen=True, slots=True)
class SlackConfig:
    """Settings. With an ``app_token``, requests go over connections of Socket Mode.

    ``one_per_second``: allow one post per second and channel, as Slack does, and answer 429 otherwise.
    ``ack_seconds``: the time that the app has to answer a click."""

    port: int = 0
    bot_token: str = "xoxb-sandbox"  # noqa: S105  a stand-in's well-known secret
    app_token: str = ""
    signing_secret: str = "sandbox-signing-secret"  # noqa: S105  likewise
    interactivity_url: str = ""
    one_per_second: bool = False
    ack_seconds: float = 3.0
    clock: Callable[[], float] = time.time


def _fault_body(status: int) -> dict[str, object]:
    return {"ok": False, "error": "ratelimited" if status == 429 else "internal_error"}


class Slack:
    """The Slack stand-in: ``app``, ``state``, ``api``, ``people`` (clicks and submissions by users) and ``faults``."""

    def __init__(self, config: SlackConfig | None = None) -> None:
        self.config = config or SlackConfig()
        self.url = ""
        self.state = SlackState(clock=self.config.clock)
        self.faults = FaultTable(_fault_body, only=r"^/(api|actions)/")
        self.api = SlackApi(self.state, team_url=self._base_url)
        self.sockets = Sockets(self.config.ack_seconds)
        self.people = Interactivity(
            self.state,
            sockets=self.sockets if self.config.app_token else None,
            url=self.config.interactivity_url,
            signing_secret=self.config.signing_secret,
            base_url=self._base_url,
            ack_seconds=self.config.ack_seconds,
        )
        self._last_post: dict[str, float] = {}
        self.app = Starlette(
            routes=[
                Route("/api/{method}", self._call, methods=["GET", "POST"]),
                Route("/actions/{team}/{token}", control(self._response_url), methods=["POST"]),
                *control_routes(self.state, self.people, self.faults),
                *page_routes(self.state),
            ],
            middleware=[Middleware(FaultMiddleware, table=self.faults)],
        )

    async def close(self) -> None:
        self.faults.clear()
        await self.people.close()
        await self.sockets.close()

    def _base_url(self) -> str:
        return f"{self.url}/"

    async def _call(self, request: Request) -> Response:
        try:
            given = await _arguments(request)
            name = request.path_params["method"]
            if name == "apps.connections.open":
                return JSONResponse(await self._connection(request))
            self._authenticate(request, given)
            method = self.api.methods.get(name)
            if method is None:
                raise ApiError("unknown_method")
            if name in _POSTS and (wait := self._too_soon(given)) > 0:
                return JSONResponse(_fault_body(429), 429, headers={"Retry-After": str(math.ceil(wait))})
            return JSONResponse(method(given))
        except ApiError as error:
            return JSONResponse(error.body())

    async def _connection(self, request: Request) -> dict[str, object]:
        """An address for one connection. Only the app-level token gets one."""
        token = request.headers.get("authorization", "").partition(" ")[2]
        if not self.config.app_token or not hmac.compare_digest(token.encode(), self.config.app_token.encode()):
            raise ApiError("not_allowed_token_type" if token.startswith("xoxb-") else "invalid_auth")
        return {"ok": True, "url": await self.sockets.address()}

    def _authenticate(self, request: Request, given: Arguments) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token if scheme.lower() == "bearer" else str(given.get("token") or "")
        if not token:
            raise ApiError("not_authed")
        if not hmac.compare_digest(token.strip().encode(), self.config.bot_token.encode()):
            raise ApiError("invalid_auth")

    def _too_soon(self, given: Arguments) -> float:
        """Seconds until this channel takes another post. 0 if it does so now; this counts the post."""
        if not self.config.one_per_second:
            return 0.0
        channel = str(given.get("channel") or "")
        now = self.config.clock()
        wait = self._last_post.get(channel, -1.0) + 1.0 - now
        if wait <= 0:
            self._last_post[channel] = now
        return max(wait, 0.0)

    async def _response_url(self, request: Request) -> Response:
        known = self.state.response_urls.get(request.path_params["token"])
        if known is None or known.uses >= RESPONSE_URL_USES or self.config.clock() > known.expires:
            return JSONResponse({"ok": False, "error": "expired_url" if known else "invalid_url"}, 404)
        known.uses += 1
        try:
            self._respond(known, await json_object(request))
        except ApiError as error:
            return JSONResponse(error.body(), 400)
        return PlainTextResponse("ok")

    def _respond(self, known: ResponseUrl, body: Arguments) -> None:
        """Serve a response_url: replace or delete the message, or post another (only to the clicker by default)."""
        blocks = body.get("blocks")
        if blocks is not None and (problems := message_problems(blocks)):
            raise ApiError("invalid_blocks", problems)
        message = self.state.channels[known.channel].message(known.ts)
        if body.get("delete_original") and message:
            self.state.remove(message)
        elif body.get("replace_original") and message:
            self.state.edit(message, text=str(body.get("text", "")), blocks=blocks if blocks is not None else [])
        else:
            thread = str(body.get("thread_ts") or "")
            posted = Message(
                known.channel, self.state.next_ts(), BOT_USER, str(body.get("text", "")), blocks or [], thread
            )
            posted.ephemeral_for = "" if body.get("response_type") == "in_channel" else known.user
            self.state.post(posted)


async def _arguments(request: Request) -> Arguments:
    """Arguments from the query, a form or JSON, as Slack accepts them. ApiError for any other body."""
    given: dict[str, object] = dict(request.query_params)
    body = await request.body()
    if is_json(request):
        try:
            return given | await json_object(request)
        except BadRequest as error:
            raise ApiError("invalid_json") from error
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return given | dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    if body and re.match(r"multipart/form-data", kind):
        raise ApiError("invalid_form_data")
    return given
