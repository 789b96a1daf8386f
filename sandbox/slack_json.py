"""Messages and people in the shape of Slack's API."""

from __future__ import annotations

from sandbox.slack_state import APP_ID, BOT_ID, BOT_USER, TEAM_ID, JsonObject, Message, User


def message_json(message: Message, *, full: bool = False, replies: list[Message] | None = None) -> JsonObject:
    """The message as the API returns it. ``full``: with its metadata's payload, which is returned only on request."""
    body: JsonObject = {"type": "message", "user": message.user, "ts": message.ts, "text": message.text}
    body |= {"team": TEAM_ID, "blocks": message.blocks}
    if message.user == BOT_USER:
        body |= {"bot_id": BOT_ID, "app_id": APP_ID}
    if message.thread_ts:
        body["thread_ts"] = message.thread_ts
    if replies:
        body |= {"thread_ts": message.ts, "reply_count": len(replies), "latest_reply": replies[-1].ts}
    if message.edited:
        body["edited"] = {"user": message.user, "ts": message.edited}
    if message.metadata is not None:
        body["metadata"] = message.metadata if full else {"event_type": message.metadata["event_type"]}
    return body


def user_json(user: User, enterprise_id: str = "") -> JsonObject:
    """The account as ``users.info`` returns it; like Slack, it leaves out ``is_stranger`` if it is false."""
    profile = {"real_name": user.name, "display_name": user.name, "email": user.email}
    known = {"id": user.user_id, "team_id": user.team_id, "name": user.username, "real_name": user.name}
    marks = dict.fromkeys(("deleted", "is_bot", "is_restricted", "is_ultra_restricted"), False)
    marks["is_bot"] = user.user_id == BOT_USER
    made = known | {"tz": "Etc/UTC", "profile": profile} | marks | dict.fromkeys(user.flags, True)
    if enterprise_id and "is_stranger" not in user.flags:
        made["enterprise_user"] = {"id": user.user_id, "enterprise_id": enterprise_id, "teams": [user.team_id]}
    return made
