"""The words of each connector as they go over the wire: whole requests, and what comes of whole answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import pytest
from aiohttp.client_reqrep import ConnectionKey
from msgspec.structs import replace
from tenacity import AsyncRetrying

from connectors import exchange as exchanging
from connectors.catalog import Catalog
from connectors.hosts import AllowedHost
from connectors.http.addresses import Destination, destination
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.operation import Operation
from connectors.port import SOMEBODY, Before, Done, InDoubt, NotSent, Probe, ProbeVerdict, Refused, Usage
from connectors.servicenow import client
from connectors.servicenow.client import BasicAuth, ClientCredentials, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from connectors.slack.connector import SlackConnector, SlackSettings
from tests.support.calls import Call
from tests.support.connectors_stage import KEY

MakeCall = Callable[..., Call]
ID = "a" * 32
TABLE = "/api/now/table/incident"
ONE = f"{TABLE}/{ID}"
UPDATE, NOTE = "servicenow.incident.update", "servicenow.incident.add_work_note"
BASIC = {"authorization": "Basic c3ZjLmNvdW50ZXJzZWFsOnB3"}
RAW = {"sysparm_display_value": "false", "sysparm_exclude_reference_link": "true"}
FACTS = "number,short_description,sys_id,sys_mod_count,sys_updated_by,sys_updated_on"
OAUTH = ClientCredentials("cid", "secret", "read write")
MARK = "[counterseal:0123456789abcdef]"
RECORD = {"sys_id": ID, "number": "INC1", "sys_mod_count": "5", "sys_updated_by": "svc.counterseal", "priority": "1"}


@pytest.fixture
def now(catalog: Catalog, closing: Callable[[Any], Any], wire: Any) -> Callable[..., ServiceNowConnector]:
    def make(auth: Any = None, username: str | None = None) -> ServiceNowConnector:
        settings = ServiceNowSettings(wire.url, auth or BasicAuth("svc.counterseal", "pw"), username)
        connector: ServiceNowConnector = closing(ServiceNowConnector(settings))
        return connector

    return make


@pytest.mark.parametrize(
    ("operation", "values", "line"),
    [
        ("servicenow.incident.get", {"sys_id": ID}, ("GET", ONE, RAW, "")),
        (
            "servicenow.incident.get",
            {"sys_id": ID, "fields": ["number", "assigned_to"]},
            ("GET", ONE, RAW | {"sysparm_fields": "assigned_to,number,sys_created_by,sys_updated_by"}, ""),
        ),
        (
            "servicenow.incident.query",
            {"query": "priority=1"},
            (
                "GET",
                TABLE,
                RAW | {"sysparm_query": "priority=1^ORDERBYsys_id", "sysparm_limit": "250", "sysparm_offset": "0"},
                "",
            ),
        ),
        (
            "servicenow.record.query",
            {"table": "change/x", "query": "a=b^c=d", "fields": ["number", "active"], "limit": 7, "offset": 14},
            (
                "GET",
                "/api/now/table/change/x",
                RAW
                | {"sysparm_query": "a=b^c=d", "sysparm_limit": "7", "sysparm_offset": "14"}
                | {"sysparm_fields": "number,active,sys_created_by,sys_updated_by"},
                "",
            ),
        ),
        (UPDATE, {"sys_id": ID, "fields": {"priority": "1"}}, ("PATCH", ONE, RAW, {"priority": "1"})),
        (
            NOTE,
            {"sys_id": ID, "work_notes": "looked"},
            ("PATCH", ONE, RAW, {"work_notes": f"looked\n{MARK}"}),
        ),
    ],
)
async def test_what_servicenow_is_asked(
    now: Any, make_call: MakeCall, wire: Any, operation: str, values: dict[str, Any], line: Any
) -> None:
    wire.say({"result": [] if line[1] != ONE else RECORD})
    assert isinstance(await now().perform(make_call(operation, values)), Done)
    assert wire.lines() == [line]
    assert {name: wire.heard[0]["headers"][name] for name in ("authorization", "accept")} == {
        **BASIC,
        "accept": "application/json",
    }


async def test_what_servicenow_answers_is_read_whole(now: Any, make_call: MakeCall, wire: Any) -> None:
    """A reference comes as an object from instances that ignore that it is not wanted."""
    linked = RECORD | {"assigned_to": {"link": "https://x/1", "value": "b" * 32}}
    again: Any = ({"result": []}, {"result": linked}, {"result": {"priority": "1 - Critical"}})
    wire.say({"result": linked}, {"result": [linked, "no record"]}, *again)
    read = await now().perform(make_call("servicenow.incident.get", {"sys_id": ID}))
    flat = RECORD | {"assigned_to": "b" * 32}
    assert read == Done(flat, writers=SOMEBODY)
    listed = await now().perform(make_call("servicenow.incident.query", {"query": ""}))
    assert listed == Done({"records": [flat], "count": 1, "truncated": False}, writers=SOMEBODY)
    fields = {"priority": "2", "assigned_to": "b" * 32, "hidden": "x"}
    written = await now().perform(make_call(UPDATE, {"sys_id": ID, "fields": fields}))
    after = {"priority": "1", "assigned_to": "b" * 32}
    facts = {"sys_id": ID, "number": "INC1", "sys_mod_count": "5"}
    told = {**facts, "fields": after, "altered": ["priority"], "unreadable": ["hidden"]}
    assert written == Done(told, f"{ID}@5", after, altered={"priority": {"asked": "2", "found": "1"}})


@pytest.mark.parametrize(("status", "good"), [(200, True), (299, True), (300, False), (399, False)])
async def test_all_of_2xx_is_a_success_and_nothing_else(
    now: Any, make_call: MakeCall, wire: Any, status: int, good: bool
) -> None:
    wire.say({"result": RECORD}, status=status)
    outcome = await now().perform(make_call(UPDATE, {"sys_id": ID, "fields": {"priority": "1"}}))
    assert isinstance(outcome, Done if good else Refused)


async def test_a_pre_read_asks_for_the_diff_and_the_facts(now: Any, make_call: MakeCall, wire: Any) -> None:
    wire.say({"result": {**RECORD, "strange": "x"}})
    call = make_call(UPDATE, {"sys_id": ID, "fields": {"priority": "1", "work_notes": "x"}})
    facts = {name: RECORD[name] for name in ("number", "sys_id", "sys_mod_count", "sys_updated_by")}
    before = await now().read_before(call)
    assert (before.values, before.version, before.facts) == ({"priority": "1"}, "5", facts)
    assert before.writers == ("unknown",), "it was we who wrote it, for somebody who is not told there"
    asked = {
        "sysparm_fields": FACTS.replace("number,", "number,priority,", 1).replace("sys_id", "sys_created_by,sys_id", 1)
    }
    assert wire.lines()[0] == ("GET", ONE, RAW | asked, "")


@pytest.mark.parametrize(
    ("diff", "marked"),
    [
        (None, {"work_notes", "comments"}),
        ({"appended": []}, {"work_notes", "comments"}),
        ({"appended": ["u_log"]}, {"work_notes", "comments", "u_log"}),
        ({"appended": ["work_notes", "u_log"]}, {"work_notes", "comments", "u_log"}),
    ],
)
async def test_journals_are_marked_and_read_back_by_their_mark_alone(
    closing: Callable[[Any], Any], make_call: MakeCall, wire: Any, diff: Any, marked: set[str]
) -> None:
    """Operations of an installation are no exception, whatever their declarations say of them."""
    values = {"state": "2", "work_notes": "a", "comments": "b", "u_log": "c"}
    properties = {"sys_id": {"type": "string"}, "fields": {"type": "object"}}
    declared = Operation.model_validate(
        {
            "name": "servicenow.ticket.update",
            "handler": "servicenow:update",
            "side_effects": "external_call",
            "risk": "low",
            "summary": "s",
            "target": "ticket/{sys_id}",
            "in_doubt": "probe",
            "writes": "fields",
            "diff": diff,
            "input_schema": {"type": "object", "properties": properties},
            "output_schema": {"type": "object"},
        }
    )
    settings = ServiceNowSettings(wire.url, BasicAuth("svc.counterseal", "pw"))
    connector = closing(ServiceNowConnector(settings))
    call = replace(
        make_call(UPDATE, {"sys_id": ID, "fields": values}, Before({}, "4")), operation=declared.name, declared=declared
    )
    plain = {name: value for name, value in values.items() if name not in marked}
    wire.say({"result": {**RECORD, **values}}, {"result": {**RECORD, **plain}}, {"result": [{"value": f"a\n{MARK}"}]})
    done = await connector.perform(call)
    of_record = {"sys_id": ID, "number": "INC1", "sys_mod_count": "5"}
    assert done == Done(of_record | {"fields": plain, "altered": []}, f"{ID}@5", plain)
    assert (await connector.probe(call, seconds_since_intent=1)).verdict is ProbeVerdict.APPLIED
    sent = {name: f"{value}\n{MARK}" if name in marked else value for name, value in values.items()}
    one, asked = f"/api/now/table/ticket/{ID}", ",".join(sorted([*FACTS.split(","), *plain]))
    assert wire.lines()[:2] == [("PATCH", one, RAW, sent), ("GET", one, RAW | {"sysparm_fields": asked}, "")]


@pytest.mark.parametrize("stranger", ["[counterseal:0123456789abcdee]", "0123456789abcdef", ""])
async def test_a_probe_asks_the_journal_of_its_record_for_its_mark(
    now: Any, make_call: MakeCall, wire: Any, stranger: str
) -> None:
    """Rows that do not bear the mark are nobody's proof, whatever the instance makes of the query."""
    call = make_call(NOTE, {"sys_id": ID, "work_notes": "x"}, Before({}, "5"))
    other = {"element": "work_notes", "value": f"note {stranger}"}
    wire.say({"result": RECORD}, {"result": [other]}, {"result": RECORD}, {"result": [other, {"value": f"x\n{MARK}"}]})
    late = await now().probe(call, seconds_since_intent=61)
    words = "sys_mod_count is still 5, 61 s after the intent: nothing was written since"
    assert late == Probe(ProbeVerdict.NOT_APPLIED, words)
    assert (await now().probe(call, seconds_since_intent=0)).verdict is ProbeVerdict.APPLIED
    query = {"sysparm_query": f"element_id={ID}^valueLIKE{MARK}", "sysparm_limit": "10", "sysparm_offset": "0"}
    journal = ("GET", "/api/now/table/sys_journal_field", RAW | query | {"sysparm_fields": "element,value"}, "")
    assert wire.lines() == [("GET", ONE, RAW | {"sysparm_fields": FACTS}, ""), journal] * 2


