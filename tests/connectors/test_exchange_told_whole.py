"""One HTTP exchange, error by error: what certainly had no effect is sent again, and what may have had is in doubt."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
from tenacity import AsyncRetrying

from connectors import exchange as exchanging
from connectors.exchange import ATTEMPTS, Answer, deadline_in, exchange, retry_after_seconds, seconds_to
from connectors.http.addresses import AllowedHost, Destination, destination
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.port import Call, InDoubt, NotSent, Outcome, Refused

pytestmark = pytest.mark.req("Q-18")


class Line(httpx.AsyncBaseTransport):
    """A connection that fails or answers in turn, before or after the request has left."""

    def __init__(self, *turns: Any, left: bool = True) -> None:
        self.turns, self.left = list(turns), left
        self.sent: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        trace = request.extensions["trace"]
        await trace("connection.connect_tcp.started", {})
        if self.left:
            await trace("http11.send_request_headers.started", {})
        turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        if isinstance(turn, Exception):
            raise turn
        if turn == "hangs":
            await asyncio.Event().wait()
        found: httpx.Response = turn
        return found


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before new attempts, which pass at once."""
    pauses: list[float] = []

    async def pass_at_once(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(exchanging, "AsyncRetrying", partial(AsyncRetrying, sleep=pass_at_once))
    return pauses


async def sent(line: Line, effect: bool, seconds: float = 5.0, **more: Any) -> Any:
    async with httpx.AsyncClient(transport=line) as client:
        request = client.build_request("POST", "https://a.example/x?secret=1", content=b"b")
        return await exchange(client, request, effect=effect, timeout_seconds=seconds, **more)


EARLY = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
LATE = (
    *(httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.ReadTimeout, httpx.WriteTimeout),
    *(httpx.RemoteProtocolError, httpx.LocalProtocolError, httpx.DecodingError, httpx.InvalidURL),
)


@pytest.mark.parametrize("kind", [*EARLY, *LATE])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("effect", [False, True])
async def test_an_error_is_judged_by_what_had_left(
    slept: list[float], kind: Callable[[str], Exception], left: bool, effect: bool
) -> None:
    line = Line(kind("boom"), left=left)
    before = not left or kind in EARLY
    words = f"POST a.example: {getattr(kind, '__name__', '')}: boom"
    assert await sent(line, effect) == (NotSent(words) if before or not effect else InDoubt(words))
    assert len(line.sent) == (ATTEMPTS if before else 1)
    assert len(slept) == len(line.sent) - 1
    assert all(0 <= pause <= 1.0 for pause in slept)


async def test_an_error_without_words_is_its_name(slept: list[float]) -> None:
    assert await sent(Line(httpx.ReadError("")), effect=True) == InDoubt("POST a.example: ReadError")


@pytest.mark.parametrize(
    ("left", "effect", "kind"), [(True, True, InDoubt), (True, False, NotSent), (False, True, NotSent)]
)
async def test_an_answer_that_does_not_come_is_not_asked_for_again(
    slept: list[float], left: bool, effect: bool, kind: Any
) -> None:
    line = Line("hangs", left=left)
    assert await sent(line, effect, 0.01) == kind("POST a.example: no answer in time")
    assert len(line.sent) == 1


async def test_an_attempt_that_was_not_sent_is_followed_by_one_that_is(slept: list[float]) -> None:
    line = Line(httpx.ConnectError("x"), httpx.Response(429, headers={"Retry-After": "2"}), httpx.Response(201))
    found = await sent(line, effect=True)
    assert (found.status, len(line.sent), slept[1]) == (201, 3, 2.0)
    once = Line(httpx.ConnectError("x"), httpx.Response(500), httpx.Response(200))
    assert await sent(once, effect=True) == InDoubt("POST a.example: the server failed (500)")
    assert len(once.sent) == 2
    left = Line(httpx.ConnectError("x"), httpx.ReadError("y"), httpx.Response(200))
    assert await sent(left, effect=True) == InDoubt("POST a.example: ReadError: y")


async def test_a_pause_that_is_longer_than_the_time_left_is_not_made(slept: list[float]) -> None:
    line = Line(httpx.Response(429, headers={"Retry-After": "2"}))
    assert await sent(line, True, 1.5) == NotSent("POST a.example: too many requests (429)", 2.0)
    assert (len(line.sent), slept) == (1, [])


async def test_each_attempt_has_the_time_that_is_left(slept: list[float]) -> None:
    for seconds, connect in ((5.0, 5.0), (30.0, 10.0)):
        line = Line(httpx.Response(302, headers={"Location": "https://evil.example"}))
        found = await sent(line, effect=False, seconds=seconds)
        assert (found.status, found.ok, len(line.sent)) == (302, False, 1), "a redirect is not followed"
        timeout = line.sent[0].extensions["timeout"]
        assert timeout == pytest.approx({"connect": connect, "read": seconds, "write": seconds, "pool": seconds}, abs=1)
        assert timeout["connect"] <= connect


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("status", [408, 500, 599])
async def test_a_read_that_fails_is_no_doubt_whether_it_had_left_or_not(
    slept: list[float], left: bool, status: int
) -> None:
    """Tell whoever asked when it may be asked again, and do not ask again at once."""
    line = Line(httpx.Response(status, headers={"Retry-After": "7"}), left=left)
    words = f"POST a.example: the server failed ({status})"
    assert await sent(line, effect=False) == NotSent(words, 7.0)
    assert await sent(line, effect=True) == InDoubt(words)
    assert (len(line.sent), slept) == (2, [])


async def test_a_deadline_is_as_near_as_it_is_said() -> None:
    """A millisecond is left at least, because a timeout of nothing would be none."""
    now = asyncio.get_running_loop().time()
    for seconds in (0.0, 0.25, 30.0):
        assert deadline_in(seconds) - now == pytest.approx(seconds, abs=0.2)
        assert deadline_in(seconds) - now < seconds + 0.5
    assert [seconds_to(now - ago) for ago in (0.1, 9.0)] == [0.001, 0.001]
    assert 8.5 < seconds_to(now + 9.0) <= 9.0


@pytest.mark.parametrize(
    ("after", "date", "seconds"),
    [
        ("Fri, 02 Jan 2026 03:04:15 GMT", "Fri, 02 Jan 2026 03:04:05 GMT", 10.0),
        ("Fri, 02 Jan 2026 03:04:05 GMT", "Fri, 02 Jan 2026 03:04:15 GMT", 0.0),
        ("Fri, 02 Jan 2026 04:04:15 +0100", "Fri, 02 Jan 2026 03:04:05 GMT", 10.0),
        ("Fri, 02 Jan 2026 03:04:15 -0000", "Fri, 02 Jan 2026 03:04:05 GMT", None),
        ("Fri, 02 Jan 2026 03:04:15 GMT", "", None),
        ("Fri, 02 Jan 2026 03:04:15 GMT", "yesterday", None),
        (" 7 ", "", 7.0),
        ("7.5", "", None),
        ("-7", "", None),
        ("\u0667", "", None),
        ("\u00b2", "", None),
        ("", "Fri, 02 Jan 2026 03:04:05 GMT", None),
    ],
)
def test_a_pause_that_cannot_be_read_is_none(after: str, date: str, seconds: float | None) -> None:
    """A time of no known zone is none, and a clock that is wrong makes no pause negative."""
    headers = httpx.Headers([(b"Retry-After", after.encode()), (b"Date", date.encode())])
    assert retry_after_seconds(headers) == seconds


async def test_what_a_request_says_of_its_connection_is_kept(slept: list[float]) -> None:
    """The name whose certificate is verified is one of these, and each attempt has it."""
    line = Line(httpx.ConnectError("x"), httpx.Response(200))
    async with httpx.AsyncClient(transport=line) as client:
        request = client.build_request("GET", "https://8.8.8.8/", extensions={"sni_hostname": "a.example"})
        await exchange(client, request, effect=False, timeout_seconds=5.0)
    assert [one.extensions["sni_hostname"] for one in line.sent] == ["a.example"] * 2


@pytest.mark.parametrize(("length", "cut"), [(0, False), (9, False), (10, False), (11, True), (200_000, True)])
async def test_a_body_is_read_to_its_limit(length: int, cut: bool) -> None:
    line = Line(httpx.Response(200, content=b"x" * length))
    found = await sent(line, effect=False, body_bytes_max=10)
    assert isinstance(found, Answer)
    assert (found.body, found.truncated) == (b"x" * min(length, 10), cut)


def test_an_answer_is_good_from_200_to_299() -> None:
    good = [code for code in range(100, 600) if Answer(code, httpx.Headers(), b"", False).ok]
    assert good == [*range(200, 300)]


# Where a request goes

ALLOWED = (AllowedHost("a.example"), AllowedHost("inner.example", 8443, allow_private=True))
PRIVATE = (
    "which is not a public address; allow private addresses for this host in COUNTERSEAL_HTTP_HOSTS if it is meant to "
    "be inside your network"
)


def resolved(*texts: str) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, 0)) for text in texts]


