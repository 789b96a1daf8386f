"""The Slack stand-in's Web API: answers, refusals by name, and Block Kit's limits."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from sandbox.slack import SlackConfig
from sandbox.slack_blocks import message_problems, view_problems
from sandbox.world import SandboxConfig, World, sandbox_world

METADATA = {"event_type": "approval", "event_payload": {"id": "ap_1"}}


def section(text: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}, **more}


def press(action_id: str, text: str = "Go", **more: Any) -> dict[str, Any]:
    return {"type": "button", "action_id": action_id, "text": {"type": "plain_text", "text": text}, **more}


def modal(**more: Any) -> dict[str, Any]:
    title = {"type": "plain_text", "text": "Why?"}
    return {"type": "modal", "title": title, "blocks": [section()], **more}


async def test_slacks_own_client_posts_finds_and_edits(world: World) -> None:
    client = AsyncWebClient(token="xoxb-sandbox", base_url=f"{world.slack.url}/api/")
    assert (await client.auth_test())["team_id"] == "T0DEMO"
    posted = await client.chat_postMessage(
        channel="C0OPS",
        text="Approve?",
        blocks=[section("Approve?"), {"type": "actions", "elements": [press("yes", value="1")]}],
        metadata=METADATA,
    )
    await client.chat_postMessage(channel="#it-approvals", text="reminder", thread_ts=posted["ts"])
    plain_history = await client.conversations_history(channel="C0OPS")
    full_history = await client.conversations_history(channel="C0OPS", include_all_metadata=True)
    assert plain_history["messages"][0]["metadata"] == {"event_type": "approval"}
    assert full_history["messages"][0]["metadata"] == METADATA
    assert [message["text"] for message in full_history["messages"]] == ["Approve?"]
    replies = await client.conversations_replies(channel="C0OPS", ts=posted["ts"])
    assert [message["text"] for message in replies["messages"]] == ["Approve?", "reminder"]
    await client.chat_update(channel="C0OPS", ts=posted["ts"], text="Approved")
    message = world.slack.state.messages("C0OPS")[0]
    assert (message.text, [block["type"] for block in message.blocks]) == ("Approved", ["section", "actions"])
    await client.chat_update(channel="C0OPS", ts=posted["ts"], text="Approved", blocks=[section("done")])
    assert [block["type"] for block in message.blocks] == ["section"]
    with pytest.raises(SlackApiError, match="message_not_found"):
        await client.chat_update(channel="C0OPS", ts="1.000001", text="x")


async def test_posting_twice_makes_two_messages(world: World, slack: httpx.AsyncClient) -> None:
    body = {"channel": "C0OPS", "text": "x", "client_msg_id": "same"}
    stamps = {(await slack.post("chat.postMessage", json=body)).json()["ts"] for _ in range(3)}
    assert len(stamps) == len(world.slack.state.messages("C0OPS")) == 3


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("chat.postMessage", {"channel": "C0NONE", "text": "x"}, "channel_not_found"),
        ("chat.postMessage", {"channel": "C0PRIV", "text": "x"}, "not_in_channel"),
        ("chat.postMessage", {"channel": "C0OPS"}, "no_text"),
        ("chat.postMessage", {"channel": "C0OPS", "text": "x" * 40_001}, "msg_too_long"),
        ("chat.postMessage", {"channel": "C0OPS", "text": "x", "blocks": "[{"}, "invalid_blocks_format"),
        ("chat.postMessage", {"channel": "C0OPS", "text": "x", "blocks": [{"type": "card"}]}, "invalid_blocks"),
        ("chat.postMessage", {"channel": "C0OPS", "text": "x", "metadata": {"a": 1}}, "invalid_metadata_format"),
        ("chat.postMessage", {"channel": "C0OPS", "text": "x", "thread_ts": "1.1"}, "cannot_reply_to_message"),
        ("chat.postEphemeral", {"channel": "C0OPS", "text": "x", "user": "U0NONE"}, "user_not_in_channel"),
        ("conversations.replies", {"channel": "C0OPS", "ts": "1.1"}, "thread_not_found"),
        ("views.open", {"trigger_id": "1.2.3", "view": modal()}, "invalid_trigger_id"),
        ("views.open", {"trigger_id": "1.2.3", "view": {"type": "modal"}}, "invalid_arguments"),
        ("views.update", {"view_id": "V0", "view": modal()}, "not_found"),
        ("users.info", {"user": "U0NONE"}, "user_not_found"),
        ("users.lookupByEmail", {"email": "no@example.com"}, "users_not_found"),
        ("usergroups.users.list", {"usergroup": "S0NONE"}, "no_such_subteam"),
        ("chat.makeCoffee", {}, "unknown_method"),
    ],
)
async def test_errors_come_by_name_with_status_200(
    slack: httpx.AsyncClient, method: str, arguments: dict[str, Any], error: str
) -> None:
    form = {name: value if isinstance(value, str) else json.dumps(value) for name, value in arguments.items()}
    for answer in (await slack.post(method, json=arguments), await slack.post(method, data=form)):
        assert (answer.status_code, answer.json()["ok"], answer.json()["error"]) == (200, False, error)


async def test_tokens_are_checked(world: World, plain: httpx.AsyncClient) -> None:
    url = f"{world.slack.url}/api/auth.test"
    assert (await plain.post(url)).json()["error"] == "not_authed"
    assert (await plain.post(url, headers={"Authorization": "Bearer xoxb-no"})).json()["error"] == "invalid_auth"
    assert (await plain.post(url, data={"token": "xoxb-sandbox"})).json()["ok"] is True


async def test_people_groups_and_direct_conversations(world: World, slack: httpx.AsyncClient) -> None:
    members = await slack.get("usergroups.users.list", params={"usergroup": "S0ITLEADS"})
    assert members.json()["users"] == ["U0ANA", "U0BEN"]
    groups = (await slack.get("usergroups.list", params={"include_users": "true"})).json()["usergroups"]
    assert [(group["id"], group["users"]) for group in groups] == [("S0ITLEADS", ["U0ANA", "U0BEN"])]
    found = await slack.get("users.lookupByEmail", params={"email": "Cara.Diaz@example.com"})
    assert found.json()["user"]["id"] == "U0CARA"
    opened = (await slack.post("conversations.open", json={"users": "U0BEN"})).json()["channel"]["id"]
    posted = (await slack.post("chat.postMessage", json={"channel": "U0BEN", "text": "psst"})).json()
    assert posted["channel"] == opened
    assert world.slack.state.messages(opened)[0].text == "psst"


async def test_only_its_own_messages_can_be_edited(world: World, slack: httpx.AsyncClient) -> None:
    posted = (await slack.post("chat.postMessage", json={"channel": "C0OPS", "text": "x"})).json()
    world.slack.state.messages("C0OPS")[0].user = "U0ANA"
    answer = await slack.post("chat.update", json={"channel": "C0OPS", "ts": posted["ts"], "text": "y"})
    assert answer.json()["error"] == "cant_update_message"
    long = await slack.post("chat.update", json={"channel": "C0OPS", "ts": posted["ts"], "text": "y" * 4001})
    assert long.json()["error"] in ("cant_update_message", "msg_too_long")


async def test_history_is_paged_newest_first(slack: httpx.AsyncClient) -> None:
    stamps = [
        (await slack.post("chat.postMessage", json={"channel": "C0INC", "text": str(n)})).json()["ts"] for n in range(5)
    ]
    first = (await slack.get("conversations.history", params={"channel": "C0INC", "limit": 2})).json()
    cursor = first["response_metadata"]["next_cursor"]
    second = (
        await slack.get("conversations.history", params={"channel": "C0INC", "limit": 3, "cursor": cursor})
    ).json()
    assert [m["text"] for m in first["messages"] + second["messages"]] == ["4", "3", "2", "1", "0"]
    assert (first["has_more"], second["has_more"]) == (True, False)
    bounds = {"channel": "C0INC", "oldest": stamps[1], "latest": stamps[3]}
    between = (await slack.get("conversations.history", params=bounds)).json()
    within = (await slack.get("conversations.history", params=bounds | {"inclusive": "true"})).json()
    assert [m["text"] for m in between["messages"]] == ["2"]
    assert [m["text"] for m in within["messages"]] == ["3", "2", "1"]
    bad = await slack.get("conversations.history", params={"channel": "C0INC", "cursor": "%%"})
    assert bad.json()["error"] == "invalid_cursor"


async def test_a_trigger_works_once_and_for_three_seconds() -> None:
    now = [1_000_000.0]
    async with sandbox_world(SandboxConfig(slack=SlackConfig(clock=lambda: now[0]))) as world:
        api, state = world.slack.api, world.slack.state
        trigger = state.new_trigger("U0ANA")
        view = api.views_open({"trigger_id": trigger, "view": modal(private_metadata="ap_1")})["view"]
        late = state.new_trigger("U0ANA")
        now[0] += 3.1
        client = AsyncWebClient(token="xoxb-sandbox", base_url=f"{world.slack.url}/api/")
        for spent, error in ((trigger, "exchanged_trigger_id"), (late, "expired_trigger_id")):
            with pytest.raises(SlackApiError, match=error):
                await client.views_open(trigger_id=spent, view=modal())
        with pytest.raises(SlackApiError, match="hash_conflict"):
            await client.views_update(view_id=view["id"], hash="other", view=modal())
        changed = await client.views_update(view_id=view["id"], hash=view["hash"], view=modal(callback_id="filled"))
        assert changed["view"]["callback_id"] == "filled"
        assert changed["view"]["hash"] != view["hash"]


async def test_one_post_a_second_and_channel() -> None:
    now = [1_000_000.0]
    config = SandboxConfig(slack=SlackConfig(one_per_second=True, clock=lambda: now[0]))
    async with sandbox_world(config) as world, httpx.AsyncClient(verify=False) as client:
        url = f"{world.slack.url}/api/chat.postMessage"
        headers = {"Authorization": "Bearer xoxb-sandbox"}

        async def post(channel: str) -> httpx.Response:
            return await client.post(url, json={"channel": channel, "text": "x"}, headers=headers)

        answers = [await post("C0OPS"), await post("C0OPS"), await post("C0INC")]
        now[0] += 1
        answers.append(await post("C0OPS"))
        assert [answer.status_code for answer in answers] == [200, 429, 200, 200]
        assert (answers[1].headers["Retry-After"], answers[1].json()["error"]) == ("1", "ratelimited")


LIMITS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("section text", section("x" * 3000), section("x" * 3001)),
    ("section text", section("x"), section("")),
    (
        "header",
        {"type": "header", "text": {"type": "plain_text", "text": "x" * 150}},
        {"type": "header", "text": {"type": "plain_text", "text": "x" * 151}},
    ),
    (
        "fields",
        section(fields=[{"type": "mrkdwn", "text": "x"}] * 10),
        section(fields=[{"type": "mrkdwn", "text": "x"}] * 11),
    ),
    (
        "field text",
        section(fields=[{"type": "mrkdwn", "text": "x" * 2000}]),
        section(fields=[{"type": "mrkdwn", "text": "x" * 2001}]),
    ),
    (
        "context",
        {"type": "context", "elements": [{"type": "mrkdwn", "text": "x"}] * 10},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": "x"}] * 11},
    ),
    (
        "actions",
        {"type": "actions", "elements": [press(f"a{n}") for n in range(25)]},
        {"type": "actions", "elements": [press(f"a{n}") for n in range(26)]},
    ),
    ("button text", section(accessory=press("a", "x" * 75)), section(accessory=press("a", "x" * 76))),
    ("value", section(accessory=press("a", value="x" * 2000)), section(accessory=press("a", value="x" * 2001))),
    ("action_id", section(accessory=press("a" * 255)), section(accessory=press("a" * 256))),
    ("block_id", section(block_id="b" * 255), section(block_id="b" * 256)),
    (
        "duplicate action_id",
        {"type": "actions", "elements": [press("a"), press("b")]},
        {"type": "actions", "elements": [press("a"), press("a")]},
    ),
    ("style", section(accessory=press("a", style="danger")), section(accessory=press("a", style="loud"))),
    ("type", {"type": "divider"}, {"type": "card"}),
]


@pytest.mark.parametrize(("what", "fits", "too_much"), LIMITS, ids=[f"{n}-{case[0]}" for n, case in enumerate(LIMITS)])
def test_block_limits(what: str, fits: dict[str, Any], too_much: dict[str, Any]) -> None:
    assert message_problems([fits]) == []
    problems = message_problems([too_much])
    assert problems, what
    assert all(problem.startswith("[ERROR] ") and "[json-pointer:/blocks/0" in problem for problem in problems)


def test_limits_of_messages_and_modals() -> None:
    assert message_problems([section()] * 50) == []
    assert message_problems([section()] * 51)
    assert message_problems([section(block_id="same"), section(block_id="same")])
    assert view_problems(modal(blocks=[section()] * 100, private_metadata="x" * 3000)) == []
    assert view_problems(modal(blocks=[section()] * 101))
    assert view_problems(modal(private_metadata="x" * 3001))
    assert view_problems(modal(title={"type": "plain_text", "text": "x" * 25}))
    assert view_problems(modal(submit={"type": "plain_text", "text": "x" * 25}))
    field = {"type": "plain_text_input", "action_id": "t"}
    asked = [{"type": "input", "label": {"type": "plain_text", "text": "Why"}, "element": field}]
    assert view_problems(modal(blocks=asked)) == [
        "[ERROR] is required when a block is an input block [json-pointer:/submit]"
    ]
