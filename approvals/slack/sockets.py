"""Socket Mode: Slack's requests over a connection that we open, for networks that let nothing in.

The same listeners answer as over HTTP. An envelope is acknowledged, on the connection that brought it, only after its
listener has ended: a click is acknowledged after its vote is committed. If the listener fails, it is not acknowledged,
and Slack tells the person, or sends it again. An envelope that comes twice has one effect: each listener is idempotent,
and one that is still at work, or has just ended, answers both.

Slack closes connections when it likes, and says so before. Then we open the next one first, and let the old one finish
its work. Any number of processes may hold connections: Slack sends each envelope to one of them. The client of
slack_sdk is not used: it closes the old connection before what came over it is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import aiohttp
import orjson
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from approvals.ports import NotPosted
from approvals.slack.calls import call
from approvals.slack.guard import BODY_BYTES_MAX
from core.bounded_json import parse_object
from core.canonical import JsonObject, clean
from core.clock import rest
from core.errors import InputError

# Slack closes a connection some seconds after it has said so. If it does not, we close it.
DRAIN_SECONDS = 30.0
_OPEN_SECONDS, _PING_SECONDS = 10.0, 20.0
_PAUSE_SECONDS, _PAUSE_MAX_SECONDS = 1.0, 60.0
_REMEMBERED_MAX = 1000
_ENVELOPE_BYTES_MAX = 2 * BODY_BYTES_MAX
_KINDS = frozenset({"interactive", "events_api"})
_log = logging.getLogger("counterseal.slack")

# Answers one payload of Slack, as the route of HTTP does.
Dispatch: TypeAlias = Callable[[JsonObject], Awaitable[BoltResponse]]


class Sockets:
    """Holds a connection to Slack, and for a moment two. ``connected`` is set while Slack has said hello on one."""

    def __init__(self, client: AsyncWebClient, app_token: str, dispatch: Dispatch) -> None:
        self._client, self._token, self._dispatch = client, app_token, dispatch
        self._answers: OrderedDict[str, asyncio.Task[BoltResponse]] = OrderedDict()
        self._greeted: set[int] = set()
        self.connected = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Hold a connection until ``stop`` is set, and then answer the envelopes that are being worked on.

        A crash leaves envelopes unacknowledged: Slack sends them again, or people click again.
        """
        pause = _PAUSE_SECONDS
        async with aiohttp.ClientSession(trust_env=True) as session, asyncio.TaskGroup() as group:
            while not stop.is_set():
                opened = await self._open(session)
                if isinstance(opened, NotPosted):
                    _log.warning("no connection to Slack, clicks wait: %s", clean(opened.message))
                    await rest(stop, max(pause, opened.retry_after_seconds or 0.0))
                    pause = min(pause * 2, _PAUSE_MAX_SECONDS)
                    continue
                leaving = asyncio.Event()
                held = group.create_task(self._hold(opened, leaving, stop))
                begun = await self._until(leaving, held, stop)
                pause = _PAUSE_SECONDS if begun else min(pause * 2, _PAUSE_MAX_SECONDS)
                if not begun:  # it ended before Slack said hello
                    await rest(stop, pause)

    async def _open(self, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse | NotPosted:
        """Ask Slack where to connect, and connect there."""
        answer = await call(self._client.apps_connections_open(app_token=self._token), timeout_seconds=_OPEN_SECONDS)
        if not isinstance(answer, dict):
            return answer if isinstance(answer, NotPosted) else NotPosted(answer.message)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                return await session.ws_connect(
                    str(answer.get("url")), heartbeat=_PING_SECONDS, max_msg_size=_ENVELOPE_BYTES_MAX
                )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return NotPosted(f"the connection failed: {type(error).__name__}")  # its address holds a ticket

    async def _until(self, leaving: asyncio.Event, held: asyncio.Task[bool], stop: asyncio.Event) -> bool:
        """Wait until the next connection is needed; true unless this one has ended without a hello."""
        waits = [asyncio.create_task(one.wait()) for one in (leaving, stop)]
        try:
            await asyncio.wait({held, *waits}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        return leaving.is_set() or not held.done() or held.result()

    async def _hold(self, socket: aiohttp.ClientWebSocketResponse, leaving: asyncio.Event, stop: asyncio.Event) -> bool:
        """Answer the envelopes of one connection until it ends; true if Slack has said hello on it."""
        begun, answering = False, set[asyncio.Task[None]]()
        closing = asyncio.create_task(_close(socket, leaving, stop, answering))
        try:
            async for message in socket:
                envelope = _message(message)
                match envelope.get("type"):
                    case "hello":
                        begun = True
                        self._greeted.add(id(socket))
                        self.connected.set()
                        _log.info("connected to Slack")
                    case "disconnect":
                        _log.info(
                            "Slack ends a connection (%s); the next one is opened", clean(str(envelope.get("reason")))
                        )
                        leaving.set()
                    case kind if kind in _KINDS and isinstance(envelope.get("envelope_id"), str):
                        answering.add(one := asyncio.create_task(self._answer(socket, envelope)))
                        one.add_done_callback(answering.discard)
                    case kind:
                        _log.warning("Slack sent something that nobody takes: %s", clean(str(kind)))
            if answering:
                await asyncio.wait(answering)
        finally:
            closing.cancel()
            self._greeted.discard(id(socket))
            if not self._greeted:
                self.connected.clear()
            await socket.close()
        return begun

    async def _answer(self, socket: aiohttp.ClientWebSocketResponse, envelope: JsonObject) -> None:
        """Let the listeners answer, and acknowledge with that. Without it, Slack tells the person that it failed."""
        key, payload = str(envelope["envelope_id"]), envelope.get("payload")
        if key not in self._answers:
            known = payload if isinstance(payload, dict) else {}
            self._answers[key] = asyncio.create_task(_dispatched(self._dispatch, known))
            while len(self._answers) > _REMEMBERED_MAX:
                self._answers.popitem(last=False)
        answer = await asyncio.shield(self._answers[key])
        if answer.status != 200:
            self._answers.pop(key, None)  # what comes again is tried again
            return
        reply: dict[str, Any] = {"envelope_id": key}
        if answer.body and envelope.get("accepts_response_payload"):
            reply["payload"] = orjson.loads(answer.body)
        try:
            await socket.send_str(orjson.dumps(reply).decode())
        except (ConnectionError, aiohttp.ClientError):
            _log.warning("an answer to Slack was lost with its connection; what it is about is recorded")


async def _dispatched(dispatch: Dispatch, payload: JsonObject) -> BoltResponse:
    try:
        return await dispatch(payload)
    except Exception as error:
        _log.error("a Slack interaction failed and was not acknowledged", exc_info=error)
        return BoltResponse(status=503)


def _message(message: aiohttp.WSMessage) -> JsonObject:
    """A message of Slack as an object; empty if it is none."""
    try:
        return parse_object(str(message.data).encode(), bytes_max=_ENVELOPE_BYTES_MAX, where="envelope")
    except (InputError, UnicodeEncodeError):
        return {}


async def _close(
    socket: aiohttp.ClientWebSocketResponse,
    leaving: asyncio.Event,
    stop: asyncio.Event,
    answering: set[asyncio.Task[None]],
) -> None:
    """Close the connection when we stop and all open work is answered, or some time after Slack has ended it."""
    waits = [asyncio.create_task(one.wait()) for one in (leaving, stop)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            await rest(stop, DRAIN_SECONDS)
        if answering:
            await asyncio.wait([*answering])
        await socket.close()
    finally:
        for one in waits:
            one.cancel()
