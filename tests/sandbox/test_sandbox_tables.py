"""The stand-ins' rules, each on both sides: queries, variables, arguments, times, rights, and what Block Kit allows."""

from __future__ import annotations

import base64
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.bpmn_callback import report
from sandbox.bpmn_model import Activity
from sandbox.bpmn_state import BpmnState, EngineError
from sandbox.bpmn_variables import VariableError, read_variables, write_variables
from sandbox.faults import Effect, Fault, FaultKind, FaultTable, fault_from_json
from sandbox.servicenow_access import Access, Accounts, AclRule, RateRule
from sandbox.servicenow_query import QueryError, select
from sandbox.servicenow_state import ServiceNowState
from sandbox.slack_api import SlackApi
from sandbox.slack_args import METADATA_BYTES, ApiError, cursor_of, flag, integer, metadata_of, micros, text_of
from sandbox.slack_blocks import message_problems, view_problems
from sandbox.slack_state import BOT_USER, TRIGGER_SECONDS, Message, SlackState

ROWS = [
    {"n": "1", "p": "2", "text": "VPN down"},
    {"n": "2", "p": "1", "text": ""},
    {"n": "3", "p": "2", "text": "mail ^ VPN"},
    {"n": "4", "p": "3"},
]
QUERIES: list[tuple[str, str]] = [
    ("", "1234"),
    ("p=2", "13"),
    ("p!=2", "24"),
    ("p>2", "4"),
    ("p>=2", "134"),
    ("p<2", "2"),
    ("p<=2", "123"),
    ("pIN1,3", "24"),
    ("pNOT IN1,3", "13"),
    ("textLIKEvpn", "13"),
    ("textCONTAINSvpn", "13"),
    ("textNOT LIKEvpn", "24"),
    ("textSTARTSWITHvpn", "1"),
    ("textENDSWITHVPN", "3"),
    ("textISEMPTY", "24"),
    ("textISNOTEMPTY", "13"),
    ("p=2^n=3", "3"),
    ("p=1^ORp=3", "24"),
    ("p=1^ORp=3^n=4", "4"),
    ("text=mail ^^ VPN", "3"),
    ("ORDERBYp^ORDERBYDESCn", "2314"),
    ("ORDERBYDESCp^ORDERBYn", "4132"),
    ("ORDERBYDESCp^ORDERBYDESCn", "4312"),
    ("p=2^ORDERBYDESCn^EQ", "31"),
]


@pytest.mark.parametrize(("query", "found"), QUERIES)
def test_a_query_selects_and_orders(query: str, found: str) -> None:
    assert "".join(row["n"] for row in select(ROWS, query)) == found


@pytest.mark.parametrize("query", ["p", "P=1", "p~1", "javascript:x()"])
def test_what_no_query_can_say_is_refused(query: str) -> None:
    with pytest.raises(QueryError, match="cannot read"):
        select(ROWS, query)


INT, SHORT, LONG = 2**31, 2**15, 2**63
VARIABLES: list[tuple[Any, Any]] = [
    *(({"type": "Integer", "value": value}, value) for value in (-INT, INT - 1)),
    *(({"type": "Short", "value": value}, value) for value in (-SHORT, SHORT - 1)),
    *(({"type": "Long", "value": value}, value) for value in (-LONG, LONG - 1)),
    ({"value": INT}, INT),
    ({"type": "Double", "value": 1}, 1.0),
    ({"type": "Double", "value": 1.5}, 1.5),
    ({"type": "Boolean", "value": True}, True),
    ({"type": "String", "value": "x" * 4000}, "x" * 4000),
    ({"type": "Json", "value": '{"a": 1}'}, {"a": 1}),
    ({"type": "Null", "value": None}, None),
    *(({"type": kind, "value": None}, None) for kind in ("String", "Boolean", "Double", "Json", "Integer", "Long")),
    ({}, None),
]
MISFITS: list[Any] = [
    *({"type": "Integer", "value": value} for value in (-INT - 1, INT, 1.0, True, "1")),
    *({"type": "Short", "value": value} for value in (-SHORT - 1, SHORT)),
    *({"type": "Long", "value": value} for value in (-LONG - 1, LONG)),
    {"type": "Double", "value": True},
    {"type": "Double", "value": "1"},
    {"type": "Boolean", "value": 1},
    {"type": "String", "value": 1},
    {"type": "String", "value": "x" * 4001},
    {"type": "Json", "value": {"a": 1}},
    {"type": "Json", "value": "{"},
    {"type": "Null", "value": 1},
    {"type": "Date", "value": "x"},
    {"value": 1, "surprise": 2},
    7,
]


