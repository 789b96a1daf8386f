"""Fixtures: an approval to vote on, a card and a task to draw, a strict stand-in of Slack's Web API on loopback."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

import aiohttp
import pytest
import uvicorn
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from approvals.content import CardContent, CardState, InputField, RuleReason
from approvals.model import Approval, ApprovalKind, ApprovalStatus, CardView, TaskState, TaskView
from core.action import Change, Risk
from core.identity import Contributor, Role
from core.terms import GroupQuorum, Terms, Tier

APPROVAL_ID = UUID("01890000-0000-7000-8000-000000000001")
RUN_ID = UUID("01890000-0000-7000-8000-000000000002")
TASK_ID = UUID("01890000-0000-7000-8000-000000000004")
TENANT_ID = UUID("01890000-0000-7000-8000-000000000003")


@pytest.fixture
def content() -> CardContent:
    return CardContent(
        title="Raise the priority of INC0010023",
        summary="Mail is down for the whole floor.",
        target="incident INC0010023",
        operation="servicenow.incident.update",
        connector="servicenow",
        risk=Risk.MEDIUM,
        reversible=True,
        reverse="set priority back to 3",
        requester="triage-agent",
        workflow="incident-triage",
        workflow_version=4,
        run_id=str(RUN_ID),
        reference="INC0010023",
        step="escalate",
        rules=(RuleReason("priority", "Priority changes wake people up."),),
        changes=(Change("priority", "3", "1"), Change("assigned_to", None, "ann")),
        inputs=(InputField("work_notes", "raised by triage"),),
        expires_at="2026-08-01T17:00:00+00:00",
        policy_name="it-operations",
        policy_version=7,
        policy_digest_short="9f86d081",
        question="Raise the priority of INC0010023?",
    )


@pytest.fixture
def view(content: CardContent) -> CardView:
    return CardView(APPROVAL_ID, "nonce-1", ApprovalKind.ACTION, content, CardState.PENDING)


@pytest.fixture
def task() -> TaskView:
    return TaskView(
        task_id=TASK_ID,
        title="Confirm the beneficial owner",
        description="Compare the register with the passport.",
        form={
            "type": "object",
            "title": "Owner",
            "properties": {
                "owner": {"type": "string", "title": "Name of the owner", "maxLength": 80},
                "share": {"type": "number", "title": "Share", "minimum": 0, "maximum": 100},
                "checked_on": {"type": "string", "format": "date"},
                "risk": {"type": "string", "enum": ["low", "high"], "description": "As the handbook says."},
                "documents": {"type": "array", "items": {"type": "string", "enum": ["passport", "register"]}},
                "sanctioned": {"type": "boolean", "title": "Is on a list of sanctions"},
            },
            "required": ["owner", "risk"],
        },
        group="kyc",
        state=TaskState.OPEN,
        workflow="client-onboarding",
        workflow_version=2,
        run_id=str(RUN_ID),
        reference="C-1009",
        step="sign",
        due_at="2026-08-01T17:00:00+00:00",
        completed_by="",
        link="https://counterseal.example/t/1",
    )


@pytest.fixture
def approval(content: CardContent) -> Approval:
    return Approval(
        id=APPROVAL_ID,
        tenant_id=TENANT_ID,
        run_id=RUN_ID,
        step_key="escalate",
        kind=ApprovalKind.ACTION,
        status=ApprovalStatus.REQUESTED,
        action_digest="d1",
        nonce="nonce-1",
        terms=Terms(Tier.MEDIUM, (GroupQuorum("leads", 1),)),
        requester="rita",
        contributors=(Contributor(Role.REQUESTER, "rita", "rita"),),
    )


@dataclass
class FakeSlack:
    """Slack's Web API, strict: unknown arguments, wrong tokens and broken blocks are refused as Slack refuses them.

    ``faults`` holds, per method, what happens to the next calls: "lost" (closed before any effect), "landed" (closed
    after the effect), "hang", or a (status, headers, body) to answer without effect.
    """

    check_blocks: Callable[[list[dict[str, Any]], bool], None]
    url: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    ephemerals: list[dict[str, Any]] = field(default_factory=list)
    views: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[str, list[str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    faults: dict[str, list[Any]] = field(default_factory=dict)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: Request) -> Response:
        method = request.path_params["method"]
        self.calls.append(method)
        if request.headers.get("authorization") != "Bearer xoxb-test":
            return JSONResponse({"ok": False, "error": "invalid_auth"})
        body = await request.body()
        if request.headers.get("content-type", "").startswith("application/json"):
            arguments = json.loads(body)
        else:
            arguments = dict(request.query_params) | dict(parse_qsl(body.decode(), strict_parsing=bool(body)))
        fault = self.faults.get(method, []).pop(0) if self.faults.get(method) else None
        if fault == "hang":
            await self.released.wait()
        if fault == "lost":
            return Closed()
        if isinstance(fault, tuple):
            status, headers, body = fault
            if isinstance(body, str):
                return PlainTextResponse(body, status_code=status, headers=headers)
            return JSONResponse(body, status_code=status, headers=headers)
        result = getattr(self, method.replace(".", "_").lower())(arguments)
        return Closed() if fault == "landed" else JSONResponse({"ok": "error" not in result, **result})

    def _allow(self, arguments: dict[str, Any], *names: str) -> None:
        unknown = set(arguments) - set(names)
        assert not unknown, f"Slack knows no argument {unknown}"

    def chat_postmessage(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._allow(arguments, "channel", "text", "blocks", "thread_ts", "unfurl_links", "unfurl_media", "metadata")
        self.check_blocks(arguments["blocks"], False)
        if arguments["channel"] == "C_ABSENT":
            return {"error": "not_in_channel"}
        ts = f"1700000000.{len(self.messages):06d}"
        self.messages.append({**arguments, "ts": ts, "user": "U_BOT"})
        return {"channel": arguments["channel"], "ts": ts}

    def chat_update(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._allow(arguments, "channel", "ts", "text", "blocks")
        self.check_blocks(arguments["blocks"], False)
        assert len(arguments["text"]) <= 4000
        for message in self.messages:
            if message["ts"] == arguments["ts"]:
                message.update(arguments)
                return {"channel": message["channel"], "ts": message["ts"]}
        return {"error": "message_not_found"}

    def chat_postephemeral(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._allow(arguments, "channel", "user", "text", "blocks")
        self.ephemerals.append(arguments)
        return {"message_ts": "1700000000.900000"}

    def conversations_history(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._allow(arguments, "channel", "oldest", "inclusive", "include_all_metadata", "limit", "cursor")
        start = int(arguments.get("cursor") or 0)
        found = [m for m in reversed(self.messages) if m["channel"] == arguments["channel"]]
        found = [m for m in found if float(m["ts"]) >= float(arguments["oldest"])]
        page = found[start : start + int(arguments["limit"])]
        more = start + len(page) < len(found)
        cursor = str(start + len(page)) if more else ""
        return {"messages": page, "has_more": more, "response_metadata": {"next_cursor": cursor}}

    def auth_test(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"user_id": "U_BOT", "team_id": "T1"}

    def views_open(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._allow(arguments, "trigger_id", "view", "team_id")
        shown = arguments["view"] if isinstance(arguments["view"], dict) else json.loads(arguments["view"])
        self.check_blocks(shown["blocks"], True)
        assert 0 < len(shown["title"]["text"]) <= 24
        assert len(shown.get("private_metadata", "")) <= 3000
        assert len(json.dumps(shown)) < 250_000
        self.views.append(shown)
        return {"view": {"id": "V1"}}

    def usergroups_users_list(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._allow(arguments, "usergroup", "include_disabled")
        if arguments["usergroup"] not in self.groups:
            return {"error": "no_such_subteam"}
        return {"users": self.groups[arguments["usergroup"]]}


class Closed(Response):
    """Announces more than it sends, so that the client sees a connection that breaks off."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="off", ws="none")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()  # without serve(), whose loop ends only on its next tick
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.force_exit = True
        await server.shutdown()


