"""People in the Slack stand-in: what they do reaches the app as Slack sends it, and is judged as Slack does."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from playwright.async_api import async_playwright, expect
from slack_sdk.signature import SignatureVerifier
from starlette.responses import JSONResponse, Response

from sandbox.slack_mrkdwn import mrkdwn
from sandbox.world import World

TITLE = {"type": "plain_text", "text": "Reject"}
CARD = [
    {"type": "header", "text": {"type": "plain_text", "text": "Raise the priority of INC0010001"}},
    {"type": "section", "text": {"type": "mrkdwn", "text": "*priority* ~4~ → *1* <script>alert(1)</script>"}},
    {
        "type": "actions",
        "block_id": "votes",
        "elements": [
            {
                "type": "button",
                "action_id": "approve",
                "value": "ap_1:nonce",
                "style": "primary",
                "text": {"type": "plain_text", "text": "Approve"},
                "confirm": {
                    "title": {"type": "plain_text", "text": "Sure?"},
                    "text": {"type": "mrkdwn", "text": "The priority becomes *1*."},
                    "confirm": {"type": "plain_text", "text": "Yes"},
                    "deny": {"type": "plain_text", "text": "No"},
                },
            },
            {
                "type": "button",
                "action_id": "reject",
                "value": "ap_1",
                "text": {"type": "plain_text", "text": "Reject"},
            },
        ],
    },
]
REASON = {
    "type": "modal",
    "callback_id": "reason",
    "private_metadata": "ap_1",
    "title": TITLE,
    "submit": TITLE,
    "blocks": [
        {
            "type": "input",
            "block_id": "why",
            "label": {"type": "plain_text", "text": "Reason"},
            "element": {"type": "plain_text_input", "action_id": "text", "multiline": True},
        },
        {
            "type": "input",
            "block_id": "kind",
            "optional": True,
            "label": {"type": "plain_text", "text": "Kind"},
            "element": {
                "type": "static_select",
                "action_id": "pick",
                "options": [{"text": {"type": "plain_text", "text": "Wrong record"}, "value": "wrong"}],
            },
        },
    ],
}


def payload_of(received: Any) -> dict[str, Any]:
    return dict(json.loads(parse_qs(received.body.decode())["payload"][0]))


def post_card(world: World) -> str:
    posted = world.slack.api.post_message({"channel": "C0OPS", "text": "Approve?", "blocks": CARD})
    return str(posted["ts"])


async def control(world: World, path: str, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(verify=False, trust_env=False, timeout=10) as client:
        return await client.post(f"{world.slack.url}/_sandbox/{path}", json=body)


async def test_a_click_arrives_signed_and_says_who_and_what(world: World, receiver: Any) -> None:
    ts = post_card(world)
    body = {"channel": "C0OPS", "ts": ts, "action_id": "approve", "user": "U0BEN"}
    outcome = (await control(world, "click", body)).json()
    assert (outcome["ok"], outcome["status"], outcome["error"]) == (True, 200, "")
    assert outcome["latency_ms"] >= 0
    received = receiver.received[0]
    assert received.path == "/interactivity"
    assert SignatureVerifier("signing-secret").is_valid_request(received.body, received.headers)
    assert not SignatureVerifier("another-secret").is_valid_request(received.body, received.headers)
    payload = payload_of(received)
    assert payload["type"] == "block_actions"
    assert (payload["user"]["id"], payload["team"]["id"]) == ("U0BEN", "T0DEMO")
    assert payload["container"] == {
        "type": "message",
        "message_ts": ts,
        "channel_id": "C0OPS",
        "is_ephemeral": False,
    }
    action = payload["actions"][0]
    assert (action["action_id"], action["block_id"], action["value"]) == ("approve", "votes", "ap_1:nonce")
    assert payload["message"]["blocks"][2]["block_id"] == "votes"
    opened = world.slack.api.views_open({"trigger_id": payload["trigger_id"], "view": REASON})
    assert world.slack.state.top_view("U0BEN") is world.slack.state.view(opened["view"]["id"])


@pytest.mark.parametrize(("answer", "status"), [(500, 500), (404, 404), (None, 0)])
async def test_an_app_that_fails_or_dawdles_is_not_responding(
    world: World, receiver: Any, answer: int | None, status: int
) -> None:
    if answer is None:
        receiver.hold = asyncio.Event()
    else:
        receiver.answers = [Response(status_code=answer)]
    outcome = await world.slack.people.click("C0OPS", post_card(world), "reject", "U0ANA")
    assert (outcome.ok, outcome.status) == (False, status)
    assert outcome.error.startswith("This app is not responding.")


async def test_a_button_that_an_edit_removed_can_only_be_pressed_from_a_stale_screen(
    world: World, receiver: Any
) -> None:
    ts = post_card(world)
    world.slack.api.update({"channel": "C0OPS", "ts": ts, "text": "Recorded", "blocks": [CARD[0]]})
    body = {"channel": "C0OPS", "ts": ts, "action_id": "approve", "user": "U0ANA"}
    refused = await control(world, "click", body)
    assert (refused.status_code, receiver.received) == (400, [])
    assert "approve" in refused.json()["error"]
    assert (await control(world, "click", body | {"stale": True})).json()["ok"] is True
    assert payload_of(receiver.received[0])["actions"][0]["value"] == "ap_1:nonce"


async def test_nobody_clicks_what_they_cannot_see(world: World) -> None:
    posted = world.slack.api.post_ephemeral({"channel": "C0OPS", "user": "U0ANA", "text": "x", "blocks": CARD})
    body = {"channel": "C0OPS", "ts": posted["message_ts"], "action_id": "approve", "user": "U0BEN"}
    assert (await control(world, "click", body)).status_code == 400
    assert (await control(world, "click", body | {"user": "U0ANA"})).json()["ok"] is True
    assert (await control(world, "click", body | {"user": "U0NONE"})).status_code == 400


async def test_a_submission_honours_errors_update_and_close(world: World, receiver: Any) -> None:
    view = world.slack.state.show_view("U0ANA", REASON)
    submit = {"view_id": view.view_id, "user": "U0ANA"}
    empty = (await control(world, "submit_view", submit | {"values": {}})).json()
    assert (empty["ok"], list(empty["errors"]), receiver.received) == (False, ["why"], [])
    receiver.answers = [
        JSONResponse({"response_action": "errors", "errors": {"why": "Say more."}}),
        JSONResponse({"response_action": "update", "view": REASON | {"callback_id": "second"}}),
        Response(status_code=200),
    ]
    filled = submit | {"values": {"why": "Wrong ticket", "pick": "wrong"}}
    assert (await control(world, "submit_view", filled)).json()["errors"] == {"why": "Say more."}
    payload = payload_of(receiver.received[0])
    assert (payload["type"], payload["view"]["private_metadata"]) == ("view_submission", "ap_1")
    values = payload["view"]["state"]["values"]
    assert values["why"]["text"] == {"type": "plain_text_input", "value": "Wrong ticket"}
    assert values["kind"]["pick"]["selected_option"]["value"] == "wrong"
    assert (await control(world, "submit_view", filled)).json()["ok"] is True
    assert (view.body["callback_id"], view.errors) == ("second", {})
    assert (await control(world, "submit_view", filled)).json()["ok"] is True
    assert world.slack.state.top_view("U0ANA") is None
    assert (await control(world, "submit_view", filled)).status_code == 400


async def test_an_answer_that_slack_would_not_take_keeps_the_modal_open(world: World, receiver: Any) -> None:
    view = world.slack.state.show_view("U0ANA", REASON)
    receiver.answers = [
        JSONResponse({"response_action": "explode"}),
        JSONResponse({"response_action": "update", "view": {"type": "modal"}}),
        Response(b"not json"),
    ]
    for _ in range(3):
        outcome = await world.slack.people.submit_view(view.view_id, "U0ANA", {"why": "x"})
        assert not outcome.ok
        assert outcome.error.startswith("We had some trouble connecting")
    assert world.slack.state.top_view("U0ANA") is view


async def test_a_right_can_be_withdrawn(world: World, slack: httpx.AsyncClient) -> None:
    assert (await control(world, "usergroups", {"usergroup": "S0ITLEADS", "users": [{}]})).status_code == 400
    assert (await control(world, "usergroups", {"usergroup": "S0ITLEADS", "users": ["U0CARA"]})).status_code == 200
    members = await slack.get("usergroups.users.list", params={"usergroup": "S0ITLEADS"})
    assert members.json()["users"] == ["U0CARA"]


async def test_a_response_url_answers_five_times(world: World, receiver: Any, plain: httpx.AsyncClient) -> None:
    ts = post_card(world)
    await world.slack.people.click("C0OPS", ts, "reject", "U0ANA")
    url = payload_of(receiver.received[0])["response_url"]
    await plain.post(url, json={"text": "Only you see this"})
    await plain.post(url, json={"replace_original": True, "text": "Done", "blocks": [CARD[0]]})
    refused = await plain.post(url, json={"replace_original": True, "blocks": [{"type": "card"}]})
    await plain.post(url, json={"response_type": "in_channel", "text": "All see this"})
    await plain.post(url, json={"delete_original": True})
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_blocks")
    shown = [(message.text, message.ephemeral_for) for message in world.slack.state.messages("C0OPS")]
    assert shown == [("Only you see this", "U0ANA"), ("All see this", "")]
    assert (await plain.post(url, json={"text": "x"})).status_code == 404


def test_mrkdwn_escapes_first_and_formats_after() -> None:
    text = "*bold* _it_ ~no~ `<b>` a*b*c <@U0ANA> <https://x.example/?a=1&amp;b|link> &lt;i&gt; <javascript:alert(1)|x>"
    html = str(mrkdwn(text + '\n> quoted "x"', {"U0ANA": "Ana <Lee>"}))
    assert "<strong>bold</strong> <em>it</em> <s>no</s> <code>&lt;b&gt;</code> a*b*c" in html
    assert '<span class="mention">@Ana &lt;Lee&gt;</span>' in html
    assert '<a href="https://x.example/?a=1&amp;b" target="_blank" rel="noreferrer noopener">link</a>' in html
    assert "&lt;i&gt;" in html
    assert "<javascript" not in html
    assert html.count("<a ") == 1
    assert "<blockquote>quoted &#34;x&#34;</blockquote>" in html


async def test_the_page_shows_the_card_and_sends_the_click(world: World, receiver: Any) -> None:
    ts = post_card(world)
    world.slack.api.post_ephemeral({"channel": "C0OPS", "user": "U0BEN", "text": "for Ben alone"})
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        page = await browser.new_page()
        failures: list[str] = []
        page.on("pageerror", lambda error: failures.append(str(error)))
        await page.goto(f"{world.slack.url}/")
        await page.get_by_role("link", name="it-approvals").click()
        await expect(page.get_by_role("heading", name="Raise the priority of INC0010001")).to_be_visible()
        await expect(page.get_by_text("for Ben alone")).to_have_count(0)
        await page.get_by_role("button", name="Approve").click()
        await page.get_by_role("button", name="Yes").click()
        await receiver.until(lambda: receiver.received)
        payload = payload_of(receiver.received[0])
        assert (payload["user"]["id"], payload["actions"][0]["value"]) == ("U0ANA", "ap_1:nonce")

        world.slack.api.views_open({"trigger_id": payload["trigger_id"], "view": REASON})
        await page.get_by_label("Reason").fill("Because")
        await page.get_by_role("dialog").get_by_role("button", name="Reject").click()
        await receiver.until(lambda: len(receiver.received) == 2)
        submitted = payload_of(receiver.received[1])["view"]["state"]["values"]
        assert submitted["why"]["text"]["value"] == "Because"
        await expect(page.get_by_role("dialog")).to_have_count(0)

        receiver.answers = [Response(status_code=500)]
        await page.get_by_role("button", name="Reject").click()
        await expect(page.get_by_role("alert").first).to_contain_text("This app is not responding")
        world.slack.api.update({"channel": "C0OPS", "ts": ts, "text": "Recorded", "blocks": [CARD[0]]})
        await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
        await page.get_by_label("You are").select_option("U0BEN")
        await expect(page.get_by_text("for Ben alone")).to_be_visible()
        assert failures == []
        await browser.close()


async def test_pages_name_no_foreign_origin_and_refuse_what_is_not_there(
    world: World, plain: httpx.AsyncClient
) -> None:
    post_card(world)
    page = await plain.get(f"{world.slack.url}/c/C0OPS")
    assert "<script>alert" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert (await plain.get(f"{world.slack.url}/c/C0NONE")).status_code == 307
    assert (await plain.get(f"{world.slack.url}/_page/static/slack_page.html")).status_code == 404
    version = world.slack.state.version
    unchanged = await plain.get(f"{world.slack.url}/_page/updates?channel=C0OPS&user=U0ANA&since={version}")
    assert unchanged.status_code == 204
