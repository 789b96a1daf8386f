"""Limits of every HTTP connection, on every route, before anything authenticates it: time, size and number.

uvicorn answers requests; this module counts bytes and enforces deadlines. A connection is always in one phase, and
every phase but the application's own work has a deadline. Trailers are ignored, and pipelining and upgrades are not
supported: each would be a way around the limits, and no client needs them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.problems import phrase, problem

log = structlog.get_logger(__name__)

LOG_SECONDS = 60.0
# Seconds for which we read and drop the input of a refused client, so that it can read the refusal.
LINGER_SECONDS = 1.0
# Raw bytes allowed per body byte: the overhead of a chunk of one byte, with some reserve.
_FRAMING_FACTOR = 8
_OF_BODIES = (b"content-length", b"transfer-encoding")


# Seconds for which a client is known after a request with a valid token, login or signature (`proved` in its state).
KNOWN_SECONDS = 600.0
_KNOWN_MAX = 4096
# Behind a proxy: the stand-ins for the address of a client before its header is read, and of one without the header.
UNREAD, _UNNAMED = "?", "-"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of every connection. A deadline is for the whole phase: a slow drip of bytes does not extend it.

    ``strangers`` are the connections of clients who have not proved who they are, by default three quarters;
    ``of_one_stranger`` those of one address, by default a quarter; ``of_one`` those of one address that has proved who
    it is, by default three quarters. Behind a proxy, ``client_header`` names the header with the client's address:
    until that is read, a connection counts only among all.
    """

    header_seconds: float = 10.0
    body_seconds: float = 10.0
    idle_seconds: float = 5.0
    header_bytes: int = 32 * 1024
    connections: int = 512
    strangers: int | None = None
    of_one_stranger: int | None = None
    of_one: int | None = None
    client_header: str | None = None