@pytest.mark.parametrize(("given", "value"), VARIABLES)
def test_a_variable_is_read(given: Any, value: Any) -> None:
    found = read_variables({"a": given})
    assert (found, type(found["a"])) == ({"a": value}, type(value))


@pytest.mark.parametrize("given", MISFITS)
def test_a_variable_that_does_not_fit_is_refused(given: Any) -> None:
    with pytest.raises(VariableError, match=r"variable '?a'?"):
        read_variables({"a": given})


def test_variables_are_written_with_their_types() -> None:
    assert write_variables({"a": 1, "b": INT, "c": 1.5, "d": True, "e": "x", "f": None, "g": [1, "é"]}) == {
        "a": {"type": "Integer", "value": 1, "valueInfo": {}},
        "b": {"type": "Long", "value": INT, "valueInfo": {}},
        "c": {"type": "Double", "value": 1.5, "valueInfo": {}},
        "d": {"type": "Boolean", "value": True, "valueInfo": {}},
        "e": {"type": "String", "value": "x", "valueInfo": {}},
        "f": {"type": "Null", "value": None, "valueInfo": {}},
        "g": {"type": "Json", "value": '[1,"\\u00e9"]', "valueInfo": {}},
    }
    assert read_variables(None) == {}
    with pytest.raises(VariableError):
        read_variables([])


def refused(function: Any, *arguments: Any) -> str:
    with pytest.raises(ApiError) as caught:
        function(*arguments)
    return caught.value.name


def test_arguments_of_slack_are_read_as_slack_reads_them() -> None:
    good = {"event_type": "e", "event_payload": {"k": ""}}
    room = METADATA_BYTES - len(json.dumps(good))
    assert metadata_of({}) is None
    assert metadata_of({"metadata": json.dumps(good)}) == good
    fits = {"event_type": "e", "event_payload": {"k": "x" * room}}
    assert metadata_of({"metadata": fits}) == fits
    for metadata, error in (
        ({"event_type": "e", "event_payload": {"k": "x" * (room + 1)}}, "metadata_too_large"),
        ({"event_type": "e"}, "invalid_metadata_schema"),
        ({"event_type": "e", "event_payload": [1]}, "invalid_metadata_schema"),
        ({"event_type": "e", "event_payload": "x"}, "invalid_metadata_schema"),
        ({"event_type": 7, "event_payload": {}}, "invalid_metadata_format"),
        ("[]", "invalid_metadata_format"),
        ("{", "invalid_metadata_format"),
    ):
        assert refused(metadata_of, {"metadata": metadata}) == error
    assert (text_of({}, 3), text_of({"text": "abc"}, 3)) == (None, "abc")
    assert refused(text_of, {"text": "abcd"}, 3) == "msg_too_long"
    assert [flag(value) for value in (True, "true", "1", 1, "TRUE", False, None, "0", "yes")] == [True] * 5 + [
        False
    ] * 4
    assert (integer(None, 7), integer("8", 7)) == (7, 8)
    assert {refused(integer, value, 7) for value in ("-1", "x", "", "1.5", "٣")} == {"invalid_limit"}
    assert [micros(value, 9) for value in (None, "", "1", "1.5", "1.0000019", 2)] == [
        9,
        9,
        10**6,
        1500000,
        10**6 + 1,
        2 * 10**6,
    ]
    assert refused(micros, "x", 0) == "invalid_ts_latest"
    assert (cursor_of(None), cursor_of(base64.b64encode(b"next:12").decode())) == (0, 12)
    assert {refused(cursor_of, value) for value in ("?", base64.b64encode(b"\xff").decode())} == {"invalid_cursor"}


