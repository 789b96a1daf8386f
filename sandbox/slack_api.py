"""The Web API methods of the Slack stand-in, with their checks, answers and error names."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final

from sandbox.slack_args import (
    ApiError,
    Arguments,
    blocks_of,
    cursor_of,
    flag,
    integer,
    metadata_of,
    micros,
    text_of,
    view_of,
)
from sandbox.slack_json import message_json, user_json
from sandbox.slack_state import BOT_ID, BOT_USER, TEAM_ID, Channel, JsonObject, Message, SlackState, View

POST_TEXT: Final = 40_000
UPDATE_TEXT: Final = 4_000
VIEW_STACK: Final = 3


class SlackApi:
    """The Web API. ``methods``: name -> handler. Arguments are decoded; blocks, view and metadata may be JSON text."""

    def __init__(self, state: SlackState, *, team_url: Callable[[], str]) -> None:
        self.state = state
        self._team_url = team_url
        self.methods: Mapping[str, Callable[[Arguments], JsonObject]] = {
            "auth.test": self.auth_test,
            "chat.postMessage": self.post_message,
            "chat.update": self.update,
            "chat.postEphemeral": self.post_ephemeral,
            "chat.getPermalink": self.permalink,
            "views.open": self.views_open,
            "views.push": self.views_push,
            "views.update": self.views_update,
            "views.publish": self.views_publish,
            "conversations.history": self.history,
            "conversations.replies": self.replies,
            "conversations.open": self.open_direct,
            "users.info": self.user_info,
            "users.lookupByEmail": self.user_by_email,
            "usergroups.list": self.usergroups,
            "usergroups.users.list": self.usergroup_users,
        }

    def auth_test(self, _given: Arguments) -> JsonObject:
        state = self.state
        who = {"team": "Counterseal Demo", "user": "counterseal", "team_id": state.team_id, "user_id": BOT_USER}
        who |= {"enterprise_id": state.enterprise_id} if state.enterprise_id else {}
        return {"ok": True, "url": self._team_url(), "bot_id": BOT_ID, "is_enterprise_install": state.org_wide, **who}

    # -- messages

    def post_message(self, given: Arguments) -> JsonObject:
        channel = self._channel(given)
        blocks = blocks_of(given)
        text = text_of(given, POST_TEXT)
        if not text and not blocks:
            raise ApiError("no_text")
        thread = str(given.get("thread_ts") or "")
        if thread and channel.message(thread) is None:
            raise ApiError("cannot_reply_to_message")
        message = Message(channel.channel_id, self.state.next_ts(), BOT_USER, text or "", blocks or [], thread)
        message.metadata = metadata_of(given)
        self.state.post(message)
        return {
            "ok": True,
            "channel": channel.channel_id,
            "ts": message.ts,
            "message": message_json(message, full=True),
        }

    def update(self, given: Arguments) -> JsonObject:
        channel = self._channel(given)
        message = channel.message(str(given.get("ts") or ""))
        if message is None or message.ephemeral_for:
            raise ApiError("message_not_found")
        if message.user != BOT_USER:
            raise ApiError("cant_update_message")
        text, blocks, metadata = text_of(given, UPDATE_TEXT), blocks_of(given), metadata_of(given)
        if text is None and blocks is None and metadata is None:
            raise ApiError("no_text")
        self.state.edit(message, text=text, blocks=blocks)
        message.metadata = metadata if metadata is not None else message.metadata
        shown = message_json(message, full=True)
        return {"ok": True, "channel": channel.channel_id, "ts": message.ts, "text": message.text, "message": shown}

    def post_ephemeral(self, given: Arguments) -> JsonObject:
        channel = self._channel(given)
        user = str(given.get("user") or "")
        if user not in channel.members:
            raise ApiError("user_not_in_channel")
        blocks, text = blocks_of(given), text_of(given, POST_TEXT)
        if not text and not blocks:
            raise ApiError("no_text")
        thread = str(given.get("thread_ts") or "")
        message = Message(channel.channel_id, self.state.next_ts(), BOT_USER, text or "", blocks or [], thread)
        message.ephemeral_for = user
        self.state.post(message)
        return {"ok": True, "message_ts": message.ts}

    def permalink(self, given: Arguments) -> JsonObject:
        channel = self._channel(given)
        message = channel.message(str(given.get("message_ts") or ""))
        if message is None:
            raise ApiError("message_not_found")
        link = f"{self._team_url()}c/{channel.channel_id}#m-{message.ts}"
        return {"ok": True, "channel": channel.channel_id, "permalink": link}

    # -- modals

    def views_open(self, given: Arguments) -> JsonObject:
        body = _modal(given)
        view = self.state.show_view(self._trigger(given), body)
        return {"ok": True, "view": view.body}

    def views_push(self, given: Arguments) -> JsonObject:
        body = _modal(given)
        user = self._trigger(given)
        if len(self.state.stacks.get(user, [])) >= VIEW_STACK:
            raise ApiError("push_limit_reached")
        return {"ok": True, "view": self.state.show_view(user, body, push=True).body}

    def views_update(self, given: Arguments) -> JsonObject:
        body = view_of(given)
        view = self._open_view(given)
        if given.get("hash") and given["hash"] != view.body["hash"]:
            raise ApiError("hash_conflict")
        self.state.change_view(view, body)
        return {"ok": True, "view": view.body}

    def views_publish(self, given: Arguments) -> JsonObject:
        body, user = view_of(given), str(given.get("user_id") or "")
        if body.get("type") != "home":
            raise ApiError("invalid_arguments", ["[ERROR] must be home [json-pointer:/type]"])
        if user not in self.state.users:
            raise ApiError("user_not_found")
        if given.get("hash") and given["hash"] != self.state.homes.get(user, {}).get("hash"):
            raise ApiError("hash_conflict")
        return {"ok": True, "view": self.state.show_home(user, body)}

    def _trigger(self, given: Arguments) -> str:
        user, error = self.state.spend_trigger(str(given.get("trigger_id") or ""))
        if error:
            raise ApiError(error)
        return user

    def _open_view(self, given: Arguments) -> View:
        external = given.get("external_id")
        views = (view for stack in self.state.stacks.values() for view in stack)
        by_external = next((view for view in views if external and view.body["external_id"] == external), None)
        view = self.state.view(str(given.get("view_id") or "")) or by_external
        if view is None:
            raise ApiError("not_found")
        return view

    # -- reading

    def history(self, given: Arguments) -> JsonObject:
        channel = self._channel(given)
        top = [message for message in channel.messages if not message.thread_ts and not message.ephemeral_for]
        return self._page(given, list(reversed(top)), channel)

    def replies(self, given: Arguments) -> JsonObject:
        channel = self._channel(given)
        parent = channel.message(str(given.get("ts") or ""))
        if parent is None:
            raise ApiError("thread_not_found")
        return self._page(given, [parent, *(m for m in channel.replies(parent.ts) if not m.ephemeral_for)], channel)

    def _page(self, given: Arguments, messages: list[Message], channel: Channel) -> JsonObject:
        oldest, latest = micros(given.get("oldest"), 0), micros(given.get("latest"), 1 << 62)
        inclusive = flag(given.get("inclusive"))
        inside = [
            m
            for m in messages
            if oldest < micros(m.ts, 0) < latest or (inclusive and micros(m.ts, 0) in (oldest, latest))
        ]
        start = cursor_of(given.get("cursor"))
        limit = min(max(integer(given.get("limit"), 100), 1), 999)
        full = flag(given.get("include_all_metadata"))
        page = [message_json(m, full=full, replies=channel.replies(m.ts)) for m in inside[start : start + limit]]
        more = start + limit < len(inside)
        cursor = base64.b64encode(f"next:{start + limit}".encode()).decode() if more else ""
        return {"ok": True, "messages": page, "has_more": more, "response_metadata": {"next_cursor": cursor}}

    def open_direct(self, given: Arguments) -> JsonObject:
        users = [user for user in str(given.get("users") or "").split(",") if user]
        if len(users) != 1:
            raise ApiError("users_list_not_supplied" if not users else "not_enough_users")
        if users[0] not in self.state.users:
            raise ApiError("user_not_found")
        return {"ok": True, "channel": {"id": self.state.direct(users[0]).channel_id}}

    def user_info(self, given: Arguments) -> JsonObject:
        user = self.state.users.get(str(given.get("user") or ""))
        if user is None:
            raise ApiError("user_not_found")
        return {"ok": True, "user": user_json(user, self.state.enterprise_id)}

    def user_by_email(self, given: Arguments) -> JsonObject:
        email = str(given.get("email") or "").lower()
        user = next((user for user in self.state.users.values() if user.email == email), None)
        if user is None:
            raise ApiError("users_not_found")
        return {"ok": True, "user": user_json(user, self.state.enterprise_id)}

    def usergroups(self, given: Arguments) -> JsonObject:
        with_users = flag(given.get("include_users"))
        groups = []
        for group_id, (handle, members) in self.state.usergroups.items():
            group = {"id": group_id, "team_id": TEAM_ID, "handle": handle, "name": handle, "user_count": len(members)}
            groups.append(group | ({"users": members} if with_users else {}))
        return {"ok": True, "usergroups": groups}

    def usergroup_users(self, given: Arguments) -> JsonObject:
        found = self.state.usergroups.get(str(given.get("usergroup") or ""))
        if found is None:
            raise ApiError("no_such_subteam")
        return {"ok": True, "users": list(found[1])}

    def _channel(self, given: Arguments) -> Channel:
        channel = self.state.channel(str(given.get("channel") or ""))
        if channel is None:
            raise ApiError("channel_not_found")
        if BOT_USER not in channel.members:
            raise ApiError("not_in_channel")
        return channel


def _modal(given: Arguments) -> JsonObject:
    body = view_of(given)
    if body.get("type") != "modal":
        raise ApiError("invalid_arguments", ["[ERROR] must be modal [json-pointer:/type]"])
    return body
