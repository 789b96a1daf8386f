"""Pieces of the HTTP face by themselves, whole: answers to each error, what surrounds a route, signatures, cursors."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from itertools import combinations
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest
import structlog
from asyncpg.pgproto import pgproto
from fastapi import FastAPI, Query
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse

from app.access import Principal, Role
from app.http import middleware, problems
from app.http.dependencies import (
    Paging,
    allow,
    check_own,
    decode_cursor,
    encode_cursor,
)
from app.http.middleware import CLOSING, Bearer, Bounded, Observe
from app.http.runs import etag
from app.http.signed import verify
from core.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    ConsistencyError,
    CountersealError,
    DeadlineError,
    DefinitionError,
    ExpressionError,
    InputError,
    NotFoundError,
    Problem,
    TransportError,
)

SECRET = "postgresql://u:hunter2@h"


class UnknownError(CountersealError):
    """An error of ours that the table of statuses does not know."""

    code = "unheard-of"


def told(code: str, status: int, title: str, **more: Any) -> dict[str, Any]:
    """The problem document of this code, with these members besides."""
    return {"type": f"urn:counterseal:problem:{code}", "title": title, "status": status, "code": code, **more}


AWAY = {"retry-after": "1"}
WHO = {"www-authenticate": 'Bearer realm="counterseal"'}
PASSING = "Something that this needs "
FAULTS = (Problem("w.yaml", 3, 4, "is wrong.", "Mend it."), Problem("w.yaml", 5, 6, "is worse."))
LISTED = [
    {"file": "w.yaml", "line": 3, "column": 4, "message": "is wrong.", "remedy": "Mend it."},
    {"file": "w.yaml", "line": 5, "column": 6, "message": "is worse.", "remedy": ""},
]
ANSWERS: list[tuple[Exception, dict[str, Any], dict[str, str], list[str]]] = [
    (InputError("is wrong."), told("input", 400, "Bad Request", detail="is wrong."), {}, []),
    (
        InputError("is wrong.", where="a.b", remedy="Mend it."),
        told("input", 400, "Bad Request", detail="is wrong.", remedy="Mend it.", where="a.b"),
        {},
        [],
    ),
    (
        ExpressionError("no", where="x"),
        told("expression", 422, "Unprocessable Content", detail="no", where="x"),
        {},
        [],
    ),
    (
        DefinitionError(FAULTS),
        told(
            "definition",
            422,
            "Unprocessable Content",
            detail="w.yaml:3:4: is wrong. Mend it.\nw.yaml:5:6: is worse.",
            problems=LISTED,
        ),
        {},
        [],
    ),
    (AuthenticationError("Who?"), told("authentication", 401, "Unauthorized", detail="Who?"), WHO, []),
    (
        AuthorizationError("No.", remedy="Ask."),
        told("authorization", 403, "Forbidden", detail="No.", remedy="Ask."),
        {},
        [],
    ),
    (NotFoundError("None."), told("not_found", 404, "Not Found", detail="None."), {}, []),
    (ConsistencyError("Moved."), told("consistency", 409, "Conflict", detail="Moved."), {}, []),
    (
        TransportError(SECRET, remedy="Look."),
        told("transport", 503, "Service Unavailable", detail=f"{PASSING}cannot be reached at the moment; try again."),
        AWAY,
        [f"warning something that a request needs is missing {SECRET}. Look."],
    ),
    (
        DeadlineError(SECRET),
        told("timeout", 504, "Gateway Timeout", detail=f"{PASSING}did not answer in time; try again."),
        {},
        [f"warning something that a request needs is missing {SECRET}"],
    ),
    (
        ConfigurationError(SECRET),
        told(
            *("configuration", 503, "Service Unavailable"),
            detail="This installation is not configured for it; its log names the setting.",
        ),
        AWAY,
        [f"warning something that a request needs is missing {SECRET}"],
    ),
    (
        UnknownError(SECRET),
        told("internal", 500, "Internal Server Error"),
        {},
        ["error this error code has no HTTP status None"],
    ),
    (
        asyncpg.AdminShutdownError(f"{SECRET}\nDETAIL: x"),
        told("transport", 503, "Service Unavailable", detail="The database is not available at the moment."),
        AWAY,
        [f"warning the database cannot serve AdminShutdownError: {SECRET}"],
    ),
    (
        ConnectionResetError(SECRET),
        told("transport", 503, "Service Unavailable", detail="The database is not available at the moment."),
        AWAY,
        [f"warning the database cannot serve ConnectionResetError: {SECRET}"],
    ),
    *(
        (
            error,
            told(*("internal", 500, "Internal Server Error"), detail="Something failed here; the log has the details."),
            {},
            ["error a request failed None"],
        )
        for error in (asyncpg.InvalidParameterValueError(SECRET), ValueError(SECRET), OSError(SECRET))
    ),
]


@asynccontextmanager
async def client_of(application: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that is served by nobody."""
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        yield client


