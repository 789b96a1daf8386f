from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from connectors.hosts import AllowedHost
from connectors.http.addresses import is_public, permitted
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.port import Call, Done, InDoubt, NotSent, ProbeVerdict, Refused

SEND = "http.request.send"
MakeCall = Callable[..., Call]
Build = Callable[..., HttpConnector]


@pytest.fixture
def build(closing: Callable[[Any], Any], web: Any) -> Build:
    def make(*hosts: AllowedHost) -> HttpConnector:
        allowed = hosts or (AllowedHost("127.0.0.1", web.port, allow_private=True),)
        connector: HttpConnector = closing(HttpConnector(HttpSettings(allowed, body_bytes_max=1000)))
        return connector

    return make


def post(make_call: MakeCall, url: str, **more: Any) -> Call:
    timeout = more.pop("timeout", 5.0)
    return make_call(SEND, {"method": "POST", "url": url} | more, timeout=timeout)


async def test_a_request_carries_the_idempotency_key(build: Build, make_call: MakeCall, web: Any) -> None:
    call = post(make_call, f"{web.url}/things", json={"b": 1, "a": [True]}, headers={"X-Api": "k"})
    outcome = await build().perform(call)
    assert isinstance(outcome, Done)
    assert (outcome.output["status"], outcome.output["json"]) == (201, {"n": 1})
    assert "set-cookie" not in json.dumps(outcome.output)
    [received] = web.received
    assert json.loads(received["body"]) == {"a": [True], "b": 1}
    assert received["headers"]["idempotency-key"] == call.idempotency_key
    assert received["headers"]["x-api"] == "k"
    assert received["headers"]["host"] == f"127.0.0.1:{web.port}"


async def test_get_sends_no_key_and_text_bodies_go_as_they_are(build: Build, make_call: MakeCall, web: Any) -> None:
    await build().perform(make_call(SEND, {"method": "GET", "url": f"{web.url}/things"}))
    await build().perform(make_call(SEND, {"method": "PUT", "url": f"{web.url}/things", "body": "a=b"}))
    assert "idempotency-key" not in web.received[0]["headers"]
    assert web.received[1]["body"] == "a=b"


@pytest.mark.req("Q-18")
@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("kind", [408, 500, 504, "hang", "reset"])
async def test_a_write_that_ends_badly_is_in_doubt(
    build: Build, make_call: MakeCall, web: Any, kind: Any, landed: bool
) -> None:
    web.app.fail("/things", kind, landed=landed)
    call = post(make_call, f"{web.url}/things", timeout=0.3 if kind == "hang" else 5.0)
    assert isinstance(await build().perform(call), InDoubt)
    assert len(web.app.requests) == 1
    assert (await build().probe(call, seconds_since_intent=99)).verdict is ProbeVerdict.CANNOT_TELL


@pytest.mark.req("Q-18")
@pytest.mark.parametrize("kind", [408, 500, "hang", "reset"])
async def test_a_get_that_ends_badly_may_be_repeated(build: Build, make_call: MakeCall, web: Any, kind: Any) -> None:
    web.app.fail("/things", kind)
    timeout = 0.3 if kind == "hang" else 5.0
    call = make_call(SEND, {"method": "GET", "url": f"{web.url}/things"}, timeout=timeout)
    assert isinstance(await build().perform(call), NotSent)
    assert (await build().probe(call, seconds_since_intent=0)).verdict is ProbeVerdict.NOT_APPLIED


async def test_rate_limits_and_closed_ports_were_not_sent(
    build: Build, make_call: MakeCall, web: Any, closed_url: str
) -> None:
    web.app.fail("/things", 429, Retry_After="60")
    assert isinstance(await build().perform(post(make_call, f"{web.url}/things")), NotSent)
    port = int(closed_url.rsplit(":", 1)[1])
    connector = build(AllowedHost("127.0.0.1", port, allow_private=True))
    assert isinstance(await connector.perform(post(make_call, closed_url)), NotSent)


