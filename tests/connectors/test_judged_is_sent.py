"""Bytes that leave are the input that was judged: both are compared for each operation.

Every argument takes every nasty value, by the packaged declaration and by one that declares nothing about its inputs.
Either the action is refused before anybody judges it, or exactly its input arrives. A new operation needs a row.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest

from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.canonical import canonical
from connectors.catalog import Catalog, Source, load_catalog
from connectors.hosts import AllowedHost
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.operation import Operation
from connectors.port import Call
from connectors.proposal import build_action, rebuilt_action
from connectors.records.connector import RecordsConnector
from connectors.servicenow.client import BasicAuth, ServiceNowSettings
from connectors.servicenow.connector import WRITERS, ServiceNowConnector, marker
from connectors.servicenow.listing import PAGE_ROWS
from connectors.slack.connector import SlackConnector, SlackSettings
from connectors.urls import canonical_url
from core.action import Action
from core.errors import DefinitionError, InputError

KEY = "0123456789abcdef" * 4
SYS_ID = "a" * 32
NASTY: tuple[Any, ...] = (
    *(
        "..",
        ".",
        "../admin",
        "%2e%2e",
        "%2E%2E%2Fadmin",
        "..%2fadmin",
        "a/../b",
        "..;/a",
        "a/b",
        "a//b",
        "a\\b",
        "a%00b",
    ),
    *(
        "a b",
        " a",
        "a ",
        "a\tb",
        "a\nb",
        "a\r\nX-Evil: 1",
        "a\x00",
        "\x7f",
        "a\u202eb",
        "a\u200bb",
        "a\u2028b",
        "",
        "?",
    ),
    *(
        "a?b=c",
        "a#b",
        "a;b",
        "a&b=c",
        "a%b",
        "100%",
        "+",
        "a+b",
        "\uff43",
        "c\u3002d",
        "e\u0301",
        "é",
        "Ω",
        "😀",
        "'\"<>`{}|^[]",
    ),
    *("a^ORb=c", "a^NQb", "javascript:alert(1)", "<!channel>", "<https://evil|https://good>", "x" * 300, "A" * 5000),
    *(
        True,
        False,
        None,
        0,
        -1,
        1.5,
        2**60,
        [],
        ["a"],
        ["a,b"],
        ["../x"],
        {},
        {"a": "b"},
        {"../x": "y"},
        {"a\r\nb": "c"},
    ),
)
PLACES = ("/public/", "/public/x", "/a//b", "/%7Ea", "/a%2fb", "/?q=%41", "?a[]=1", "/é?é=ü", "/a;b=c", "//x")


class Passage:
    """Everything that came, byte by byte, as (line, headers, body)."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, list[tuple[str, str]], bytes]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await self._head(reader):
            line, *rest = head.decode("latin-1").split("\r\n")
            headers = [(name, value.strip()) for name, _, value in (one.partition(":") for one in rest if one)]
            length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
            self.requests.append((line, headers, await reader.readexactly(length)))
            answer = json.dumps(_answer(line)).encode()
            about = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
            writer.write(about.encode() + answer)
        writer.close()

    @staticmethod
    async def _head(reader: asyncio.StreamReader) -> bytes:
        try:
            return (await reader.readuntil(b"\r\n\r\n"))[:-4]
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""


def _answer(line: str) -> Any:
    method, target, _ = line.split(" ", 2)
    if target.startswith("/r/") and method == "GET":
        return []
    if "sysparm_query" in target:
        return {"result": []}
    done = {"ok": True, "ts": "1.2", "channel": "C0OPS", "id": "p1", "result": {"sys_id": SYS_ID, "sys_mod_count": "1"}}
    return (
        [{"execution": {"processInstanceId": "p1"}}]
        if target == "/r/message"
        else done | {"choices": [{"message": {"content": "x"}}]}
    )


@pytest.fixture
async def heard() -> AsyncIterator[Passage]:
    told = Passage()
    server = await asyncio.start_server(told, "127.0.0.1", 0)
    told.port = server.sockets[0].getsockname()[1]
    yield told
    server.close()


# -- reading an input back from the wire -----------------------------------------------------------------------------