def _headers(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "content-length"}


@pytest.mark.parametrize(("error", "body", "headers", "lines"), ANSWERS, ids=lambda value: type(value).__name__)
async def test_each_error_has_its_whole_answer_inside_a_route_and_around_it(
    error: Exception, body: dict[str, Any], headers: dict[str, str], lines: list[str]
) -> None:
    application = FastAPI()
    problems.install(application)

    @application.get("/")
    async def fails() -> None:
        raise error

    async def around(scope: Any, receive: Any, send: Any) -> None:
        raise error

    counted: list[Any] = []
    metrics: Any = SimpleNamespace(request=lambda *said: counted.append(said[:3]))
    application.add_middleware(Observe, metrics=metrics)
    for served, route in ((application, "/"), (Observe(around, metrics), "none")):
        with structlog.testing.capture_logs() as captured:
            async with client_of(served) as client:
                answer = await client.get("/")
        assert answer.json() == body
        assert answer.status_code == body["status"]
        assert _headers(answer) == {"content-type": "application/problem+json", **headers}
        assert [f"{line['log_level']} {line['event']} {line.get('reason')}" for line in captured] == lines
        assert all(line.get("exc_info") is error for line in captured if line["log_level"] == "error")
        assert counted.pop() == ("GET", route, body["status"])
        assert counted == []


async def test_what_routing_refuses_is_a_problem_with_its_place() -> None:
    application = FastAPI(openapi_url=None)
    problems.install(application)

    @application.get("/numbers")
    async def numbers(first: int, second: int = Query(ge=2)) -> None:
        raise AssertionError

    @application.get("/refused/{status}")
    async def refused(status: int, detail: str) -> None:
        raise HTTPException(status, detail, {"X-More": "1"})

    see = "See /openapi.json for what there is."
    async with client_of(application) as client:
        answer = await client.get("/numbers?second=1&first=x")
        faults = answer.json().pop("errors")
        assert answer.json() == {
            **told("input", 422, "Unprocessable Content", detail="The request is not acceptable."),
            "errors": faults,
        }
        assert [one["where"] for one in faults] == ["query.first", "query.second"]
        assert all(one.keys() == {"where", "message"} and one["message"] for one in faults)
        for path, method, body, more in (
            ("/nowhere", "GET", told("not_found", 404, "Not Found", detail="There is nothing at this path."), {}),
            (
                *("/numbers", "PUT"),
                told("method_not_allowed", 405, "Method Not Allowed", detail="This path has no such method."),
                {"allow": "GET"},
            ),
        ):
            answer = await client.request(method, path)
            assert answer.json() == {**body, "remedy": see}
            assert _headers(answer) == {"content-type": "application/problem+json", **more}
        for status, code, title in (
            (404, "not_found", "Not Found"),
            (405, "method_not_allowed", "Method Not Allowed"),
            (408, "too_slow", "Request Timeout"),
            (413, "too_large", "Content Too Large"),
            (415, "media_type", "Unsupported Media Type"),
            (418, "http", "I'm a Teapot"),
            (422, "input", "Unprocessable Content"),
        ):
            answer = await client.get(f"/refused/{status}?detail=No.")
            assert answer.json() == told(code, status, title, detail="No."), status
            assert _headers(answer) == {"content-type": "application/problem+json", "x-more": "1"}


@pytest.mark.parametrize("status", [200, 400, 408, 413, 431, 500])
async def test_a_connection_is_closed_after_answers_to_those_who_may_still_send(status: int) -> None:
    assert {408, 413, 431} == CLOSING
    counted: list[Any] = []
    metrics: Any = SimpleNamespace(request=lambda *said: counted.append(said))
    answering = PlainTextResponse("x", status, {"X-Own": "1"})
    async with client_of(Observe(answering, metrics)) as client:
        answer = await client.post("/")
    closes = {"connection": "close"} if status in CLOSING else {}
    assert _headers(answer) == {"x-own": "1", "content-type": "text/plain; charset=utf-8", **closes}
    ((method, route, counted_status, seconds),) = counted
    assert (method, route, counted_status) == ("POST", "none", status)
    assert 0 <= seconds < 60


