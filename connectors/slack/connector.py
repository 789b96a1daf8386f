"""Posts messages to Slack (``slack.message.post``).

Slack does not deduplicate posts. So each post has our key in its metadata, and a probe looks for the key. Every app in
the workspace can read metadata, so the key is opaque.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias

import aiohttp
import httpx
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from connectors import display
from connectors.exchange import public_address, retry_after_seconds
from connectors.port import Call, Done, Failure, InDoubt, NothingBefore, NotSent, Outcome, Probe, ProbeVerdict, Refused
from connectors.readback import ASKED, FOUND, compare, same_message
from core.canonical import JsonObject
from core.errors import InputError

_CHANNEL = re.compile(r"[CG][A-Z0-9]{6,}")
EVENT_TYPE = "counterseal_action"
PAGE_SIZE = 200
PAGES_MAX = 10
MARGIN_SECONDS = 120.0
CONNECT_SECONDS_MAX = 10.0

# Errors after which, by Slack's documentation, a part of the call may have happened.
_PERHAPS_DONE = frozenset({"fatal_error", "internal_error", "service_unavailable"})
# Errors that mean that nothing was done, and that a later call may succeed.
_LATER = frozenset({"ratelimited", "rate_limited", "request_timeout", "team_added_to_org", "accesslimited"})

_Page: TypeAlias = "AsyncSlackResponse | Failure"


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """The bot token and the Web API's address. A sent message can be read after at most ``settle_seconds``."""

    token: str = field(repr=False)
    base_url: str = "https://slack.com/api/"
    settle_seconds: float = 15.0


class SlackConnector(NothingBefore):
    """One workspace."""

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        # No retry handlers: the default one repeats a post whose connection broke, and may post twice.
        self._client = AsyncWebClient(settings.token, base_url=settings.base_url, retry_handlers=[])

    @property
    def target(self) -> str:
        """The address."""
        return public_address(self._settings.base_url)

    async def perform(self, call: Call) -> Outcome:
        """Post the message, once. Refuses buttons and the like here too: an earlier release let them pass."""
        try:
            display.check(call.input)
        except InputError as error:
            return Refused("interactive", str(error))
        names = ("channel", "text", "thread_ts", "blocks")
        arguments: dict[str, Any] = {name: call.input[name] for name in names if name in call.input}
        arguments["metadata"] = {"event_type": EVENT_TYPE, "event_payload": {"key": opaque(call.idempotency_key)}}
        answer = await self._ask(lambda: self._client.chat_postMessage(**arguments), call.timeout_seconds)
        if not isinstance(answer, AsyncSlackResponse):
            return answer
        ts, channel = answer.get("ts"), answer.get("channel", call.input.get("channel"))
        if not isinstance(ts, str):
            return InDoubt("Slack answered ok without the message's ts")
        return _posted(call, answer.get("message"), str(channel), ts)

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Look for our key in the channel, or in the thread, back to a little before the intent."""
        cursor, oldest = "", 0.0
        for _ in range(PAGES_MAX):
            page = await self._page(call, cursor)
            if not isinstance(page, AsyncSlackResponse):
                return Probe.unreadable("the channel could not be read", page)
            oldest = oldest or _slack_seconds(page) - seconds_since_intent - MARGIN_SECONDS
            messages = [message for message in page.get("messages") or [] if isinstance(message, dict)]
            found = next((message for message in messages if _bears(message, call.idempotency_key)), None)
            if found:
                ts = str(found.get("ts"))
                done = _posted(call, found, str(call.input["channel"]), ts)
                return Probe(ProbeVerdict.APPLIED, f"the message {ts} bears this action's key", done)
            cursor = str((page.get("response_metadata") or {}).get("next_cursor") or "")
            newest_first = "thread_ts" not in call.input
            if not cursor or (newest_first and any(_seconds(message.get("ts")) < oldest for message in messages)):
                early = "no message bears this action's key yet, but it may still be on its way"
                late = f"no message bears this action's key {seconds_since_intent:.0f} s later"
                return Probe.absent(early, late, seconds_left=self._settings.settle_seconds - seconds_since_intent)
        return Probe(ProbeVerdict.CANNOT_TELL, f"not among the {PAGES_MAX * PAGE_SIZE} messages that were looked at")

    async def check(self) -> tuple[bool, str]:
        """Call ``auth.test``."""
        answer = await self._ask(self._client.auth_test, CONNECT_SECONDS_MAX)
        if not isinstance(answer, AsyncSlackResponse):
            return False, answer.message
        return True, f"authorised as {answer.get('user')} in {answer.get('team')}"

    async def aclose(self) -> None:
        """Release connections."""
        if self._client.session is not None:
            await self._client.session.close()

    async def _page(self, call: Call, cursor: str) -> _Page:
        arguments: dict[str, Any] = {"channel": call.input["channel"], "include_all_metadata": True, "limit": PAGE_SIZE}
        arguments |= {"cursor": cursor} if cursor else {}
        read: Callable[..., Awaitable[AsyncSlackResponse]] = self._client.conversations_history
        if "thread_ts" in call.input:
            read, arguments["ts"] = self._client.conversations_replies, str(call.input["thread_ts"])
        return await self._ask(lambda: read(**arguments), call.timeout_seconds)

    async def _ask(self, method: Callable[[], Awaitable[AsyncSlackResponse]], timeout_seconds: float) -> _Page:
        """Make one call of the Web API and classify its failure. Reads may also be in doubt; that is harmless."""
        if self._client.session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS_MAX)
            self._client.session = aiohttp.ClientSession(timeout=timeout)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await method()
        except SlackApiError as error:
            return _classify(error)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return NotSent(f"Slack is not reachable: {error}")
        except TimeoutError:
            return InDoubt("Slack did not answer in time")
        except Exception as error:  # the SDK raises arbitrary errors for an unexpected body
            return InDoubt(f"the exchange with Slack broke: {type(error).__name__}: {error}")


def _posted(call: Call, message: object, channel: str, ts: str) -> Done:
    """The outcome of a post, whose message is compared with what was asked, as far as Slack shows it.

    The channel is compared only if both are ids of channels. Otherwise a name or a person was given, and Slack answers
    with the id that it stands for.
    """
    shown = message if isinstance(message, dict) else {}
    asked: JsonObject = {name: call.input[name] for name in ("text", "thread_ts") if name in call.input}
    back = compare(asked, {name: shown[name] for name in asked if name in shown}, same_message)
    place = str(call.input.get("channel"))
    if channel != place and _CHANNEL.fullmatch(channel) and _CHANNEL.fullmatch(place):
        back.altered["channel"] = {ASKED: place, FOUND: channel}
    return Done({"channel": channel, "ts": ts, **(back.to_json() if back.altered else {})}, ts, altered=back.altered)


def opaque(idempotency_key: str) -> str:
    """The mark of an action in a message's metadata: a prefix of its idempotency key, which is a hash."""
    return idempotency_key[:32]


