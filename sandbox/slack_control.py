"""``/_sandbox/...`` of the Slack stand-in: other processes, and its own pages, click and look here."""

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


def control_routes(state: SlackState, people: Interactivity, faults: FaultTable) -> list[Route]:
    """``click``, ``click_view``, ``submit_view``, ``close_view``: an outcome with the app's status and latency.
    ``messages?channel=``, ``views?user=``, ``usergroups``, ``interactivity`` (configure), ``faults``."""

    async def click(request: Request) -> Response:
        body = await json_object(request)
        channel, ts, action_id, user = (text_field(body, name) for name in ("channel", "ts", "action_id", "user"))
        selected, stale = text_field(body, "selected", ""), body.get("stale") is True
        return _answer(await people.click(channel, ts, action_id, user, selected=selected, stale=stale))

    async def click_view(request: Request) -> Response:
        body = await json_object(request)
        view_id, action_id, user = (text_field(body, name) for name in ("view_id", "action_id", "user"))
        return _answer(await people.click_view(view_id, action_id, user, selected=text_field(body, "selected", "")))

    async def submit_view(request: Request) -> Response:
        body = await json_object(request)
        values = body.get("values", {})
        if not isinstance(values, dict):
            raise BadRequest("values: an object of block_id or action_id to value is needed")
        return _answer(await people.submit_view(text_field(body, "view_id"), text_field(body, "user"), values))

    async def close_view(request: Request) -> Response:
        body = await json_object(request)
        return _answer(await people.dismiss_view(text_field(body, "view_id"), text_field(body, "user")))

    async def messages(request: Request) -> Response:
        channel = state.channel(request.query_params.get("channel", ""))
        if channel is None:
            raise BadRequest(f"channel: there are {', '.join(state.channels)}")
        shown = [message_json(item, full=True) | {"ephemeral_for": item.ephemeral_for} for item in channel.messages]
        return JSONResponse({"channel": channel.channel_id, "messages": shown})

    async def views(request: Request) -> Response:
        stack = state.stacks.get(request.query_params.get("user", ""), [])
        return JSONResponse({"views": [view.body | {"errors": view.errors} for view in stack]})

    async def usergroups(request: Request) -> Response:
        """Change a group's members, so that a demo can show a right being withdrawn."""
        body = await json_object(request)
        group, members = text_field(body, "usergroup"), body.get("users")
        if group not in state.usergroups or not isinstance(members, list) or not set(members) <= set(state.users):
            raise BadRequest(f"usergroup: one of {', '.join(state.usergroups)}; users: a list of known user ids")
        state.usergroups[group] = (state.usergroups[group][0], members)
        return JSONResponse({"usergroup": group, "users": members})

    async def interactivity(request: Request) -> Response:
        body = await json_object(request)
        people.url = text_field(body, "url", people.url)
        people.signing_secret = text_field(body, "signing_secret", people.signing_secret)
        return JSONResponse({"url": people.url})

    async def inject(request: Request) -> Response:
        return await faults_endpoint(request, faults)

    posts = {
        "click": click,
        "click_view": click_view,
        "submit_view": submit_view,
        "close_view": close_view,
        "usergroups": usergroups,
        "interactivity": interactivity,
    }
    return [
        *(Route(f"/_sandbox/{name}", control(handler), methods=["POST"]) for name, handler in posts.items()),
        Route("/_sandbox/messages", control(messages), methods=["GET"]),
        Route("/_sandbox/views", views, methods=["GET"]),
        Route("/_sandbox/faults", inject, methods=["GET", "POST", "DELETE"]),
    ]


def _answer(outcome: Outcome) -> Response:
    return JSONResponse(asdict(outcome))