@pytest.mark.parametrize(
    ("was", "now_is"), [(None, "5"), ("", "5"), ("four", "5"), ("٤", "5"), ("-4", "5"), ("4", None), ("4", "4.5")]
)
async def test_a_probe_compares_counts_alone(
    now: Any, make_call: MakeCall, wire: Any, was: str | None, now_is: str | None
) -> None:
    wire.say({"result": {**RECORD, "sys_mod_count": now_is}})
    call = make_call(UPDATE, {"sys_id": ID, "fields": {"priority": "1"}}, Before({}, was))
    probe = await now().probe(call, seconds_since_intent=999)
    shown = f"sys_mod_count was {was!r} and is {str(now_is)!r}, which cannot be compared"
    assert probe == Probe(ProbeVerdict.CANNOT_TELL, shown)


@pytest.mark.parametrize(("seconds", "verdict"), [(59.0, "cannot_tell"), (60.0, "not_applied")])
async def test_a_change_of_nothing_is_not_known_to_be_there(
    now: Any, make_call: MakeCall, wire: Any, seconds: float, verdict: str
) -> None:
    wire.say({"result": RECORD})
    call = make_call(UPDATE, {"sys_id": ID, "fields": {}}, Before({}, "5"))
    probe = await now().probe(call, seconds_since_intent=seconds)
    assert (str(probe.verdict), probe.retry_after_seconds) == (verdict, 2.0 if seconds < 60 else None)