def test_a_channel_s_history_is_its_own_newest_first() -> None:
    now = [1000.0]
    state = SlackState(clock=lambda: now[0])
    api = SlackApi(state, team_url=lambda: "https://x/")
    posted: dict[str, Message] = {}
    for name, more in (
        ("one", {}),
        ("reply", {"thread": "one"}),
        ("two", {}),
        ("hidden", {"ephemeral": "U0ANA"}),
        ("three", {}),
    ):
        now[0] += 1
        thread = posted[more["thread"]].ts if "thread" in more else ""
        message = Message("C0OPS", state.next_ts(), BOT_USER, name, [], thread)
        message.ephemeral_for = more.get("ephemeral", "")
        posted[name] = state.post(message)
    elsewhere = state.post(Message("C0INC", state.next_ts(), BOT_USER, "elsewhere", []))

    def texts(**given: Any) -> list[str]:
        return [one["text"] for one in api.history({"channel": "C0OPS", **given})["messages"]]

    two = posted["two"].ts
    assert texts() == ["three", "two", "one"]
    assert texts(oldest=two) == ["three"]
    assert texts(latest=two) == ["one"]
    assert texts(oldest=two, inclusive=True) == ["three", "two"]
    assert texts(latest=two, inclusive="1") == ["two", "one"]
    assert texts(limit=0) == ["three"]
    first = api.history({"channel": "C0OPS", "limit": 2})
    assert [one["text"] for one in first["messages"]] == ["three", "two"]
    assert first["has_more"] is True
    rest = api.history({"channel": "C0OPS", "limit": 2, "cursor": first["response_metadata"]["next_cursor"]})
    assert ([one["text"] for one in rest["messages"]], rest["has_more"]) == (["one"], False)
    assert rest["response_metadata"] == {"next_cursor": ""}
    thread = api.replies({"channel": "C0OPS", "ts": posted["one"].ts})["messages"]
    assert [one["text"] for one in thread] == ["one", "reply"]
    assert (thread[0]["reply_count"], thread[0]["latest_reply"]) == (1, posted["reply"].ts)
    assert refused(api.replies, {"channel": "C0OPS", "ts": elsewhere.ts}) == "thread_not_found"
    assert refused(api.history, {"channel": "C0PRIV"}) == "not_in_channel"
    assert refused(api.history, {"channel": "C9"}) == "channel_not_found"


@pytest.mark.parametrize(
    ("later", "error"), [(0.0, ""), (TRIGGER_SECONDS, ""), (TRIGGER_SECONDS + 0.1, "expired_trigger_id")]
)
def test_a_trigger_is_good_once_and_for_three_seconds(later: float, error: str) -> None:
    now = [10.0]
    state = SlackState(clock=lambda: now[0])
    trigger = state.new_trigger("U0ANA")
    now[0] += later
    assert state.spend_trigger(trigger) == ("" if error else "U0ANA", error)
    assert state.spend_trigger(trigger) == ("", error or "exchanged_trigger_id")
    assert state.spend_trigger("x") == ("", "invalid_trigger_id")


def basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_accounts_tokens_rates_and_rights() -> None:
    now = [100.0]
    acl = (AclRule("t", "write"), AclRule("u", "read", "ana.lee"))
    access = Access(Accounts(), acl, RateRule(2, 60, "r"), lambda: now[0])
    assert (
        access.user(f"Basic {basic('ana.lee:sandbox')}")
        == access.user(f"basic {basic('ana.lee:sandbox')}")
        == "ana.lee"
    )
    for wrong in ("ana.lee:x", "nobody:sandbox", "ana.lee", ":"):
        assert access.user(f"Basic {basic(wrong)}") is None
    assert [access.user(text) for text in ("", "Basic ?", "Digest x", "Bearer x", "Bearer ")] == [None] * 5
    assert access.issue("counterseal", "x") is access.issue("nobody", "sandbox-secret") is None
    issued = access.issue("counterseal", "sandbox-secret")
    assert issued is not None
    token, seconds = issued
    assert seconds == 1800
    for later, user in ((0.0, "counterseal.integration"), (1799.9, "counterseal.integration"), (1800.0, None)):
        now[0] = 100.0 + later
        assert access.user(f"Bearer {token}") == user
    assert [
        access.allows("ana.lee", table, verb) for table, verb in (("t", "write"), ("t", "read"), ("u", "read"))
    ] == [
        *(False, True, False),
    ]
    assert access.allows("raj.quist", "u", "read")
    now[0] = 130.5
    told = {"X-RateLimit-Limit": "2", "X-RateLimit-Reset": "180", "X-RateLimit-Rule": "r"}
    assert [access.count("a") for _ in range(3)] == [(True, told), (True, told), (False, {**told, "Retry-After": "50"})]
    assert access.count("b") == (True, told)
    now[0] = 180.0
    assert access.count("a") == (True, {**told, "X-RateLimit-Reset": "240"})
    assert Access(Accounts(), (), None, lambda: 0.0).count("a") == (True, {})


def test_records_are_stamped_counted_and_journaled() -> None:
    now = [0.0]
    state = ServiceNowState(clock=lambda: now[0])
    state.seed("sys_user", {"sys_id": "u1", "user_name": "ana.lee", "name": "Ana Lee"})
    record = dict(
        state.insert("incident", {"impact": "1", "sys_id": "x", "number": "y", "work_notes": "hi"}, "ana.lee")
    )
    assert (record["number"], record["opened_by"], record["priority"]) == ("INC0010001", "u1", "3")
    assert (record["sys_created_on"], record["opened_at"], record["work_notes"]) == (
        *("1970-01-01 00:00:00", "1970-01-01 00:00:00", "1970-01-01 00:00:00 - Ana Lee (Work notes)\nhi\n\n"),
    )
    now[0] = 5.0
    for fields, count in (
        ({"state": "1"}, "0"),
        ({"state": "2"}, "1"),
        ({"work_notes": "hi"}, "2"),
        ({"work_notes": ""}, "2"),
    ):
        changed = state.update("incident", record["sys_id"], fields, "raj")
        assert changed["sys_mod_count"] == count, fields
    assert (changed["sys_updated_on"], changed["sys_updated_by"]) == ("1970-01-01 00:00:05", "raj")
    assert changed["work_notes"].startswith(
        "1970-01-01 00:00:05 - raj (Work notes)\nhi\n\n1970-01-01 00:00:00 - Ana Lee"
    )
    assert state.update("incident", record["sys_id"], {"urgency": "1"}, "raj")["priority"] == "1"
    assert state.update("incident", record["sys_id"], {"urgency": "2", "priority": "5"}, "raj")["priority"] == "5"
    assert [(one.operation, one.user, dict(one.changes)) for one in state.writes("incident")][1:3] == [
        ("update", "raj", {"state": ("1", "2")}),
        ("update", "raj", {"work_notes": ("", "hi")}),
    ]
    state.delete("incident", record["sys_id"], "raj")
    assert state.record("incident", record["sys_id"]) is None
    assert len(state.writes("incident", user="ana.lee")) == 1