def _line(heard: Passage, at: int = -1) -> tuple[str, str, dict[str, str]]:
    method, target, _ = heard.requests[at][0].split(" ")
    path, _, query = target.partition("?")
    return method, path, dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))


def _body(heard: Passage) -> Any:
    return json.loads(heard.requests[-1][2])


def http_sent(heard: Passage, action: Action) -> Any:
    method, target, _ = heard.requests[-1][0].split(" ")
    _, headers, body = heard.requests[-1]
    named = dict(headers)
    assert len(named) == len(headers), "no header is sent twice"
    given: Any = action.input.get("headers", {})
    ours = {"User-Agent", "Accept-Encoding", "Idempotency-Key", "Content-Type", "Host", "Content-Length"}
    found: dict[str, Any] = {"method": method, "url": f"http://{named['Host']}{target}"}
    if "headers" in action.input:
        found["headers"] = {name: value for name, value in named.items() if name in given or name not in ours}
    if "json" in action.input:
        found["json"] = json.loads(body)
    elif "body" in action.input:
        found["body"] = body.decode()
    return found | {name: action.input[name] for name in ("expect_status",) if name in action.input}


def servicenow_sent(heard: Passage, action: Action) -> Any:
    method, path, query = _line(heard)
    assert path.startswith("/api/now/table/")
    table, _, sys_id = path.removeprefix("/api/now/table/").partition("/")
    found: dict[str, Any] = {"table": unquote(table)}
    found |= {"sys_id": unquote(sys_id)} if sys_id else {}
    for name, of in (("query", "sysparm_query"), ("limit", "sysparm_limit"), ("offset", "sysparm_offset")):
        if name in action.input:
            found[name] = query[of] if name == "query" else int(query[of])
    limit = action.input.get("limit")
    if "query" in action.input and not (isinstance(limit, int) and limit <= PAGE_ROWS):
        # A list is read in pages, in the order of their ids: both are our own.
        found["query"] = found["query"].removesuffix("ORDERBYsys_id").removesuffix("^")
        found |= {} if limit is None else {"limit": limit}
    if any(one[0].startswith("POST /api/now/table") for one in heard.requests) and "sys_id" not in action.input:
        # Whatever else is asked are our own questions: the key is looked for first.
        line, _, body = next(one for one in reversed(heard.requests) if one[0].startswith("POST"))
        sent = json.loads(body)
        (key,) = [name for name, value in sent.items() if value == KEY]
        asked: Any = action.input
        assert key == asked.get("correlate_by", "correlation_id")
        found = {"table": unquote(line.split(" ")[1].partition("?")[0].removeprefix("/api/now/table/"))}
        found["fields"] = {name: value for name, value in sent.items() if name != key}
        # These two say what to look for, and where.
        return found | {name: asked[name] for name in ("correlate_by", "restores") if name in asked}
    if "if_version" in action.input:
        found["if_version"] = action.input["if_version"]
    if method == "PATCH":
        written = {name: _without_mark(value) for name, value in _body(heard).items()}
        found |= {"fields": written} if "fields" in action.input else written
    elif "fields" in action.input:
        names, asked = query.get("sysparm_fields", ""), action.input["fields"]
        assert isinstance(asked, list)
        # Who wrote the record is asked for besides: that is our own question.
        sent = [name for name in names.split(",") if name and (name in asked or name not in (*WRITERS, "sys_id"))]
        assert sorted(sent) == sorted({str(one) for one in asked})
        found["fields"] = action.input["fields"]
    return found if "table" in action.input else {name: value for name, value in found.items() if name != "table"}


def _without_mark(value: Any) -> Any:
    return value.removesuffix(f"\n{marker(KEY)}") if isinstance(value, str) else value


def slack_sent(heard: Passage, action: Action) -> Any:
    sent = _body(heard)
    return {name: sent[name] for name in ("channel", "text", "thread_ts", "blocks") if name in sent}


def model_sent(heard: Passage, action: Action) -> Any:
    sent = _body(heard)
    messages = sent.pop("messages")
    if "system" in action.input:
        sent["system"] = messages.pop(0)["content"]
    if "prompt" in action.input:
        assert [one["role"] for one in messages] == ["user"]
        return sent | {"prompt": messages[0]["content"]}
    return sent | {"messages": messages}