@pytest.mark.parametrize("error", [InputError("late"), ValueError("late"), ClientDisconnect()])
async def test_an_answer_that_has_begun_is_not_begun_again(error: Exception) -> None:
    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    counted: list[Any] = []
    metrics: Any = SimpleNamespace(request=lambda *said: counted.append(said))
    with structlog.testing.capture_logs() as captured:
        await Observe(breaks, metrics)({"type": "http", "method": "GET", "path": "/"}, receive, send)
        await Observe(breaks, metrics)({"type": "lifespan"}, receive, send)
    assert sent == [{"type": "http.response.start", "status": 200, "headers": []}]
    assert len(counted) == 1
    assert [line["event"] for line in captured] == (["a request failed"] if isinstance(error, ValueError) else [])


async def test_a_client_that_left_is_not_answered() -> None:
    async def leaves(scope: Any, receive: Any, send: Any) -> None:
        raise ClientDisconnect

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    metrics: Any = SimpleNamespace(request=nothing)
    await Observe(leaves, metrics)({"type": "http", "method": "GET", "path": "/"}, nothing, nothing)


PRINCIPAL = Principal("acme", "ann", frozenset({"admin"}))


@pytest.mark.parametrize(
    ("path", "sent", "asked"),
    [
        *((path, None, None) for path in ("/healthz", "/slack/events", "/webhooks/servicenow/x")),
        *((path, "Bearer cst_x", None) for path in ("/healthz", "/slack/events", "/webhooks/servicenow/x")),
        *((path, "Bearer cst_x", "cst_x") for path in ("/", "/v1/runs", "/healthz/", "/slack", "/webhook", "/readyz")),
        ("/v1/runs", "bEaReR  cst_x ", "cst_x"),
        *(("/v1/runs", sent, "") for sent in (None, "", "Bearer", "Bearer ", "Basic cst_x", "cst_x", "Bearercst_x")),
        *((path, None, "") for path in ("/healthz/", "/healthzz", "/slack", "/openapi.json", "/metrics", "/readyz")),
    ],
)
async def test_a_token_is_asked_for_everywhere_but_at_open_and_signed_paths(
    monkeypatch: pytest.MonkeyPatch, path: str, sent: str | None, asked: str | None
) -> None:
    found: list[Any] = []

    async def owner(database: Any, token: str) -> Principal:
        found.append((database, token))
        return PRINCIPAL

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        found.append(scope.get("state", {}).get("principal"))

    monkeypatch.setattr(middleware, "principal_of", owner)
    headers = [] if sent is None else [(b"authorization", sent.encode())]
    scope: Any = {"type": "http", "path": path, "headers": [(b"host", b"h"), *headers]}
    nothing: Any = None
    database: Any = "database"
    if asked == "":
        with pytest.raises(AuthenticationError) as refused:
            await Bearer(inner, database)(scope, nothing, nothing)
        assert str(refused.value) == (
            "A bearer token is needed. Send `Authorization: Bearer …`; `counterseal token create` makes one."
        )
        assert found == [], "nothing behind it has run"
    else:
        await Bearer(inner, database)(scope, nothing, nothing)
        assert found == ([None] if asked is None else [("database", asked), PRINCIPAL])


