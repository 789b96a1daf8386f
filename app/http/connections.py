"""Bounds of every HTTP connection, on every route, before its content is trusted: time, size and number.

uvicorn answers requests; this class counts what arrives and watches the clock. A connection is always in one phase, and
every phase but the application's own work has a deadline. Trailers are ignored, and neither pipelining nor upgrades are
offered: each would be a way around the bounds, and no client needs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any, cast

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.problems import problem

log = structlog.get_logger(__name__)

LOG_SECONDS = 60.0
# Seconds for which input of a refused client is read and dropped, so that it can read why it was refused.
LINGER_SECONDS = 1.0
# The overhead of a chunk of one byte, with something to spare.
_FRAMING_FACTOR = 8
_OF_BODIES = (b"content-length", b"transfer-encoding")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of every connection. Deadlines are for the whole phase: a byte now and then does not move them."""

    header_seconds: float = 10.0
    body_seconds: float = 10.0
    idle_seconds: float = 5.0
    header_bytes: int = 32 * 1024
    connections: int = 512


class GuardedConfig(uvicorn.Config):
    """Configures uvicorn with our bounds, and counts the connections that were refused."""

    def __init__(self, app: Any, limits: Limits, **options: Any) -> None:
        super().__init__(app, http=GuardedProtocol, timeout_keep_alive=max(1, round(limits.idle_seconds)), **options)
        self.limits = limits
        self._refused = 0
        self._logged_at = float("-inf")

    def refused(self, now: float) -> None:
        """Say that the cap is reached, once a minute at most; ``now`` is monotonic."""
        self._refused += 1
        if now - self._logged_at >= LOG_SECONDS:
            log.warning(
                "no more HTTP connections are taken: COUNTERSEAL_HTTP_CONNECTIONS_MAX are open",
                open=self.limits.connections,
                refused=self._refused,
            )
            self._refused, self._logged_at = 0, now


class _Phase(Enum):
    NEW = "new"  # connected, and nothing of a request has come
    HEAD = "head"  # the request line or a header is arriving
    BODY = "body"
    WORK = "work"  # the request is here, the answer is not
    IDLE = "idle"  # answered; the next request may come
    OVER = "over"  # all that still arrives is ignored


class _OverError(Exception):
    """Ends the parsing of a connection on which nothing more is expected."""