@pytest.fixture
def serve() -> Callable[[Any], Any]:
    """A real HTTP server on a free port, as ``async with serve(app) as url``."""
    return served


@pytest.fixture
async def slack(check_blocks: Callable[[list[dict[str, Any]], bool], None]) -> AsyncIterator[FakeSlack]:
    fake = FakeSlack(check_blocks)
    app = Starlette(routes=[Route("/api/{method}", fake.answer, methods=["GET", "POST"])])
    async with served(app) as url:
        fake.url = f"{url}/api/"
        yield fake
        fake.released.set()


@pytest.fixture
async def client(slack: FakeSlack) -> AsyncIterator[AsyncWebClient]:
    async with aiohttp.ClientSession() as session:
        yield AsyncWebClient(token="xoxb-test", base_url=slack.url, session=session, retry_handlers=[])


@pytest.fixture
def check_blocks() -> Callable[[list[dict[str, Any]], bool], None]:
    """Refuses what Slack refuses: counts, lengths, types, unknown members."""
    return strict_blocks


def strict_blocks(blocks: list[dict[str, Any]], modal: bool) -> None:
    assert 0 < len(blocks) <= (100 if modal else 50)
    names = [block["block_id"] for block in blocks if "block_id" in block]
    assert len(names) == len(set(names))
    if not modal:
        assert len(json.dumps(blocks, ensure_ascii=False)) < 11_300, "msg_blocks_too_long"
    for block in blocks:
        match block["type"]:
            case "header":
                assert set(block) == {"type", "text"}
                strict_text(block["text"], "plain_text", 150)
            case "section":
                assert set(block) <= {"type", "text", "expand"}
                strict_text(block["text"], None, 3000)
            case "context":
                assert set(block) == {"type", "elements"}
                assert 0 < len(block["elements"]) <= 10
            case "actions":
                assert not modal
                assert 0 < len(block["elements"]) <= 25
                assert len({element["action_id"] for element in block["elements"]}) == len(block["elements"])
                for element in block["elements"]:
                    strict_button(element)
            case "input":
                assert modal
                assert set(block) <= {"type", "block_id", "label", "element", "optional", "hint"}
                strict_text(block["label"], "plain_text", 2000)
                if "hint" in block:
                    strict_text(block["hint"], "plain_text", 2000)
                assert 0 < len(block["block_id"]) <= 255
                strict_input(block["element"])
            case other:
                raise AssertionError(f"Slack knows no block {other}")


