"""Listeners and their acknowledgements, without a server: nothing is acknowledged before it is done."""

from __future__ import annotations

import json
import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from approvals.model import CardView, Choice, TaskAnswer, TaskView
from approvals.slack import modals, tasks
from approvals.slack.handlers import Answer, build_bolt
from tests.approvals.test_every_call import Desk
from tests.approvals.test_guard_and_handlers import SECRET, click_payload, form, signed, submit_payload

pytestmark = pytest.mark.req("U-8")


class Failing:
    """A service that is away."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slack opens every window."""

    async def opens(self: Any, **_: Any) -> Any:
        return SimpleNamespace(data={"ok": True})

    monkeypatch.setattr(AsyncWebClient, "views_open", opens)


async def asked(service: Any, desk: Any, payload: dict[str, Any]) -> Any:
    """The answer to one signed payload, with the services that answer it."""

    async def authorize(**_: Any) -> AuthorizeResult:
        return AuthorizeResult(enterprise_id=None, team_id="T1", bot_token="xoxb", bot_user_id="U_BOT", bot_id="B1")

    client = AsyncWebClient(token="xoxb", retry_handlers=[])
    bolt = build_bolt(signing_secret=SECRET, authorize=authorize, client=client, service=service, tasks=desk)
    body = form(payload)
    headers: dict[str, Any] = {**signed(body, at=int(time.time()))}
    return await bolt.async_dispatch(AsyncBoltRequest(body=body.decode(), headers=headers))


def payloads(view: CardView, task: TaskView) -> dict[str, dict[str, Any]]:
    """One payload for each listener, and for each of the ways in which it may go."""
    opened = {"action_id": tasks.OPEN_ACTION, "value": tasks.button_value(task), "type": "button", "block_id": "b"}
    reason = modals.reason(view.approval_id, "n", Choice.REJECT)
    further = json.dumps({"a": str(view.approval_id), "n": "n", "p": 0, "l": False})
    done = {"id": "V1", "type": "modal", **tasks.form_modal(task), "state": {"values": {}}}
    return {
        "vote": click_payload(view, "counterseal.approve"),
        "review": click_payload(view, "counterseal.review"),
        "next page": submit_payload({**modals.review(view), "private_metadata": further}, None, None),
        "reason": submit_payload(reason, None, "no"),
        "task": click_payload(view, "x", actions=[opened]),
        "form": {"type": "view_submission", "team": {"id": "T1"}, "user": {"id": "U1"}, "view": done},
    }


NAMES = ("vote", "review", "next page", "reason", "task", "form")


@pytest.mark.parametrize("name", NAMES)
async def test_what_was_not_done_is_not_acknowledged(view: CardView, task: TaskView, name: str) -> None:
    """Slack shows an error then, and the person tries again."""
    answer = await asked(Failing(), Failing(), payloads(view, task)[name])
    assert (answer.status, answer.body) == (503, '{"error": "unavailable"}')


@pytest.mark.parametrize("name", NAMES)
async def test_what_was_done_is_acknowledged_by_its_answer(view: CardView, task: TaskView, name: str) -> None:
    said = Answer(True, "Said.")
    cards, desk = Desk(view, said), Desk(task, TaskAnswer(True, "recorded", "Said."))
    answer = await asked(cards, desk, payloads(view, task)[name])
    assert answer.status == 200
    shown = {"next page": "review", "review": "review", "task": "task", "form": "task"}
    done = {"vote": "vote", "reason": "submit", "form": "complete"}
    called = [verb for verb in (shown.get(name), done.get(name)) if verb]
    mine, other = (desk, cards) if name in ("task", "form") else (cards, desk)
    assert ([call[0] for call in mine.calls], other.calls) == (called, [])
    updated = {
        "next page": '"callback_id": "counterseal.review"',
        "reason": '"text": "Said."',
        "form": '"text": "Said."',
    }
    assert updated[name] in answer.body if name in updated else answer.body == ""


async def test_a_request_silences_no_logger_but_bolts(
    view: CardView, task: TaskView, caplog: pytest.LogCaptureFixture
) -> None:
    """Bolt sets the level of a logger with each request: its own, which may not tell what a payload holds."""
    caplog.set_level(logging.INFO)
    before = {name: logging.getLogger(name).level for name in ("", "counterseal", "counterseal.slack")}
    assert (await asked(Desk(view, Answer(True, "Said.")), Failing(), payloads(view, task)["vote"])).status == 200
    assert {name: logging.getLogger(name).level for name in before} == before
    assert logging.getLogger("counterseal.slack").isEnabledFor(logging.INFO)
    assert not logging.getLogger("counterseal.slack.bolt").isEnabledFor(logging.INFO)