@pytest.mark.req("Q-18")
async def test_answers_that_refuse(build: Build, make_call: MakeCall, web: Any) -> None:
    missing = await build().perform(post(make_call, f"{web.url}/missing"))
    assert missing == Refused("http_404", "answered 404: no such thing")
    away = await build().perform(post(make_call, f"{web.url}/away"))
    assert isinstance(away, Refused)
    assert "redirects (307) to /things" in away.message
    assert web.received == []


async def test_another_success_than_expected(build: Build, make_call: MakeCall, web: Any) -> None:
    outcome = await build().perform(post(make_call, f"{web.url}/things", expect_status=[200, 202]))
    assert outcome == InDoubt("answered 201, expected 200 or 202")
    read = make_call(SEND, {"method": "GET", "url": f"{web.url}/things", "expect_status": [204]})
    assert await build().perform(read) == Refused("unexpected_status", "answered 200, expected 204")


async def test_a_long_answer_is_cut_and_says_so(build: Build, make_call: MakeCall, web: Any) -> None:
    outcome = await build().perform(make_call(SEND, {"method": "GET", "url": f"{web.url}/large"}))
    assert isinstance(outcome, Done)
    assert outcome.output["truncated"] is True
    assert outcome.output["body"] == "x" * 1000
    assert "json" not in outcome.output


@pytest.mark.parametrize("name", ["Host", "idempotency-key", "Content-Length", "X\r\nY"])
async def test_headers_that_cannot_be_given(build: Build, make_call: MakeCall, web: Any, name: str) -> None:
    outcome = await build().perform(post(make_call, f"{web.url}/things", headers={name: "x"}))
    assert isinstance(outcome, Refused)
    assert outcome.code == "invalid_header"
    smuggled = await build().perform(post(make_call, f"{web.url}/things", headers={"X-A": "x\r\nHost: evil"}))
    assert isinstance(smuggled, Refused)
    assert web.app.requests == []


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://other.example/", "host_not_allowed"),
        ("http://127.0.0.1:1/", "host_not_allowed"),
        ("http://127.0.0.1.evil.example/", "host_not_allowed"),
        ("http://127.0.0.1@evil.example/", "invalid_url"),
        ("http://user:pw@127.0.0.1/", "invalid_url"),
        ("file:///etc/passwd", "invalid_url"),
        ("http://", "invalid_url"),
        ("http://[::1", "invalid_url"),
    ],
)
async def test_what_is_not_allowed_is_not_called(
    build: Build, make_call: MakeCall, web: Any, url: str, code: str
) -> None:
    outcome = await build().perform(post(make_call, url))
    assert isinstance(outcome, Refused)
    assert outcome.code == code
    assert web.app.requests == []


@pytest.mark.parametrize(
    ("rule", "urls", "others"),
    [
        (AllowedHost("a.example"), ["https://a.example/", "http://A.example:80/"], ["https://a.example:8443/"]),
        (
            AllowedHost("a.example", 8443),
            ["https://a.example:8443/"],
            ["https://a.example/", "https://a.example:8444/"],
        ),
        (AllowedHost("[::1]", 8080), ["http://[::1]:8080/"], ["http://[::1]/", "http://[::2]:8080/"]),
    ],
)
def test_a_host_is_allowed_at_its_one_port(rule: AllowedHost, urls: list[str], others: list[str]) -> None:
    for url in urls:
        assert not isinstance(permitted(url, [rule]), Refused), url
    for url in others:
        refused = permitted(url, [rule])
        assert isinstance(refused, Refused), url
        assert refused.code == "host_not_allowed"


