"""The cost of a connection before anybody has shown a token: raw sockets, a real server, both event loops."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import structlog
import uvloop

from app.http.application import create_app
from app.http.connections import Limits
from app.http.server import HttpServer

# Far more than any deadline here, and far less than the tests' own: reaching it means that nothing was cut.
PATIENCE = 60.0
SHORT = 0.3
LONG = 60.0
GENEROUS = Limits(LONG, LONG, LONG, connections=64, strangers=64, of_one_stranger=64)
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def _answering(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body of all but /early, and answers with its length; /large answers with 32 MiB."""
    size = 0
    scope["state"]["proved"] = scope["path"] == "/proved"
    more = scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = b"x" * (32 << 20) if scope["path"] == "/large" else str(size).encode()
    names = sorted(name for name, _ in scope["headers"])
    headers = [(b"content-length", str(len(body)).encode()), (b"x-names", b" ".join(names)[:1000])]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Client:
    """One raw connection."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(address, 0))
        self._read = bytearray()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def trickle(self, data: bytes, until: Callable[[], bool] = lambda: False) -> None:
        """A byte now and then, until the server has had enough."""
        self.socket.settimeout(0.02)
        for number in range(int(PATIENCE / 0.02)):
            try:
                self.socket.sendall(data[number % len(data) :][:1])
                received = self.socket.recv(65536)
            except TimeoutError:
                continue
            except (ConnectionError, OSError):
                return
            self._read += received
            if not received:
                return
        raise AssertionError(f"still open after {PATIENCE} seconds of a byte now and then")

    def in_pieces(self, *pieces: bytes) -> None:
        """Send what the server should not read at once."""
        for piece in pieces:
            self.send(piece)
            self.socket.settimeout(0.05)
            with suppress(TimeoutError):
                self._read += self.socket.recv(65536)

    def answer(self) -> bytes:
        """One whole answer with a content-length."""
        self.socket.settimeout(PATIENCE)
        while b"\r\n\r\n" not in self._read:
            self._more()
        head, _, _ = bytes(self._read).partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(self._read) < len(head) + 4 + length:
            self._more()
        found, self._read = self._read[: len(head) + 4 + length], self._read[len(head) + 4 + length :]
        return bytes(found)

    def _more(self) -> None:
        received = self.socket.recv(65536)
        assert received, f"closed after {bytes(self._read)!r}"
        self._read += received

    def until_closed(self) -> bytes:
        """Everything that comes until the server closes; ``TimeoutError`` if it does not."""
        self.socket.settimeout(PATIENCE)
        try:
            while received := self.socket.recv(65536):
                self._read += received
        except ConnectionError:
            pass
        return bytes(self._read)

    def is_served(self) -> bool:
        self.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return self.answer().startswith(b"HTTP/1.1 200 ")

    def close(self) -> None:
        self.socket.close()


class Server:
    def __init__(self, port: int) -> None:
        self.port = port
        self._clients: list[Client] = []

    def connect(self, address: str = "127.0.0.1") -> Client:
        self._clients.append(Client(self.port, address))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextmanager
def _served(loop: str, limits: Limits, application: Any = _answering) -> Iterator[Server]:
    """A server in a thread of its own, as a process has it."""
    ready: list[Any] = []
    begun = threading.Event()

    async def main() -> None:
        stop = asyncio.Event()
        http = HttpServer(application, "127.0.0.1", 0, limits)
        ready.extend((http.url, asyncio.get_running_loop(), stop))
        begun.set()
        await http.run(stop)

    def run() -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(PATIENCE)
    url, running, stop = ready
    server = Server(int(url.rpartition(":")[2]))
    try:
        yield server
    finally:
        server.close()
        running.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)


def served(server: Server) -> Client:
    """A connection whose first request was answered. A busy machine may let a deadline pass first: then another one."""
    for _ in range(50):
        client = server.connect()
        with suppress(AssertionError, ConnectionError):
            if client.is_served():
                return client
    raise AssertionError("no request was answered within its deadlines")


@pytest.fixture(params=sorted(LOOPS))
def serving(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A server, as ``with serving(header_seconds=…) as server``: the other bounds are generous."""
    return lambda **limits: _served(request.param, replace(GENEROUS, **limits))


