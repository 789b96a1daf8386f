"""A connection's life, whole: after each step its phase, its deadlines, what was said, and whether it was closed.

Time and the network are played: ``whole_connections.json`` holds what each story makes of them.
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from pathlib import Path
from typing import Any, cast

import pytest
from uvicorn.server import ServerState

from app.http.connections import GuardedConfig, GuardedProtocol, Limits
from app.http.server import HttpServer
from core.errors import ConfigurationError
from tests.support.whole import as_it_was

EXPECTED = Path(__file__).with_name("whole_connections.json")
LIMITS = Limits(header_seconds=1, body_seconds=2, idle_seconds=4, header_bytes=200, connections=2)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
EARLY = POST.replace(b"/ ", b"/early ")
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"Connection: upgrade\r\nUpgrade: h2c\r\n"


class Timer:
    """A deadline that comes when the story says so."""

    def __init__(self, clock: Clock, seconds: float, call: Any) -> None:
        self.seconds, self.call = seconds, call
        self._clock = clock
        clock.timers.append(self)

    def cancel(self) -> None:
        if self in self._clock.timers:
            self._clock.timers.remove(self)

    def __str__(self) -> str:
        return f"{self.call.__name__} in {self.seconds:g}"


class Clock:
    """A loop whose time is played."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def time(self) -> float:
        return 100.0

    def call_later(self, seconds: float, call: Any) -> Timer:
        return Timer(self, seconds, call)

    def create_task(self, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coroutine)


class Wire(asyncio.Transport):
    """The other end, which keeps what came and what happened."""

    def __init__(self) -> None:
        super().__init__()
        self.came = b""
        self.did: list[str] = []

    def write(self, data: Any) -> None:
        self.came += bytes(data)

    def is_closing(self) -> bool:
        return bool({"close", "abort"} & {*self.did})

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.did.append("close")

    def abort(self) -> None:
        self.did.append("abort")

    def write_eof(self) -> None:
        self.did.append("eof")

    def pause_reading(self) -> None:
        self.did.append("pause")

    def resume_reading(self) -> None:
        self.did.append("resume")


class Story:
    """One connection, played step by step."""

    def __init__(self, others: int = 0) -> None:
        self._clock, self._wire, self._ready = Clock(), Wire(), asyncio.Event()
        self._calls: list[str] = []
        state = ServerState()
        self._config = GuardedConfig(self._application, LIMITS, interface="asgi3", ws="none", log_config=None)
        self._protocol = GuardedProtocol(self._config, state, {}, cast("Any", self._clock))
        for number in range(others):
            state.connections.add(cast("Any", number))
        self._connections, self._tasks = state.connections, state.tasks

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        """Reads all but of /early, and of /part answers half before; waits until the story lets it answer."""
        path, more, size = scope["path"], scope["path"] not in ("/early", "/part"), 0
        names = " ".join(sorted(name.decode() for name, _ in scope["headers"]))
        head = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
        if path == "/part":
            await send(head)
            await send({"type": "http.response.body", "body": b"o", "more_body": True})
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._calls.append(f"{path} was left")
                return
            size += len(message["body"])
            more = message["more_body"]
        self._calls.append(f"{path} with {size} bytes and {names}")
        await self._ready.wait()
        self._ready.clear()
        if path != "/part":
            await send(head)
        await send({"type": "http.response.body", "body": b"k" if path == "/part" else b"ok"})

    async def play(self, step: Any) -> list[Any]:
        """Play a step: bytes that come, ``made``, ``lost``, ``answers``, ``writing`` waits or goes, or a deadline."""
        if isinstance(step, bytes):
            self._protocol.data_received(step)
        elif step == "made":
            self._protocol.connection_made(self._wire)
        elif step == "lost":
            self._protocol.connection_lost(None)
        elif step == "answers":
            self._ready.set()
        elif step in ("pause_writing", "resume_writing"):
            getattr(self._protocol, step)()
        else:
            (due,) = [timer for timer in self._clock.timers if timer.call.__name__ == step]
            self._clock.timers.remove(due)
            due.call()
        for _ in range(9):
            await asyncio.sleep(0)
        return self._told()

    def _told(self) -> list[Any]:
        said = re.sub(rb"date: [^\r]*\r\n|server: [^\r]*\r\n", b"", self._wire.came).decode().split("\r\n")
        did, calls = list(self._wire.did), list(self._calls)
        closing = self._wire.is_closing()
        self._wire.came, self._wire.did = b"", ["close"] if closing else []
        self._calls.clear()
        timers = sorted(str(timer) for timer in self._clock.timers if "keep_alive" not in timer.call.__name__)
        return [self._protocol._phase.value, timers, said if said != [""] else [], did, calls]

    async def end(self) -> None:
        """Leave nothing that runs."""
        self._protocol.connection_lost(None)
        self._ready.set()
        await asyncio.gather(*self._tasks)

    @property
    def open(self) -> int:
        """The number of connections that count."""
        return len(self._connections)