def test_an_external_task_is_fetched_by_whom_it_is_free_for() -> None:
    now = [0.0]
    numbers = iter("12")

    def start(_: Any) -> Any:
        waits = [Activity(f"a{next(numbers)}", "e", "n", "topic")]
        return SimpleNamespace(variables={}, ended=False, activities=lambda: waits)

    models: Any = {"m": SimpleNamespace(key="m", start=start)}
    state = BpmnState(models, clock=lambda: now[0])
    for _ in range(2):
        state.start("m", "b", {})
    first, second = state.external_tasks()
    topic = first.activity.topic
    assert state.fetchable([topic]) == [first, second]
    assert state.fetchable(["other"]) == []
    first.worker_id, first.locked_until = "w", 10.0
    for at, free in ((9.9, [second]), (10.0, [first, second])):
        now[0] = at
        assert state.fetchable([topic]) == free
    with pytest.raises(EngineError, match="It is locked by worker 'w'") as other:
        state.complete_external(first.task_id, "v", {})
    with pytest.raises(EngineError, match="It is not locked"):
        state.complete_external(second.task_id, "v", {})
    with pytest.raises(EngineError, match="does not exist") as gone:
        state.complete_external("x", "w", {})
    assert (other.value.status, gone.value.status) == (400, 404)
    state.fail_external(first.task_id, "w", "m", 1, 5.0)
    assert (first.retries, first.error_message, first.locked_until) == (1, "m", 15.0)
    state.fail_external(first.task_id, "w", "m", 0, 0.0)
    assert state.fetchable([topic]) == [second]
    state.delete(second.instance.instance_id)
    assert (second.instance.state, second.instance.ended) == ("EXTERNALLY_TERMINATED", 10.0)
    assert state.fetchable([topic]) == []
    with pytest.raises(EngineError, match="does not exist"):
        state.delete(second.instance.instance_id)


def test_a_fault_hits_as_often_as_it_says() -> None:
    table = FaultTable(lambda status: {}, only="^/v1/")
    table.inject(Fault("^/a$", method="POST", times=2, skip=1, status=503, effect=Effect.LANDED))
    table.inject(Fault("/a", kind=FaultKind.HANG, times=0))
    hits = [table.take(method, path) for method, path in [("GET", "/a"), *[("POST", "/a")] * 4, ("POST", "/b")]]
    told = [call.fault for call in table.calls]
    assert told == ["hang lost", "hang lost", "status landed", "status landed", "hang lost", ""]
    assert [hit is not None for hit in hits] == [True] * 5 + [False]
    assert table.pending == 1, "one that has no end"
    table.clear()
    assert table.pending == 0
    for bad in (
        {"status": 199},
        {"status": 600},
        {"times": -1},
        {"skip": -1},
        {"delay_ms": -1},
        {"path": "("},
        {"x": 1},
    ):
        with pytest.raises((ValueError, re.error), match=r"."):
            fault_from_json({"path": "/a", **bad})
    for good in ({"status": 200}, {"status": 599}, {"times": 0}, {"kind": "delay", "delay_ms": 5}):
        assert fault_from_json({"path": "/a", **good}).path == "/a"


def plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


def option(text: str = "t", value: str = "v") -> dict[str, Any]:
    return {"text": plain(text), "value": value}


def actions(**element: Any) -> list[dict[str, Any]]:
    return [{"type": "actions", "elements": [{"type": "button", "text": plain("b"), **element}]}]


def inputs(**element: Any) -> list[dict[str, Any]]:
    return [{"type": "input", "label": plain("l"), "element": element}]


def select_of(kind: str, count: int, **more: Any) -> list[dict[str, Any]]:
    return inputs(type=kind, options=[option(str(number), str(number)) for number in range(count)], **more)


def header(text: str) -> list[dict[str, Any]]:
    return [{"type": "header", "text": plain(text)}]