def test_headers_that_trickle_are_cut(serving: Any) -> None:
    with serving(header_seconds=SHORT) as server:
        client = server.connect()
        client.trickle(b"GET / HTTP/1.1\r\nHost: x\r\nX-Endless: " + b"a" * 10_000)
        assert client.until_closed().startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"\r\n\r\n\r\n"])
def test_a_connection_that_says_nothing_is_closed(serving: Any, sent: bytes) -> None:
    with serving(header_seconds=SHORT) as server:
        client = server.connect()
        client.send(sent)
        assert client.until_closed() == b""


def test_empty_lines_do_not_keep_a_connection_open(serving: Any) -> None:
    with serving(idle_seconds=SHORT) as server:
        client = served(server)
        client.trickle(b"\r\n")


@pytest.mark.parametrize("headers", [b"Content-Length: 100000\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_that_trickles_is_cut(serving: Any, headers: bytes) -> None:
    with serving(body_seconds=SHORT) as server:
        client = server.connect()
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")
        client.trickle(b"1\r\nx\r\n")
        answer = client.until_closed()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"application/problem+json" in answer
        assert b"connection: close" in answer.lower()


def test_a_body_that_trickles_after_its_answer_is_cut(serving: Any) -> None:
    with serving(body_seconds=SHORT) as server:
        client = server.connect()
        client.send(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        assert client.answer().startswith(b"HTTP/1.1 200 ")
        client.trickle(b"x")
        assert client.until_closed() == b"", "a second answer to one request"


def test_an_idle_connection_is_closed(serving: Any) -> None:
    with serving(idle_seconds=SHORT) as server:
        client = served(server)
        assert client.until_closed() == b""


def test_the_next_request_has_a_deadline_too(serving: Any) -> None:
    with serving(header_seconds=SHORT) as server:
        client = served(server)
        client.trickle(b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000)
        assert client.until_closed().startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nX-Large: " + b"a" * 33_000,
        b"GET / HTTP/1.1\r\nX-Large: " + b"a" * 33_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (number, b"a" * 100) for number in range(400)),
        b"GET /" + b"a" * 33_000 + b" HTTP/1.1\r\n\r\n",
        b"\r\n" * 17_000,
        b"GET / HTTP/1.1\r\nX-Large: " + b"a" * 4_000_000,
    ],
)
def test_more_than_32_kib_of_headers_are_refused(serving: Any, head: bytes) -> None:
    with serving() as server:
        client = server.connect()
        with suppress(ConnectionError):  # it may be closed while this is still sending
            client.send(head)
        answer = client.until_closed()
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert b"connection: close" in answer.lower()


def test_empty_lines_after_an_answer_are_bounded_too(serving: Any) -> None:
    with serving() as server:
        client = server.connect()
        assert client.is_served()
        with suppress(ConnectionError):
            client.send(b"\r\n" * 17_000)
        answer = b"none"
        with suppress(TimeoutError):
            answer = client.until_closed()
        assert answer.startswith(b"HTTP/1.1 431 ")


def test_32_kib_of_headers_are_accepted(serving: Any) -> None:
    with serving() as server:
        client = server.connect()
        client.send(b"GET / HTTP/1.1\r\nX-Large: " + b"a" * 32_000 + b"\r\n\r\n")
        assert client.answer().startswith(b"HTTP/1.1 200 ")


def test_the_bounds_are_of_each_request_and_not_of_its_connection(serving: Any) -> None:
    body = b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"1\r\nx\r\n" for _ in range(3000)) + b"0\r\n\r\n"
    with serving() as server:
        client = server.connect()
        for _ in range(4):
            client.in_pieces(b"GET / HTTP/1.1\r\nX-Large: " + b"a" * 12_000, b"a" * 12_000, b"\r\n\r\n")
            assert client.answer().startswith(b"HTTP/1.1 200 ")
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\n" + body)
            assert client.answer().startswith(b"HTTP/1.1 200 ")
        client.send(b"GET / HTTP/1.1\r\nX-Large: " + b"a" * 33_000 + b"\r\n\r\n")
        assert client.answer().startswith(b"HTTP/1.1 431 ")


