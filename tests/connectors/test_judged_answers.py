"""Answers and what a connector makes of them, told whole and without a server: limits from both sides, each word."""

from __future__ import annotations

import ipaddress
from typing import Any

import httpx
import pytest
from slack_sdk.errors import SlackApiError

from connectors import exchange as exchanging
from connectors.bpmn import client as bpmn_client
from connectors.bpmn.client import BpmnSettings, EngineClient, plain, typed, value_of
from connectors.bpmn.connector import _completion
from connectors.exchange import Answer, _Attempt, _judge, harmless, http_url, json_of, public_address
from connectors.exchange import retry_after_seconds as asked_pause
from connectors.http.addresses import AllowedHost, is_public, permitted
from connectors.http.connector import HttpConnector, HttpSettings, _outcome, _prepare, _request
from connectors.model import connector as model
from connectors.model.tools import ARGUMENT_BYTES_MAX, CALLS_MAX, misuse, tool_calls
from connectors.port import (
    NOT_CONFIGURED,
    Before,
    Completion,
    Connectors,
    Done,
    InDoubt,
    NothingBefore,
    NotSent,
    Probe,
    ProbeVerdict,
    Refused,
    Usage,
)
from connectors.records.connector import RecordsConnector
from connectors.servicenow import client as now_client
from connectors.servicenow.client import BasicAuth, ClientCredentials, ServiceNowSettings
from connectors.servicenow.connector import _done, marker
from connectors.servicenow.connector import _judge as judged_record
from connectors.slack.connector import _bears, _classify, _seconds, opaque
from connectors.transform.connector import TransformConnector
from core.canonical import JsonObject
from core.errors import ConfigurationError, InputError, TransportError
from tests.connectors.conftest import KEY
from tests.support.calls import Call

CANNOT_TELL, APPLIED, NOT_APPLIED = ProbeVerdict.CANNOT_TELL, ProbeVerdict.APPLIED, ProbeVerdict.NOT_APPLIED


def answer(status: int, body: bytes = b"", *, truncated: bool = False, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, httpx.Headers(named), body, truncated)


# One exchange


def test_a_status_says_whether_anything_was_done() -> None:
    told = {
        (status, effect): _judge(answer(status), effect, "POST a.example")
        for status in (200, 400, 407, 408, 409, 428, 499, 500, 503, 599)
        for effect in (True, False)
    }
    failed = {status: f"POST a.example: the server failed ({status})" for status in (408, 500, 503, 599)}
    assert {key: attempt.again for key, attempt in told.items() if attempt.again} == {}
    for (status, effect), attempt in told.items():
        if status not in failed:
            assert attempt.reply == answer(status)
        else:
            assert attempt.reply == (InDoubt(failed[status]) if effect else NotSent(failed[status], None))


@pytest.mark.req("Q-18")
@pytest.mark.parametrize("effect", [True, False])
def test_too_many_requests_are_asked_again_after_a_short_pause(effect: bool) -> None:
    told = {text: _judge(answer(429, retry_after=text), effect, "GET a") for text in ("", "0", "1", "2", "3")}
    words = "GET a: too many requests (429)"
    assert told == {
        "": _Attempt(NotSent(words, None), again=False),
        "0": _Attempt(NotSent(words, 0.0), again=True),
        "1": _Attempt(NotSent(words, 1.0), again=True),
        "2": _Attempt(NotSent(words, 2.0), again=True),
        "3": _Attempt(NotSent(words, 3.0), again=False),
    }
    late = _judge(answer(503, retry_after="9"), effect, "GET a")
    assert late.reply == (InDoubt("GET a: the server failed (503)") if effect else NotSent(_failed(503), 9.0))


def _failed(status: int) -> str:
    return f"GET a: the server failed ({status})"


def test_a_pause_is_seconds_or_a_date_by_their_own_clock() -> None:
    date = "Fri, 02 Jan 2026 03:04:05 GMT"
    cases = {
        ("7", ""): 7.0,
        (" 7 ", ""): 7.0,
        ("0", ""): 0.0,
        ("-7", ""): None,
        ("1.5", ""): None,
        ("\u0667", ""): None,
        ("", date): None,
        ("soon", date): None,
        (date, ""): None,
        (date, date): 0.0,
        ("Fri, 02 Jan 2026 03:05:35 GMT", date): 90.0,
        ("Fri, 02 Jan 2026 03:04:04 GMT", date): 0.0,
    }
    for (pause, dated), seconds in cases.items():
        sent = [(b"Retry-After", pause.encode()), (b"Date", dated.encode())]
        assert asked_pause(httpx.Headers(sent)) == seconds, pause
    assert asked_pause(httpx.Headers()) is None
    for pause in (date, "soon", "", "-7", "\u00b2"):
        assert asked_pause(httpx.Headers([(b"Retry-After", pause.encode())])) is None, "an answer that is not dated"
    assert asked_pause(httpx.Headers({"Date": date})) is None


def refuse(found: Answer) -> Refused:
    return Refused(f"http_{found.status}", found.words() or "no words")


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (NotSent("away", 3.0), NotSent("away", 3.0)),
        (InDoubt("lost"), InDoubt("lost")),
        (Refused("no", "no"), Refused("no", "no")),
        (answer(199, b"{}"), Refused("http_199", "no words")),
        (answer(200, b'{"a": [1]}'), {"a": [1]}),
        (answer(299, b"[]"), []),
        (answer(300, b"{}"), Refused("http_300", "no words")),
        (answer(204, b""), None),
        (answer(204, b"junk"), None),
        (answer(204, truncated=True), InDoubt("Crm's answer is longer than 9 bytes; ask for less")),
        (answer(200, b"{}", truncated=True), InDoubt("Crm's answer is longer than 9 bytes; ask for less")),
        (answer(400, b'{"error": {"message": "m", "detail": "d"}}', truncated=True), Refused("http_400", "m: d")),
        (answer(400, b'{"error": {"message": "", "detail": "d"}}'), Refused("http_400", "d")),
        (answer(400, b'{"error": {"message": 7}}'), Refused("http_400", "7")),
        (answer(400, b'{"error": "m"}'), Refused("http_400", "no words")),
        (answer(400, b"[1]"), Refused("http_400", "no words")),
        (answer(400, b"<html>"), Refused("http_400", "no words")),
    ],
)
def test_an_answer_is_json_or_a_failure(reply: Any, told: Any) -> None:
    assert json_of(reply, "Crm", refuse, bytes_max=9 if isinstance(reply, Answer) and reply.truncated else 99) == told