def _classify(error: SlackApiError) -> Failure:
    response = error.response
    status = int(getattr(response, "status_code", None) or getattr(response, "status", None) or 0)
    data = getattr(response, "data", None)
    code = str(data.get("error") or "unknown_error") if isinstance(data, dict) else "unknown_error"
    if status == 429 or code in _LATER:
        return NotSent(f"Slack asks to call later ({code})", retry_after_seconds(_headers(response)))
    if status >= 500 or code in _PERHAPS_DONE or status == 408:
        return InDoubt(f"Slack failed (HTTP {status}, {code})", (), retry_after_seconds(_headers(response)))
    if code == "unknown_error" and status < 400:
        return InDoubt(f"Slack's answer is not an answer of its Web API (HTTP {status})")
    return Refused(code, f"Slack refused: {code}{_details(data)}")


def _details(data: object) -> str:
    """Slack's explanations, such as which block is invalid, or which scope is missing."""
    if not isinstance(data, dict):
        return ""
    words = [*((data.get("response_metadata") or {}).get("messages") or [])]
    words += [f"needs the scope {data['needed']}"] if data.get("needed") else []
    return "".join(f"; {text}" for text in words)


def _headers(response: Any) -> httpx.Headers:
    return httpx.Headers(dict(getattr(response, "headers", {})))


def _bears(message: dict[str, Any], idempotency_key: str) -> bool:
    match message.get("metadata"):
        case {"event_type": str(kind), "event_payload": {"key": str(key)}}:
            return (kind, key) == (EVENT_TYPE, opaque(idempotency_key))
    return False


def _slack_seconds(page: AsyncSlackResponse) -> float:
    """Slack's own time, from the answer's Date; 0 if it is missing, and then all pages are read."""
    try:
        return parsedate_to_datetime(_headers(page).get("Date", "")).timestamp()
    except (ValueError, TypeError):
        return 0.0


def _seconds(ts: object) -> float:
    try:
        return float(str(ts))
    except ValueError:
        return float("inf")