def bpmn_start_sent(heard: Passage, action: Action) -> Any:
    _, path, _ = _line(heard)
    begins, ends = "/r/process-definition/key/", "/start"
    assert (path.startswith(begins), path.endswith(ends)) == (True, True)
    found: dict[str, Any] = {"process": unquote(path[len(begins) : -len(ends)])}
    sent = {name: _value(one) for name, one in _body(heard)["variables"].items() if not name.startswith("counterseal_")}
    return found | ({"variables": sent} if "variables" in action.input else {})


def bpmn_message_sent(heard: Passage, action: Action) -> Any:
    names = {"messageName": "message", "businessKey": "business_key", "processInstanceId": "process_instance_id"}
    found = {names[name]: value for name, value in _body(heard).items() if name in names}
    sent = {name: _value(one) for name, one in _body(heard)["processVariables"].items()}
    return found | ({"variables": sent} if "variables" in action.input else {})


def _value(one: Mapping[str, Any]) -> Any:
    return json.loads(one["value"]) if one["type"] == "Json" else one["value"]


# -- the rows --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A good input, and how the input is read back from what was heard. None: nothing leaves."""

    good: Mapping[str, Any]
    sent: Callable[[Passage, Action], Any] | None


TABLE = {"table": "sys_user"}
ROWS: Mapping[str, Row] = {
    "http.request.send": Row(
        {"method": "PUT", "url": "URL/public/x", "headers": {"X-Trace": "1"}, "body": "b"}, http_sent
    ),
    "servicenow.incident.get": Row({"sys_id": SYS_ID, "fields": ["number"]}, servicenow_sent),
    "servicenow.incident.query": Row({"query": "a=b", "fields": ["number"], "limit": 3, "offset": 1}, servicenow_sent),
    "servicenow.incident.update": Row({"sys_id": SYS_ID, "fields": {"short_description": "x"}}, servicenow_sent),
    "servicenow.incident.add_work_note": Row({"sys_id": SYS_ID, "work_notes": "x"}, servicenow_sent),
    "servicenow.record.get": Row({**TABLE, "sys_id": SYS_ID, "fields": ["number"]}, servicenow_sent),
    "servicenow.record.query": Row({**TABLE, "query": "a=b", "limit": 3}, servicenow_sent),
    "servicenow.record.update": Row({**TABLE, "sys_id": SYS_ID, "fields": {"name": "x"}}, servicenow_sent),
    "servicenow.record.create": Row(
        {**TABLE, "fields": {"name": "x"}, "correlate_by": "u_key", "restores": SYS_ID}, servicenow_sent
    ),
    "servicenow.record.delete": Row({**TABLE, "sys_id": SYS_ID, "if_version": "1"}, servicenow_sent),
    "slack.message.post": Row(
        {"channel": "C0OPS", "text": "x", "thread_ts": "1.2", "blocks": [{"type": "divider"}]}, slack_sent
    ),
    "model.chat.complete": Row({"model": "m", "prompt": "p", "system": "s"}, model_sent),
    "bpmn.process.start": Row({"process": "onboard", "variables": {"a": "b"}}, bpmn_start_sent),
    "bpmn.message.correlate": Row({"message": "m", "business_key": "k", "variables": {"a": "b"}}, bpmn_message_sent),
    # A record is read and written by the engine's own statements, which take the input itself as parameters.
    "records.put": Row({"collection": "c", "key": "k", "value": {}}, None),
    "records.delete": Row({"collection": "c", "key": "k"}, None),
    "records.get": Row({"collection": "c", "key": "k"}, None),
    "records.query": Row({"collection": "c", "after": "a", "limit": 3}, None),
    # The agent that asks for it carries it out, and nothing leaves from here.
    "agent.tool.call": Row({"tool": "t", "arguments": {}}, None),
    # Nothing leaves: it computes.
    "transform.data.apply": Row({"value": {}}, None),
}