def test_a_page_instead_of_json_is_in_doubt_and_a_reading_is_not() -> None:
    page = json_of(answer(200, b"<html>"), "Crm", refuse)
    assert isinstance(page, InDoubt)
    assert page.message.startswith("Crm's answer")
    long = json_of(answer(200, b'"abcdefgh"'), "Crm", refuse, bytes_max=9)
    assert isinstance(long, InDoubt)
    assert json_of(answer(200, b'"abcdefg"'), "Crm", refuse, bytes_max=9) == "abcdefg"
    assert harmless(InDoubt("lost")) == NotSent("lost", None)
    for same in (NotSent("away", 3.0), Refused("no", "no"), {"a": 1}, None):
        assert harmless(same) == same


def test_an_address_is_named_without_its_secret() -> None:
    assert {text: public_address(text, "bot") for text in ("https://a:b@c.example:8443/x/?q=1#f", "http://c/")} == {
        "https://a:b@c.example:8443/x/?q=1#f": "https://c.example:8443/x as bot",
        "http://c/": "http://c as bot",
    }
    assert public_address("https://c.example", "") == public_address("https://c.example") == "https://c.example"


NO_ADDRESSES = ["c.example", "ftp://c.example", "https://", "//c.example", "https://a.example:port", ""]


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_an_address_that_is_none_names_its_setting(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        http_url(text, "the address", "COUNTERSEAL_X_URL", "https://x.example")
    assert caught.value.message == f"the address {text!r} is not an http(s) URL."
    assert caught.value.remedy == "Set COUNTERSEAL_X_URL, such as https://x.example."
    for good in ("http://c.example", "https://c.example/x"):
        assert str(http_url(good, "the address", "COUNTERSEAL_X_URL", "")) == good


def test_limits_of_an_exchange_are_these() -> None:
    told = (exchanging.ATTEMPTS, exchanging.RETRY_AFTER_SECONDS_MAX, exchanging.CONNECT_SECONDS_MAX)
    assert (*told, exchanging.BODY_BYTES_MAX) == (3, 2.0, 10.0, 4 * 1024 * 1024)


# The port


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        (Refused("forbidden", "no right"), None),
        (InDoubt("no right"), 15.0),
        (NotSent("no right"), 15.0),
        (NotSent("no right", 0.0), 15.0),
        (NotSent("no right", 4.0), 4.0),
        (NotSent("no right", 400.0), 400.0),
    ],
)
def test_what_could_not_be_asked_is_asked_again_unless_it_refused(failure: Any, again: float | None) -> None:
    assert Probe.unreadable("it failed", failure) == Probe(CANNOT_TELL, "it failed: no right", None, again)


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (0.001, Probe(CANNOT_TELL, "early", None, 1.001)),
        (41.0, Probe(CANNOT_TELL, "early", None, 42.0)),
        (0.0, Probe(NOT_APPLIED, "late")),
        (-1.0, Probe(NOT_APPLIED, "late")),
    ],
)
def test_absence_proves_something_after_its_time(left: float, told: Probe) -> None:
    assert Probe.absent("early", "late", seconds_left=left) == told


async def test_what_is_not_configured_is_refused_by_the_settings_alone() -> None:
    allowed = HttpSettings((AllowedHost("a.example"),))
    connectors = Connectors({"http": HttpConnector(allowed), "transform": TransformConnector()})
    remedies = {
        "servicenow": "Set COUNTERSEAL_SERVICENOW_URL.",
        "slack": "Set COUNTERSEAL_SLACK_BOT_TOKEN.",
        "model": "Set COUNTERSEAL_MODEL_URL.",
        "bpmn": "Set COUNTERSEAL_BPMN_URL.",
        "sql": "Set COUNTERSEAL_SQL_URL.",
        "crm": "Known connectors: bpmn, http, model, servicenow, slack, sql.",
    }
    for name, remedy in remedies.items():
        words = f"the connector {name!r} is not configured. {remedy}"
        assert connectors.ready(name, f"{name}.a.b", {}) == Refused(NOT_CONFIGURED, words)
    assert str(Connectors().missing("http")).endswith("Set COUNTERSEAL_HTTP_HOSTS.")
    assert connectors.ready("transform", "transform.data.apply", {}) is None
    assert connectors.ready("http", "http.request.send", {"url": "https://a.example/x"}) is None
    outside = "b.example is not among the allowed hosts; add it to COUNTERSEAL_HTTP_HOSTS"
    refused = connectors.ready("http", "http.request.send", {"url": "https://b.example/x"})
    assert refused == Refused("host_not_allowed", outside)
    assert await connectors.check() == {"http": (True, "may call a.example"), "transform": (True, "works in process")}
    nowhere = HttpConnector(HttpSettings())
    assert await nowhere.check() == (True, "no host is allowed; set COUNTERSEAL_HTTP_HOSTS to allow some")
    await nowhere.aclose()
    await connectors.aclose()


async def test_what_reads_nothing_before_says_so() -> None:
    call = Call("crm.a.b", {}, KEY, 1.0)
    words = "crm.a.b replaces nothing, so there is nothing to read first"
    assert await NothingBefore().read_before(call) == Refused("no_pre_read", words)
    repeated = Probe(NOT_APPLIED, "crm.a.b changes nothing outside, so it can be repeated")
    assert await TransformConnector().probe(call, seconds_since_intent=0) == repeated
    assert await TransformConnector().perform(call) == Done({"value": None})