STORIES: dict[str, list[Any]] = {
    "two requests": [GET, "answers", GET, "answers", "_late"],
    "nothing comes": ["_late"],
    "only empty lines": [b"\r\n" * 3, "_late"],
    "headers do not end": [GET[:20], GET[20:25], "_late", b"more", "abort"],
    "the next headers do not end": [GET, "answers", GET[:20], "_late"],
    "empty lines keep nothing open": [GET, "answers", b"\r\n", "_late"],
    "a body in pieces": [POST, b"ab", b"cd", "answers", "lost"],
    "a body does not end": [POST, b"ab", "_late", "abort"],
    "a large body does not end": [
        POST.replace(b": 4", b": 100000"), b"x" * 70_000, "_late", "abort",
    ],
    "a large body that nobody reads does not end": [
        EARLY.replace(b": 4", b": 100000"), b"x" * 70_000, "_late", b"x" * 10, "abort",
    ],
    "an answer before the body": [EARLY, "answers", b"ab", b"cd", GET, "answers"],
    "a body does not end after its answer": [EARLY, "answers", b"ab", "_late"],
    "a body does not end within its answer": [POST.replace(b"/ ", b"/part "), b"ab", "_late"],
    "the answer to the last request": [GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), "answers", "abort"],
    "the answer to the last request before its body": [
        EARLY.replace(b"Host: x", b"Connection: close"), "answers", b"ab", "abort",
    ],
    "headers as large as can be": [GET.replace(b"x\r", b"x" * 191 + b"\r"), "answers"],
    "headers a byte too large": [GET.replace(b"x\r", b"x" * 192 + b"\r"), "abort"],
    "a head that does not end and is too large": [b"GET / HTTP/1.1\r\nX: ", b"x" * 181, b"x", b"x", "abort"],
    "an address too large": [b"GET /" + b"a" * 200],
    "empty lines too many": [b"\r\n" * 100, b"\r\n"],
    "empty lines too many after an answer": [GET, "answers", b"\r\n" * 100, b"\r\n"],
    "a large head after a large head": [GET.replace(b"x\r", b"x" * 170 + b"\r"), "answers"] * 2,
    "one chunk": [CHUNKED, b"4\r\nabcd\r\n0\r\n\r\n", "answers"],
    "tiny chunks": [CHUNKED, b"1\r\nx\r\n" * 60, b"0\r\n\r\n", "answers"],
    "an extension without a body": [CHUNKED, b"1;x=" + b"a" * 196, b"a", "abort"],
    "an extension eight times the body": [CHUNKED, b"1;x=" + b"a" * 199 + b"\r\nx\r\n", b"0", "abort"],
    "extensions as large as can be, twice": [
        CHUNKED, b"1;x=" + b"a" * 160 + b"\r\nx\r\n0\r\n\r\n", "answers",
        CHUNKED, b"1;x=" + b"a" * 160 + b"\r\nx\r\n0\r\n\r\n", "answers",
    ],
    "trailers": [CHUNKED, b"1\r\nx\r\n0\r\nX-Late: 1\r\n\r\n", "answers"],
    "trailers too large": [CHUNKED, b"0\r\nX: " + b"a" * 200],
    "what is no request": [b"nonsense\r\n\r\n", b"more", "abort"],
    "what is no chunk": [CHUNKED, b"x\r\n", "abort"],
    "two requests at once": [GET * 2, GET, "answers", "abort"],
    "a request before the answer": [GET, GET, "answers"],
    "another protocol": [GET.replace(b"Host: x\r\n", UPGRADE), b"\x00\x01", "answers", "abort"],
    "another protocol with a body": [POST.replace(b"Host: x\r\n", UPGRADE) + b"abcd", "abort"],
    "another protocol with chunks": [CHUNKED.replace(b"\r\n\r\n", b"\r\n" + UPGRADE + b"\r\n")],
    "a client that does not read": [GET, "pause_writing", "answers", "abort"],
    "a client that reads on": [GET, "pause_writing", "resume_writing", "answers", "pause_writing", "lost"],
    "a client that leaves": [POST, "lost"],
}  # fmt: skip


