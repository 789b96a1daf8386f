"""Every payload of Slack's that is read or refused, every refusal of the guard, every failure of a call: whole."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from msgspec import to_builtins
from slack_sdk.errors import SlackApiError, SlackClientError

from approvals.slack import calls
from approvals.slack.guard import BODY_BYTES_MAX, check
from approvals.slack.payloads import Clicker, parse_click, parse_submission, parse_task_click, parse_task_submission
from core.errors import InputError
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("U-8")

EXPECTED = Path(__file__).with_name("every_payload.json")
ID = "01890000-0000-7000-8000-000000000001"
SECRET, NOW = "8f742231b10e8888abcd99yyyzzz85a5", 1_700_000_000.0
FORM, JSON = "application/x-www-form-urlencoded", "application/json"


def read(parse: Callable[[Mapping[str, Any]], Any], body: Mapping[str, Any]) -> Any:
    try:
        told: Any = to_builtins(parse(body))
    except InputError as error:
        return str(error)
    for name in ("teams", "enterprises"):
        told["clicker"][name] = sorted(told["clicker"][name])
    return told


def pressed(name: str, value: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "block_actions",
        "user": {"id": "U1", "team_id": "T2"},
        "team": {"id": "T1", "enterprise_id": "E1"},
        "enterprise": {"id": "E2", "name": "x"},
        "container": {"channel_id": "C1"},
        "trigger_id": "tr",
        "actions": [{"action_id": name, "value": value if isinstance(value, str) else json.dumps(value)}],
        **more,
    }


def sent(callback: str, metadata: Any, values: Any, **more: Any) -> dict[str, Any]:
    told = metadata if isinstance(metadata, str) else json.dumps(metadata)
    view = {"callback_id": callback, "private_metadata": told, "state": {"values": values}}
    return {"type": "view_submission", "user": {"id": "U1"}, "team": {"id": "T1"}, "view": view, **more}


CARD, TASK = {"a": ID, "n": "nonce"}, {"t": ID}
APPROVE = "counterseal.approve"
ACCOUNTS: dict[str, dict[str, Any]] = {
    "no user": {"user": None},
    "a user of text": {"user": "U1"},
    "a user without an id": {"user": {"team_id": "T2"}},
    "a user of another type": {"user": {"id": 5}},
    "a user of 64": {"user": {"id": "U" * 64}},
    "a user of 65": {"user": {"id": "U" * 65}},
    "an empty user": {"user": {"id": ""}},
    "a user of another alphabet": {"user": {"id": "Ü1"}},
    "a user of two lines": {"user": {"id": "U\n1"}},
    "a user without a team": {"user": {"id": "U1"}},
    "nobody's team": {"user": {"id": "U1"}, "team": None},
    "one's own team": {"team": None},
    "an empty team": {"team": {}},
    "an empty team of nobody": {"team": {}, "user": {"id": "U1"}},
    "a team of text": {"team": "T1"},
    "an id of no team": {"team": {"id": ""}},
    "a user's empty team": {"user": {"id": "U1", "team_id": ""}},
    "no enterprise": {"enterprise": None},
    "an enterprise of text": {"enterprise": "E2"},
    "an enterprise without an id": {"enterprise": {}},
    "a team without an enterprise": {"team": {"id": "T1", "enterprise_id": None}},
    "a team of an empty enterprise": {"team": {"id": "T1", "enterprise_id": ""}},
    "no container": {"container": None},
    "a container without a channel": {"container": {}},
    "a container of an empty channel": {"container": {"channel_id": ""}},
    "no trigger": {"trigger_id": None},
    "two actions": {"actions": [{}, {}]},
    "no action": {"actions": []},
    "an action in an object": {"actions": {}},
    "an action of text": {"actions": ["x"]},
    "an action without a name": {"actions": [{"value": "{}"}]},
    "an action without a value": {"actions": [{"action_id": "NAME"}]},
}


def clicks() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, parse, name, value in (
        ("card", parse_click, APPROVE, CARD),
        ("task", parse_task_click, "counterseal.task_open", TASK),
    ):
        for case, more in ACCOUNTS.items():
            given = json.loads(json.dumps(more).replace("NAME", name))
            found[f"{kind}: {case}"] = read(parse, pressed(name, value, **given))
        without = pressed(name, value)
        del without["container"]
        found[f"{kind}: without a container"] = read(parse, without)
        found[f"{kind}: long value"] = read(parse, pressed(name, json.dumps(value).ljust(2000)))
        found[f"{kind}: longer value"] = read(parse, pressed(name, json.dumps(value).ljust(2001)))
        for member in value:
            for wrong in (None, 5, "", "x", "y" * 64, "y" * 65):
                found[f"{kind}: {member} = {wrong!r}"] = read(parse, pressed(name, {**value, member: wrong}))
    for name in ("approve", "reject", "happened", "again", "fail", "review", "task_open", "x"):
        found[f"button {name}"] = [
            read(parse, pressed(f"counterseal.{name}", {**CARD, **TASK})) for parse in (parse_click, parse_task_click)
        ]
    return found


def submissions() -> dict[str, Any]:
    reason = {"reason": {"reason": {"value": " no\n"}}}
    chosen = {**reason, "choice": {"choice": {"selected_option": {"value": "again"}}}}
    review, asked = "counterseal.review", {**CARD, "c": "fail"}
    found: dict[str, Any] = {
        "reason": read(parse_submission, sent("counterseal.reason", asked, reason)),
        "reason of a page": read(parse_submission, sent("counterseal.reason", {**asked, "p": 3, "l": True}, chosen)),
        "reason of no choice": read(parse_submission, sent("counterseal.reason", CARD, reason)),
        "reason of another choice": read(parse_submission, sent("counterseal.reason", {**CARD, "c": "x"}, reason)),
        "last page": read(parse_submission, sent(review, {**CARD, "l": True, "p": 9}, chosen)),
        "not the last page": read(parse_submission, sent(review, {**CARD, "l": False, "p": 0}, chosen)),
        "the last page by one": read(parse_submission, sent(review, {**CARD, "l": 1}, chosen)),
        "last page without a choice": read(parse_submission, sent(review, {**CARD, "l": True}, reason)),
    }
    for page in (-1, 0, 9999, 10_000, True, None, "1", 1.0):
        found[f"page {page!r}"] = read(parse_submission, sent(review, {**CARD, "p": page}, {}))
    entered: dict[str, Any] = {
        "no values": None,
        "a choice of text": {"choice": "x"},
        "a choice of another": {"choice": {"x": {}}},
        "no option": {"choice": {"choice": {"selected_option": None}}},
        "an option without a value": {"choice": {"choice": {"selected_option": {}}}},
        "an option that was not offered": {"choice": {"choice": {"selected_option": {"value": "maybe"}}}},
        "a reason of text": {**chosen, "reason": "x"},
        "a reason of nothing": {**chosen, "reason": {"reason": {}}},
        "a reason of no field": {**chosen, "reason": {}},
        "a reason of no block": {**chosen, "reason": None},
        "a reason of null": {**chosen, "reason": {"reason": {"value": None}}},
        "a reason of a number": {**chosen, "reason": {"reason": {"value": 5}}},
        "a reason of zero": {**chosen, "reason": {"reason": {"value": 0}}},
        "a reason of no list": {**chosen, "reason": {"reason": {"value": []}}},
        "no reason": {"choice": chosen["choice"]},
    }
    for name, values in entered.items():
        found[f"submission: {name}"] = read(parse_submission, sent(review, {**CARD, "l": True}, values))
    for kind, parse, callback, metadata in (
        ("card", parse_submission, review, CARD),
        ("task", parse_task_submission, "counterseal.task", TASK),
    ):
        whole: Any = sent(callback, metadata, {"f": {"f": {"value": "x"}}})
        changed: dict[str, Any] = {
            "whole": {},
            "no view": {"view": None},
            "no callback": {"view": {**whole["view"], "callback_id": None}},
            "another callback": {"view": {**whole["view"], "callback_id": "counterseal.other"}},
            "no metadata": {"view": {**whole["view"], "private_metadata": None}},
            "metadata in a list": {"view": {**whole["view"], "private_metadata": "[]"}},
            "long metadata": {"view": {**whole["view"], "private_metadata": json.dumps(metadata).ljust(3000)}},
            "longer metadata": {"view": {**whole["view"], "private_metadata": json.dumps(metadata).ljust(3001)}},
            "no state": {"view": {name: item for name, item in whole["view"].items() if name != "state"}},
            "a state of text": {"view": {**whole["view"], "state": "x"}},
            "a state of nothing": {"view": {**whole["view"], "state": {}}},
            "no user": {"user": None},
        }
        for name, more in changed.items():
            found[f"{kind} submission: {name}"] = read(parse, {**whole, **more})
    for callback in ("reason", "review", "task", "x"):
        found[f"modal {callback}"] = [
            read(parse, sent(f"counterseal.{callback}", {**asked, **TASK}, {}))
            for parse in (parse_submission, parse_task_submission)
        ]
    return found


def test_payloads_are_read_and_refused_as_they_were() -> None:
    as_it_was(EXPECTED, {**clicks(), **submissions()})


def signed(body: bytes, *, at: object = int(NOW), secret: str = SECRET, kind: str | None = FORM) -> dict[str, str]:
    mac = hmac.new(secret.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    headers = {"X-Slack-Request-Timestamp": str(at), "x-slack-SIGNATURE": f"v0={mac}"}
    return headers if kind is None else {**headers, "Content-Type": kind}


def guarded(headers: Mapping[str, str], body: bytes, *, secret: str = SECRET, now: float = NOW) -> Any:
    return to_builtins(check(headers, body, secret=secret, now=now))


def encoded(payload: object, **more: str) -> bytes:
    return urlencode({"payload": payload if isinstance(payload, str) else json.dumps(payload), **more}).encode()


def test_the_guard_refuses_as_it_did() -> None:
    good: dict[str, Any] = {"type": "x", "user": {}, "actions": [{}]}
    body = encoded(good)
    found: dict[str, Any] = {
        f"clock {seconds}": guarded(signed(body), body, now=NOW + seconds)
        for seconds in (-301, -300, 0, 300, 300.5, 301)
    }
    for at in ("", "x", "-1", "1e9", "\u0661", "9" * 12, "9" * 13, " 1700000000"):
        found[f"timestamp {at!r}"] = guarded({**signed(body), "X-Slack-Request-Timestamp": at}, body)
    right = signed(body)["x-slack-SIGNATURE"]
    for name, signature in {
        "none": "",
        "é": "v0=é",
        "bare": right[3:],
        "v1": f"v1{right[2:]}",
        "short": right[:-1],
    }.items():
        found[f"signature {name}"] = guarded({**signed(body), "x-slack-SIGNATURE": signature}, body)
    found["no headers"] = guarded({}, body)
    found["another secret"] = guarded(signed(body, secret="x"), body)
    found["no secret"] = guarded(signed(body, secret=""), body, secret="")
    found["another body"] = guarded(signed(body), body + b"&a=b")
    found["another time"] = guarded({**signed(body), "X-Slack-Request-Timestamp": str(int(NOW) + 1)}, body)
    for kind in (None, "", "text/plain", f" {FORM.upper()} ; charset=x", f"x;{FORM}"):
        found[f"kind {kind}"] = guarded(signed(body, kind=kind), body)
    for size in (BODY_BYTES_MAX, BODY_BYTES_MAX + 1):
        long = b"{" + b" " * (size - 2) + b"}"
        found[f"size {size}"] = guarded(signed(long, kind=JSON), long)
    unsigned = b"x" * (BODY_BYTES_MAX + 1)
    found["size before signature"] = guarded({}, unsigned)
    bodies: dict[str, bytes] = {
        "no UTF-8": b"\xff",
        "no UTF-8, encoded": b"payload=%ff",
        "nothing": b"",
        "no payload": b"a=b",
        "two payloads": body + b"&" + body,
        "16 fields": body + b"&a=" * 15,
        "17 fields": body + b"&a=" * 16,
        "no JSON": encoded("{"),
        "an empty payload": b"payload=",
    }
    for name, each in bodies.items():
        found[f"body: {name}"] = guarded(signed(each), each)
    as_it_was(EXPECTED.with_name("every_refusal.json"), {**found, **shapes(good)})


def shapes(good: dict[str, Any]) -> dict[str, Any]:
    """Check each member that Bolt reads, in a form and as JSON, with every type that it may not have."""
    found: dict[str, Any] = {}
    members = (
        "type",
        "user",
        "team",
        "enterprise",
        "channel",
        "container",
        "message",
        "view",
        "actions",
        "authorizations",
    )
    for name in members:
        values: list[Any] = [None, "x", 5, {}, [], [{}], [5]]
        for value in values:
            payload = {**good, name: value}
            form, line = encoded(payload), json.dumps(payload).encode()
            told = [guarded(signed(form), form), guarded(signed(line, kind=JSON), line)]
            assert told[0] == told[1]
            found[f"{name} = {value!r}"] = told[0] and [told[0]["status"], told[0]["code"], told[0]["detail"]]
    cases: dict[str, Any] = {"no actions": None, "actions": [{}], "an empty list": []}
    for name, value in cases.items():
        pressed = encoded({"type": "block_actions"} | ({} if value is None else {"actions": value}))
        found[f"pressed: {name}"] = guarded(signed(pressed), pressed)
    return found


class Raises:
    """A request that fails, or that is answered with this."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    async def __call__(self) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return SimpleNamespace(data=self.outcome)