async def test_records_are_read_for_the_tenant_of_the_call() -> None:
    asked: list[Any] = []

    async def read(tenant: str, function: str, values: JsonObject) -> JsonObject:
        asked.append((tenant, function, values))
        if values.get("away"):
            raise TransportError("the database is away.", remedy="Wait.")
        return {"n": len(asked)}

    connector = RecordsConnector(read)
    calls = [Call(f"records.{name}", {"kind": "a"}, KEY, 1.0, tenant=f"t-{name}") for name in ("get", "query", "put")]
    outcomes = [await connector.perform(call) for call in calls]
    unknown = Refused("unknown_handler", "records.put is no reading of records")
    assert outcomes == [Done({"n": 1}), Done({"n": 2}), unknown]
    assert asked == [("t-get", "get", {"kind": "a"}), ("t-query", "query", {"kind": "a"})]
    away = await connector.perform(Call("records.get", {"away": True}, KEY, 1.0))
    assert away == NotSent("the database is away. Wait.")
    assert await connector.probe(calls[2], seconds_since_intent=0) == Probe(
        NOT_APPLIED, "records.put was not written, or its step would be over"
    )
    assert await connector.check() == (True, "in Counterseal's own database")


# HTTP


def send(method: str = "POST", **values: Any) -> Call:
    return Call("http.request.send", {"method": method, "url": "https://a.example/x"} | values, KEY, 1.0)


OUTSIDE = "is not among the allowed hosts; add it to COUNTERSEAL_HTTP_HOSTS"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://a.example:port", ("invalid_url", "the URL cannot be read")),
        ("ftp://a.example", ("invalid_url", "the URL must start with http:// or https:// and name a host")),
        ("a.example", ("invalid_url", "the URL must start with http:// or https:// and name a host")),
        ("https:///x", ("invalid_url", "the URL must start with http:// or https:// and name a host")),
        ("https://me@a.example", ("invalid_url", "the URL must not hold a user name or password; use a header")),
        ("https://:b@a.example", ("invalid_url", "the URL must not hold a user name or password; use a header")),
        ("https://a:b@a.example", ("invalid_url", "the URL must not hold a user name or password; use a header")),
        ("https://b.example", ("host_not_allowed", f"b.example {OUTSIDE}")),
        ("https://a.example.evil", ("host_not_allowed", f"a.example.evil {OUTSIDE}")),
        ("https://x.a.example", ("host_not_allowed", f"x.a.example {OUTSIDE}")),
        ("https://a.example:8443", ("host_not_allowed", f"a.example:8443 {OUTSIDE}")),
        ("https://c.example", ("host_not_allowed", f"c.example {OUTSIDE}")),
        ("https://c.example:9001", ("host_not_allowed", f"c.example:9001 {OUTSIDE}")),
        ("https://A.Example/x", AllowedHost("A.example")),
        ("https://a.example:443/", AllowedHost("A.example")),
        ("http://a.example:80/", AllowedHost("A.example")),
        ("https://c.example:9000", AllowedHost("c.example", 9000, allow_private=True)),
        ("https://bücher.example", AllowedHost("xn--bcher-kva.example")),
        ("https://[2606:4700::1111]/", AllowedHost("[2606:4700::1111]")),
    ],
)
def test_only_an_allowed_host_at_its_port_may_be_called(url: str, told: Any) -> None:
    allowed = [AllowedHost("A.example"), AllowedHost("c.example", 9000, allow_private=True)]
    allowed += [AllowedHost("xn--bcher-kva.example"), AllowedHost("[2606:4700::1111]")]
    found = permitted(url, allowed)
    if isinstance(told, tuple):
        assert found == Refused(*told)
    else:
        assert isinstance(found, tuple)
        assert found == (httpx.URL(url), told)


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("169.253.255.255", True),
        ("169.254.0.0", False),
        ("169.254.255.255", False),
        ("169.255.0.0", True),
        ("223.255.255.255", True),
        ("239.255.255.255", False),
        ("::ffff:8.8.8.8", True),
        ("::ffff:10.0.0.1", False),
        ("::ffff:100.64.0.1", False),
        ("::ffff:224.0.0.1", False),
        ("64:ff9b::6440:1", False),
        ("64:ff9b::c0a8:1", False),
        ("64:ff9b::e000:1", False),
        ("64:ff9b::808:808", True),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:808:808::", False),
        ("2002:a00:1::", False),
        ("2001:0:a00:1::f7f7:f7f7", False),
        ("2001:0:808:808::f5ff:fffe", False),
        ("ff0e::1", False),
        ("::", False),
    ],
)
def test_an_address_is_public_with_all_that_is_in_it(text: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(text)) is public


RESERVED = ("Host", "Connection", "Upgrade", "TE", "Trailer", "Idempotency-Key", "Content-Length", "Transfer-Encoding")


@pytest.mark.parametrize("name", RESERVED)
def test_a_header_of_ours_cannot_be_given(name: str) -> None:
    for given in (name, name.lower(), name.upper()):
        words = f"the header {given} is set by Counterseal and cannot be given"
        assert _prepare(send(headers={given: "x"})) == Refused("invalid_header", words)


@pytest.mark.parametrize(
    "header",
    [
        *(("", "x"), (" ", "x"), ("x\n", "x"), ("é", "x"), ("x", "a\r\nb"), ("x", "é"), ("x", "a\x00")),
        *(("x", "a\n"), ("x", "\ta"), ("x", "\r"), ("\tx", "a"), ("x", "a\x7f"), ("x", "\xa0a")),
    ],
)
def test_a_header_that_cannot_be_sent_is_named(header: tuple[str, str]) -> None:
    name, value = header
    words = f"the header {name!r} holds characters that a header cannot"
    assert _prepare(send(headers={name: value})) == Refused("invalid_header", words)