@pytest.mark.req("Q-1")
async def test_each_step_of_a_connection_makes_of_it_what_it_made() -> None:
    found: dict[str, Any] = {}
    for name, steps in STORIES.items():
        story = Story()
        found[name] = [["made", *await story.play("made")]]
        found[name] += [[_shown(step), *await story.play(step)] for step in steps]
        await story.end()
    as_it_was(EXPECTED, found)


def _shown(step: Any) -> str:
    return f"{len(step)} bytes" if isinstance(step, bytes) else str(step)


@pytest.mark.parametrize(("others", "taken"), [(0, True), (1, True), (2, False), (3, False)])
async def test_a_connection_beyond_the_cap_is_told_so_and_does_not_count(others: int, taken: bool) -> None:
    story = Story(others)
    phase, timers, said, did, _ = await story.play("made")
    assert story.open == others + taken
    if taken:
        assert (phase, timers, said, did) == ("new", ["_late in 1"], [], [])
        return
    assert (phase, timers, did) == ("over", ["abort in 2"], ["close"])
    assert said[0] == "HTTP/1.1 503 Service Unavailable"
    assert {"connection: close", "retry-after: 1", "content-type: application/problem+json"} <= set(said)
    assert '"code":"busy"' in said[-1]
    assert await story.play(GET) == ["over", ["abort in 2"], [], ["close"], []], "and is not listened to"


async def _silent(*_: object) -> None:
    raise AssertionError


OPTIONS = ("loop", "ws", "lifespan", "log_config", "access_log", "server_header", "backlog", "timeout_keep_alive")


@pytest.mark.parametrize(
    ("host", "family", "shown"), [("127.0.0.1", "AF_INET", "127.0.0.1"), ("::1", "AF_INET6", "[::1]")]
)
async def test_a_server_listens_before_it_serves_and_closes_when_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, host: str, family: str, shown: str
) -> None:
    try:
        made = HttpServer(_silent, host, 0, LIMITS)
    except ConfigurationError:
        assert host == "::1"
        pytest.skip(f"there is no {host} here")
    listening, config = made._socket, made._server.config
    assert isinstance(config, GuardedConfig)
    assert (listening.family.name, listening.proto) == (family, socket.IPPROTO_TCP)
    assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) != 0
    assert made.url == f"http://{shown}:{listening.getsockname()[1]}"
    assert {name: getattr(config, name) for name in OPTIONS} == {
        "loop": "none", "ws": "none", "lifespan": "off", "log_config": None, "access_log": False,
        "server_header": False, "backlog": 128, "timeout_keep_alive": 4,
    }  # fmt: skip
    assert (config.timeout_graceful_shutdown, config.limits, config.http) == (10, LIMITS, GuardedProtocol)
    served: list[Any] = []

    async def serve(sockets: Any) -> None:
        served.append(sockets)
        stop.set()
        for _ in range(9):
            await asyncio.sleep(0)
        assert made._server.should_exit

    stop = asyncio.Event()
    monkeypatch.setattr(made._server, "serve", serve)
    await made.run(stop)
    assert served == [[listening]]
    assert listening.fileno() == -1, "closed"
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with made._server.capture_signals():
        after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert after == before, "signals are left alone"


def test_a_place_that_cannot_be_listened_on_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for host, number, why in (("127.0.0.1", port, "Address already in use"), ("a" * 64, 0, "")):
            with pytest.raises(ConfigurationError) as refused:
                HttpServer(_silent, host, number)
            assert refused.value.message.startswith(f"{host}:{number} cannot be listened on: {why}")
            assert refused.value.remedy == "Set COUNTERSEAL_PORT (0 takes a free port) or COUNTERSEAL_HOST."
    with HttpServer(_silent, "127.0.0.1", 0)._socket as free:
        assert free.getsockname()[1] != port