def test_trailers_and_chunk_extensions_are_bounded(serving: Any) -> None:
    begun = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving() as server:
        for endless in (b"0\r\nX-Trailer: " + b"a" * 200_000, b"1;x=" + b"a" * 200_000):
            client = server.connect()
            client.send(begun)
            with suppress(ConnectionError):  # it may be closed while this is still sending
                client.send(endless)
            assert client.until_closed().startswith(b"HTTP/1.1 400 ")


def test_a_trailer_becomes_no_header(serving: Any) -> None:
    with serving() as server:
        client = server.connect()
        client.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Late: 1\r\n\r\n")
        answer = client.answer()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"x-late" not in answer


def test_small_chunks_are_no_offence(serving: Any) -> None:
    with serving() as server:
        client = server.connect()
        client.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(b"1\r\nx\r\n" * 60_000 + b"0\r\n\r\n")
        assert client.answer().endswith(b"60000")


def test_above_the_cap_connections_are_closed_and_the_others_served(serving: Any) -> None:
    with structlog.testing.capture_logs() as lines, serving(connections=8) as server:
        kept = [server.connect() for _ in range(8)]
        assert all(client.is_served() for client in kept)
        refused = [server.connect().until_closed() for _ in range(20)]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in refused)
        assert all(client.is_served() for client in kept)
        kept[0].close()
        _eventually(lambda: server.connect().is_served())
    said = [line for line in lines if "COUNTERSEAL_HTTP_CONNECTIONS_MAX" in line["event"]]
    assert len(said) == 1, "one line, however many are refused"
    assert said[0]["log_level"] == "warning"
    assert said[0]["open"] == 8


def test_clients_who_prove_nothing_leave_room_for_those_who_have_proved_who_they_are(serving: Any) -> None:
    with serving(connections=8, strangers=6, of_one_stranger=4) as server:
        known = server.connect("127.0.0.2")
        known.send(b"GET /proved HTTP/1.1\r\nHost: x\r\n\r\n")
        assert known.answer()
        one = [server.connect() for _ in range(4)]
        assert all(client.is_served() for client in one), "a stranger has a share"
        assert server.connect().until_closed().startswith(b"HTTP/1.1 503 "), "and no more than that"
        others = [server.connect("127.0.0.3") for _ in range(2)]
        assert all(client.is_served() for client in others)
        assert server.connect("127.0.0.4").until_closed().startswith(b"HTTP/1.1 503 "), "all strangers together"
        assert server.connect("127.0.0.2").is_served(), "whoever is known gets in"
        one[0].close()
        _eventually(lambda: server.connect("127.0.0.5").is_served())