def refused(
    status: int | None, data: Any, headers: dict[str, str] | None = None, *, old: bool = False
) -> SlackApiError:
    response = {"status" if old else "status_code": status, "data": data, "headers": headers}
    failure: Callable[[str, Any], SlackApiError] = SlackApiError
    return failure("x", SimpleNamespace(**response))


async def test_failures_of_calls_are_told_apart_as_they_were() -> None:
    connection: Any = SimpleNamespace(ssl=None, host="h", port=1, is_ssl=False)
    throttled = {"ok": False, "error": "ratelimited"}
    failures: dict[str, Any] = {
        "answer": {"ok": True},
        "a list": [],
        "bytes": b"x",
        "no connection": aiohttp.ClientConnectorError(connection, OSError("x")),
        "no connection in time": aiohttp.ConnectionTimeoutError("x"),
        "too late": TimeoutError(),
        "lost": aiohttp.ServerDisconnectedError(),
        "broken": OSError("x"),
        "of the client": SlackClientError("x"),
        "no JSON": ValueError("x"),
        "no text": AttributeError("x"),
        **{
            f"throttled for {each!r}": refused(429, throttled, {"Retry-After": each})
            for each in ("7", "0", "1.5", "", "x", "\u0667")
        },
        "throttled for ever": refused(429, throttled),
        "throttled in words": refused(429, "slow down"),
        "throttled by name": refused(200, throttled, {"Retry-After": "9"}),
        "throttled by another name": refused(200, {"error": "rate_limited"}),
        "throttled, by aiohttp": refused(429, throttled, old=True),
        "no status": refused(None, {"error": "is_archived"}),
        **{f"status {status}": refused(status, {"error": "is_archived"}) for status in (499, 500, 503)},
        "status 500 in words": refused(500, "oops"),
        "no name": refused(200, {"error": 5}),
        **{
            f"in doubt: {name}": refused(200, {"error": name})
            for name in ("fatal_error", "internal_error", "request_timeout", "service_unavailable", "update_failed")
        },
        "unknown": refused(200, {"error": "something_new"}),
        "scope": refused(200, {"error": "missing_scope", "needed": "chat:write"}),
        "scope of no text": refused(200, {"error": "missing_scope", "needed": 5}),
        **{name: refused(200, {"error": name}) for name in sorted(calls._REMEDIES)},
    }
    found = {}
    for name, outcome in failures.items():
        told = await calls.call(Raises(outcome)(), timeout_seconds=5)
        found[name] = told if isinstance(told, dict) else [type(told).__name__, to_builtins(told)]
    as_it_was(EXPECTED.with_name("every_failure.json"), found)


def test_every_payload_names_its_account_in_the_same_way() -> None:
    """All teams and enterprises that a payload names are kept: a home refuses a click if one of them is another's."""
    about = {
        "user": {"id": "U1", "team_id": "T2"},
        "team": {"id": "T1", "enterprise_id": "E1"},
        "enterprise": {"id": "E2"},
    }
    clicker = Clicker("T2", "U1", frozenset({"T1", "T2"}), frozenset({"E1", "E2"}))
    reason = {"reason": {"reason": {"value": "no"}}}
    assert parse_click(pressed(APPROVE, CARD, **about)).clicker == clicker
    assert parse_task_click(pressed("counterseal.task_open", TASK, **about)).clicker == clicker
    assert parse_submission(sent("counterseal.reason", {**CARD, "c": "fail"}, reason, **about)).clicker == clicker
    assert parse_task_submission(sent("counterseal.task", TASK, {}, **about)).clicker == clicker
