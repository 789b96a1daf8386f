"""Requests that reach bolt, and the answers to clicks: real HTTP, signed as Slack signs."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from msgspec.structs import replace
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient

from approvals.content import CardState
from approvals.model import CardView, Choice
from approvals.slack import modals
from approvals.slack.cards import button_value
from approvals.slack.guard import BODY_BYTES_MAX, SlackEndpoint, check
from approvals.slack.handlers import Answer, build_bolt
from approvals.slack.payloads import Click, Submission

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
NOW = 1_700_000_000
FORM = "application/x-www-form-urlencoded"


def signed(body: bytes, *, at: int | str = NOW, secret: str = SECRET, kind: str = FORM) -> dict[str, str]:
    mac = hmac.new(secret.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": f"v0={mac}", "Content-Type": kind}


def form(payload: object) -> bytes:
    return urlencode({"payload": payload if isinstance(payload, str) else json.dumps(payload)}).encode()


def click_payload(view: CardView, action: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "block_actions",
        "team": {"id": "T1", "domain": "acme"},
        "user": {"id": "U1", "username": "ann", "team_id": "T9"},
        "api_app_id": "A1",
        "container": {"type": "message", "message_ts": "1700000000.000001", "channel_id": "C1"},
        "channel": {"id": "C1", "name": "ops"},
        "trigger_id": "13345224609.738474920.8088930838d88f008e0",
        "actions": [{"type": "button", "block_id": "b", "action_id": action, "value": button_value(view)}],
        **more,
    }


def submit_payload(modal: dict[str, Any], choice: str | None, reason: str | None) -> dict[str, Any]:
    values: dict[str, Any] = {"reason": {"reason": {"type": "plain_text_input", "value": reason}}}
    if choice is not None:
        values["choice"] = {"choice": {"type": "radio_buttons", "selected_option": {"value": choice}}}
    view = {"id": "V1", "type": "modal", "state": {"values": values}, **modal}
    return {"type": "view_submission", "team": {"id": "T1"}, "user": {"id": "U1"}, "view": view}


@dataclass
class RecordingService:
    shown: CardView | Answer
    answer: Answer = field(default_factory=lambda: Answer(True, "Your approval is counted, and decides it."))
    failure: Exception | None = None
    committed: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    async def vote(self, click: Click) -> Answer:
        return self._commit(click)

    async def submit(self, submission: Submission) -> Answer:
        return self._commit(submission)

    def _commit(self, what: Any) -> Answer:
        if self.failure is not None:
            raise self.failure
        self.committed.append(what)
        return self.answer

    async def review(self, asked: Click | Submission) -> CardView | Answer:
        return self.shown

    async def ask(self, click: Click) -> CardView | Answer:
        return self.shown

    async def ask_again(self, click: Click) -> Answer:
        return self._commit(click)

    async def note(self, click: Click, sentence: str) -> None:
        self.notes.append(sentence)


@dataclass
class Face:
    http: httpx.AsyncClient
    service: RecordingService

    async def send(self, payload: object, **how: Any) -> httpx.Response:
        body = form(payload)
        return await self.http.post("/slack/events", content=body, headers=signed(body, **how))


@pytest.fixture
async def face(view: CardView, client: AsyncWebClient, serve: Any) -> AsyncIterator[Face]:
    service = RecordingService(view)

    async def authorize(**_: Any) -> AuthorizeResult:
        return AuthorizeResult(
            enterprise_id=None, team_id="T1", bot_token="xoxb-test", bot_user_id="U_BOT", bot_id="B1"
        )

    bolt = build_bolt(
        signing_secret=SECRET, authorize=authorize, client=client, service=service, tasks=SimpleNamespace()
    )
    bolt_now = {"now": float(NOW)}
    endpoint = SlackEndpoint(bolt, signing_secret=SECRET, now=lambda: bolt_now["now"])
    # bolt verifies as well, by its own clock
    for middleware in bolt._async_middleware_list:
        if verifier := getattr(middleware, "verifier", None):
            # A clock of its own: the default one is shared by every verifier of the process.
            verifier.clock = SimpleNamespace(now=lambda: bolt_now["now"])
    app = FastAPI()

    @app.post("/slack/events")
    async def events(request: Request) -> Response:
        return await endpoint(request)

    async with serve(app) as url, httpx.AsyncClient(base_url=url) as http:
        yield Face(http, service)


GOOD = form({"type": "block_actions", "user": {"id": "U1"}, "actions": [{"action_id": "x"}]})


def test_good_request_passes() -> None:
    assert check(signed(GOOD), GOOD, secret=SECRET, now=NOW) is None
    lowered = {name.lower(): value for name, value in signed(GOOD).items()}
    assert check(lowered, GOOD, secret=SECRET, now=NOW + 300) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Content-Type": FORM}, 401),
        (signed(GOOD, secret="other"), 401),
        (signed(GOOD, at=NOW - 301), 401),
        (signed(GOOD, at=NOW + 301), 401),
        (signed(GOOD, at="abc"), 401),
        (signed(GOOD, at=""), 401),
        (signed(GOOD, at="-1"), 401),
        (signed(GOOD, at="\u0661\u0667" + "\u0660" * 8), 401),
        (signed(GOOD, at="9" * 5000), 401),
        ({**signed(GOOD), "X-Slack-Signature": "v0=é"}, 401),
        ({**signed(GOOD), "X-Slack-Signature": ""}, 401),
        ({**signed(GOOD), "X-Slack-Signature": signed(GOOD)["X-Slack-Signature"][3:]}, 401),
        (signed(GOOD + b" "), 401),
        *((signed(GOOD, kind=kind), 415) for kind in ("text/plain", "application/ld+json", "text/json", "json", "")),
    ],
)
def test_unauthentic_requests(headers: dict[str, str], status: int) -> None:
    refusal = check(headers, GOOD, secret=SECRET, now=NOW)
    assert refusal is not None
    assert refusal.status == status


def test_no_secret_verifies_nothing() -> None:
    refusal = check(signed(GOOD, secret=""), GOOD, secret="", now=NOW)
    assert refusal is not None
    assert refusal.status == 401


BAD_BODIES = [
    (form("{"), FORM, 400),
    (form("[1]"), FORM, 400),
    (form('{"type": NaN}'), FORM, 400),
    (form('{"type": "a", "type": "b"}'), FORM, 400),
    (form("[" * 5000), FORM, 400),
    (form('{"a":' * 40 + "1" + "}" * 40), FORM, 400),
    (form('{"type": "block_actions", "user": "U1"}'), FORM, 400),
    (form('{"type": "block_actions", "user": {"id": "U1"}}'), FORM, 400),
    (form('{"type": "block_actions", "user": {"id": "U1"}, "actions": ["x"]}'), FORM, 400),
    (form('{"type": "view_submission", "view": []}'), FORM, 400),
    (form('{"type": "x", "y": "\\ud800"}'), FORM, 400),
    (b"payload=%ff", FORM, 400),
    (b"\xff\xfe", FORM, 400),
    (b"", FORM, 400),
    (b"ssl_check=1&token=x", FORM, 400),
    (GOOD + b"&" + GOOD, FORM, 400),
    (b"&".join(b"a=1" for _ in range(100)), FORM, 400),
    (b"[]", "application/json", 400),
    (b'{"type": 5}', "application/json; charset=utf-8", 400),
    (b'{"type": "event_callback", "authorizations": "x"}', "application/json", 400),
    *(
        (form(f'{{"type": "{kind}"}}'), FORM, 404)
        for kind in ("workflow_step_edit", "shortcut", "block_suggestion", "x")
    ),
    (b"x" * (BODY_BYTES_MAX + 1), FORM, 413),
]


async def test_bad_bodies_signed_and_unsigned(face: Face) -> None:
    for body, kind, status in BAD_BODIES:
        answer = await face.http.post("/slack/events", content=body, headers=signed(body, kind=kind))
        assert answer.status_code == status, body[:100]
        assert answer.json()["status"] == status
        unsigned = await face.http.post("/slack/events", content=body, headers={"Content-Type": kind})
        assert unsigned.status_code == (413 if status == 413 else 401)
    assert face.service.committed == []


@pytest.mark.req("U-8")
@pytest.mark.req("Q-20")
async def test_approve_is_acknowledged_after_the_commit(face: Face, view: CardView, slack: Any) -> None:
    answer = await face.send(click_payload(view, "counterseal.approve"))
    assert (answer.status_code, answer.text) == (200, "")
    (click,) = face.service.committed
    assert (click.approval_id, click.nonce, click.choice) == (view.approval_id, "nonce-1", Choice.APPROVE)
    assert (click.clicker.team, click.clicker.user) == ("T9", "U1")
    assert click.channel == "C1"
    assert slack.calls == []


async def test_a_vote_that_was_not_committed_is_not_acknowledged(face: Face, view: CardView) -> None:
    face.service.failure = RuntimeError("the database is away")
    answer = await face.send(click_payload(view, "counterseal.approve"))
    assert answer.status_code == 503
    assert "database" not in answer.text
    assert face.service.committed == []


async def test_the_same_click_again_reaches_the_service_again(face: Face, view: CardView) -> None:
    for _ in range(2):
        assert (await face.send(click_payload(view, "counterseal.approve"))).status_code == 200
    assert len(face.service.committed) == 2


@pytest.mark.req("U-8")
@pytest.mark.parametrize("choice", ["reject", "happened", "again", "fail"])
async def test_answers_with_a_reason(face: Face, view: CardView, slack: Any, choice: str) -> None:
    assert (await face.send(click_payload(view, f"counterseal.{choice}"))).status_code == 200
    assert face.service.committed == []
    (modal,) = slack.views
    answer = await face.send(submit_payload(modal, None, "  too late in the day "))
    assert answer.status_code == 200
    (submission,) = face.service.committed
    assert (submission.choice, submission.reason) == (Choice(choice), "too late in the day")
    assert answer.json()["response_action"] == "update"
    assert "is counted" in answer.text


async def test_who_asks_again_is_told_what_became_of_it(face: Face, view: CardView, slack: Any) -> None:
    assert (await face.send(click_payload(view, "counterseal.ask_again"))).status_code == 200
    assert [click.approval_id for click in face.service.committed] == [view.approval_id]
    assert "is counted" in str(slack.views)


async def test_missing_reason_is_shown_at_the_field(face: Face, view: CardView) -> None:
    face.service.answer = Answer(False, "Please give a reason.", about_reason=True)
    modal = modals.reason(view, Choice.REJECT)
    answer = await face.send(submit_payload(modal, None, None))
    assert answer.json() == {"response_action": "errors", "errors": {"reason": "Please give a reason."}}


async def test_failed_submission_is_not_acknowledged(face: Face, view: CardView) -> None:
    face.service.failure = RuntimeError("away")
    modal = modals.reason(view, Choice.REJECT)
    assert (await face.send(submit_payload(modal, None, "no"))).status_code == 503


@pytest.mark.parametrize("fault", ["lost", (200, {}, {"ok": False, "error": "expired_trigger_id"}), (500, {}, "oops")])
async def test_modal_that_does_not_open_is_explained(face: Face, view: CardView, slack: Any, fault: Any) -> None:
    slack.faults["views.open"] = [fault]
    assert (await face.send(click_payload(view, "counterseal.reject"))).status_code == 200
    assert slack.calls == ["views.open"]
    assert face.service.notes == ["Slack did not open the window in time, so nothing was counted. Please click again."]


async def test_review_and_decide_in_the_modal(face: Face, view: CardView, slack: Any) -> None:
    assert (await face.send(click_payload(view, "counterseal.review"))).status_code == 200
    (modal,) = slack.views
    answer = await face.send(submit_payload(modal, "approve", None))
    assert answer.json()["response_action"] == "update"
    (submission,) = face.service.committed
    assert (submission.choice, submission.reason) == (Choice.APPROVE, "")


async def test_pages_follow_without_calls_to_slack(face: Face, view: CardView, slack: Any, check_blocks: Any) -> None:
    big = replace(view, content=replace(view.content, summary="word " * 40_000))
    face.service.shown = big
    answer = await face.send(submit_payload(modals.review(big), None, None))
    following = answer.json()["view"]
    check_blocks(following["blocks"], True)
    assert following["blocks"][1]["text"]["text"].startswith("Page 2 of ")
    assert slack.calls == []
    assert face.service.committed == []


async def test_who_may_not_see_is_told(face: Face, view: CardView, slack: Any) -> None:
    face.service.shown = Answer(False, "You may not see this: ask the leads.")
    assert (await face.send(click_payload(view, "counterseal.review"))).status_code == 200
    (modal,) = slack.views
    assert modal["blocks"][0]["text"] == {"type": "plain_text", "text": face.service.shown.sentence, "emoji": False}
    assert "submit" not in modal


async def test_closed_approval_reviewed_read_only(face: Face, view: CardView, slack: Any) -> None:
    face.service.shown = replace(view, state=CardState.APPLIED)
    await face.send(click_payload(view, "counterseal.review"))
    assert "submit" not in slack.views[0]


@pytest.mark.parametrize(
    "action",
    [
        {"action_id": "counterseal.approve"},
        {"action_id": "counterseal.approve", "value": "{"},
        {"action_id": "counterseal.approve", "value": '{"a": "x", "n": "y"}'},
        {"action_id": "counterseal.approve", "value": '{"a": "01890000-0000-7000-8000-000000000001"}'},
        {"action_id": "counterseal.elevate", "value": "{}"},
    ],
)
async def test_signed_nonsense_is_refused(face: Face, view: CardView, action: dict[str, str]) -> None:
    payload = click_payload(view, "x", actions=[{"type": "button", "block_id": "b", **action}])
    assert (await face.send(payload)).status_code == 400
    assert face.service.committed == []


async def test_foreign_actions_are_not_ours(face: Face, view: CardView) -> None:
    assert (await face.send(click_payload(view, "other.thing"))).status_code == 404


async def test_no_body_is_logged(face: Face, view: CardView, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    marker = "very-private-marker"
    body = form({**click_payload(view, "counterseal.approve"), "note": marker})
    await face.http.post("/slack/events", content=body, headers=signed(body, secret="wrong"))
    face.service.failure = RuntimeError("away")
    await face.send({**click_payload(view, "counterseal.approve"), "note": marker})
    await face.send({**click_payload(view, "other.thing"), "note": marker})
    assert marker not in caplog.text
    assert "was not acknowledged" in caplog.text


async def test_a_request_leaves_what_counterseal_itself_logs(face: Face, view: CardView) -> None:
    """With each request Bolt sets the level of a logger to that of its own, which is not to tell of payloads."""
    before = {name: logging.getLogger(name).level for name in ("", "counterseal", "counterseal.slack")}
    for name in before:
        logging.getLogger(name).setLevel(logging.DEBUG)
    try:
        assert (await face.send(click_payload(view, "counterseal.approve"))).status_code == 200
        assert {logging.getLogger(name).level for name in before} == {logging.DEBUG}
        assert not logging.getLogger("counterseal.slack.bolt").isEnabledFor(logging.INFO)
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


async def test_url_verification_when_the_app_is_set_up(face: Face) -> None:
    body = json.dumps({"type": "url_verification", "challenge": "abc", "token": "x"}).encode()
    answer = await face.http.post("/slack/events", content=body, headers=signed(body, kind="application/json"))
    assert answer.status_code == 200
    assert "abc" in answer.text