async def test_a_token_is_asked_for_with_its_scope(now: Any, make_call: MakeCall, wire: Any) -> None:
    wire.say({"access_token": "t1", "expires_in": 1799}, {"result": RECORD})
    assert isinstance(await now(OAUTH).perform(make_call("servicenow.incident.get", {"sys_id": ID})), Done)
    token, read = wire.heard
    assert (token["method"], token["path"], dict(parse_qsl(token["body"]))) == (
        "POST",
        "/oauth_token.do",
        {"grant_type": "client_credentials", "client_id": "cid", "client_secret": "secret", "scope": "read write"},
    )
    assert read["headers"]["authorization"] == "Bearer t1"


@pytest.mark.parametrize(
    ("expires", "lives"),
    [({}, 300), ({"expires_in": True}, 300), ({"expires_in": 100}, 100), ({"expires_in": "x"}, 300)],
)
async def test_a_token_lives_as_long_as_it_says(
    now: Any, make_call: MakeCall, wire: Any, monkeypatch: pytest.MonkeyPatch, expires: Any, lives: int
) -> None:
    passed = 0.0
    monkeypatch.setattr(client, "deadline_in", lambda seconds: exchanging.deadline_in(seconds + passed))
    connector, get = now(OAUTH), make_call("servicenow.incident.get", {"sys_id": ID})
    wire.say({"access_token": "t1", **expires}, {"result": {}}, {"result": {}})
    wire.say({"access_token": "t2", **expires}, {"result": {}})
    for passed in (0.0, lives - 35.0, lives - 25.0):
        assert isinstance(await connector.perform(get), Done), passed
    said = [one["headers"].get("authorization") for one in wire.heard]
    assert said == [None, "Bearer t1", "Bearer t1", None, "Bearer t2"]