@pytest.mark.parametrize(
    ("url", "found", "told"),
    [
        ("https://a.example", resolved("8.8.8.8", "9.9.9.9", "8.8.8.8"), ["8.8.8.8", "9.9.9.9"]),
        ("https://a.example", resolved("2606:4700::1%eth0"), ["2606:4700::1"]),
        ("https://a.example", [], NotSent("a.example has no address")),
        ("https://a.example", OSError("no name"), NotSent("a.example does not resolve: no name")),
        ("https://a.example", UnicodeError("label"), NotSent("a.example does not resolve: label")),
        ("https://a.example", TimeoutError(), NotSent("a.example was not resolved in time")),
        (
            "https://a.example",
            resolved("8.8.8.8", "10.0.0.1", "10.0.0.2"),
            Refused("private_address", f"a.example resolves to 10.0.0.1, {PRIVATE}"),
        ),
        *(
            (
                "https://a.example",
                resolved("8.8.8.8", text),
                Refused("private_address", f"a.example resolves to {text}, {PRIVATE}"),
            )
            for text in ("100.64.0.1", "224.0.0.1", "169.254.169.254", "::1", "64:ff9b::a00:1")
        ),
        ("https://inner.example:8443/x", resolved("10.0.0.1", "127.0.0.1"), ["10.0.0.1", "127.0.0.1"]),
        ("https://inner.example:8443/x", resolved("10.0.0.1", "8.8.8.8"), ["10.0.0.1", "8.8.8.8"]),
    ],
)
async def test_a_name_leads_to_checked_addresses_or_nowhere(
    monkeypatch: pytest.MonkeyPatch, url: str, found: Any, told: Any
) -> None:
    async def look_up(*_: Any, **__: Any) -> list[Any]:
        if isinstance(found, Exception):
            raise found
        answers: list[Any] = found
        return answers

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    got = await destination(url, ALLOWED, timeout_seconds=5.0)
    if isinstance(told, list):
        assert isinstance(got, Destination)
        assert ([str(address) for address in got.addresses], got.url) == (told, httpx.URL(url))
    else:
        assert got == told