def connector_of(name: str, heard: Passage, catalog: Catalog) -> Any:
    match name:
        case "http":
            return HttpConnector(HttpSettings((AllowedHost("127.0.0.1", heard.port, allow_private=True),)))
        case "servicenow":
            return ServiceNowConnector(ServiceNowSettings(heard.url, BasicAuth("u", "p")))
        case "slack":
            return SlackConnector(SlackSettings("xoxb-test", f"{heard.url}/api/"))
        case "model":
            return ModelConnector(ModelSettings(f"{heard.url}/v1", "sk-test"))
        case "bpmn":
            return BpmnConnector(BpmnSettings(f"{heard.url}/r"))
    raise AssertionError(f"{name} sends nothing")


def with_loose(packaged: Catalog) -> Catalog:
    """The packaged operations, each with a sister on the same handler that declares nothing about its inputs."""
    declared = []
    for name, operation in packaged.operations.items():
        own = operation.model_dump(mode="json", exclude={"diff", "reverse"})
        wanted = {"required": operation.input_schema["required"]} if "required" in operation.input_schema else {}
        names: dict[str, Any] = {one: {} for one in operation.input_schema["properties"]}
        if isinstance(operation.writes, str):
            names[operation.writes] = {"type": "object"}
        declared.append({
            **{key: value for key, value in own.items() if value is not None},
            "name": f"{name}.loosely", "connector": operation.connector,
            "input_schema": {**wanted, "type": "object", "properties": names},
        })  # fmt: skip
    return load_catalog([Source("loose.yaml", json.dumps({"operations": declared}, indent=1))])


LOOSE = with_loose(load_catalog())


def test_every_operation_has_a_row() -> None:
    assert {*ROWS} == {*load_catalog().operations}, "a new operation says here how its input is read back from the wire"


def given(row: Row, heard: Passage) -> dict[str, Any]:
    return {name: value.replace("URL", heard.url) if name == "url" else value for name, value in row.good.items()}


def nasty_inputs(row: Row, heard: Passage) -> list[dict[str, Any]]:
    """The good input, and that with each argument, each name and each value in turn replaced by each nasty one."""
    good = given(row, heard)
    found = [good]
    for name, value in good.items():
        if name == "url":
            found += [good | {name: f"{heard.url}/public/{one}"} for one in NASTY if isinstance(one, str)]
            found += [good | {name: f"{heard.url}{one}"} for one in PLACES]
        else:
            found += [good | {name: one} for one in NASTY]
        if isinstance(value, dict):
            inner = next(iter(value), "a")
            found += [good | {name: {one: "x"}} for one in NASTY if isinstance(one, str)]
            found += [good | {name: {inner: one}} for one in NASTY]
        if isinstance(value, list):
            found += [good | {name: [one]} for one in NASTY]
    return found


@pytest.mark.req("promise 3")
@pytest.mark.parametrize("suffix", ["", ".loosely"])
@pytest.mark.parametrize("name", ROWS)
async def test_the_bytes_that_leave_are_the_input_that_was_judged(
    heard: Passage, closing: Callable[[Any], Any], name: str, suffix: str
) -> None:
    row, operation = ROWS[name], LOOSE.get(name + suffix)
    connector = closing(connector_of(operation.connector, heard, LOOSE)) if row.sent is not None else None
    arrived = refused = 0
    for values in nasty_inputs(row, heard):
        try:
            action = build_action(operation, values)
        except InputError:
            refused += 1
            continue
        assert canonical(operation.handler, action.input) == action.input, "a canonical input is its own canonical form"
        assert rebuilt_action(operation, action.input, None) == action
        if connector is None or row.sent is None:
            arrived += 1
            continue
        before = len(heard.requests)
        await connector.perform(
            Call(operation.name, action.input, KEY, 10.0, correlation_key="k/1", declared=operation)
        )
        if len(heard.requests) == before:
            refused += 1  # the connector itself would not send it
            continue
        assert row.sent(heard, action) == dict(action.input), values
        arrived += 1
    assert arrived > 0
    assert refused > 0 or name == "transform.data.apply"


# -- addresses -------------------------------------------------------------------------------------------------------

