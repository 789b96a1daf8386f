"""Socket Mode: connections that the app opens, and the envelopes that come over them.

It is at least as nasty as Slack: it sends envelopes twice, sends again what is not acknowledged in time, sends words
that the app does not know, says that it will close a connection and goes on using it, or breaks one without a word.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from typing import Final

from aiohttp import WSMsgType, web

from sandbox.slack_state import JsonObject

_TRIES: Final = 3


class Sockets:
    """The connections of one app. ``twice``: each envelope comes twice. ``lose``: so many acknowledgements get lost.

    ``refuses``: so many connections are broken before Slack says hello.
    """

    def __init__(self, ack_seconds: float) -> None:
        self.ack_seconds = ack_seconds
        self.twice = False
        self.lose = 0
        self.refuses = 0
        self.opened = 0
        self.acknowledged: list[str] = []
        self.open: list[web.WebSocketResponse] = []
        self._tickets: set[str] = set()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def address(self) -> str:
        """A new address, for one connection."""
        if self._runner is None:
            application = web.Application()
            application.router.add_get("/link/", self._link)
            self._runner = web.AppRunner(application, shutdown_timeout=0.1)
            await self._runner.setup()
            site = web.TCPSite(self._runner, "127.0.0.1", 0)
            await site.start()
            self._port = self._runner.addresses[0][1]
        ticket = secrets.token_urlsafe(8)
        self._tickets.add(ticket)
        return f"ws://127.0.0.1:{self._port}/link/?ticket={ticket}"

    async def close(self) -> None:
        """Break every connection, and stop."""
        for socket in [*self.open]:
            await self.drop(socket)
        if self._runner is not None:
            await self._runner.cleanup()

    async def connected(self, count: int = 1, *, opened: int = 0) -> None:
        """Wait until so many connections are open, and so many were opened in all."""
        while len(self.open) != count or self.opened < opened:
            self._changed.clear()
            await self._changed.wait()

    async def deliver(self, kind: str, payload: JsonObject) -> bytes | None:
        """Send an envelope to any connection; the payload of its acknowledgement, or None if none came in time.

        An event is sent again then, as Slack does, and so is whatever went over a connection that broke.
        """
        key = secrets.token_hex(8)
        envelope = {"envelope_id": key, "type": kind, "payload": payload, "accepts_response_payload": True}
        self._waiting[key] = asyncio.get_running_loop().create_future()
        for attempt in range(_TRIES):
            if not self.open:
                return None
            socket = random.choice(self.open)
            await self._send(socket, {**envelope, "retry_attempt": attempt})
            if self.twice:
                await self._send(random.choice(self.open), {**envelope, "retry_attempt": attempt})
            done, _ = await asyncio.wait({self._waiting[key]}, timeout=self.ack_seconds)
            if done:
                return self._waiting.pop(key).result()
            if kind != "events_api" and socket in self.open and not self.twice:
                break
        self._waiting.pop(key)
        return None

    async def refresh(self, *, reason: str = "refresh_requested") -> None:
        """Say on every connection that it will be closed. It stays open, and is still used, until the app leaves it."""
        for socket in [*self.open]:
            await self._send(socket, {"type": "disconnect", "reason": reason, "debug_info": {"host": "sandbox"}})

    async def drop(self, socket: web.WebSocketResponse | None = None) -> None:
        """Break a connection without a word."""
        for one in [socket] if socket is not None else [*self.open]:
            self._left(one)
            if (request := getattr(one, "_req", None)) is not None and request.transport is not None:
                request.transport.abort()

    async def _send(self, socket: web.WebSocketResponse, envelope: JsonObject) -> None:
        try:
            await socket.send_str(json.dumps(envelope))
        except (ConnectionError, RuntimeError):
            self._left(socket)

    def _left(self, socket: web.WebSocketResponse) -> None:
        if socket in self.open:
            self.open.remove(socket)
        self._changed.set()

    async def _link(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=403)
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.opened += 1
        if self.refuses > 0:
            self.refuses -= 1
            self._changed.set()
            await socket.close()
            return socket
        await socket.send_str("not JSON")
        await socket.send_str(json.dumps({"type": "something_new", "payload": None}))
        await socket.send_str(json.dumps({"type": "hello", "num_connections": len(self.open) + 1}))
        self.open.append(socket)
        self._changed.set()
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                self._acknowledge(json.loads(message.data))
        self._left(socket)
        return socket

    def _acknowledge(self, reply: JsonObject) -> None:
        key, waiting = str(reply["envelope_id"]), self._waiting.get(str(reply["envelope_id"]))
        if self.lose > 0:
            self.lose -= 1
            return
        self.acknowledged.append(key)
        if waiting is not None and not waiting.done():
            waiting.set_result(json.dumps(reply["payload"]).encode() if "payload" in reply else b"")