# One address after the other

AWAY, LATER = NotSent("away"), NotSent("later", 0.0)


@pytest.mark.parametrize(
    ("replies", "told", "tried"),
    [
        ([AWAY] * 9, AWAY, 4),
        ([AWAY, LATER, AWAY], LATER, 2),
        ([AWAY, InDoubt("lost")], InDoubt("lost"), 2),
        ([AWAY, AWAY, AWAY, Answer(404, httpx.Headers(), b"no", False)], Refused("http_404", "answered 404: no"), 4),
    ],
)
@pytest.mark.parametrize(("method", "effect"), [("GET", False), ("HEAD", False), ("POST", True), ("DELETE", True)])
async def test_addresses_share_the_time_of_the_call_and_four_are_tried(
    monkeypatch: pytest.MonkeyPatch, replies: list[Any], told: Outcome, tried: int, method: str, effect: bool
) -> None:
    heard, left, answers = list[Any](), iter(range(9, 0, -1)), iter(replies)

    async def answer(_: Any, request: httpx.Request, **given: Any) -> Any:
        heard.append((str(request.url), request.headers["host"], request.extensions["sni_hostname"], given))
        return next(answers)

    async def look_up(*_: Any, **__: Any) -> list[Any]:
        return resolved(*(f"8.8.8.{number}" for number in range(1, 8)))

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    monkeypatch.setattr("connectors.http.connector.exchange", answer)
    monkeypatch.setattr("connectors.http.connector.seconds_to", lambda _: next(left))
    connector = HttpConnector(HttpSettings((AllowedHost("a.example", 8443),), body_bytes_max=7))
    asked = {"method": method, "url": "https://a.example:8443/x?q=1"}
    assert await connector.perform(Call("http.request.send", {**asked}, "0" * 64, 9.0)) == told
    await connector.aclose()
    assert heard == [
        (
            f"https://8.8.8.{number}:8443/x?q=1",
            "a.example:8443",
            "a.example",
            {"effect": effect, "timeout_seconds": 10 - number, "body_bytes_max": 7},
        )
        for number in range(1, tried + 1)
    ]