@pytest.mark.parametrize("silent", [b"", b"GET /proved HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["silent", "all proved"])
def test_a_client_who_has_proved_who_it_is_gets_in_first_and_takes_not_all_places(serving: Any, silent: bytes) -> None:
    with serving(connections=8, strangers=6, of_one_stranger=2, of_one=6) as server:
        held = [served(server)]
        held[0].send(b"GET /proved HTTP/1.1\r\nHost: x\r\n\r\n")
        assert held[0].answer()
        held += [server.connect() for _ in range(5)]
        assert all(client.is_served() for client in held), "more than a stranger"
        for client in held if silent else ():
            client.send(silent)
            assert client.answer()
        assert server.connect().until_closed().startswith(b"HTTP/1.1 503 "), "and not all of them"
        assert all(server.connect("127.0.0.2").is_served() for _ in range(2)), "others have the rest"
        held.pop().close()
        server.connect("127.0.0.2").until_closed()
        _eventually(lambda: server.connect("127.0.0.3").is_served())


def _eventually(found: Callable[[], bool]) -> None:
    """A place that became free is found free, once the server has seen that it is."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        try:
            if found():
                return
        except (AssertionError, ConnectionError):
            continue
    raise AssertionError("no place became free")


def test_behind_a_proxy_a_client_is_whom_its_header_names(serving: Any) -> None:
    with serving(connections=8, strangers=6, of_one_stranger=2, client_header="X-Forwarded-For") as server:

        def asked(client: Client, path: bytes, *named: bytes) -> bytes:
            lines = b"".join(b"X-Forwarded-For: " + one + b"\r\n" for one in named)
            client.send(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n")
            return client.answer()

        assert asked(known := server.connect(), b"/proved", b"10.0.0.9, 10.0.0.1").startswith(b"HTTP/1.1 200")
        held = [server.connect() for _ in range(3)]
        assert [asked(client, b"/", b"10.0.0.2")[9:12] for client in held] == [b"200", b"200", b"503"]
        assert asked(server.connect(), b"/", b"10.0.0.9", b"10.0.0.2").startswith(b"HTTP/1.1 503"), "the last counts"
        assert asked(known, b"/", b"10.0.0.2").startswith(b"HTTP/1.1 503"), "one connection, another client"
        more = [server.connect() for _ in range(3)]
        assert {asked(client, b"/", b"10.0.0.1")[9:12] for client in more} == {b"200"}, "whoever is known gets in"


def test_idle_connections_free_their_places(serving: Any) -> None:
    with serving(connections=8, header_seconds=SHORT) as server:
        silent = [server.connect() for _ in range(8)]
        assert [client.until_closed() for client in silent] == [b""] * 8
        _eventually(lambda: server.connect().is_served())


def test_pipelined_requests_are_not_looked_at(serving: Any) -> None:
    with serving() as server:
        client = server.connect()
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 5_000)
        answers = client.until_closed()
        assert answers.count(b"HTTP/1.1 ") == 1
        assert answers.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
def test_an_upgrade_is_answered_as_http_and_closed(serving: Any, upgrade: bytes) -> None:
    with serving() as server:
        client = server.connect()
        client.send(b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: " + upgrade + b"\r\n\r\n")
        with suppress(ConnectionError):  # it may be closed while this is still sending
            client.send(b"something else" * 100)
        answers = client.until_closed()
        assert answers.startswith(b"HTTP/1.1 200 ")
        assert answers.count(b"HTTP/1.1 ") == 1


def test_an_upgrade_does_not_swallow_a_body(serving: Any) -> None:
    with serving() as server:
        client = server.connect()
        client.send(b"POST / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc")
        assert client.until_closed().startswith(b"HTTP/1.1 400 ")


def test_an_answer_that_is_not_read_is_given_up(serving: Any) -> None:
    with serving(body_seconds=SHORT, connections=1) as server:
        client = server.connect()
        client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        _eventually(lambda: server.connect().is_served())


def test_a_slow_client_within_the_deadlines_is_served(serving: Any) -> None:
    with serving() as server:
        client = server.connect()
        for _ in range(3):
            for byte in b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello":
                client.send(bytes([byte]))
            assert client.answer().endswith(b"5")


async def test_every_route_of_the_product_is_bounded(installation: Any) -> None:
    """With and without a token, and where Slack and ServiceNow sign."""
    limits = replace(GENEROUS, body_seconds=SHORT)
    http = HttpServer(create_app(installation.app.faces), "127.0.0.1", 0, limits)
    stop = asyncio.Event()
    running = asyncio.create_task(http.run(stop))
    port = int(http.url.rpartition(":")[2])

    def cut(path: bytes) -> bytes:
        client = Client(port)
        try:
            client.send(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
            client.trickle(b"x")
            return client.until_closed()
        finally:
            client.close()

    signed = (b"/slack/events", b"/webhooks/servicenow/incidents")
    answers = await asyncio.gather(*(asyncio.to_thread(cut, path) for path in (*signed, b"/v1/runs", b"/healthz")))
    assert [answer[:12] for answer in answers[:2]] == [b"HTTP/1.1 408"] * 2
    assert answers[2].startswith(b"HTTP/1.1 401 ")
    stop.set()
    await running


async def test_what_was_refused_as_too_large_is_closed(installation: Any) -> None:
    def refused(path: bytes) -> bytes:
        client = Client(int(installation.url.rpartition(":")[2]))
        try:
            client.send(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 500_000)
            return client.until_closed()
        finally:
            client.close()

    for path in (b"/webhooks/servicenow/incidents", b"/slack/events"):
        answer = await asyncio.to_thread(refused, path)
        assert answer.startswith(b"HTTP/1.1 413 "), path
        assert b"connection: close" in answer.lower()