def test_a_request_is_prepared_whole() -> None:
    ours = {"user-agent": "counterseal", "accept-encoding": "identity"}
    keyed = ours | {"idempotency-key": KEY}
    json_type = {"content-type": "application/json"}
    cases: list[tuple[Call, bytes, dict[str, str]]] = [
        (send(), b"", keyed),
        (send("GET"), b"", ours),
        (send("HEAD", body="x"), b"x", ours),
        (send("get"), b"", keyed),
        (send(body="ü"), "ü".encode(), keyed),
        (send(json={"b": 1, "a": None}), b'{"a":null,"b":1}', keyed | json_type),
        (send(json=None, body="x"), b"null", keyed | json_type),
        (send(json=[], headers={"Content-Type": "a/b", "X": "1"}), b"[]", keyed | {"content-type": "a/b", "x": "1"}),
        (send(headers={"user-agent": "me"}), b"", keyed | {"user-agent": "me"}),
    ]
    for call, body, headers in cases:
        prepared = _prepare(call)
        assert not isinstance(prepared, Refused)
        assert (prepared[0], dict(prepared[1])) == (body, headers)
    url = httpx.URL("https://a.example:8443/x?y=z")
    request = _request(send("PUT"), url, ipaddress.ip_address("8.8.8.8"), b"b", httpx.Headers({"X": "1"}))
    assert (request.method, str(request.url), request.content) == ("PUT", "https://8.8.8.8:8443/x?y=z", b"b")
    assert dict(request.headers) == {"x": "1", "host": "a.example:8443", "content-length": "1"}
    assert request.extensions["sni_hostname"] == "a.example"
    foreign = _request(send(), httpx.URL("https://BÜCHER.example/"), ipaddress.ip_address("::1"), b"", httpx.Headers())
    assert (str(foreign.url), foreign.headers["host"]) == ("https://[::1]/", "xn--bcher-kva.example")
    assert foreign.extensions["sni_hostname"] == "xn--bcher-kva.example"
    unsent = _prepare(send(json={"a": 2**60}))
    assert isinstance(unsent, Refused)
    assert (unsent.code, unsent.message.startswith("the JSON body ")) == ("invalid_body", True)


async def test_a_connection_is_not_kept_for_another_name(closing: Any, wire: Any) -> None:
    """Its certificate was verified for one name, and the next request may be for another at the same address."""
    allowed = AllowedHost("127.0.0.1", int(wire.url.rpartition(":")[2]), allow_private=True)
    connector = closing(HttpConnector(HttpSettings((allowed,))))
    wire.say({}, {})
    for _ in range(2):
        assert isinstance(await connector.perform(send("GET", url=f"{wire.url}/x")), Done)
    assert len(wire.app.connections) == 2


MORE = "which is not followed; use the final URL"


@pytest.mark.parametrize(
    ("found", "call", "told"),
    [
        (answer(302, location="/y"), send(), Refused("redirect", f"redirects (302) to /y, {MORE}")),
        (answer(399), send("GET"), Refused("redirect", f"redirects (399) to elsewhere, {MORE}")),
        (answer(404), send(), Refused("http_404", "answered 404: without an explanation")),
        (answer(400, b"a\x00b"), send(), Refused("http_400", "answered 400: ab")),
        (answer(400, b"x" * 301), send(), Refused("http_400", "answered 400: " + "x" * 300)),
        (answer(199, b"x"), send(), Refused("http_199", "answered 199: x")),
        (answer(200), send(expect_status=[201, 202]), InDoubt("answered 200, expected 201 or 202")),
        (
            answer(200),
            send("GET", expect_status=[201, 202]),
            Refused("unexpected_status", "answered 200, expected 201 or 202"),
        ),
        (answer(404), send(expect_status=[404]), Refused("http_404", "answered 404: without an explanation")),
        (
            answer(201, b"ab", location="/7", etag="e", date="d", last_modified="l", content_type="text/plain"),
            send(expect_status=[201]),
            Done(
                {
                    "status": 201,
                    "headers": {"content-type": "text/plain", "etag": "e", "last-modified": "l", "location": "/7"},
                    "body": "ab",
                    "truncated": False,
                },
                "/7",
            ),
        ),
        (
            answer(200, b"[1]", content_type="application/x+json"),
            send(),
            Done(
                {
                    "status": 200,
                    "headers": {"content-type": "application/x+json"},
                    "body": "[1]",
                    "truncated": False,
                    "json": [1],
                }
            ),
        ),
        (
            answer(200, b"[1", content_type="application/json"),
            send(),
            Done(
                {
                    "status": 200,
                    "headers": {"content-type": "application/json"},
                    "body": "[1",
                    "truncated": False,
                    "json": None,
                }
            ),
        ),
        (
            answer(200, "ü".encode() + b"\xc3", truncated=True, content_type="application/json"),
            send(),
            Done({"status": 200, "headers": {"content-type": "application/json"}, "body": "ü", "truncated": True}),
        ),
        (answer(200, b"\xc3"), send(), Done({"status": 200, "headers": {}, "body": None, "truncated": False})),
        (
            answer(200, b"a\x00", truncated=True),
            send(),
            Done({"status": 200, "headers": {}, "body": None, "truncated": True}),
        ),
        (
            answer(200, b"a", location="/7"),
            send("GET"),
            Done({"status": 200, "headers": {"location": "/7"}, "body": "a", "truncated": False}, "/7"),
        ),
        (answer(200, b"a\x00"), send(), Done({"status": 200, "headers": {}, "body": None, "truncated": False})),
    ],
)
def test_an_answer_to_a_request_is_told_whole(found: Answer, call: Call, told: Any) -> None:
    assert _outcome(found, call) == told


# Models


def test_tools_that_contradict_themselves_are_told() -> None:
    tools: list[Any] = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]
    chosen: Any = {"type": "function", "function": {"name": "c"}}
    assert misuse({}) is None
    assert misuse({"tools": tools, "tool_choice": "auto"}) is None
    assert misuse({"tools": tools, "tool_choice": tools[1]}) is None
    assert misuse({"tools": [*tools, tools[1]]}) == (
        "tools: the name 'b' is taken twice; each tool has a name of its own"
    )
    assert misuse({"tools": tools, "tool_choice": chosen}) == "tool_choice: no tool has the name 'c'; name one of tools"
    assert misuse({"tool_choice": chosen}) == "tool_choice: no tool has the name 'c'; name one of tools"
    odd: list[Any] = [{"function": {"name": 5}}, {"function": {"name": "b"}}, "c"]
    for name in ("5", 5):
        assert misuse({"tools": odd[:2], "tool_choice": {"function": {"name": name}}}) == (
            f"tool_choice: no tool has the name {name!r}; name one of tools"
        )
    assert misuse({"tools": odd}) == "tools: the name '' is taken twice; each tool has a name of its own"
    assert misuse({"tools": [*tools, {}, tools[1], tools[0]]}) == (
        "tools: the name 'a' is taken twice; each tool has a name of its own"
    )
    unnamed: Any = {"type": "function"}
    for choice in (unnamed, {}, {"function": {}}):
        assert misuse({"tools": tools, "tool_choice": choice}) == (
            "tool_choice: no tool has the name None; name one of tools"
        )


