"""The workspace's web pages, for a browser on this machine: they show what people would see in Slack."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from sandbox.slack_mrkdwn import mrkdwn, plain
from sandbox.slack_state import BOT_USER, Channel, Message, SlackState, User

_FOLDER: Final = Path(__file__).parent / "templates"
_STATIC: Final = {"slack.css": "text/css", "slack.js": "text/javascript"}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; "
    "connect-src 'self'; img-src 'self' https: data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_DEFAULT_USER: Final = "U0ANA"


class Pages:
    """Renders the state for one viewer. Only their person sees direct conversations and ephemeral messages."""

    def __init__(self, state: SlackState) -> None:
        self.state = state
        self._env = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._env.filters |= {"slack_text": self.text, "clock": _clock, "day": _day, "plain": plain}

    def text(self, item: dict[str, Any] | None) -> Markup:
        """A text object, of either type."""
        if not item:
            return Markup()
        return mrkdwn(item["text"], self._names()) if item["type"] == "mrkdwn" else plain(item["text"])

    def page(self, channel: Channel | None, viewer: User) -> str:
        people = [user for user in self.state.users.values() if user.user_id != BOT_USER]
        return self._env.get_template("slack_page.html").render(
            channel=channel, viewer=viewer, people=people, **self._lists(viewer), **self._content(channel, viewer)
        )

    def update(self, channel: Channel | None, viewer: User) -> dict[str, Any]:
        """The changing parts of a page as HTML, with the version of the state that they show."""
        content = self._content(channel, viewer)
        view = content["view"]
        return {
            "version": self.state.version,
            "sidebar": self._render("slack_sidebar.html", channel=channel, viewer=viewer, **self._lists(viewer)),
            "messages": self._render("slack_messages.html", channel=channel, viewer=viewer, **content),
            "modal": self._render("slack_modal.html", view=view) if view else "",
            "modal_key": f"{view.view_id}:{view.body['hash']}:{sorted(view.errors.items())}" if view else "",
        }

    def _render(self, template: str, **values: object) -> str:
        return self._env.get_template(template).render(**values)

    def _lists(self, viewer: User) -> dict[str, Any]:
        seen = [item for item in self.state.channels.values() if viewer.user_id in item.members]
        return {
            "channels": [item for item in seen if not item.is_dm],
            "directs": [item for item in seen if item.is_dm],
        }

    def _content(self, channel: Channel | None, viewer: User) -> dict[str, Any]:
        visible = [m for m in (channel.messages if channel else []) if m.ephemeral_for in ("", viewer.user_id)]
        threads: dict[str, list[Message]] = {}
        for message in visible:
            if message.thread_ts:
                threads.setdefault(message.thread_ts, []).append(message)
        top = [message for message in visible if not message.thread_ts]
        view = self.state.top_view(viewer.user_id)
        return {"top": top, "threads": threads, "users": self.state.users, "view": view, "bot_user": BOT_USER}

    def _names(self) -> dict[str, str]:
        names = {user.user_id: user.name for user in self.state.users.values()}
        names |= {item.channel_id: item.name for item in self.state.channels.values()}
        return names | {group_id: handle for group_id, (handle, _) in self.state.usergroups.items()}


def _clock(ts: str) -> str:
    return datetime.fromtimestamp(float(ts), UTC).strftime("%H:%M")


def _day(ts: str) -> str:
    return datetime.fromtimestamp(float(ts), UTC).strftime("%A, %B %d")


def page_routes(state: SlackState) -> list[Route]:
    """Routes: ``/`` lists the channels, ``/c/{channel}`` shows one, the pages poll ``/_page/updates``."""
    pages = Pages(state)

    def viewer_of(request: Request) -> User:
        return state.users.get(request.query_params.get("user", ""), state.users[_DEFAULT_USER])

    def channel_of(reference: str, viewer: User) -> Channel | None:
        found = state.channels.get(reference)
        return found if found and viewer.user_id in found.members else None

    async def index(request: Request) -> Response:
        return HTMLResponse(pages.page(None, viewer_of(request)), headers=_HEADERS)

    async def channel(request: Request) -> Response:
        viewer = viewer_of(request)
        found = channel_of(request.path_params["channel"], viewer)
        if found is None:
            return RedirectResponse(f"/?user={viewer.user_id}")
        return HTMLResponse(pages.page(found, viewer), headers=_HEADERS)

    async def updates(request: Request) -> Response:
        if request.query_params.get("since") == str(state.version):
            return Response(status_code=204, headers=_HEADERS)
        viewer = viewer_of(request)
        found = channel_of(request.query_params.get("channel", ""), viewer)
        return JSONResponse(pages.update(found, viewer), headers=_HEADERS)

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            return Response(status_code=404)
        return Response((_FOLDER / name).read_bytes(), media_type=_STATIC[name], headers=_HEADERS)

    return [
        Route("/", index),
        Route("/c/{channel}", channel),
        Route("/_page/updates", updates),
        Route("/_page/static/{name}", static),
    ]