REFUSED_URLS = [
    *(
        f"http://h/public/{step}/admin"
        for step in ("..", "%2e%2e", ".%2E", "..%2f", "%252e%252e", "..;", "..%5c", "\uff0e\uff0e")
    ),
    *(
        "http://h/public/..",
        "http://h/.",
        "http://h/a/%2e",
        "http://h/..%00/a",
        "http://h/%c0%ae%c0%ae/a",
        "http://h/a%u002e",
    ),
    # Many servers read two slashes as one, so a rule about /admin/ would not see these.
    *(
        "http://h//admin",
        "http://h/a//",
        "http://h/%2Fadmin",
        "http://h/%252fadmin",
        "http://h/;/admin",
        "http://h/;a=b/x",
    ),
    *("http://u@h/", "http://u:p@h/", "http://h@evil/", "http://h%40evil/", "http://h\\@evil/", "http://h/a\\..\\b"),
    *(
        "http://h/#a",
        "http://h/a b",
        "http://h/a\tb",
        "http://h/\r\nX: 1",
        " http://h/",
        "http://h/\u200b",
        "http://h\u202e/",
    ),
    *(
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.01/",
        "http://1.2.3/",
    ),
    *(
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "http://::1/",
    ),
    *(
        "http://h:0/",
        "http://h:65536/",
        "http://h:8a/",
        "http://h:\u0663/",
        "http://",
        "http:///a",
        "ftp://h/",
        "//h/",
        "h/",
    ),
    *(
        "http://h..i/",
        "http://-h/",
        "http://h%2f/",
        "http://ho%73t/",
        "http://xn--a/",
        "http://a\uff0fb/",
        "http://h/%",
        "http://h/?%zz",
    ),
    *(
        "http://h/?_method=DELETE",
        "http://h/?a=b&_METHOD=x",
        "http://h/?%5Fmethod=PUT",
        "http://h/?a=b;_method=PUT",
        "http://h/?X-HTTP-Method-Override=PUT",
    ),
]
SPELLED = {
    "HTTPS://API.Example.COM:443/A": "https://api.example.com/A",
    "http://api.example.com": "http://api.example.com/",
    "http://api.example.com.:80?": "http://api.example.com/",
    "https://service-now\u3002com/x": "https://service-now.com/x",
    "https://service-now\uff0ecom/x": "https://service-now.com/x",
    "https://service-now\uff61com/x": "https://service-now.com/x",
    "https://\uff53ervice-now.com/": "https://service-now.com/",
    "https://BÜCHER.example/": "https://xn--bcher-kva.example/",
    "https://faß.de/": "https://xn--fa-hia.de/",
    "http://\uff11\uff12\uff17.0.0.1/": "http://127.0.0.1/",
    "http://[0:0:0:0:0:0:0:1]:0080/": "http://[::1]/",
    "http://h/%7e%61%2f%3a?%41=%2f&b=c+d": "http://h/~a%2F%3A?A=%2F&b=c+d",
    "http://h/é?q=é|[]": "http://h/%C3%A9?q=%C3%A9%7C%5B%5D",
    "http://h/...": "http://h/...",
}


@pytest.mark.parametrize("url", REFUSED_URLS)
def test_an_address_that_may_be_read_in_several_ways_is_refused(url: str) -> None:
    with pytest.raises(InputError):
        canonical_url(url)


@pytest.mark.parametrize("url", SPELLED)
def test_spellings_of_one_address_are_one(url: str) -> None:
    assert canonical_url(url) == SPELLED[url] == canonical_url(SPELLED[url])


def test_a_declaration_holds_for_the_address_that_is_sent() -> None:
    """A pattern that the text fits, and the canonical address does not, refuses it."""
    declared = {"method": {"type": "string"}, "url": {"type": "string", "pattern": "^https://API[.]example/"}}
    own = LOOSE.get("http.request.send").model_dump(mode="json")
    made = Operation.model_validate({**own, "input_schema": {"type": "object", "properties": declared}})
    with pytest.raises(InputError, match="pattern"):
        build_action(made, {"method": "GET", "url": "https://API.example/x"})


# -- headers ---------------------------------------------------------------------------------------------------------