def one(at: Any = "c1", name: Any = "get", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": at, "type": "function", "function": {"name": name, "arguments": arguments}} | more


CALLS = "the model's tool_calls"


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ({}, f"{CALLS}: must be a list"),
        ([one(str(n)) for n in range(CALLS_MAX + 1)], f"{CALLS}: has 129 calls; at most 128 are accepted"),
        ([one("a"), one("b"), one("b"), one("b")], f"{CALLS}: has 3 calls with the id 'b'"),
        ([one("call_2"), one(None)], f"{CALLS}: has 2 calls with the id 'call_2'"),
        ([one(), 7], f"{CALLS}[1]: must be an object"),
        ([one(type="custom")], f"{CALLS}[0]: must be the call of a function"),
        ([one(type=None)], f"{CALLS}[0]: must be the call of a function"),
        ([one(type="")], f"{CALLS}[0]: must be the call of a function"),
        ([one(function=None)], f"{CALLS}[0]: must be the call of a function"),
        ([one(name="")], f"{CALLS}[0].function.name: must be a text of 1 to 256 characters"),
        ([one(name="n" * 257)], f"{CALLS}[0].function.name: must be a text of 1 to 256 characters"),
        ([one(name=None)], f"{CALLS}[0].function.name: must be a text of 1 to 256 characters"),
        ([one("i" * 257)], f"{CALLS}[0].id: must be a text of 1 to 256 characters"),
        ([one(7)], f"{CALLS}[0].id: must be a text of 1 to 256 characters"),
        *(
            ([one(arguments=odd)], f"{CALLS}[0].function.arguments: must be a text or an object")
            for odd in ([1], [], 0, False, 1.5)
        ),
        (
            [one(arguments={"a": float("nan")})],
            f"{CALLS}[0].function.arguments: holds a number that JSON does not have",
        ),
        (
            [one(arguments="é" * (ARGUMENT_BYTES_MAX // 2) + "x")],
            f"{CALLS}[0].function.arguments: are 262145 bytes long; at most 262144 are accepted",
        ),
    ],
)
def test_a_call_that_is_none_is_told_by_its_place(calls: Any, told: str) -> None:
    with pytest.raises(InputError) as caught:
        tool_calls({"tool_calls": calls})
    assert str(caught.value) == told


def test_a_call_keeps_its_id_and_its_arguments_to_the_letter() -> None:
    kept = [one(" c1 ", arguments=' {"a": 1} '), one("c1", arguments="")]
    assert tool_calls({"tool_calls": [*kept]}) == kept


def chat(message: Any, **body: Any) -> JsonObject:
    return {"choices": [{"message": message, "finish_reason": "stop"}]} | body


COUNTS = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}
NO_PRICE = Usage("p", "m", 1000, 100, None)


@pytest.mark.parametrize(
    ("body", "asked", "told"),
    [
        ({}, {}, NotSent("the model's answer holds no choice")),
        ({"choices": []}, {}, NotSent("the model's answer holds no choice")),
        ({"choices": [{"message": "x"}]}, {}, NotSent("the model's answer holds no choice")),
        (
            chat({"content": "hi"}, usage=COUNTS, id="c-1"),
            {},
            Done({"text": "hi", "model": "m", "finish_reason": "stop"}, "c-1", usage=NO_PRICE),
        ),
        (
            chat({"content": None, "refusal": "I will not"}, usage=COUNTS),
            {},
            Refused("no_text", "the model gave no text: I will not", NO_PRICE),
        ),
        (chat({"content": None}, usage=COUNTS), {}, Refused("no_text", "the model gave no text: stop", NO_PRICE)),
        (
            chat({"content": None, "tool_calls": [one()]}, usage=COUNTS),
            {"response_format": "json"},
            Done({"text": "", "model": "m", "finish_reason": "stop", "tool_calls": [one()]}, usage=NO_PRICE),
        ),
        (
            chat({"content": "let me look", "tool_calls": [one()]}, usage=COUNTS),
            {"response_format": "json"},
            Done({"text": "let me look", "model": "m", "finish_reason": "stop", "tool_calls": [one()]}, usage=NO_PRICE),
        ),
        (
            chat({"content": "hi", "tool_calls": [7]}, usage=COUNTS),
            {},
            NotSent(f"{CALLS}[0]: must be an object (finish reason: stop)", usage=NO_PRICE),
        ),
        (
            chat({"content": "[1]"}, usage=COUNTS),
            {"response_format": "json"},
            Done({"text": "[1]", "model": "m", "finish_reason": "stop", "json": [1]}, usage=NO_PRICE),
        ),
        (
            chat({"content": "[1]"}, usage=COUNTS),
            {"response_format": "text"},
            Done({"text": "[1]", "model": "m", "finish_reason": "stop"}, usage=NO_PRICE),
        ),
        (
            chat({"content": "x"}, usage=COUNTS, model="m-2024", id=""),
            {},
            Done(
                {"text": "x", "model": "m-2024", "finish_reason": "stop"},
                "",
                usage=Usage("p", "m-2024", 1000, 100, None),
            ),
        ),
        (
            chat({"content": '"a\ud800"'}, usage=COUNTS),
            {"response_format": "json"},
            Done({"text": '"a\ud800"', "model": "m", "finish_reason": "stop", "json": "a?"}, usage=NO_PRICE),
        ),
        (
            chat({"content": [{"text": "x"}], "tool_calls": [one()]}, usage=COUNTS),
            {},
            Refused("no_text", "the model gave no text: stop", NO_PRICE),
        ),
        (
            {"choices": [{"message": {"content": "x"}, "finish_reason": "f" * 101}], "usage": COUNTS},
            {},
            Done({"text": "x", "model": "m", "finish_reason": "f" * 100}, usage=NO_PRICE),
        ),
    ],
)
def test_a_completion_is_told_whole(body: JsonObject, asked: dict[str, Any], told: Any) -> None:
    call = Call("model.chat.complete", {"model": "m"} | asked, KEY, 1.0)
    assert model._outcome(body, call, "p") == told


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        ({"prompt": "hi"}, {"messages": [{"role": "user", "content": "hi"}]}),
        (
            {"system": "be brief", "messages": [{"role": "tool", "content": "x", "tool_call_id": "c1"}]},
            {
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "tool", "content": "x", "tool_call_id": "c1"},
                ]
            },
        ),
        ({"messages": [], "response_format": "text"}, {"messages": []}),
        ({"messages": [], "response_format": "json"}, {"messages": [], "response_format": {"type": "json_object"}}),
        (
            {"messages": [], "temperature": 0, "max_tokens": 1, "parallel_tool_calls": False, "tool_choice": "none"},
            {"messages": [], "temperature": 0, "max_tokens": 1, "parallel_tool_calls": False, "tool_choice": "none"},
        ),
        ({"messages": [], "tools": [{}], "stream": True, "user": "ann"}, {"messages": [], "tools": [{}]}),
    ],
)
def test_a_chat_is_asked_for_whole(asked: Any, body: Any) -> None:
    assert model._request({"model": "m", **asked}) == {"model": "m", **body}


