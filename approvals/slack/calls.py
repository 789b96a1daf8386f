"""Calls of Slack's Web API, with an outcome that says if the call may have had an effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, TypeAlias

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from approvals.ports import NotPosted, PostInDoubt, PostRefused

Answered: TypeAlias = dict[str, Any]
PostFailure: TypeAlias = NotPosted | PostInDoubt | PostRefused

RETRY_AFTER_SECONDS = 30.0  # if Slack gives no time, or not as a number
# Slack on fatal_error: "It's possible some aspect of the operation succeeded before the error was raised."
_IN_DOUBT = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable", "update_failed"})
_REMEDIES = {
    "not_in_channel": "Invite the bot to the channel: /invite @counterseal.",
    "channel_not_found": "The channel does not exist or is private: check its id, and invite the bot to it.",
    "is_archived": "The channel is archived: choose another one.",
    "invalid_auth": "The bot token is not valid: install the Slack app again and set its new token.",
    "not_authed": "No bot token was sent: set the Slack bot token.",
    "token_revoked": "The bot token was revoked: install the Slack app again and set its new token.",
    "token_expired": "The bot token has expired: install the Slack app again and set its new token.",
    "account_inactive": "The bot's account is deactivated: install the Slack app again.",
    "missing_scope": "The Slack app lacks a scope: add the one that this answer names, and install the app again.",
    "restricted_action": "A workspace setting forbids posting here: ask a workspace owner.",
    "message_not_found": "The card was deleted in Slack; the approval itself is unchanged.",
    "cant_update_message": "The card was posted by another app or token; the approval itself is unchanged.",
    "edit_window_closed": "The workspace does not allow edits this late; the approval itself is unchanged.",
    "user_not_in_channel": "The person is not in the channel: only members can be answered there.",
    "invalid_blocks": "Slack did not accept the card's blocks: please report this with the approval's id.",
    "msg_blocks_too_long": "Slack did not accept the card's length: please report this with the approval's id.",
    "no_such_subteam": "There is no such Slack user group: check its id in the policy.",
    "plan_upgrade_required": "This Slack plan has no user groups: name a group of the directory instead.",
}

_OPEN_SECONDS_MAX = 2.0
NOT_OPENED = "Slack did not open the window in time, so nothing was counted. Please click again."
_log = logging.getLogger("counterseal.slack")


async def open_window(client: AsyncWebClient, trigger_id: str, window: dict[str, Any]) -> bool:
    """Open a window while the click's trigger is valid (3 seconds); false if Slack does not say that it is open."""
    opened = await call(client.views_open(trigger_id=trigger_id, view=window), timeout_seconds=_OPEN_SECONDS_MAX)
    if isinstance(opened, dict):
        return True
    _log.warning("a modal could not be opened: %s", opened.message)
    return False


async def call(request: Awaitable[AsyncSlackResponse], *, timeout_seconds: float) -> Answered | PostFailure:
    """Await one Web API call. Never raises because of Slack or the network: a failure is a value."""
    try:
        async with asyncio.timeout(timeout_seconds):
            response = await request
            data = response.data
    except SlackApiError as error:
        return _refused(error)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        return NotPosted(f"Slack could not be reached: {type(error).__name__}")
    except (TimeoutError, aiohttp.ClientError, OSError, SlackClientError) as error:
        return PostInDoubt(f"no answer from Slack: {type(error).__name__}")
    except (AttributeError, ValueError):
        # slack_sdk raises these for an answer with status 200 that is not JSON, such as a proxy's page.
        return PostInDoubt("the answer was not Slack's")
    if not isinstance(data, dict):
        return PostInDoubt("the answer was not Slack's")
    return data


def _refused(error: SlackApiError) -> PostFailure:
    response = error.response
    status = int(getattr(response, "status_code", None) or getattr(response, "status", None) or 0)
    data = getattr(response, "data", None)
    code = data.get("error") if isinstance(data, dict) else None
    if status == 429 or code in ("ratelimited", "rate_limited"):
        seconds = str((getattr(response, "headers", None) or {}).get("Retry-After", ""))
        known = seconds.isascii() and seconds.isdigit()
        return NotPosted("Slack asks for fewer requests", float(seconds) if known else RETRY_AFTER_SECONDS)
    if not isinstance(code, str) or status >= 500 or code in _IN_DOUBT:
        return PostInDoubt(f"Slack answered {status} {code if isinstance(code, str) else ''}".rstrip())
    remedy = _REMEDIES.get(code, "See the error's name in Slack's documentation of this method.")
    needed = data.get("needed") if isinstance(data, dict) else None
    scope = f" Needed: {needed}." if isinstance(needed, str) else ""
    return PostRefused(code, f"Slack refused: {code}. {remedy}{scope}")