MEANING = [
    *(
        "X-HTTP-Method-Override",
        "x-http-method-override",
        "X_HTTP_Method_Override",
        "X-HTTP-Method",
        "X-Method-Override",
    ),
    *(
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "Forwarded",
        "X-Host",
    ),
    *(
        "Host",
        "HOST",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "Upgrade",
        "TE",
        "Trailer",
        "Expect",
    ),
    *("Proxy-Authorization", "Proxy-Connection", "Idempotency-Key", "HTTP2-Settings", "X-Original-Method", "Via"),
    *(
        "X-HTTP-Verb-Override",
        "X-Method",
        "X-URL-Override",
        "X_User_Override",
        "X-Original-Remote-Addr",
        "X-Tunnel-Method",
    ),
]
DECLARED = """
operations:
  - name: shop.order.look
    connector: http
    handler: http:send
    side_effects: external_call
    in_doubt: ask
    risk: low
    summary: Look
    target: "{url}"
    params: %s
    input_schema: {type: object, required: [url], properties: {url: {type: string}}}
    output_schema: {type: object}
"""


@pytest.mark.parametrize("name", MEANING)
def test_a_header_that_changes_what_a_request_means_is_refused_everywhere(name: str) -> None:
    """In an input, when a declaration is loaded, and when it was frozen by an earlier release."""
    values: dict[str, Any] = {"method": "GET", "url": "https://h/", "headers": {name: "DELETE"}}
    with pytest.raises(InputError, match="header"):
        build_action(LOOSE.get("http.request.send"), values)
    with pytest.raises(DefinitionError, match="header"):
        load_catalog([Source("shop.yaml", DECLARED % json.dumps({"method": "GET", "headers": {name: "DELETE"}}))])
    frozen = load_catalog([Source("shop.yaml", DECLARED % '{method: GET, headers: {X-Fine: "1"}}')]).get(
        "shop.order.look"
    )
    old = frozen.model_copy(update={"params": {"method": "GET", "headers": {name: "DELETE"}}})
    with pytest.raises(InputError, match="header"):
        build_action(old, {"url": "https://h/"})


@pytest.mark.parametrize(
    "headers",
    [
        *(
            {"X-A": "1", "x-a": "2"},
            {"X-A": "1", "X_A": "2"},
            {"X-A": "a\r\nHost: evil"},
            {"X-A\r\nHost": "evil"},
            {"X A": "1"},
        ),
        *({"": "1"}, {"X-A": " 1"}, {"X-A": "1\t"}, {"X-A": "é"}, {"É": "1"}, {"X-A": 1}, {"X-A:": "1"}, ["X-A"]),
    ],
)
def test_headers_that_are_not_one_spelling_are_refused(headers: Any) -> None:
    for name in ("http.request.send", "http.request.send.loosely"):
        with pytest.raises(InputError):
            build_action(LOOSE.get(name), {"method": "GET", "url": "https://h/", "headers": headers})


def test_names_of_headers_have_one_spelling() -> None:
    given = {"x-api-KEY": "k", "ACCEPT": "a/b"}
    action = build_action(LOOSE.get("http.request.send"), dict[str, Any](method="GET", url="https://h/", headers=given))
    assert action.input["headers"] == {"X-Api-Key": "k", "Accept": "a/b"}


@pytest.mark.parametrize(
    "more",
    [
        {"json": {"_method": "DELETE"}},
        *(
            {
                "body": f"--b\r\nContent-Disposition: form-data; {name}\r\n\r\nDELETE\r\n--b--",
                "headers": {"Content-Type": "multipart/form-data; boundary=b"},
            }
            for name in ('name="_method"', "name=_METHOD", "NAME = '_method'", 'filename="f"; name="X-HTTP-Method"')
        ),
        {"body": "_method=DELETE&a=b", "headers": {"content-type": "application/x-www-form-urlencoded"}},
        {"body": "+ADw-", "headers": {"Content-Type": "text/html; charset=utf-7"}},
    ],
)
def test_a_body_that_replaces_the_method_or_the_alphabet_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        build_action(LOOSE.get("http.request.send"), {"method": "POST", "url": "https://h/", **more})


async def test_records_are_read_by_the_input_that_was_judged() -> None:
    asked: list[Any] = []

    async def read(tenant: str, function: str, values: Any) -> dict[str, Any]:
        asked.append((function, values))
        return {"found": False}

    action = build_action(LOOSE.get("records.get"), {"collection": "c", "key": "ö/.."})
    await RecordsConnector(read).perform(Call("records.get", action.input, KEY, 1.0, declared=LOOSE.get("records.get")))
    assert asked == [("get", action.input)]