def test_tokens_cost_what_the_table_says_and_cached_ones_less() -> None:
    def cost(counts: Any, named: str = "gpt-4o", asked: str = "gpt-4o") -> Usage:
        return model._usage(counts, "openai", named, asked)

    plain = {"prompt_tokens": 1000, "completion_tokens": 100}
    assert cost(plain) == Usage("openai", "gpt-4o", 1000, 100, "0.0035")
    assert cost(COUNTS) == Usage("openai", "gpt-4o", 1000, 100, "0.0030")
    all_cached = COUNTS | {"prompt_tokens_details": {"cached_tokens": 5000}}
    assert cost(all_cached) == Usage("openai", "gpt-4o", 1000, 100, "0.00225")
    assert cost(plain, "gpt-unheard-of") == Usage("openai", "gpt-unheard-of", 1000, 100, "0.0035")
    assert cost(COUNTS, "gpt-unheard-of") == Usage("openai", "gpt-unheard-of", 1000, 100, "0.0030")
    assert cost(plain, "gpt-4o-mini") == Usage("openai", "gpt-4o-mini", 1000, 100, "0.00021"), "what answered costs"
    assert cost(plain, "gpt-unheard-of", "nothing") == Usage("openai", "gpt-unheard-of", 1000, 100, None)
    assert cost({"prompt_tokens": True, "completion_tokens": -1}, "m", "m") == Usage("openai", "m", 0, 0, None)
    assert cost(None, "m", "m") == Usage("openai", "m", 0, 0, None)


def test_a_refusal_of_a_model_has_its_code_and_words() -> None:
    told = {
        status: model._refusal(answer(status, b'{"error": {"message": "no"}}')) for status in (400, 401, 403, 404, 422)
    }
    codes = {400: "invalid", 401: "unauthorized", 403: "forbidden", 404: "not_found", 422: "http_422"}
    assert told == {status: Refused(code, f"the model API answered {status}: no") for status, code in codes.items()}
    assert model._refusal(answer(400)).message == "the model API answered 400: without an explanation"


# ServiceNow


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (400, "invalid", "no: why"),
        (401, "unauthorized", "no: why"),
        (403, "forbidden", "no: why"),
        (404, "not_found", "no: why (absent, or hidden from our user by an ACL)"),
        (405, "not_allowed", "no: why"),
        (409, "conflict", "no: why"),
        (418, "http_418", "no: why"),
        (300, "http_300", "it redirects elsewhere, which is not followed; check the instance's address"),
        (399, "http_399", "it redirects elsewhere, which is not followed; check the instance's address"),
    ],
)
def test_servicenow_refuses_in_its_own_words(status: int, code: str, words: str) -> None:
    told = now_client._refusal(answer(status, b'{"error": {"message": "no", "detail": "why"}}'))
    assert told == Refused(code, f"ServiceNow answered {status}: {words}")


def test_servicenow_without_words_and_without_records() -> None:
    assert now_client._refusal(answer(400)).message == "ServiceNow answered 400: without an explanation"
    gone = "ServiceNow answered 404: no record (absent, or hidden from our user by an ACL)"
    assert now_client._refusal(answer(404)).message == gone
    assert now_client._object(answer(200, b"[]")) == InDoubt("ServiceNow's answer is not a JSON object")
    assert now_client._object(answer(204)) == InDoubt("ServiceNow's answer is not a JSON object")
    assert now_client._record(answer(200, b'{"result": []}')) == InDoubt("ServiceNow answered without a record")
    assert now_client._record(answer(200, b'{"result": {"a": {"value": "1"}, "b": {}}}')) == {"a": "1", "b": None}
    assert now_client._record(NotSent("away", 2.0)) == NotSent("away", 2.0)
    assert now_client._path("a/b", "../c") == "/api/now/table/a%2Fb/..%2Fc"
    assert marker(KEY) == "[counterseal:0123456789abcdef]"


def test_an_account_is_the_user_or_else_the_client() -> None:
    basic, oauth = BasicAuth("bot", "s3cret"), ClientCredentials("client", "s3cret")
    url = "https://a.example"
    told = [
        (settings.integration_user, settings.account)
        for settings in (
            ServiceNowSettings(url, basic),
            ServiceNowSettings(url, basic, "other"),
            ServiceNowSettings(url, oauth),
            ServiceNowSettings(url, oauth, "bot"),
        )
    ]
    assert told == [("bot", "bot"), ("other", "other"), (None, "client"), ("bot", "bot")]
    assert ServiceNowSettings(url, basic).transaction_limit_seconds == 60.0


WAS = Before({"priority": "3"}, "4")
WENT = "sys_mod_count went from 4 to 5, last changed by"
STILL = "sys_mod_count is still 4"
FIELDS: dict[str, Any] = {"priority": "1", "state": "2"}
MARKED = "the record's journal holds the entry with this action's mark"
UNMARKED = "yet no journal entry that our user can see bears this action's mark"