INPUT_MEMBERS = {
    "plain_text_input": {"multiline", "min_length", "max_length", "initial_value"},
    "email_text_input": {"initial_value"},
    "url_text_input": {"initial_value"},
    "number_input": {"is_decimal_allowed", "min_value", "max_value", "initial_value"},
    "datepicker": {"initial_date"},
    "radio_buttons": {"options", "initial_option"},
    "static_select": {"options", "initial_option"},
    "multi_static_select": {"options", "initial_options", "max_selected_items"},
}


def strict_input(element: dict[str, Any]) -> None:
    """An element of an input block, as docs.slack.dev/reference/block-kit/block-elements describes it."""
    kind = element["type"]
    assert set(element) <= {"type", "action_id"} | INPUT_MEMBERS[kind]
    assert 0 < len(element["action_id"]) <= 255
    if kind == "plain_text_input":
        assert 0 <= element.get("min_length", 0) <= element.get("max_length", 3000) <= 3000
        assert element.get("max_length", 1) >= 1
    if kind == "number_input":
        assert isinstance(element["is_decimal_allowed"], bool)
        for name in ("min_value", "max_value", "initial_value"):
            number = element.get(name, "0")
            assert re.fullmatch(r"-?\d+(\.\d+)?", number), number
            assert element["is_decimal_allowed"] or "." not in number
    if "initial_value" in element:
        assert isinstance(element["initial_value"], str)
        assert element["initial_value"]
    if "options" in element:
        strict_options(element)


def strict_options(element: dict[str, Any]) -> None:
    options = element["options"]
    assert 0 < len(options) <= (10 if element["type"] == "radio_buttons" else 100)
    for option in options:
        assert set(option) == {"text", "value"}
        strict_text(option["text"], "plain_text", 75)
        assert 0 < len(option["value"]) <= 150
    assert len({option["value"] for option in options}) == len(options)
    if "initial_option" in element:
        assert element["initial_option"] in options
    if "initial_options" in element:
        assert element["initial_options"]
        assert all(option in options for option in element["initial_options"])
        assert len(element["initial_options"]) <= element.get("max_selected_items", 100)
    assert element.get("max_selected_items", 1) >= 1


def strict_text(text: dict[str, Any], kind: str | None, limit: int) -> None:
    assert text["type"] in ({"plain_text", "mrkdwn"} if kind is None else {kind})
    assert set(text) <= {"type", "text", "emoji" if text["type"] == "plain_text" else "verbatim"}
    assert 1 <= len(text["text"]) <= limit


def strict_button(element: dict[str, Any]) -> None:
    assert element["type"] == "button"
    assert set(element) <= {"type", "text", "action_id", "value", "style", "confirm"}
    strict_text(element["text"], "plain_text", 75)
    assert len(element["value"]) <= 2000
    assert len(element["action_id"]) <= 255
    assert element.get("style") in (None, "primary", "danger")
    if "confirm" in element:
        for name, limit in (("title", 100), ("text", 300), ("confirm", 30), ("deny", 30)):
            strict_text(element["confirm"][name], "plain_text", limit)