class GuardedProtocol(HttpToolsProtocol):
    """Gives uvicorn's protocol deadlines, bounded headers and a cap."""

    def __init__(self, config: GuardedConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self._config = config
        self._limits = config.limits
        self._phase = _Phase.NEW
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._head_bytes = 0  # raw bytes of a request until its headers are complete
        self._body_bytes = 0
        self._framed_bytes = 0  # raw bytes since the headers were complete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or answer 503 and close it if the cap is reached."""
        super().connection_made(cast("asyncio.Transport", transport))
        if len(self.connections) > self._limits.connections:
            self.connections.discard(self)
            self._config.refused(self.loop.time())
            self._say(503, "busy", "Too many connections are open; try again.")
            self._close()
            return
        self._within(self._limits.header_seconds, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._phase = _Phase.OVER
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count, parse, and judge the sizes. Data after the end is dropped."""
        if self._phase is _Phase.OVER:
            return
        if self._phase is _Phase.BODY:
            self._framed_bytes += len(data)
        else:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._phase in (_Phase.NEW, _Phase.HEAD, _Phase.IDLE) and self._head_bytes > self._limits.header_bytes:
            self._too_large()
        elif self._framed_bytes > _FRAMING_FACTOR * self._body_bytes + self._limits.header_bytes:
            self._refuse(400, "malformed", "The body is little but chunk sizes, extensions or trailers.")

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refuses; nothing, if we ended the parsing."""
        if self._phase is not _Phase.OVER:
            self._refuse(400, "malformed", msg)

    def _unsupported_upgrade_warning(self) -> None:
        # The request is answered as if it had not asked for another protocol; what follows it is not HTTP.
        self._phase = _Phase.OVER
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self._close()

    def pause_writing(self) -> None:
        """Give a client that does not read its answer as long as one that does not send its body."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that deadline: the client reads on."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def on_message_begin(self) -> None:
        """Begin a request. One that does not wait for the answer to the one before is ignored."""
        if self._phase is _Phase.WORK:
            self._phase = _Phase.OVER
            self.cycle.keep_alive = False
            raise _OverError
        if self._phase is _Phase.IDLE:
            self._within(self._limits.header_seconds, self._late)
        self._phase = _Phase.HEAD
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Trailers are ignored: they would change a request that has been let in already."""
        if self._phase is _Phase.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the application, if the headers are not too large."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.header_bytes:
            self._too_large()
            raise _OverError
        if self.parser.should_upgrade() and any(name in _OF_BODIES for name, _ in self.headers):
            # The parser would take the body for the other protocol's, and the application would see none.
            self._refuse(400, "malformed", "No other protocol is spoken here: send the request without Upgrade.")
            raise _OverError
        self._phase = _Phase.BODY
        self._head_bytes = self._body_bytes = self._framed_bytes = 0
        self._within(self._limits.body_seconds, self._late)
        super().on_headers_complete()
        self.cycle.transport = _Answering(self)

    def on_body(self, body: bytes) -> None:
        """Take part of the body, whether the application reads it or not."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Complete the request; from now on we wait for the application."""
        super().on_message_complete()
        if self.cycle.response_complete:
            self._rest()
        else:
            self._phase = _Phase.WORK
            self._stop()

    def on_response_complete(self) -> None:
        """Complete the answer. If the body is not here yet, its deadline goes on."""
        super().on_response_complete()
        if self._phase is _Phase.WORK and not self.transport.is_closing():
            self._rest()

    def close_politely(self) -> None:
        """Close after an answer; while the body is still on its way, in a manner that lets the answer be read."""
        if self._phase is _Phase.BODY:
            self._linger()
        else:
            self._close()

    def _linger(self) -> None:
        """End our side, and for a moment drop all that still arrives: closing at once could lose the answer."""
        self._phase = _Phase.OVER
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._within(LINGER_SECONDS, self.transport.abort)

    def _rest(self) -> None:
        self._phase = _Phase.IDLE
        self._within(self._limits.idle_seconds, self._late)

    def _within(self, seconds: float, otherwise: Callable[[], None]) -> None:
        self._stop()
        self._deadline = self.loop.call_later(seconds, otherwise)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _late(self) -> None:
        if self._phase is _Phase.HEAD:
            self._refuse(408, "too_slow", "The headers did not arrive in time.")
        elif self._phase is _Phase.BODY:
            self._refuse(408, "too_slow", "The body did not arrive in time.")
        else:
            self._close()

    def _too_large(self) -> None:
        self._refuse(431, "too_large", f"At most {self._limits.header_bytes} bytes of headers are accepted.")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answer instead of the application, unless it has begun to; then close."""
        if self._phase is _Phase.BODY:
            if self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True  # tells the application that the client is gone
            self.cycle.message_event.set()
        self._say(status, code, detail)
        self._linger()

    def _say(self, status: int, code: str, detail: str) -> None:
        answer = problem(status, code, detail, {"Connection": "close"})
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))

    def _close(self) -> None:
        """Close. If the client does not read, the unsent rest of the answer is given up after a while."""
        self._phase = _Phase.OVER
        self._within(self._limits.body_seconds, self.transport.abort)
        self.transport.close()


class _Answering(asyncio.Transport):
    """The transport as uvicorn's answer sees it, so that closing it loses no answer."""

    def __init__(self, protocol: GuardedProtocol) -> None:
        super().__init__()
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        self._protocol.transport.write(data)

    def is_closing(self) -> bool:
        """True if nothing more can be sent."""
        return self._protocol.transport.is_closing()

    def close(self) -> None:
        """The answer is complete, and the connection is not to be used again."""
        self._protocol.close_politely()
