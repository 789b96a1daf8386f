"""Requests as they reach Bolt, and its settings: without a server, chunk by chunk and setting by setting."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from slack_bolt.response import BoltResponse
from starlette.requests import ClientDisconnect

from approvals.slack import handlers
from approvals.slack.guard import BODY_BYTES_MAX, SlackEndpoint
from approvals.slack.handlers import build_bolt

pytestmark = pytest.mark.req("U-8")

NOW = 1_700_000_000
BODY = b'{"type": "x"}'


class Arriving:
    """A request whose body arrives in these chunks; ``taken`` counts those that were taken."""

    def __init__(self, *chunks: bytes, **more: str) -> None:
        self.chunks, self.taken = chunks, 0
        mac = hmac.new(b"s", f"v0:{NOW}:".encode() + b"".join(chunks), hashlib.sha256).hexdigest()
        self.headers = {
            "x-slack-request-timestamp": str(NOW),
            "x-slack-signature": f"v0={mac}",
            "content-type": "application/json",
            **more,
        }

    async def stream(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            self.taken += 1
            if chunk == b"gone":
                raise ClientDisconnect
            yield chunk


class Bolt:
    """Notes each request, and answers it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def async_dispatch(self, request: Any) -> BoltResponse:
        self.asked.append(request)
        return BoltResponse(status=207, body="said", headers={"x-a": ["b"]})


async def answered(request: Arriving) -> tuple[int, bytes, list[Any]]:
    bolt: Any = Bolt()
    arriving: Any = request
    answer = await SlackEndpoint(bolt, signing_secret="s", now=lambda: NOW)(arriving)
    return answer.status_code, bytes(answer.body), bolt.asked


async def test_what_is_signed_reaches_bolt_whole() -> None:
    request = Arriving(BODY[:3], BODY[3:], more="é")
    status, body, [asked] = await answered(request)
    assert (status, body, asked.raw_body) == (207, b"said", BODY.decode())
    assert {name: asked.headers[name] for name in request.headers} == {
        name: [value] for name, value in request.headers.items()
    }


async def test_a_body_is_read_until_it_is_too_long_and_no_further() -> None:
    filler = b" " * (BODY_BYTES_MAX - len(BODY))
    assert (await answered(Arriving(BODY, filler)))[0] == 207
    for chunks, taken in (((BODY, filler, b" ", b" ", b" "), 3), ((BODY, filler + b" ", b" "), 2)):
        request = Arriving(*chunks)
        status, body, asked = await answered(request)
        assert (status, request.taken, asked) == (413, taken, [])
        assert json.loads(body) == {
            "type": "about:blank",
            "status": 413,
            "code": "too_large",
            "detail": f"at most {BODY_BYTES_MAX} bytes are accepted",
        }


async def test_who_goes_before_the_end_reaches_nothing() -> None:
    assert await answered(Arriving(BODY, b"gone")) == (400, b"", [])
    status, _, asked = await answered(Arriving(BODY, **{"x-slack-signature": "v0=x"}))
    assert (status, asked) == (401, [])


def test_bolt_is_set_up_to_answer_late_to_log_nothing_and_to_ask_tasks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    heard: list[Any] = []

    def app(**settings: Any) -> Any:
        told.update(settings)

        def listens(kind: str) -> Any:
            return lambda to: lambda listener: heard.append([kind, getattr(to, "pattern", to), listener.__name__])

        return SimpleNamespace(action=listens("action"), view=listens("view"), error=heard.append)

    monkeypatch.setattr(handlers, "AsyncApp", app)
    given: Any = {name: SimpleNamespace() for name in ("authorize", "client", "service", "tasks")}
    logging.getLogger("counterseal.slack.bolt").setLevel(logging.DEBUG)
    build_bolt(signing_secret="s", **given)
    logger = told.pop("logger")
    assert (logger.name, logger.level) == ("counterseal.slack.bolt", logging.WARNING)
    assert told == {
        "name": "counterseal.slack.bolt",
        "signing_secret": "s",
        "authorize": given["authorize"],
        "client": given["client"],
        "process_before_response": True,
        "raise_error_for_unhandled_request": True,
        "ssl_check_enabled": False,
    }
    assert heard == [
        ["action", "counterseal.task_open", "on_open"],
        ["view", "counterseal.task", "on_complete"],
        ["action", r"counterseal\.[a-z_]+", "on_click"],
        ["view", r"counterseal\.[a-z_]+", "on_submission"],
        handlers._failed,
    ]


async def test_a_click_is_answered_when_its_form_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    listeners: dict[str, Any] = {}

    def app(**_: Any) -> Any:
        def listens(to: Any) -> Any:
            return lambda listener: listeners.update({listener.__name__: listener})

        return SimpleNamespace(action=listens, view=listens, error=lambda _: None)

    async def opens(*given: Any) -> None:
        did.append(["opens", *given])

    async def ack() -> None:
        did.append("answers")

    monkeypatch.setattr(handlers, "AsyncApp", app)
    monkeypatch.setattr(handlers, "_open_task", opens)
    monkeypatch.setattr(handlers, "parse_task_click", lambda body: f"click of {body}")
    given: Any = {name: name for name in ("authorize", "client", "service", "tasks")}
    build_bolt(signing_secret="s", **given)
    await listeners["on_open"](ack, "a body", "its client")
    assert did == [["opens", "tasks", "its client", "click of a body"], "answers"]