DIALOG = {"title": plain("t"), "text": plain("t"), "confirm": plain("c"), "deny": plain("d")}
# What fits, what does not, and where.
BLOCKS: list[tuple[Any, Any, str]] = [
    (header("x" * 150), header("x" * 151), "/blocks/0/text/text"),
    (header("x"), header(""), "/blocks/0/text/text"),
    (header("x"), [{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}], "/blocks/0/text"),
    (
        [{"type": "section", "text": plain("x" * 3000)}],
        [{"type": "section", "text": plain("x" * 3001)}],
        "/blocks/0/text/text",
    ),
    (
        [{"type": "section", "fields": [plain("x" * 2000)] * 10}],
        [{"type": "section", "fields": [plain("x")] * 11}],
        "/blocks/0/fields",
    ),
    ([{"type": "section", "fields": [plain("x")]}], [{"type": "section"}], "/blocks/0"),
    (
        [{"type": "context", "elements": [plain("x" * 2000)] * 10}],
        [{"type": "context", "elements": [plain("x")] * 11}],
        "/blocks/0/elements",
    ),
    (
        [{"type": "context", "elements": [plain("x" * 2000)]}],
        [{"type": "context", "elements": [plain("x" * 2001)]}],
        "/blocks/0/elements/0/text",
    ),
    ([{"type": "divider"}], [{"type": "video"}], "/blocks/0/type"),
    ([{"type": "divider", "block_id": "x" * 255}], [{"type": "divider", "block_id": "x" * 256}], "/blocks/0/block_id"),
    (
        [{"type": "divider", "block_id": "a"}, {"type": "divider", "block_id": "b"}],
        [{"type": "divider", "block_id": "a"}] * 2,
        "/blocks/1/block_id",
    ),
    (actions(text=plain("x" * 75)), actions(text=plain("x" * 76)), "/blocks/0/elements/0/text/text"),
    (actions(value="x" * 2000), actions(value="x" * 2001), "/blocks/0/elements/0/value"),
    (actions(style="danger"), actions(style="default"), "/blocks/0/elements/0/style"),
    (actions(action_id="x" * 255), actions(action_id="x" * 256), "/blocks/0/elements/0/action_id"),
    (
        actions(confirm=DIALOG),
        actions(confirm={**DIALOG, "deny": plain("x" * 31)}),
        "/blocks/0/elements/0/confirm/deny/text",
    ),
    (
        actions(confirm={**DIALOG, "title": plain("x" * 100)}),
        actions(confirm={**DIALOG, "title": plain("x" * 101)}),
        "/blocks/0/elements/0/confirm/title/text",
    ),
    (
        actions(confirm={**DIALOG, "text": plain("x" * 300)}),
        actions(confirm={**DIALOG, "text": plain("x" * 301)}),
        "/blocks/0/elements/0/confirm/text/text",
    ),
]
MODALS: list[tuple[Any, Any, str]] = [
    (select_of("static_select", 100), select_of("static_select", 101), "/blocks/0/element/options"),
    (select_of("radio_buttons", 10), select_of("radio_buttons", 11), "/blocks/0/element/options"),
    (select_of("checkboxes", 10), select_of("checkboxes", 11), "/blocks/0/element/options"),
    (select_of("static_select", 1), select_of("static_select", 0), "/blocks/0/element/options"),
    (
        select_of("multi_static_select", 2, max_selected_items=1),
        select_of("multi_static_select", 2, max_selected_items=0),
        "/blocks/0/element/max_selected_items",
    ),
    (
        select_of("static_select", 2, initial_option=option("1", "1")),
        select_of("static_select", 2, initial_option=option("1", "2")),
        "/blocks/0/element/initial_option",
    ),
    (
        select_of("multi_static_select", 2, initial_options=[option("1", "1")]),
        select_of("multi_static_select", 2, initial_options=[]),
        "/blocks/0/element/initial_options",
    ),
    (
        inputs(type="static_select", options=[option("x" * 75, "x" * 150)]),
        inputs(type="static_select", options=[option("x" * 76)]),
        "/blocks/0/element/options/0/text/text",
    ),
    (
        inputs(type="static_select", options=[option()]),
        inputs(type="static_select", options=[option(value="x" * 151)]),
        "/blocks/0/element/options/0/value",
    ),
    (
        inputs(type="plain_text_input", max_length=3000, min_length=0, initial_value="x" * 3000),
        inputs(type="plain_text_input", max_length=3001),
        "/blocks/0/element/max_length",
    ),
    (
        inputs(type="plain_text_input", max_length=1, min_length=3000),
        inputs(type="plain_text_input", max_length=0),
        "/blocks/0/element/max_length",
    ),
    (
        inputs(type="plain_text_input"),
        inputs(type="plain_text_input", min_length=-1),
        "/blocks/0/element/min_length",
    ),
    (
        inputs(type="plain_text_input"),
        inputs(type="plain_text_input", initial_value="x" * 3001),
        "/blocks/0/element/initial_value",
    ),
    (
        inputs(type="number_input", is_decimal_allowed=True, min_value="-1.5", initial_value="+.5"),
        inputs(type="number_input", is_decimal_allowed=True, max_value="1e3"),
        "/blocks/0/element/max_value",
    ),
    (
        inputs(type="number_input", is_decimal_allowed=False),
        inputs(type="number_input"),
        "/blocks/0/element/is_decimal_allowed",
    ),
    (
        inputs(type="datepicker", initial_date="2026-01-01"),
        inputs(type="datepicker", initial_date="2026-1-1"),
        "/blocks/0/element/initial_date",
    ),
    (inputs(type="email_text_input"), inputs(type="button"), "/blocks/0/element/type"),
    (
        [{"type": "input", "label": plain("x" * 2000), "hint": plain("x" * 2000), "element": {"type": "datepicker"}}],
        [{"type": "input", "label": plain("l"), "hint": plain("x" * 2001), "element": {"type": "datepicker"}}],
        "/blocks/0/hint/text",
    ),
]