@pytest.mark.parametrize(
    ("before", "record", "marked", "seconds", "verdict", "evidence"),
    [
        (None, {}, True, 0.0, APPLIED, MARKED),
        (
            None,
            FIELDS,
            False,
            99.0,
            CANNOT_TELL,
            "the record was not read before the write, so there is nothing to compare it with",
        ),
        (WAS, {"sys_mod_count": "4"}, True, 0.0, APPLIED, MARKED),
        (WAS, {"sys_mod_count": "4"}, None, 59.9, CANNOT_TELL, f"{STILL}, but a transaction may run for 60 s"),
        (
            WAS,
            {"sys_mod_count": "4"},
            None,
            60.0,
            NOT_APPLIED,
            f"{STILL}, 60 s after the intent: nothing was written since",
        ),
        (
            WAS,
            FIELDS | {"sys_mod_count": "4"},
            None,
            0.0,
            APPLIED,
            "the fields held the intended values before, and hold them now",
        ),
        (
            WAS,
            FIELDS | {"sys_mod_count": "4"},
            False,
            61.0,
            NOT_APPLIED,
            f"{STILL}, 61 s after the intent: nothing was written since",
        ),
        (
            WAS,
            {"sys_mod_count": "5", "sys_updated_by": "bot"},
            None,
            61.0,
            CANNOT_TELL,
            f"{WENT} bot, and the fields are not as intended: priority, state",
        ),
        (
            WAS,
            FIELDS | {"sys_mod_count": "5", "sys_updated_by": "bot"},
            False,
            61.0,
            CANNOT_TELL,
            f"{WENT} bot, {UNMARKED}",
        ),
        (
            WAS,
            FIELDS | {"sys_mod_count": "5", "state": "3"},
            None,
            61.0,
            CANNOT_TELL,
            f"{WENT} nobody named, and the fields are not as intended: state",
        ),
        (
            WAS,
            FIELDS | {"sys_mod_count": "5", "sys_updated_by": "ana"},
            None,
            61.0,
            CANNOT_TELL,
            f"{WENT} ana, the fields are as intended, but we are bot",
        ),
        (
            WAS,
            FIELDS | {"sys_mod_count": "5", "sys_updated_by": "bot"},
            None,
            0.0,
            APPLIED,
            f"{WENT} bot, which is us, and all fields are as intended",
        ),
        (
            WAS,
            FIELDS | {"sys_mod_count": "5", "sys_updated_by": ""},
            None,
            61.0,
            CANNOT_TELL,
            f"{WENT} nobody named, the fields are as intended, but we are bot",
        ),
        (
            WAS,
            {"sys_mod_count": "3", "sys_updated_by": "ana"},
            None,
            61.0,
            CANNOT_TELL,
            "sys_mod_count went from 4 to 3, last changed by ana, and the fields are not as intended: priority, state",
        ),
        (
            WAS,
            FIELDS | {"sys_mod_count": "12", "sys_updated_by": "bot"},
            None,
            61.0,
            APPLIED,
            "sys_mod_count went from 4 to 12, last changed by bot, which is us, and all fields are as intended",
        ),
        (WAS, FIELDS | {"sys_mod_count": "4"}, False, 0.0, CANNOT_TELL, f"{STILL}, but a transaction may run for 60 s"),
    ],
)
def test_a_write_is_judged_by_its_record(
    before: Before | None, record: Any, marked: bool | None, seconds: float, verdict: ProbeVerdict, evidence: str
) -> None:
    settings = ServiceNowSettings("https://a.example", BasicAuth("bot", "s3cret"))
    probe = judged_record(settings, before, FIELDS, record, marked, seconds)
    done = _done(record, FIELDS) if verdict is APPLIED else None
    again = 60.0 - seconds + 1.0 if "may run" in evidence else None
    assert probe == Probe(verdict, evidence, done, again)
    nameless = ServiceNowSettings("https://a.example", ClientCredentials("bot", "s3cret"))
    unnamed = judged_record(nameless, before, FIELDS, record, marked, seconds)
    us = "which is us" in evidence or "we are bot" in evidence
    assert (unnamed == probe) is not us
    if us:
        assert unnamed.evidence.endswith(", the fields are as intended, but our own user name is not configured")


def test_an_outcome_holds_what_was_read_back() -> None:
    record: JsonObject = {"sys_id": "s", "number": "N", "sys_mod_count": "5", "priority": "2", "other": "x"}
    fields: JsonObject = {"priority": "2"}
    facts = {"sys_id": "s", "number": "N", "sys_mod_count": "5"}
    assert _done(record, fields) == Done({**facts, "fields": fields, "altered": []}, "s@5", fields)
    altered: JsonObject = {"priority": "1", "gone": "x"}
    assert _done(record, altered) == Done(
        {**facts, "fields": fields, "altered": ["priority"], "unreadable": ["gone"]},
        "s@5",
        fields,
        altered={"priority": {"asked": "1", "found": "2"}},
    )
    assert _done({"sys_id": "s"}, {}) == Done({"sys_id": "s", "fields": {}, "altered": []}, None, {})
    unread = Done({"sys_id": "s", "sys_mod_count": "", "fields": {}, "altered": []}, "s@", {})
    assert _done({"sys_id": "s", "sys_mod_count": ""}, {}) == unread
    assert _done({"priority": None}, {"priority": None, "state": None}) == Done(
        {"fields": {"priority": None}, "altered": [], "unreadable": ["state"]}, None, {"priority": None}
    )
    assert _done({"sys_mod_count": "5"}, {}) == Done({"sys_mod_count": "5", "fields": {}, "altered": []}, None, {})


# Slack


class Said:
    """An answer as the SDK keeps it: the status has one of two names."""

    def __init__(self, data: Any = None, headers: Any = None, **status: int) -> None:
        self.data, self.headers = data, headers or {}
        self.__dict__.update(status)


def error(code: str) -> dict[str, Any]:
    return {"ok": False, "error": code}


