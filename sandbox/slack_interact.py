"""Clicks and submissions as Slack sends them: signed, to one URL, with three seconds for the answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from sandbox.slack_blocks import elements, view_problems
from sandbox.slack_entry import option_of, state_values
from sandbox.slack_json import message_json
from sandbox.slack_sockets import Sockets
from sandbox.slack_state import APP_ID, BOT_USER, TEAM_ID, JsonObject, SlackState, View
from sandbox.web import BadRequest, http_client

NOT_RESPONDING: Final = "This app is not responding."


@dataclass(frozen=True, slots=True)
class Outcome:
    """The app's answer. ``status`` 0: no answer in time. ``error``: the banner that the person sees."""

    ok: bool
    status: int
    latency_ms: float
    error: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """Slack's request signature: ``v0=`` and HMAC-SHA256 (hex) over ``v0:{timestamp}:{body}``."""
    base = f"v0:{timestamp}:".encode() + body
    return "v0=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()


class Interactivity:
    """Clicks, submissions and closings by the people of the workspace."""

    def __init__(
        self,
        state: SlackState,
        *,
        url: str,
        signing_secret: str,
        base_url: Callable[[], str],
        ack_seconds: float = 3.0,
        sockets: Sockets | None = None,
    ) -> None:
        self.sockets = sockets
        self.state = state
        self.url = url
        self.signing_secret = signing_secret
        self.ack_seconds = ack_seconds
        self._base_url = base_url
        self._client = http_client(ack_seconds + 1)

    async def close(self) -> None:
        await self._client.aclose()

    async def click(
        self, channel: str, ts: str, action_id: str, user: str, *, selected: str = "", stale: bool = False
    ) -> Outcome:
        """Press the element with this action_id on a message, as this user. ``stale``: also look on screens from before
        an edit, as when two people's clicks race. ``selected``: the chosen value of a menu. BadRequest if there is no
        such user, message or element."""
        self._known(user)
        found = self.state.channel(channel)
        message = found.message(ts) if found else None
        if found is None or message is None or message.ephemeral_for not in ("", user):
            raise BadRequest(f"no message {ts} in channel {channel} that {user} can see")
        versions = [message.blocks, *(reversed(message.revisions) if stale else ())]
        action = _action(versions, action_id, selected, self.state.next_ts())
        shown = message_json(message, full=True)
        ephemeral = bool(message.ephemeral_for)
        payload = self._payload("block_actions", user) | {
            "container": {
                "type": "message",
                "message_ts": ts,
                "channel_id": found.channel_id,
                "is_ephemeral": ephemeral,
            },
            "channel": {"id": found.channel_id, "name": "directmessage" if found.is_dm else found.name},
            "message": shown,
            "state": {"values": {}},
            "response_url": f"{self._base_url()}actions/{TEAM_ID}/{self.state.new_response_url(message, user)}",
            "actions": [action],
        }
        return (await self._send(payload))[0]

    async def click_view(self, view_id: str, action_id: str, user: str, *, selected: str = "") -> Outcome:
        """Press an element inside an open modal."""
        view = self._view(view_id, user)
        action = _action([view.body["blocks"]], action_id, selected, self.state.next_ts())
        payload = self._payload("block_actions", user)
        payload |= {"container": {"type": "view", "view_id": view_id}, "view": view.body, "actions": [action]}
        return (await self._send(payload))[0]

    async def open_home(self, user: str) -> Outcome:
        """Open the app's Home: Slack tells the app by an event, and shows what the app publishes."""
        self._known(user)
        who = self.state.users[user]
        event = {"type": "app_home_opened", "user": user, "channel": self.state.direct(user).channel_id, "tab": "home"}
        body = {
            "type": "event_callback",
            "token": "sandbox-verification-token",
            "team_id": who.team_id,
            "api_app_id": APP_ID,
            "event": event | {"event_ts": self.state.next_ts()},
            "event_id": f"Ev{secrets.token_hex(5).upper()}",
            "event_time": int(time.time()),
            "authorizations": [{"team_id": TEAM_ID, "user_id": BOT_USER, "is_bot": True}],
        }
        if self.state.enterprise_id:
            body["enterprise_id"] = self.state.enterprise_id
        if self.sockets is not None:
            return (await self._over_socket("events_api", body))[0]
        return (await self._post(json.dumps(body).encode(), "application/json"))[0]

    async def click_home(self, action_id: str, user: str) -> Outcome:
        """Press an element on the app's Home, as this user sees it."""
        view = self.state.homes.get(user)
        if view is None:
            raise BadRequest(f"{user} sees no Home of the app")
        action = _action([view["blocks"]], action_id, "", self.state.next_ts())
        payload = self._payload("block_actions", user) | {"container": {"type": "view", "view_id": view["id"]}}
        return (await self._send(payload | {"view": view, "actions": [action]}))[0]

    async def submit_view(self, view_id: str, user: str, values: Mapping[str, object]) -> Outcome:
        """Submit a modal. ``values``: block_id or action_id -> text or chosen value. Entries that Slack's own client
        would refuse (an empty required input, a malformed number) are refused here, and nothing is sent."""
        view = self._view(view_id, user)
        state, errors = state_values(view.body["blocks"], values)
        if errors:
            view.errors = errors
            self.state.changed()
            return Outcome(ok=False, status=0, latency_ms=0.0, error="Check what is marked.", errors=errors)
        view.body["state"] = {"values": state}
        payload = self._payload("view_submission", user) | {"view": view.body, "response_urls": []}
        outcome, answer = await self._send(payload)
        return self._after_submission(view, outcome, answer) if outcome.ok else outcome

    async def dismiss_view(self, view_id: str, user: str) -> Outcome:
        """Cancel a modal. The app is notified only if the modal has ``notify_on_close``."""
        view = self._view(view_id, user)
        self.state.close_view(view)
        if not view.body["notify_on_close"]:
            return Outcome(ok=True, status=200, latency_ms=0.0)
        payload = self._payload("view_closed", user) | {"view": view.body, "is_cleared": False}
        return (await self._send(payload))[0]

    def _after_submission(self, view: View, outcome: Outcome, answer: bytes) -> Outcome:
        try:
            body = json.loads(answer) if answer.strip() else {}
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return _trouble(outcome, "the answer is neither empty nor a JSON object")
        action = body.get("response_action")
        if action is None or action == "clear":
            self.state.close_view(view, everything=action == "clear")
        elif action in ("update", "push"):
            if problems := view_problems(body.get("view")):
                return _trouble(outcome, "; ".join(problems))
            if action == "update":
                self.state.change_view(view, body["view"])
            else:
                self.state.show_view(view.user, body["view"], push=True)
        elif action == "errors" and isinstance(body.get("errors"), dict):
            view.errors = {str(name): str(text) for name, text in body["errors"].items()}
            self.state.changed()
            return Outcome(ok=True, status=outcome.status, latency_ms=outcome.latency_ms, errors=view.errors)
        else:
            return _trouble(outcome, f"unknown response_action {action!r}")
        return outcome

    def _known(self, user: str) -> None:
        if user not in self.state.users:
            raise BadRequest(f"no user {user}; there are {', '.join(self.state.users)}")

    def _view(self, view_id: str, user: str) -> View:
        self._known(user)
        view = self.state.view(view_id)
        if view is None or view.user != user:
            raise BadRequest(f"{user} has no open view {view_id}")
        return view

    def _payload(self, kind: str, user: str) -> JsonObject:
        who = self.state.users[user]
        return {
            "type": kind,
            "user": {"id": user, "username": who.username, "name": who.username, "team_id": who.team_id},
            "api_app_id": APP_ID,
            "token": "sandbox-verification-token",
            "team": None if self.state.org_wide else self._team(who.team_id),
            "enterprise": {"id": self.state.enterprise_id, "name": "Demo"} if self.state.enterprise_id else None,
            "is_enterprise_install": self.state.org_wide,
            "trigger_id": self.state.new_trigger(user),
        }

    def _team(self, team_id: str) -> JsonObject:
        """The person's workspace: in a channel shared by Slack Connect it is their own."""
        team = {"id": team_id, "domain": "counterseal-demo"}
        return team | ({"enterprise_id": self.state.enterprise_id} if self.state.enterprise_id else {})

    async def _over_socket(self, kind: str, payload: JsonObject) -> tuple[Outcome, bytes]:
        assert self.sockets is not None
        began = time.perf_counter()
        answer = await self.sockets.deliver(kind, payload)
        if answer is None:
            return Outcome(ok=False, status=0, latency_ms=_ms_since(began), error=NOT_RESPONDING), b""
        return Outcome(ok=True, status=200, latency_ms=_ms_since(began)), answer

    async def _send(self, payload: JsonObject) -> tuple[Outcome, bytes]:
        if self.sockets is not None:
            return await self._over_socket("interactive", payload)
        return await self._post(
            urlencode({"payload": json.dumps(payload)}).encode(), "application/x-www-form-urlencoded"
        )

    async def _post(self, body: bytes, kind: str) -> tuple[Outcome, bytes]:
        if not self.url:
            raise BadRequest("no interactivity URL is configured; POST /_sandbox/interactivity sets it")
        timestamp = int(time.time())
        headers = {
            "Content-Type": kind,
            "X-Slack-Request-Timestamp": str(timestamp),
            "X-Slack-Signature": sign(self.signing_secret, timestamp, body),
            "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
        }
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self.ack_seconds):
                response = await self._client.post(self.url, content=body, headers=headers)
        except (TimeoutError, httpx.HTTPError):
            return Outcome(ok=False, status=0, latency_ms=_ms_since(began), error=NOT_RESPONDING), b""
        good = response.is_success
        error = "" if good else f"{NOT_RESPONDING} (HTTP {response.status_code})"
        return Outcome(good, response.status_code, _ms_since(began), error), response.content


def _ms_since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 1)


def _trouble(outcome: Outcome, why: str) -> Outcome:
    return Outcome(False, outcome.status, outcome.latency_ms, f"We had some trouble connecting. Try again? ({why})")


def _action(versions: list[list[JsonObject]], action_id: str, selected: str, action_ts: str) -> JsonObject:
    for blocks in versions:
        for block_id, element in elements(blocks):
            if element["action_id"] == action_id:
                return _pressed(block_id, element, selected) | {"action_ts": action_ts}
    raise BadRequest(f"nothing with action_id {action_id!r} is shown")


def _pressed(block_id: str, element: Mapping[str, Any], selected: str) -> JsonObject:
    action: JsonObject = {"type": element["type"], "action_id": element["action_id"], "block_id": block_id}
    if element["type"] == "button":
        return action | {name: element[name] for name in ("text", "value", "style") if name in element}
    option = option_of(element, selected)
    if option is None:
        raise BadRequest(f"{element['action_id']}: no option with value {selected!r}")
    several = element["type"] in ("checkboxes", "multi_static_select")
    return action | ({"selected_options": [option]} if several else {"selected_option": option})


__all__ = ["NOT_RESPONDING", "Interactivity", "Outcome", "sign"]