class GuardedConfig(uvicorn.Config):
    """Configures uvicorn with our limits, and counts the refused connections."""

    def __init__(self, app: Any, limits: Limits, **options: Any) -> None:
        super().__init__(app, http=GuardedProtocol, timeout_keep_alive=max(1, round(limits.idle_seconds)), **options)
        self.limits = limits
        self._refused = 0
        self._logged_at = float("-inf")
        self._known: dict[str, float] = {}
        self.strangers: Counter[str] = Counter()
        self.known: Counter[str] = Counter()

    def refused(self, now: float, open_: int, address: str) -> None:
        """Log that a cap is reached, at most once a minute; ``now`` is monotonic."""
        self._refused += 1
        if now - self._logged_at >= LOG_SECONDS:
            full = open_ >= self.limits.connections
            share = "COUNTERSEAL_HTTP_CONNECTIONS_MAX" if full else "its share of COUNTERSEAL_HTTP_CONNECTIONS_MAX"
            words = f"no more HTTP connections are taken: {share} are open"
            log.warning(words, open=open_, client=address, refused=self._refused)
            self._refused, self._logged_at = 0, now

    def has_room(self, address: str, open_: int, now: float) -> bool:
        """True if this client may have one more connection; all clients have ``open_`` now."""
        if open_ > self.limits.connections:
            return False
        if address == UNREAD:
            return True
        share = max(1, self.limits.connections // 4)
        rest = max(1, self.limits.connections - share)
        if self.is_known(address, now):
            most = rest if self.limits.of_one is None else self.limits.of_one
            return self.strangers[address] + self.known[address] < most
        most = share if self.limits.of_one_stranger is None else self.limits.of_one_stranger
        all_ = rest if self.limits.strangers is None else self.limits.strangers
        return self.strangers[address] < most and self.strangers.total() < all_

    def proved(self, address: str, now: float) -> None:
        """Record that a client has proved who it is."""
        self._known.pop(address, None)  # the newest comes last
        self._known[address] = now
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def is_known(self, address: str, now: float) -> bool:
        """True if this client has proved who it is in the last minutes."""
        return now - self._known.get(address, float("-inf")) < KNOWN_SECONDS


class _Phase(Enum):
    NEW = "new"  # connected; no byte of a request has arrived
    HEAD = "head"  # the request line or a header is arriving
    BODY = "body"
    WORK = "work"  # the request is complete, the answer is not
    IDLE = "idle"  # answered; the next request may come
    OVER = "over"  # further input is ignored


class _OverError(Exception):
    """Stops the parser of a connection in phase OVER."""


class GuardedProtocol(HttpToolsProtocol):
    """Adds deadlines, bounds for headers, and a cap on connections to uvicorn's protocol."""

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
        self._address = ""
        # The group in which this connection counts: strangers, or clients that have proved who they are.
        self._among: Counter[str] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or answer 503 and close it if the cap is reached."""
        super().connection_made(cast("asyncio.Transport", transport))
        direct = "" if self.client is None else self.client[0]
        self._address, now = UNREAD if self._limits.client_header else direct, self.loop.time()
        if not self._config.has_room(self._address, len(self.connections), now):
            self.connections.discard(self)
            self._config.refused(now, len(self.connections), self._address)
            self._say(503, "busy", "Too many connections are open; try again.")
            self._close()
            return
        self._join(now)
        self._within(self._limits.header_seconds, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._phase = _Phase.OVER
        self._leave()
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes, parse them, and check the size limits. Data in phase OVER is dropped."""
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
        """Answer a request that the parser refuses; do nothing if we stopped the parser ourselves."""
        if self._phase is not _Phase.OVER:
            self._refuse(400, "malformed", msg)

    def _unsupported_upgrade_warning(self) -> None:
        # Answer the request as if it had not asked for another protocol. Ignore further bytes: they are not HTTP.
        self._phase = _Phase.OVER
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self._close()

    def pause_writing(self) -> None:
        """Start a deadline for a client that does not read its answer: as long as the one for sending a body."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the deadline of ``pause_writing``: the client is reading again."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def on_message_begin(self) -> None:
        """Begin a request. Ignore a pipelined one, sent before the previous request was answered."""
        if self._phase is _Phase.WORK:
            self._phase = _Phase.OVER
            self.cycle.keep_alive = False
            raise _OverError
        if self._phase is _Phase.IDLE:
            self._within(self._limits.header_seconds, self._late)
        self._phase = _Phase.HEAD
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Ignore trailers: they would change a request that has passed the checks already."""
        if self._phase is _Phase.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the application, if the headers are not too large."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.header_bytes:
            self._too_large()
            raise _OverError
        if self.parser.should_upgrade() and any(name in _OF_BODIES for name, _ in self.headers):
            # The parser would treat the body as data of the other protocol; the application would see an empty body.
            self._refuse(400, "malformed", "No other protocol is spoken here: send the request without Upgrade.")
            raise _OverError
        if self._limits.client_header and not self._is_let_in(self._limits.client_header.lower().encode()):
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
        """Complete the request. From now on we wait for the application, without a deadline."""
        super().on_message_complete()
        if self.cycle.response_complete:
            self._rest()
        else:
            self._phase = _Phase.WORK
            self._stop()

    def on_response_complete(self) -> None:
        """Complete the answer. If the request's body is still arriving, its deadline stays."""
        super().on_response_complete()
        if self.scope.get("state", {}).get("proved"):
            self._config.proved(self._address, self.loop.time())
            self._leave()
            self._join(self.loop.time())
        if self._phase is _Phase.WORK and not self.transport.is_closing():
            self._rest()

    def close_politely(self) -> None:
        """Close after an answer. If the body is still arriving, linger, so that the client can read the answer."""
        if self._phase is _Phase.BODY:
            self._linger()
        else:
            self._close()

    def _is_let_in(self, header: bytes) -> bool:
        """Count this connection as that of the client whom the proxy names; refuse it if the client has too many."""
        named = [value for name, value in self.headers if name.lower() == header]
        address = named[-1].decode("latin-1").rpartition(",")[2].strip()[:64] if named else ""
        address = address or _UNNAMED
        now = self.loop.time()
        if address != self._address:
            self._leave()
            self._address = address
            if not self._config.has_room(address, len(self.connections), now):
                self._config.refused(now, len(self.connections), address)
                self._refuse(503, "busy", "Too many connections are open; try again.")
                return False
            self._join(now)
        return True

    def _join(self, now: float) -> None:
        if self._address != UNREAD:
            self._among = self._config.known if self._config.is_known(self._address, now) else self._config.strangers
            self._among[self._address] += 1

    def _leave(self) -> None:
        if self._among is not None:
            self._among[self._address] -= 1
            if not self._among[self._address]:
                del self._among[self._address]
            self._among = None

    def _linger(self) -> None:
        """Shut down our sending side, then drop input for a moment: closing at once could lose the answer."""
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
        """Answer instead of the application, then close. Abort if the application has begun to answer."""
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
        lines = [f"HTTP/1.1 {status} {phrase(status)}".encode()]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))

    def _close(self) -> None:
        """Close. If the client does not read, the rest of the answer is dropped after a deadline."""
        self._phase = _Phase.OVER
        self._within(self._limits.body_seconds, self.transport.abort)
        self.transport.close()


class _Answering(asyncio.Transport):
    """The transport to which uvicorn writes its answer; its ``close`` loses no answer."""

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
        """Close politely: the answer is complete, and the connection will not be reused."""
        self._protocol.close_politely()