async def test_with_nothing_allowed_everything_is_refused(
    closing: Callable[[Any], Any], make_call: MakeCall, web: Any
) -> None:
    connector = closing(HttpConnector(HttpSettings()))
    outcome = await connector.perform(post(make_call, f"{web.url}/things"))
    assert isinstance(outcome, Refused)
    assert "COUNTERSEAL_HTTP_HOSTS" in outcome.message
    assert "no host is allowed" in (await connector.check())[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1"])
async def test_an_allowed_name_may_still_not_lead_inside(
    build: Build, make_call: MakeCall, web: Any, host: str
) -> None:
    outcome = await build(AllowedHost(host, web.port)).perform(post(make_call, f"http://{host}:{web.port}/things"))
    assert isinstance(outcome, Refused)
    assert outcome.code == "private_address"
    assert web.app.requests == []


async def test_the_address_that_was_judged_is_the_one_that_is_called(
    build: Build, make_call: MakeCall, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["127.0.0.1", "10.0.0.1"]

    async def rebinding(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "rebind.example"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebinding)
    connector = build(AllowedHost("rebind.example", web.port, allow_private=True))
    outcome = await connector.perform(post(make_call, f"http://REBIND.example:{web.port}/things"))
    assert isinstance(outcome, Done)
    assert web.received[0]["headers"]["host"] == f"rebind.example:{web.port}"
    assert answers == ["10.0.0.1"]


@pytest.mark.parametrize(("name", "trusted"), [("pinned.example", True), ("other.example", False)])
async def test_a_pinned_address_must_prove_the_name(
    closing: Callable[[Any], Any],
    make_call: MakeCall,
    secure_web: Any,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    trusted: bool,
) -> None:
    async def here(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", here)
    allowed = (AllowedHost(name, secure_web.port, allow_private=True),)
    connector = closing(HttpConnector(HttpSettings(allowed)))
    outcome = await connector.perform(post(make_call, f"https://{name}:{secure_web.port}/things"))
    assert isinstance(outcome, Done if trusted else NotSent)
    assert len(secure_web.received) == trusted


@pytest.mark.parametrize(("closed", "reached"), [(0, True), (1, True), (3, True), (4, False)])
async def test_the_next_address_is_tried_where_nothing_was_sent(
    build: Build, make_call: MakeCall, web: Any, monkeypatch: pytest.MonkeyPatch, closed: int, reached: bool
) -> None:
    """Four addresses at most; nobody listens at the closed ones."""

    async def several(host: str, port: int, **_: Any) -> list[Any]:
        names = [*(f"127.0.0.{number}" for number in range(2, 2 + closed)), "127.0.0.1"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in names]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", several)
    connector = build(AllowedHost("many.example", web.port, allow_private=True))
    outcome = await connector.perform(post(make_call, f"http://many.example:{web.port}/things", timeout=20.0))
    assert isinstance(outcome, Done) is reached, outcome
    assert len(web.app.requests) == reached


async def test_the_addresses_of_a_name_share_the_time_of_one_call(
    build: Build, make_call: MakeCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []

    async def three(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"8.8.8.{number}", port)) for number in range(3)]

    async def nobody(*_: Any, timeout_seconds: float, **__: Any) -> NotSent:
        left.append(timeout_seconds)
        return NotSent("nobody listens")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", three)
    monkeypatch.setattr("connectors.http.connector.exchange", nobody)
    outcome = await build(AllowedHost("many.example")).perform(post(make_call, "http://many.example/", timeout=9.0))
    assert isinstance(outcome, NotSent)
    assert len(left) == 3
    assert left == sorted(left, reverse=True)
    assert max(left) < 9.0, "what was spent on the name is not given again"


async def test_each_request_proves_its_name_on_a_connection_of_its_own(
    build: Build, make_call: MakeCall, web: Any
) -> None:
    """A kept connection was verified for one name, and the next request may be for another at the same address."""
    connector = build()
    for _ in range(2):
        assert isinstance(await connector.perform(post(make_call, f"{web.url}/things")), Done)
    assert len(web.app.connections) == 2


async def test_one_inner_address_among_others_is_enough_to_refuse(
    build: Build, make_call: MakeCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mixed(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in ("93.184.216.34", "10.0.0.1")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", mixed)
    outcome = await build(AllowedHost("mixed.example")).perform(post(make_call, "http://mixed.example/"))
    assert isinstance(outcome, Refused)
    assert "10.0.0.1" in outcome.message


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::808:808", True),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
        ("2002:808:808::", False),
        ("2001:0:808:808::f5ff:fffe", False),
        ("::8.8.8.8", False),
        ("64:ff9b:1::808:808", False),
        ("fec0::1", False),
        ("168.63.129.16", False),
    ],
)
def test_public_addresses(text: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(text)) is public