PERHAPS = ("fatal_error", "internal_error", "service_unavailable")
LATER = ("ratelimited", "rate_limited", "request_timeout", "team_added_to_org", "accesslimited")
NONE = "Slack's answer is not an answer of its Web API"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        *((Said(error(code), status_code=200), InDoubt(f"Slack failed (HTTP 200, {code})")) for code in PERHAPS),
        *((Said(error(code), status_code=200), NotSent(f"Slack asks to call later ({code})")) for code in LATER),
        (
            Said(error("ratelimited"), {"Retry-After": "7"}, status_code=429),
            NotSent("Slack asks to call later (ratelimited)", 7.0),
        ),
        (Said("", {"Retry-After": "7"}, status=429), NotSent("Slack asks to call later (unknown_error)", 7.0)),
        (Said(error("x"), status_code=500), InDoubt("Slack failed (HTTP 500, x)")),
        (Said(error("x"), status_code=499), Refused("x", "Slack refused: x")),
        (Said(error("x"), status_code=408), InDoubt("Slack failed (HTTP 408, x)")),
        (Said("<html>", status=502), InDoubt("Slack failed (HTTP 502, unknown_error)")),
        (Said("<html>", status=200), InDoubt(f"{NONE} (HTTP 200)")),
        (Said("<html>", status=399), InDoubt(f"{NONE} (HTTP 399)")),
        (Said({}, status_code=200), InDoubt(f"{NONE} (HTTP 200)")),
        (Said("<html>"), InDoubt(f"{NONE} (HTTP 0)")),
        (Said("<html>", status=400), Refused("unknown_error", "Slack refused: unknown_error")),
        (
            Said(error("invalid_blocks") | {"response_metadata": {"messages": ["a", "b"]}}, status_code=200),
            Refused("invalid_blocks", "Slack refused: invalid_blocks; a; b"),
        ),
        (
            Said(error("missing_scope") | {"needed": "chat:write"}, status_code=200),
            Refused("missing_scope", "Slack refused: missing_scope; needs the scope chat:write"),
        ),
    ],
)
def test_slack_says_whether_anything_was_done(said: Said, told: Any) -> None:
    failed: Any = SlackApiError
    assert _classify(failed("failed", said)) == told


def test_a_message_is_ours_by_its_kind_and_whole_mark() -> None:
    def bears(kind: Any, key: Any) -> bool:
        return _bears({"metadata": {"event_type": kind, "event_payload": {"key": key}}}, KEY)

    assert opaque(KEY) == KEY[:32]
    assert bears("counterseal_action", KEY[:32])
    for kind, key in (("counterseal_action", KEY[:31]), ("counterseal_action", KEY), ("other", KEY[:32]), ("", None)):
        assert not bears(kind, key)
    assert not _bears({}, KEY)
    assert [_seconds(ts) for ts in ("12.5", 7, "x", None)] == [12.5, 7.0, float("inf"), float("inf")]


# BPMN


def test_a_task_completes_the_wait_of_its_key() -> None:
    def task(**more: Any) -> JsonObject:
        return {"id": "t1", "businessKey": "k", "variables": {}} | more

    ours = {"counterseal_correlation_key": {"value": "other"}, "n": {"value": 3, "type": "Integer"}}
    wrong, silent = {"counterseal_error": {"value": "no"}}, {"counterseal_error": {"value": ""}}
    assert _completion(task()) == Completion("t1", "k", output={})
    assert _completion(task(variables=ours)) == Completion("t1", "k", output={"n": 3})
    assert _completion(task(businessKey=None, variables=ours)) == Completion("t1", "other", output={"n": 3})
    assert _completion(task(businessKey=None)) is None
    assert _completion(task(businessKey=7)) is None
    assert _completion(task(id=7)) is None
    failed: JsonObject = {"code": "process_error", "message": "no"}
    assert _completion(task(variables=wrong)) == Completion("t1", "k", error=failed)
    untold: JsonObject = failed | {"message": "the process reported an error without a text"}
    assert _completion(task(variables=silent)) == Completion("t1", "k", error=untold)
    assert _completion(task(variables={"counterseal_error": {"value": 7}})) == Completion("t1", "k", error=untold)
    broken: JsonObject = {
        "code": "unreadable_output",
        "message": "the process's variables.n: is not a variable with a value",
    }
    assert _completion(task(variables={"n": 3})) == Completion("t1", "k", error=broken)


def test_values_of_a_process_go_both_ways() -> None:
    values: JsonObject = {"a": [1, {"ü": None}], "o": {}, "s": "x", "z": None, "n": -(2**31), "t": False}
    assert typed(values) == {
        "a": {"value": '[1,{"ü":null}]', "type": "Json"},
        "o": {"value": "{}", "type": "Json"},
        "s": {"value": "x", "type": "String"},
        "z": {"value": None, "type": "Null"},
        "n": {"value": -(2**31), "type": "Long"},
        "t": {"value": False, "type": "Boolean"},
    }
    assert plain(typed(values)) == values
    assert value_of({"a": {"value": 3}, "b": 7}, "a") == 3
    assert (value_of({"b": 7}, "b"), value_of(None, "b")) == (None, None)
    with pytest.raises(InputError) as caught:
        typed({"short": "x", "long": "x" * 4001})
    words = (
        "variables.long: holds 4001 characters; the engine keeps 4000 of a text. Put the text into an object or a list."
    )
    assert str(caught.value) == words


@pytest.mark.parametrize("given", [{"username": "ann"}, {"password": "s3cret"}])
def test_a_user_of_the_engine_has_a_password(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        EngineClient(BpmnSettings("https://bpm.example/engine-rest", **given))
    assert caught.value.message == (
        "the BPMN engine's user name and password belong together, and only one of them is set."
    )
    assert caught.value.remedy == "Set both COUNTERSEAL_BPMN_USERNAME and COUNTERSEAL_BPMN_PASSWORD, or neither."


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (299, "http_299", "no"),
        (300, "http_300", "it redirects elsewhere, which is not followed; check COUNTERSEAL_BPMN_URL"),
        (399, "http_399", "it redirects elsewhere, which is not followed; check COUNTERSEAL_BPMN_URL"),
        (400, "invalid", "no"),
        (404, "no_engine", "there is no engine at this address (no); check COUNTERSEAL_BPMN_URL"),
    ],
)
def test_an_engine_refuses_in_its_own_words(status: int, code: str, words: str) -> None:
    told = bpmn_client._refusal(answer(status, b'{"message": "no"}'))
    assert told == Refused(code, f"the BPMN engine answered {status}: {words}")
