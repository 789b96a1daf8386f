"""A call of Slack's Web API: each kind of answer becomes one outcome, whole."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError, SlackClientError

from approvals.ports import NotPosted, PostInDoubt, PostRefused
from approvals.slack.calls import RETRY_AFTER_SECONDS, call

SLOW = "Slack asks for fewer requests"
SEE = "See the error's name in Slack's documentation of this method."
AGAIN = "install the Slack app again and set its new token."
UNCHANGED = "the approval itself is unchanged."
REPORT = "please report this with the approval's id."
REMEDIES = {
    "not_in_channel": "Invite the bot to the channel: /invite @counterseal.",
    "channel_not_found": "The channel does not exist or is private: check its id, and invite the bot to it.",
    "is_archived": "The channel is archived: choose another one.",
    "invalid_auth": f"The bot token is not valid: {AGAIN}",
    "not_authed": "No bot token was sent: set the Slack bot token.",
    "token_revoked": f"The bot token was revoked: {AGAIN}",
    "token_expired": f"The bot token has expired: {AGAIN}",
    "account_inactive": "The bot's account is deactivated: install the Slack app again.",
    "missing_scope": "The Slack app lacks a scope: add the one that this answer names, and install the app again.",
    "restricted_action": "A workspace setting forbids posting here: ask a workspace owner.",
    "message_not_found": f"The card was deleted in Slack; {UNCHANGED}",
    "cant_update_message": f"The card was posted by another app or token; {UNCHANGED}",
    "edit_window_closed": f"The workspace does not allow edits this late; {UNCHANGED}",
    "user_not_in_channel": "The person is not in the channel: only members can be answered there.",
    "invalid_blocks": f"Slack did not accept the card's blocks: {REPORT}",
    "msg_blocks_too_long": f"Slack did not accept the card's length: {REPORT}",
    "no_such_subteam": "There is no such Slack user group: check its id in the policy.",
    "plan_upgrade_required": "This Slack plan has no user groups: name a group of the directory instead.",
    "something_new": SEE,
    "timeout": SEE,
}
NO_ANSWER, STRANGE = "no answer from Slack: {}", PostInDoubt("the answer was not Slack's")


def refusal(status: int, data: Any, headers: dict[str, str] | None = None, *, named: str = "status_code") -> Any:
    return SlackApiError("refused", SimpleNamespace(**{named: status}, data=data, headers=headers))


async def answered(result: Any) -> Any:
    if isinstance(result, BaseException):
        raise result
    return SimpleNamespace(data=result)


def failed(error: str, **more: Any) -> dict[str, Any]:
    return {"ok": False, "error": error, **more}


CASES: list[tuple[Any, Any]] = [
    ({"ok": True, "ts": "1.2"}, {"ok": True, "ts": "1.2"}),
    (b"<html>", STRANGE),
    (ValueError("no JSON"), STRANGE),
    (AttributeError("no JSON"), STRANGE),
    (TimeoutError(), PostInDoubt(NO_ANSWER.format("TimeoutError"))),
    (OSError(), PostInDoubt(NO_ANSWER.format("OSError"))),
    (SlackClientError(), PostInDoubt(NO_ANSWER.format("SlackClientError"))),
    (aiohttp.ServerDisconnectedError(), PostInDoubt(NO_ANSWER.format("ServerDisconnectedError"))),
    (aiohttp.ConnectionTimeoutError(), NotPosted("Slack could not be reached: ConnectionTimeoutError")),
    (
        aiohttp.ClientConnectorError(SimpleNamespace(ssl=None, host="h", port=1), OSError("no")),
        NotPosted("Slack could not be reached: ClientConnectorError"),
    ),
    (refusal(429, failed("ratelimited"), {"Retry-After": "7"}), NotPosted(SLOW, 7.0)),
    (refusal(429, "busy", {"Retry-After": "7"}, named="status"), NotPosted(SLOW, 7.0)),
    (refusal(200, failed("ratelimited"), {"Retry-After": "0"}), NotPosted(SLOW, 0.0)),
    (refusal(200, failed("rate_limited"), {}), NotPosted(SLOW, RETRY_AFTER_SECONDS)),
    (refusal(429, failed("ratelimited"), {"Retry-After": "soon"}), NotPosted(SLOW, RETRY_AFTER_SECONDS)),
    (refusal(429, failed("ratelimited"), {"Retry-After": "\u0667"}), NotPosted(SLOW, RETRY_AFTER_SECONDS)),
    (refusal(429, failed("ratelimited")), NotPosted(SLOW, RETRY_AFTER_SECONDS)),
    (refusal(499, failed("x")), PostRefused("x", f"Slack refused: x. {SEE}")),
    (refusal(500, failed("x")), PostInDoubt("Slack answered 500 x")),
    (refusal(503, "down"), PostInDoubt("Slack answered 503")),
    (refusal(200, failed(None)), PostInDoubt("Slack answered 200")),
    *(
        (refusal(200, failed(code)), PostInDoubt(f"Slack answered 200 {code}"))
        for code in ("fatal_error", "internal_error", "request_timeout", "service_unavailable", "update_failed")
    ),
    *(
        (refusal(200, failed(code)), PostRefused(code, f"Slack refused: {code}. {remedy}"))
        for code, remedy in REMEDIES.items()
    ),
    (
        refusal(200, failed("missing_scope", needed="chat:write", provided="x")),
        PostRefused("missing_scope", f"Slack refused: missing_scope. {REMEDIES['missing_scope']} Needed: chat:write."),
    ),
    (refusal(200, failed("x", needed=["a"])), PostRefused("x", f"Slack refused: x. {SEE}")),
]


@pytest.mark.parametrize(("given", "outcome"), CASES)
async def test_each_answer_of_slack_has_its_outcome(given: Any, outcome: Any) -> None:
    assert await call(answered(given), timeout_seconds=5) == outcome


async def test_a_call_is_given_up_in_its_time_and_what_cancels_us_is_raised() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    assert await call(never(), timeout_seconds=0.001) == PostInDoubt(NO_ANSWER.format("TimeoutError"))
    with pytest.raises(asyncio.CancelledError):
        await call(answered(asyncio.CancelledError()), timeout_seconds=5)
    with pytest.raises(KeyError):
        await call(answered(KeyError("ours")), timeout_seconds=5)