@pytest.mark.parametrize(
    ("path", "kind", "content", "status"),
    [
        ("/v1/runs", "application/json", b'{"a": 1}', 200),
        ("/v1/runs", "Application/JSON ; charset=utf-8", b"[]", 200),
        ("/v1/runs", "text/plain", b"", 200),
        ("/v1/runs", "text/plain", b"{}", 415),
        ("/v1/runs", "", b"{}", 415),
        ("/v1/runs", "application/jsonx", b"{}", 415),
        ("/v1/runs", "application/json", b"x" * 262_145, 413),
        ("/v1/runs", "text/plain", b"x" * 262_145, 413),
        ("/v1/runs", "application/json", b"{", 400),
        ("/slack/events", "text/plain", b"{", 200),
        ("/webhooks/servicenow/x", "text/plain", b"x" * 262_145, 200),
        ("/slackk", "text/plain", b"{", 415),
    ],
)
async def test_a_body_is_bounded_json_everywhere_but_at_signed_paths(
    path: str, kind: str, content: bytes, status: int
) -> None:
    application = FastAPI()
    problems.install(application)
    taken: list[bytes] = []

    @application.middleware("http")
    async def read(request: Any, _: Any) -> Any:
        taken.append(await request.body())
        return PlainTextResponse("read")

    metrics: Any = SimpleNamespace(request=lambda *_: None)
    async with client_of(Observe(Bounded(application), metrics)) as client:
        answer = await client.post(path, content=content, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert taken == ([content] if status == 200 else [])
    words = {
        413: told("too_large", 413, "Content Too Large", detail="At most 262144 bytes are accepted."),
        415: told("media_type", 415, "Unsupported Media Type", detail="Only application/json is accepted."),
    }
    if status in words:
        assert answer.json() == words[status]
    elif status == 400:
        assert answer.json()["code"] == "input"


async def test_a_request_without_a_body_is_handed_on_as_it_is() -> None:
    seen: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    scope: Any = {"type": "http", "path": "/v1/runs", "method": "POST", "headers": [(b"content-type", b"text/plain")]}

    async def never(*_: Any) -> Any:
        raise AssertionError

    nobody: Any = never
    await Bounded(inner)(scope, nobody, nobody)
    assert seen == [(scope, never, never)]


async def test_after_a_body_that_was_read_comes_what_the_connection_says() -> None:
    messages = [{"type": "http.request", "body": b"[1,", "more_body": True},
                {"type": "http.request", "body": b"2]", "more_body": False}, {"type": "http.disconnect"}]  # fmt: skip
    got: list[Any] = []
    nobody: Any = None

    async def receive() -> Any:
        return messages.pop(0)

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        got.extend([await receive(), await receive()])

    for framing in (b"content-length", b"transfer-encoding"):
        left = [*messages]
        headers = [(framing, b"5"), (b"content-type", b"application/json")]
        scope: Any = {"type": "http", "path": "/v1/runs", "method": "POST", "headers": headers}
        await Bounded(inner)(scope, receive, nobody)
        assert got == [{"type": "http.request", "body": b"[1,2]", "more_body": False}, {"type": "http.disconnect"}]
        got.clear()
        messages.extend(left)


NOW, KEY, BODY = 1_000_000, "a-webhook-secret", b'{"a": 1}'


def signed(timestamp: str, body: bytes = BODY, secret: str = KEY, *, form: str = "hex") -> dict[str, str]:
    """Headers of a request that was signed at this time."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    text = digest.hexdigest() if form == "hex" else base64.b64encode(digest.digest()).decode()
    return {"x-counterseal-timestamp": timestamp, "x-counterseal-signature": text}


GOOD = signed(str(NOW))
SIGNATURE = GOOD["x-counterseal-signature"]
BY = "x-counterseal-signature"
NO_TIME = "X-Counterseal-Timestamp is missing or not Unix seconds."
NO_MATCH = "X-Counterseal-Signature is missing or does not match."
TOO_OLD = "The request is too old or from the future; check the clocks."
SIGNED: list[tuple[dict[str, str], tuple[int, str, str] | None]] = [
    *((signed(str(NOW + skew)), None) for skew in (-300, -299, 0, 299, 300)),
    *((signed(str(NOW + skew)), (401, "stale", TOO_OLD)) for skew in (-301, 301, -NOW, 10**9)),
    (signed(str(NOW), form="base64"), None),
    *(({**GOOD, BY: text}, None) for text in (SIGNATURE.upper(), f"sha256={SIGNATURE}", f"  {SIGNATURE} ")),
    (signed("9" * 12), (401, "stale", TOO_OLD)),
    *((signed(text), (401, "timestamp", NO_TIME)) for text in ("", "9" * 13, "-1", "1.5", "1e3", " 1", "1000000 ")),
    *((signed(text), (401, "timestamp", NO_TIME)) for text in ("\u0661\u0660", "\u00b2", "x", f"{NOW}\n")),
    ({BY: SIGNATURE}, (401, "timestamp", NO_TIME)),
    (signed(str(NOW), BODY + b" "), (401, "signature", NO_MATCH)),
    (signed(str(NOW), secret=f"{KEY}2"), (401, "signature", NO_MATCH)),
    ({**GOOD, "x-counterseal-timestamp": str(NOW + 1)}, (401, "signature", NO_MATCH)),
    ({"x-counterseal-timestamp": str(NOW)}, (401, "signature", NO_MATCH)),
    *(
        ({**GOOD, BY: text}, (401, "signature", NO_MATCH))
        for text in ("", "sha256=", SIGNATURE[:-1], f"{SIGNATURE}0", f"sha1={SIGNATURE}", "=", "é", "sha256=sha256=")
    ),
    ({**signed(str(NOW - 301)), BY: "00" * 32}, (401, "signature", NO_MATCH)),
]


@pytest.mark.req("Q-1")
@pytest.mark.parametrize(("headers", "refused"), SIGNED)
def test_a_webhook_counts_if_its_very_bytes_were_signed_a_moment_ago(
    headers: dict[str, str], refused: tuple[int, str, str] | None
) -> None:
    found = verify(headers, BODY, KEY, float(NOW))
    assert (None if found is None else (found.status, found.code, found.detail)) == refused


ALONE = ("author", "trigger")


@pytest.mark.parametrize("roles", [one for size in (1, 2) for one in combinations(Role, size)])
async def test_whoever_is_only_an_author_sees_its_own_runs_alone(roles: tuple[Role, ...]) -> None:
    who = Principal("acme", "ann", frozenset(map(str, roles)))
    check_own(who, {"requested_by": "ann"})
    if {*map(str, roles)} <= {*ALONE}:
        with pytest.raises(AuthorizationError) as refused:
            check_own(who, {"requested_by": "bob"})
        assert str(refused.value) == (
            "An author looks at and extends only runs that were started in its own name, and this is none of them. "
            "Ask an administrator for a token with the role operator."
        )
    else:
        check_own(who, {"requested_by": "bob"})
    request: Any = SimpleNamespace(state=SimpleNamespace(principal=who))
    for needed in ((Role.ADMIN,), (Role.ADMIN, Role.AUDITOR), (Role.TRIGGER, Role.OPERATOR)):
        if {*needed} & {*roles}:
            assert await allow(*needed)(request) is who
        else:
            with pytest.raises(AuthorizationError) as refused:
                await allow(*needed)(request)
            assert str(refused.value) == (
                f"This needs the role {' or '.join(needed)}, which the token does not have. "
                "Ask an administrator for a token with that role."
            )


EAST = datetime(2026, 5, 4, 3, 2, 1, 5, tzinfo=timezone(timedelta(hours=9)))
KEYS: list[tuple[list[Any], tuple[type, ...]]] = [
    ([UUID(int=7)], (UUID,)),
    (["each.1/\u00e9"], (str,)),
    ([pgproto.UUID(str(UUID(int=7)))], (UUID,)),
    ([3, UUID(int=7)], (int, UUID)),
    ([EAST, UUID(int=7), -4], (datetime, UUID, int)),
    *(([number], (int,)) for number in (-(2**31) + 1, -1, 0, 2**31 - 1)),
    *(([at], (datetime,)) for at in (datetime(1970, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, tzinfo=UTC))),
]
NO_CURSORS: list[tuple[object, tuple[type, ...]]] = [
    *(([number], (int,)) for number in (-(2**31), 2**31, 1.0, "1", True, None)),
    *(([at], (datetime,)) for at in ("1969-12-31T23:59:59Z", "9999-01-01T00:00:00Z", "2026-01-01T00:00:00", 5)),
    ([1], (int, int)),
    ([1, 2, 3], (int, int)),
    ([], (int,)),
    (["x"], (UUID,)),
    *(([value], (str,)) for value in (1, None, ["x"])),
    ({"a": 1}, (int,)),
]


@pytest.mark.req("X-5")
@pytest.mark.parametrize(("key", "kinds"), KEYS)
def test_a_cursor_is_read_back_as_it_was(key: list[Any], kinds: tuple[type, ...]) -> None:
    assert decode_cursor(encode_cursor(key), *kinds) == key
    assert Paging(1, encode_cursor(key)).after(*kinds) == key
    assert decode_cursor("", *kinds) == []


@pytest.mark.req("X-5")
@pytest.mark.parametrize(("value", "kinds"), NO_CURSORS)
def test_what_is_no_cursor_of_a_list_is_refused(value: object, kinds: tuple[type, ...]) -> None:
    for text in (base64.urlsafe_b64encode(json.dumps(value).encode()).decode(), "é", "a b", "x"):
        with pytest.raises(InputError) as refused:
            decode_cursor(text.rstrip("="), *kinds)
        assert (refused.value.message, refused.value.where) == ("is not a cursor of this list.", "cursor")
        assert refused.value.remedy == "Leave it out."


@pytest.mark.req("X-5")
@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_a_page_says_that_more_follows_if_one_more_row_was_fetched(limit: int) -> None:
    rows = [{"a": number, "b": -number, "c": "x"} for number in range(3)]
    page = Paging(limit, "").page(rows, "b", "a")
    last = limit - 1
    more = encode_cursor([-last, last]) if limit < 3 else None
    assert page == {"items": rows[:limit], "next": more}
    assert Paging(limit, "").page([], "a") == {"items": [], "next": None}


def test_a_version_is_a_strong_tag() -> None:
    assert etag(12) == '"12"'
