"""The stand-ins' doors, asked in this process: who is let in, what each control path answers, what the pages show."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from sandbox.bpmn import Bpmn
from sandbox.bpmn_config import BpmnConfig
from sandbox.model import Model, ModelConfig, classify
from sandbox.servicenow import ServiceNow
from sandbox.slack import Slack, SlackConfig
from sandbox.slack_state import BOT_USER, Message


@asynccontextmanager
async def client_of(stand_in: Any) -> AsyncIterator[httpx.AsyncClient]:
    stand_in.url = "http://x"
    transport = httpx.ASGITransport(app=stand_in.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        yield client
    await stand_in.close()


def basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_the_engine_lets_in_who_knows_the_word() -> None:
    bpmn = Bpmn(BpmnConfig(username="u", password="p:q"))
    async with client_of(bpmn) as client:
        for given, status in (
            (f"Basic {basic('u:p:q')}", 200),
            (f"basic {basic('u:p:q')}", 200),
            (f"Bearer {basic('u:p:q')}", 401),
            (f"Basic {basic('u:p')}", 401),
            (f"Basic {basic('u:p:q')}x", 401),
            ("Basic ?", 401),
            ("", 401),
        ):
            answer = await client.get("/engine-rest/process-definition/count", headers={"Authorization": given})
            assert answer.status_code == status, given
        assert (await client.get("/engine-rest/engine")).json() == [{"name": "default"}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ""),
        ({"asyncResponseTimeout": 1_800_000, "maxTasks": 0}, ""),
        ({"asyncResponseTimeout": 1_800_001}, "The asynchronous response timeout cannot be more than 1800000"),
        ({"asyncResponseTimeout": -1}, "asyncResponseTimeout: a whole number of at least 0 is needed"),
        ({"maxTasks": -1}, "maxTasks: a whole number of at least 0 is needed"),
        ({"maxTasks": True}, "maxTasks: a whole number of at least 0 is needed"),
        ({"maxTasks": None}, "maxTasks: a whole number of at least 0 is needed"),
        ({"workerId": ""}, "workerId is null"),
        ({"workerId": 7}, "workerId: text is needed"),
        ({"topics": {}}, "topics: a list is needed"),
        ({"topics": [{}]}, "topicName is null"),
        ({"topics": [{"topicName": "t", "lockDuration": 0}]}, "lockDuration: a whole number of at least 1 is needed"),
        ({"topics": [{"topicName": "t", "lockDuration": 1, "x": 1}]}, 'Unrecognized field "x"'),
        ({"topics": ["t"]}, "a topic is not a JSON object"),
        ({"surprise": 1}, 'Unrecognized field "surprise"'),
    ],
)
async def test_a_fetch_is_read_as_strictly_as_by_the_engine(body: dict[str, Any], words: str) -> None:
    bpmn = Bpmn(BpmnConfig(username="u", password="p"))
    bpmn._closed = True
    sent = {"workerId": "w", "maxTasks": 1, "topics": [{"topicName": "t", "lockDuration": 1}], **body}
    async with client_of(bpmn) as client:
        headers = {"Authorization": f"Basic {basic('u:p')}"}
        answer = await client.post("/engine-rest/external-task/fetchAndLock", json=sent, headers=headers)
        found = (answer.status_code, answer.json())
        other = await client.post("/engine-rest/external-task/fetchAndLock", content="{", headers=headers)
        assert other.status_code == 415
    assert found[1] == [] if not words else (found[0], found[1]["message"]) == (400, words)


async def test_the_model_lets_in_who_has_the_key() -> None:
    async with client_of(Model(ModelConfig(api_key="sk-1"))) as client:
        for given, status in (
            ("Bearer sk-1", 200),
            ("bearer sk-1", 200),
            ("Bearer sk-", 401),
            ("Bearer sk-12", 401),
            ("Bearer ", 401),
            ("Basic sk-1", 401),
        ):
            answer = await client.get("/v1/models", headers={"Authorization": given})
            assert answer.status_code == status, given
        assert answer.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("text", "category", "priority", "group"),
    [
        ("Payroll is down", "software", "1", "service-desk"),
        ("VPN is slow. Help", "network", "3", "network"),
        ("Postgres replica\nlags", "database", "4", "database"),
        ("My laptop and the wifi", "network", "3", "network"),
        ("The printer", "hardware", "3", "service-desk"),
        ("production outage of the router", "network", "1", "network"),
        ("Hello", "inquiry", "4", "service-desk"),
        ("breakdown of an appliance", "inquiry", "4", "service-desk"),
    ],
)
def test_a_ticket_is_classified_by_its_words(text: str, category: str, priority: str, group: str) -> None:
    summary = text.split(".")[0].split("\n")[0] + ("." if ". " in text else "")
    assert classify(text) == {"category": category, "priority": priority, "group": group, "summary": summary}
    assert classify("x" * 201)["summary"] == "x" * 200


async def test_the_page_of_incidents_shows_the_newest_first_and_escapes() -> None:
    stand_in = ServiceNow()
    for text in ("first", "<second>"):
        stand_in.state.insert("incident", {"short_description": text, "impact": "1", "urgency": "1"}, "ana.lee")
    async with client_of(stand_in) as client:
        page = await client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    assert page.text.index("INC0010002") < page.text.index("INC0010001")
    assert "&lt;second&gt;" in page.text
    assert "1 - Critical" in page.text
    assert "1 - New" in page.text


FORM = {
    "type": "modal",
    "title": {"type": "plain_text", "text": "t"},
    "submit": {"type": "plain_text", "text": "s"},
    "callback_id": "c",
    "blocks": [
        {
            "type": "input",
            "block_id": "name",
            "label": {"type": "plain_text", "text": "l"},
            "element": {"type": "plain_text_input", "action_id": "name"},
        }
    ],
}


async def test_what_one_person_has_open_no_other_person_uses() -> None:
    slack = Slack(SlackConfig(bot_token="b"))
    view = slack.state.show_view("U0ANA", FORM)
    slack.state.post(Message("C0OPS", "1.0", BOT_USER, "shown", []))
    hidden = slack.state.post(Message("C0OPS", "2.0", BOT_USER, "hidden", []))
    hidden.ephemeral_for = "U0ANA"
    async with client_of(slack) as client:

        async def post(path: str, **body: Any) -> tuple[int, Any]:
            answer = await client.post(f"/_sandbox/{path}", json=body)
            return answer.status_code, answer.json()

        mine, other = {"view_id": view.view_id, "user": "U0ANA"}, {"view_id": view.view_id, "user": "U0BEN"}
        for path in ("submit_view", "close_view"):
            assert await post(path, **other) == (400, {"error": f"U0BEN has no open view {view.view_id}"})
            known = ", ".join(slack.state.users)
            assert await post(path, **{**mine, "user": "U9"}) == (400, {"error": f"no user U9; there are {known}"})
        assert await post("click_view", **other, action_id="a") == (
            400,
            {"error": f"U0BEN has no open view {view.view_id}"},
        )
        marked = {"name": "Please complete this required field."}
        status, outcome = await post("submit_view", **mine, values={})
        assert (status, outcome["ok"], outcome["error"], outcome["errors"]) == (
            200,
            False,
            "Check what is marked.",
            marked,
        )
        [shown] = (await client.get("/_sandbox/views?user=U0ANA")).json()["views"]
        assert (shown["id"], shown["errors"], shown["callback_id"]) == (view.view_id, marked, "c")
        assert (await client.get("/_sandbox/views?user=U0BEN")).json() == {"views": []}
        told = (await client.get("/_sandbox/messages?channel=it-approvals")).json()
        assert [(one["text"], one["ephemeral_for"]) for one in told["messages"]] == [("shown", ""), ("hidden", "U0ANA")]
        click = {"channel": "C0OPS", "ts": "2.0", "action_id": "a"}
        assert await post("click", **click, user="U0BEN") == (
            400,
            {"error": "no message 2.0 in channel C0OPS that U0BEN can see"},
        )
        assert await post("click", **click, user="U0ANA") == (400, {"error": "nothing with action_id 'a' is shown"})
        assert await post("usergroups", usergroup="S0ITLEADS", users=["U0BEN"]) == (
            200,
            {"usergroup": "S0ITLEADS", "users": ["U0BEN"]},
        )
        assert slack.state.usergroups["S0ITLEADS"] == ("it-leads", ["U0BEN"])
        assert (await post("usergroups", usergroup="S0ITLEADS", users=["U9"]))[0] == 400
        assert (await client.post("/_sandbox/click", content="{}")).status_code == 400
        assert await post("close_view", **mine) == (
            200,
            {"ok": True, "status": 200, "latency_ms": 0.0, "error": "", "errors": {}},
        )
        assert (await client.get("/_sandbox/views?user=U0ANA")).json() == {"views": []}


@pytest.mark.parametrize(
    ("headers", "data", "error"),
    [
        ({"Authorization": "Bearer b"}, {}, None),
        ({"Authorization": "bearer b"}, {}, None),
        ({}, {"token": "b"}, None),
        ({}, {}, "not_authed"),
        ({"Authorization": "Bearer "}, {}, "not_authed"),
        ({"Authorization": "Bearer x"}, {}, "invalid_auth"),
        ({"Authorization": "Basic b"}, {}, "not_authed"),
    ],
)
async def test_slack_lets_in_who_has_the_token(headers: Any, data: Any, error: str | None) -> None:
    async with client_of(Slack(SlackConfig(bot_token="b"))) as client:
        answer = (await client.post("/api/auth.test", data=data, headers=headers)).json()
        unknown = (await client.post("/api/no.method", headers={"Authorization": "Bearer b"})).json()
    assert answer.get("error") == error
    assert unknown == {"ok": False, "error": "unknown_method"}


async def test_slack_takes_one_post_a_second_for_each_channel() -> None:
    now = [100.0]
    slack = Slack(SlackConfig(bot_token="b", one_per_second=True, clock=lambda: now[0]))
    async with client_of(slack) as client:

        async def post(channel: str) -> tuple[int, str | None]:
            answer = await client.post(
                "/api/chat.postMessage", json={"channel": channel, "text": "x"}, headers={"Authorization": "Bearer b"}
            )
            return answer.status_code, answer.headers.get("retry-after")

        assert [await post("C0OPS"), await post("C0INC"), await post("C0OPS")] == [(200, None), (200, None), (429, "1")]
        now[0] += 0.9
        assert await post("C0OPS") == (429, "1")
        now[0] += 0.1
        assert await post("C0OPS") == (200, None)
