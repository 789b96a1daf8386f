"""The workspace behind the Slack stand-in: people, channels, messages, views, triggers."""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from sandbox.watch import Watched

TEAM_ID: Final = "T0DEMO"
BOT_USER: Final = "U0BOT"
BOT_ID: Final = "B0BOT"
APP_ID: Final = "A0SANDBOX"
TRIGGER_SECONDS: Final = 3.0
RESPONSE_URL_SECONDS: Final = 1800
RESPONSE_URL_USES: Final = 5
JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class User:
    user_id: str
    username: str
    name: str
    color: str
    team_id: str = TEAM_ID
    flags: tuple[str, ...] = ()  # those that are set: deleted, is_bot, is_restricted, is_ultra_restricted, is_stranger

    @property
    def email(self) -> str:
        return f"{self.username}@example.com"


@dataclass(slots=True)
class Message:
    """One message. ``revisions``: the blocks before each edit, so that a click can come from a stale screen."""

    channel: str
    ts: str
    user: str
    text: str
    blocks: list[JsonObject]
    thread_ts: str = ""
    metadata: JsonObject | None = None
    edited: str = ""
    ephemeral_for: str = ""
    revisions: list[list[JsonObject]] = field(default_factory=list)


@dataclass(slots=True)
class Channel:
    channel_id: str
    name: str
    members: set[str]
    messages: list[Message] = field(default_factory=list)
    is_dm: bool = False

    def message(self, ts: str) -> Message | None:
        return next((item for item in self.messages if item.ts == ts), None)

    def replies(self, ts: str) -> list[Message]:
        return [item for item in self.messages if item.thread_ts == ts]


@dataclass(slots=True)
class View:
    """An open modal of one user. ``body`` is the view object as Slack returns it; ``errors``: block_id -> text."""

    view_id: str
    user: str
    body: JsonObject
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Trigger:
    user: str
    expires: float
    used: bool = False


@dataclass(slots=True)
class ResponseUrl:
    channel: str
    ts: str
    user: str
    expires: float
    uses: int = 0