def modal(blocks: Any, more: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "modal", "title": plain("t"), "submit": plain("s"), "blocks": blocks, **(more or {})}


@pytest.mark.parametrize(("good", "bad", "place"), BLOCKS)
def test_what_a_message_may_hold(good: Any, bad: Any, place: str) -> None:
    assert message_problems(good) == []
    assert [problem.partition("[json-pointer:")[2] for problem in message_problems(bad)] == [f"{place}]"]


@pytest.mark.parametrize(("good", "bad", "place"), MODALS)
def test_what_a_modal_may_hold(good: Any, bad: Any, place: str) -> None:
    assert view_problems(modal(good)) == []
    assert [problem.partition("[json-pointer:")[2] for problem in view_problems(modal(bad))] == [f"{place}]"]
    assert [problem.partition("[json-pointer:")[2] for problem in message_problems(good)] == ["/blocks/0/type]"]


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"title": plain("x" * 25)}, "/title/text"),
        ({"submit": plain("x" * 25)}, "/submit/text"),
        ({"close": plain("")}, "/close/text"),
        ({"type": "home"}, "/type"),
        ({"private_metadata": "x" * 3001}, "/private_metadata"),
        ({"callback_id": "x" * 256}, "/callback_id"),
        ({"external_id": "x" * 256}, "/external_id"),
        ({"submit": None}, "/submit"),
        ({"blocks": None}, "/blocks"),
    ],
)
def test_what_frames_a_modal(more: dict[str, Any], place: str) -> None:
    asks = inputs(type="datepicker")
    rim: dict[str, Any] = {"title": plain("x" * 24), "submit": plain("x" * 24), "close": None}
    rim |= {"private_metadata": "x" * 3000, "callback_id": "x" * 255, "external_id": "x" * 255}
    assert view_problems(modal(asks, rim)) == []
    assert [problem.partition("[json-pointer:")[2] for problem in view_problems(modal(asks, more))] == [f"{place}]"]


@pytest.mark.parametrize(
    ("check", "most"), [(message_problems, 50), (lambda blocks: view_problems(modal(blocks)), 100)]
)
def test_how_many_blocks_there_may_be(check: Any, most: int) -> None:
    divider = {"type": "divider"}
    assert check([divider] * most) == []
    assert check([divider] * (most + 1)) == [f"[ERROR] no more than {most} items allowed [json-pointer:/blocks]"]


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, {"output": {}}),
        ({"a": 1, "counterseal_callback_url": "u", "counterseal_x": 2}, {"output": {"a": 1}}),
        ({"a": 1, "counterseal_error": "no"}, {"error": {"code": "process_error", "message": "no"}}),
        ({"a": 1, "counterseal_error": ""}, {"error": {"code": "process_error", "message": ""}}),
        ({"a": 1, "counterseal_error": None}, {"output": {"a": 1}}),
        ({"a": 1, "counterseal_error": 7}, {"output": {"a": 1}}),
    ],
)
def test_the_end_of_a_process_is_reported_as_a_signal(variables: dict[str, Any], told: dict[str, Any]) -> None:
    task: Any = SimpleNamespace(task_id="t1", variables=lambda: variables)
    assert report(task) == {"id": "t1", **told}