async def test_a_token_that_is_asked_for_too_often_says_when(now: Any, make_call: MakeCall, wire: Any) -> None:
    wire.say({}, status=429, Retry_After="77")
    outcome = await now(OAUTH).perform(make_call("servicenow.incident.get", {"sys_id": ID}))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_seconds == 77


async def test_a_call_has_one_deadline_with_its_tokens(
    now: Any, make_call: MakeCall, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of five seconds pass with each exchange."""
    passed, given = 0.0, []
    module: Any = client
    real = module.exchange

    async def slow(*arguments: Any, timeout_seconds: float, **more: Any) -> Any:
        nonlocal passed
        given.append(timeout_seconds)
        passed += 1.5
        return await real(*arguments, timeout_seconds=5.0, **more)

    monkeypatch.setattr(client, "exchange", slow)
    monkeypatch.setattr(client, "seconds_to", lambda deadline: exchanging.seconds_to(deadline) - passed)
    wire.say({"access_token": "t1"})
    wire.say({}, status=401)
    wire.say({"access_token": "t2"}, {"result": RECORD})
    call = make_call(UPDATE, {"sys_id": ID, "fields": {"priority": "1"}}, timeout=9.0)
    assert isinstance(await now(OAUTH).perform(call), Done)
    assert given == pytest.approx([9.0, 7.5, 6.0, 4.5], abs=0.7)


# Slack


@pytest.fixture
def slack_at(closing: Callable[[Any], Any], wire: Any) -> SlackConnector:
    built: SlackConnector = closing(SlackConnector(SlackSettings("xoxb-test", f"{wire.url}/api/")))
    return built


def post(make_call: MakeCall, **more: Any) -> Call:
    return make_call("slack.message.post", {"channel": "U1", "text": "hello"} | more)


OURS = {"event_type": "counterseal_action", "event_payload": {"key": KEY[:32]}}


SLACK = ConnectionKey("slack.example", 443, True, True, None, None, None)


async def test_slack_says_where_a_message_is(slack_at: SlackConnector, make_call: MakeCall, wire: Any) -> None:
    """A message to a person is in a channel of its own."""
    wire.say({"ok": True, "ts": "1.5", "channel": "D9"}, {"ok": True, "ts": "1.6"}, {"ok": True, "channel": "D9"})
    assert await slack_at.perform(post(make_call)) == Done({"channel": "D9", "ts": "1.5"}, "1.5")
    assert await slack_at.perform(post(make_call)) == Done({"channel": "U1", "ts": "1.6"}, "1.6")
    assert await slack_at.perform(post(make_call)) == InDoubt("Slack answered ok without the message's ts")
    assert {line[:2] for line in wire.lines()} == {("POST", "/api/chat.postMessage")}


async def test_slack_names_the_scope_that_lacks(slack_at: SlackConnector, make_call: MakeCall, wire: Any) -> None:
    wire.say({"ok": False, "error": "missing_scope", "needed": "chat:write"})
    words = "Slack refused: missing_scope; needs the scope chat:write"
    assert await slack_at.perform(post(make_call)) == Refused("missing_scope", words)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {**OURS, "event_type": "another_action"},
        {**OURS, "event_payload": {"key": KEY}},
        {**OURS, "event_payload": {"key": KEY[:31]}},
        {**OURS, "event_payload": {}},
    ],
)
async def test_a_message_is_ours_by_its_kind_and_key(
    slack_at: SlackConnector, make_call: MakeCall, wire: Any, metadata: Any
) -> None:
    wire.say({"ok": True, "messages": [{"ts": "1.5", "metadata": metadata}]})
    wire.say({"ok": True, "messages": [{"ts": "1.5", "metadata": metadata}, {"ts": "1.4", "metadata": OURS}]})
    gone = await slack_at.probe(post(make_call), seconds_since_intent=15)
    assert gone == Probe(ProbeVerdict.NOT_APPLIED, "no message bears this action's key 15 s later")
    found = await slack_at.probe(post(make_call), seconds_since_intent=15)
    done = Done({"channel": "U1", "ts": "1.4"}, "1.4")
    assert found == Probe(ProbeVerdict.APPLIED, "the message 1.4 bears this action's key", done)


def page(*stamps: float, cursor: str = "") -> dict[str, Any]:
    """A page of messages at these seconds after Slack's first answer."""
    messages = [{"ts": f"{1767323045 + stamp:.6f}"} for stamp in stamps]
    return {"ok": True, "messages": messages, "response_metadata": {"next_cursor": cursor}}


async def test_a_search_begins_where_slacks_first_answer_says(
    slack_at: SlackConnector, make_call: MakeCall, wire: Any
) -> None:
    """A search takes its time, and the later answers are dated later."""
    wire.say(page(-1, cursor="c1"), Date="Fri, 02 Jan 2026 03:04:05 GMT")
    wire.say(page(-100, cursor="c2"), page(-180, cursor="c3"), Date="Fri, 02 Jan 2026 03:24:05 GMT")
    wire.say(page(-180, -181, cursor="c4"), Date="Fri, 02 Jan 2026 03:24:05 GMT")
    probe = await slack_at.probe(post(make_call), seconds_since_intent=60)
    assert probe.verdict is ProbeVerdict.NOT_APPLIED
    asked = [dict(parse_qsl(one["body"])) | one["query"] for one in wire.heard]
    first = {"channel": "U1", "include_all_metadata": "1", "limit": "200"}
    assert asked == [first, *(first | {"cursor": cursor} for cursor in ("c1", "c2", "c3"))]
    assert {one["path"] for one in wire.heard} == {"/api/conversations.history"}


async def test_a_thread_is_searched_to_its_end(slack_at: SlackConnector, make_call: MakeCall, wire: Any) -> None:
    """Slack lists a thread from its oldest message on."""
    wire.say(page(-9999, cursor="c1"), page(-5000), Date="Fri, 02 Jan 2026 03:04:05 GMT")
    await slack_at.probe(post(make_call, thread_ts="1.2"), seconds_since_intent=60)
    asked = [dict(parse_qsl(one["body"])) | one["query"] for one in wire.heard]
    first = {"channel": "U1", "include_all_metadata": "1", "limit": "200", "ts": "1.2"}
    assert asked == [first, first | {"cursor": "c1"}]
    assert {one["path"] for one in wire.heard} == {"/api/conversations.replies"}


# HTTP


@pytest.fixture
def http(closing: Callable[[Any], Any], wire: Any) -> HttpConnector:
    allowed = AllowedHost("127.0.0.1", int(wire.url.rpartition(":")[2]), allow_private=True)
    built: HttpConnector = closing(HttpConnector(HttpSettings((allowed,), body_bytes_max=1000)))
    return built


def send(make_call: MakeCall, wire: Any, method: str, **more: Any) -> Call:
    return make_call("http.request.send", {"method": method, "url": f"{wire.url}/a%20b?c=d"} | more)


@pytest.mark.parametrize(
    ("method", "effect"),
    [
        ("GET", False),
        ("HEAD", False),
        ("OPTIONS", True),
        ("POST", True),
        ("PUT", True),
        ("PATCH", True),
        ("DELETE", True),
    ],
)
async def test_a_method_changes_something_unless_it_is_get_or_head(
    http: HttpConnector, make_call: MakeCall, wire: Any, method: str, effect: bool
) -> None:
    call = send(make_call, wire, method)
    wire.say({}, status=500)
    assert type(await http.perform(call)) is (InDoubt if effect else NotSent)
    [heard] = wire.heard
    assert (heard["method"], heard["path"], heard["query"]) == (method, "/a b", {"c": "d"})
    assert heard["headers"].get("idempotency-key") == (KEY if effect else None)
    verdict = ProbeVerdict.CANNOT_TELL if effect else ProbeVerdict.NOT_APPLIED
    assert (await http.probe(call, seconds_since_intent=0)).verdict is verdict


async def test_an_answer_keeps_what_is_named_and_no_more(http: HttpConnector, make_call: MakeCall, wire: Any) -> None:
    told = {"etag": '"7"', "last-modified": "Fri, 02 Jan 2026 03:04:05 GMT", "location": "/things/7"}
    wire.say({"n": 1}, status=201, **told, set_cookie="secret", x_more="no")
    outcome = await http.perform(send(make_call, wire, "POST"))
    headers = told | {"content-type": "application/json"}
    said = {"status": 201, "headers": headers, "body": '{"n":1}', "truncated": False, "json": {"n": 1}}
    assert outcome == Done(said, "/things/7", writers=SOMEBODY)


@pytest.mark.parametrize(
    ("given", "kind"), [({}, "application/json"), ({"content-type": "application/ld+json"}, "application/ld+json")]
)
async def test_a_body_of_json_is_of_the_type_that_it_is_given(
    http: HttpConnector, make_call: MakeCall, wire: Any, given: dict[str, str], kind: str
) -> None:
    wire.say({})
    await http.perform(send(make_call, wire, "POST", json={"b": 1, "a": 2}, headers=given))
    assert wire.heard[0]["headers"]["content-type"] == kind
    assert wire.heard[0]["headers"]["user-agent"] == "counterseal"


async def test_words_of_a_refusal_are_few(http: HttpConnector, make_call: MakeCall, wire: Any) -> None:
    wire.say("x" * 400, status=400)
    outcome = await http.perform(send(make_call, wire, "POST"))
    assert outcome == Refused("http_400", 'answered 400: "' + "x" * 299)


@pytest.mark.parametrize(("extra", "cut"), [(0, False), (1, True)])
async def test_an_answer_has_its_longest_length_and_no_more(
    http: HttpConnector, make_call: MakeCall, wire: Any, extra: int, cut: bool
) -> None:
    wire.say("x" * (998 + extra))
    outcome = await http.perform(send(make_call, wire, "GET"))
    assert isinstance(outcome, Done)
    assert (outcome.output["truncated"], len(str(outcome.output["body"])), "json" in outcome.output) == (
        cut,
        1000,
        not cut,
    )


@pytest.mark.parametrize("status", [300, 304, 399])
async def test_nothing_from_300_on_is_a_success(
    http: HttpConnector, make_call: MakeCall, wire: Any, status: int
) -> None:
    wire.say({}, status=status)
    outcome = await http.perform(send(make_call, wire, "POST", expect_status=[status]))
    assert isinstance(outcome, Refused)
    assert outcome.code == "redirect"


@pytest.mark.parametrize(("seconds", "requests"), [("0", 3), ("2", 3), ("3", 1), ("30", 1)])
async def test_a_pause_of_two_seconds_is_waited_for(
    http: HttpConnector, make_call: MakeCall, wire: Any, monkeypatch: pytest.MonkeyPatch, seconds: str, requests: int
) -> None:
    slept: list[float] = []

    async def pass_at_once(pause: float) -> None:
        slept.append(pause)

    monkeypatch.setattr(exchanging, "AsyncRetrying", partial(AsyncRetrying, sleep=pass_at_once))
    wire.say(*[{}] * requests, status=429, Retry_After=seconds)
    outcome = await http.perform(send(make_call, wire, "POST"))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_seconds == float(seconds)
    assert (len(wire.heard), slept) == (requests, [float(seconds)] * (requests - 1))


async def test_a_server_that_asks_for_patience_is_not_asked_at_its_other_address(
    closing: Callable[[Any], Any], make_call: MakeCall, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def twice(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in ("127.0.0.1", "::1")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", twice)
    port = int(wire.url.rpartition(":")[2])
    connector = closing(HttpConnector(HttpSettings((AllowedHost("two.example", port, allow_private=True),))))
    wire.say({}, status=429, Retry_After="60")
    call = make_call("http.request.send", {"method": "POST", "url": f"http://two.example:{port}/"})
    outcome = await connector.perform(call)
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_seconds == 60


@pytest.mark.parametrize(
    ("url", "port"), [("http://a.example/", 80), ("https://a.example/", 443), ("https://a.example:8443/", 8443)]
)
async def test_a_name_is_looked_up_for_the_port_of_its_scheme(
    monkeypatch: pytest.MonkeyPatch, url: str, port: int
) -> None:
    asked: list[tuple[str, int]] = []

    async def found(host: str, port: int, **_: Any) -> list[Any]:
        asked.append((host, port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", port))] * 2

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    rules = (AllowedHost("a.example"), AllowedHost("a.example", 8443))
    got = await destination(url, rules, timeout_seconds=5.0)
    assert isinstance(got, Destination)
    assert [str(address) for address in got.addresses] == ["8.8.8.8"]
    assert asked == [("a.example", port)]


# The model


async def test_a_chat_goes_out_whole(closing: Callable[[Any], Any], make_call: MakeCall, wire: Any) -> None:
    connector = closing(ModelConnector(ModelSettings(f"{wire.url}/v1/", "sk-test")))
    tool = {"type": "function", "function": {"name": "get"}}
    more: dict[str, Any] = {"tools": [tool], "tool_choice": "auto", "parallel_tool_calls": True, "max_tokens": 9}
    asked = {"model": "m", "system": "be brief", "prompt": "hi", "temperature": 0.5, "response_format": "json", **more}
    usage = {"prompt_tokens": -3, "completion_tokens": True}
    choices = [{"message": {"content": "[1]"}}, {"message": {"content": "[2]"}}]
    wire.say({"choices": choices, "usage": usage, "id": 7})
    outcome = await connector.perform(make_call("model.chat.complete", asked))
    output = {"text": "[1]", "model": "m", "finish_reason": "unknown", "json": [1]}
    assert outcome == Done(output, usage=Usage("openai", "m", 0, 0, None))
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    body = {"model": "m", "messages": messages, "temperature": 0.5, "response_format": {"type": "json_object"}, **more}
    assert wire.lines() == [("POST", "/v1/chat/completions", {}, body)]
    assert wire.heard[0]["headers"]["authorization"] == "Bearer sk-test"