class SlackState(Watched):
    """Everything of one workspace. ``stacks``: each user's open modals, the topmost last.

    ``enterprise_id``: its organisation, if any; ``org_wide``: the app is installed for all of the organisation.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.clock = clock
        self.team_id = TEAM_ID
        self.enterprise_id = ""
        self.org_wide = False
        self.users: dict[str, User] = {}
        self.channels: dict[str, Channel] = {}
        self.usergroups: dict[str, tuple[str, list[str]]] = {}  # id -> (handle, members)
        self.stacks: dict[str, list[View]] = {}
        self.homes: dict[str, JsonObject] = {}  # user -> the app's Home as this person sees it
        self.triggers: dict[str, Trigger] = {}
        self.response_urls: dict[str, ResponseUrl] = {}
        self._last_ts = 0
        _seed(self)

    def next_ts(self) -> str:
        """A message id like Slack's: seconds and six digits, never repeated."""
        self._last_ts = max(int(self.clock() * 1_000_000), self._last_ts + 1)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def channel(self, reference: str) -> Channel | None:
        """A channel by id, by name with or without #, or by user id: the direct conversation, opened if need be."""
        if reference in self.users:
            return self.direct(reference)
        name = reference.removeprefix("#")
        return self.channels.get(reference) or next((it for it in self.channels.values() if it.name == name), None)

    def direct(self, user: str) -> Channel:
        channel_id = "D" + user[1:]
        if channel_id not in self.channels:
            self.channels[channel_id] = Channel(channel_id, self.users[user].username, {user, BOT_USER}, is_dm=True)
            self.changed()
        return self.channels[channel_id]

    def post(self, message: Message) -> Message:
        message.blocks = with_ids(message.blocks)
        self.channels[message.channel].messages.append(message)
        self.changed()
        return message

    def edit(self, message: Message, *, text: str | None, blocks: list[JsonObject] | None) -> None:
        """Edit like chat.update: omitted parts stay, so omitting blocks keeps the old ones and their buttons."""
        message.revisions.append(message.blocks)
        if text is not None:
            message.text = text
        if blocks is not None:
            message.blocks = with_ids(blocks)
        message.edited = self.next_ts()
        self.changed()

    def remove(self, message: Message) -> None:
        self.channels[message.channel].messages.remove(message)
        self.changed()

    def messages(self, channel: str) -> list[Message]:
        """A channel's messages, oldest first, replies and ephemeral ones included; KeyError for no such channel."""
        found = self.channel(channel)
        if found is None:
            raise KeyError(channel)
        return found.messages

    def new_trigger(self, user: str) -> str:
        trigger_id = f"{secrets.randbelow(10**12)}.{secrets.randbelow(10**12)}.{secrets.token_hex(16)}"
        self.triggers[trigger_id] = Trigger(user, self.clock() + TRIGGER_SECONDS)
        return trigger_id

    def spend_trigger(self, trigger_id: str) -> tuple[str, str]:
        """Use up a trigger: (user, "") the first time if it is valid; ("", error) otherwise."""
        trigger = self.triggers.get(trigger_id)
        if trigger is None:
            return "", "invalid_trigger_id"
        if trigger.used:
            return "", "exchanged_trigger_id"
        if self.clock() > trigger.expires:
            return "", "expired_trigger_id"
        trigger.used = True
        return trigger.user, ""

    def new_response_url(self, message: Message, user: str) -> str:
        token = secrets.token_hex(12)
        self.response_urls[token] = ResponseUrl(message.channel, message.ts, user, self.clock() + RESPONSE_URL_SECONDS)
        return token

    def view(self, view_id: str) -> View | None:
        return next((view for stack in self.stacks.values() for view in stack if view.view_id == view_id), None)

    def top_view(self, user: str) -> View | None:
        stack = self.stacks.get(user)
        return stack[-1] if stack else None

    def show_view(self, user: str, given: JsonObject, *, push: bool = False) -> View:
        stack = self.stacks.setdefault(user, [])
        if not push:
            stack.clear()
        view_id = "V" + secrets.token_hex(5).upper()
        root = stack[0].view_id if stack else view_id
        parent = stack[-1].view_id if stack else None
        view = View(view_id, user, {})
        view.body = self.view_body(view_id, given) | {"root_view_id": root, "previous_view_id": parent}
        stack.append(view)
        self.changed()
        return view

    def show_home(self, user: str, given: JsonObject) -> JsonObject:
        view_id = self.homes.get(user, {}).get("id") or "V" + secrets.token_hex(5).upper()
        mark = f"{int(self.clock())}.{secrets.token_hex(4)}"
        self.homes[user] = {**given, "id": view_id, "blocks": with_ids(given["blocks"]), "hash": mark}
        self.changed()
        return self.homes[user]

    def change_view(self, view: View, given: JsonObject) -> None:
        ids = {name: view.body[name] for name in ("root_view_id", "previous_view_id")}
        view.body = self.view_body(view.view_id, given) | ids
        view.errors = {}
        self.changed()

    def close_view(self, view: View, *, everything: bool = False) -> None:
        stack = self.stacks.get(view.user, [])
        if everything:
            stack.clear()
        elif view in stack:
            stack.remove(view)
        self.changed()

    def view_body(self, view_id: str, given: JsonObject) -> JsonObject:
        return {
            "id": view_id,
            "team_id": TEAM_ID,
            "type": "modal",
            "title": given["title"],
            "submit": given.get("submit"),
            "close": given.get("close"),
            "blocks": with_ids(given["blocks"]),
            "private_metadata": given.get("private_metadata", ""),
            "callback_id": given.get("callback_id", ""),
            "external_id": given.get("external_id", ""),
            "notify_on_close": bool(given.get("notify_on_close", False)),
            "clear_on_close": bool(given.get("clear_on_close", False)),
            "state": {"values": {}},
            "hash": f"{int(self.clock())}.{secrets.token_hex(4)}",
            "app_id": APP_ID,
            "bot_id": BOT_ID,
            "app_installed_team_id": TEAM_ID,
        }


def with_ids(blocks: list[JsonObject]) -> list[JsonObject]:
    """A copy in which every block has a block_id and everything interactive an action_id, as Slack fills them in."""
    filled = copy.deepcopy(blocks)
    for block in filled:
        block.setdefault("block_id", secrets.token_urlsafe(4))
        held = (
            block.get("elements", []) if block["type"] == "actions" else [block.get("element"), block.get("accessory")]
        )
        for element in held:
            if element and element["type"] != "image":
                element.setdefault("action_id", secrets.token_urlsafe(4))
    return filled


def _seed(state: SlackState) -> None:
    people = (
        User("U0ANA", "ana.lee", "Ana Lee", "#b5446e"),
        User("U0BEN", "ben.ortiz", "Ben Ortiz", "#2f6f9f"),
        User("U0CARA", "cara.diaz", "Cara Diaz", "#4d7c3a"),
        User("U0REQ", "raj.quist", "Raj Quist", "#a8682a"),
        User(BOT_USER, "counterseal", "Counterseal", "#2b2d42"),
    )
    state.users = {user.user_id: user for user in people}
    everybody = set(state.users)
    state.channels = {
        "C0OPS": Channel("C0OPS", "it-approvals", set(everybody)),
        "C0INC": Channel("C0INC", "incidents", set(everybody)),
        "C0PRIV": Channel("C0PRIV", "leadership", {"U0ANA"}),
    }
    state.usergroups = {"S0ITLEADS": ("it-leads", ["U0ANA", "U0BEN"])}
