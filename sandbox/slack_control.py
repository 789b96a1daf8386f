"""The paths ``/_sandbox/...`` of the Slack stand-in, with which other processes and its own pages click and read."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.faults import FaultTable, faults_endpoint
from sandbox.slack_interact import Interactivity, Outcome
from sandbox.slack_json import message_json
from sandbox.slack_state import SlackState
from sandbox.web import BadRequest, control, json_object, text_field


class _Handlers:
    def __init__(self, state: SlackState, people: Interactivity, faults: FaultTable) -> None:
        self._state = state
        self._people = people
        self._faults = faults

    async def click(self, request: Request) -> Response:
        body = await json_object(request)
        channel, ts, action_id, user = (text_field(body, name) for name in ("channel", "ts", "action_id", "user"))
        selected, stale = text_field(body, "selected", ""), body.get("stale") is True
        return _answer(await self._people.click(channel, ts, action_id, user, selected=selected, stale=stale))

    async def click_view(self, request: Request) -> Response:
        body = await json_object(request)
        view_id, action_id, user = (text_field(body, name) for name in ("view_id", "action_id", "user"))
        return _answer(
            await self._people.click_view(view_id, action_id, user, selected=text_field(body, "selected", ""))
        )

    async def submit_view(self, request: Request) -> Response:
        body = await json_object(request)
        values = body.get("values", {})
        if not isinstance(values, dict):
            raise BadRequest("values: an object of block_id or action_id to value is needed")
        return _answer(await self._people.submit_view(text_field(body, "view_id"), text_field(body, "user"), values))

    async def close_view(self, request: Request) -> Response:
        body = await json_object(request)
        return _answer(await self._people.dismiss_view(text_field(body, "view_id"), text_field(body, "user")))

    async def messages(self, request: Request) -> Response:
        channel = self._state.channel(request.query_params.get("channel", ""))
        if channel is None:
            raise BadRequest(f"channel: there are {', '.join(self._state.channels)}")
        shown = [message_json(item, full=True) | {"ephemeral_for": item.ephemeral_for} for item in channel.messages]
        return JSONResponse({"channel": channel.channel_id, "messages": shown})

    async def views(self, request: Request) -> Response:
        stack = self._state.stacks.get(request.query_params.get("user", ""), [])
        return JSONResponse({"views": [view.body | {"errors": view.errors} for view in stack]})

    async def usergroups(self, request: Request) -> Response:
        """Change a group's members, so that a demo can withdraw a right."""
        body = await json_object(request)
        group, members = text_field(body, "usergroup"), body.get("users")
        known = isinstance(members, list) and all(
            isinstance(user, str) and user in self._state.users for user in members
        )
        if group not in self._state.usergroups or not isinstance(members, list) or not known:
            raise BadRequest(f"usergroup: one of {', '.join(self._state.usergroups)}; users: a list of known user ids")
        self._state.usergroups[group] = (self._state.usergroups[group][0], members)
        return JSONResponse({"usergroup": group, "users": members})

    async def interactivity(self, request: Request) -> Response:
        body = await json_object(request)
        self._people.url = text_field(body, "url", self._people.url)
        self._people.signing_secret = text_field(body, "signing_secret", self._people.signing_secret)
        return JSONResponse({"url": self._people.url})

    async def inject(self, request: Request) -> Response:
        return await faults_endpoint(request, self._faults)


def control_routes(state: SlackState, people: Interactivity, faults: FaultTable) -> list[Route]:
    """Routes: ``click``, ``click_view``, ``submit_view`` and ``close_view``, which answer with the app's status and
    latency; ``messages?channel=``, ``views?user=``, ``usergroups``, ``interactivity`` (configure), ``faults``."""
    handlers = _Handlers(state, people, faults)
    posts = {
        "click": handlers.click,
        "click_view": handlers.click_view,
        "submit_view": handlers.submit_view,
        "close_view": handlers.close_view,
        "usergroups": handlers.usergroups,
        "interactivity": handlers.interactivity,
    }
    return [
        *(Route(f"/_sandbox/{name}", control(handler), methods=["POST"]) for name, handler in posts.items()),
        Route("/_sandbox/messages", control(handlers.messages), methods=["GET"]),
        Route("/_sandbox/views", handlers.views, methods=["GET"]),
        Route("/_sandbox/faults", handlers.inject, methods=["GET", "POST", "DELETE"]),
    ]


def _answer(outcome: Outcome) -> Response:
    return JSONResponse(asdict(outcome))
