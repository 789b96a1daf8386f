"""A card that Slack does not take comes in a short form, or is told of: by `approval show`, over HTTP and by doctor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app import doctor
from app.access import Role
from sandbox.faults import Fault

pytestmark = pytest.mark.req("O-3")
# What Slack says of a message that it does not take for what is in it.
TOO_MUCH = ["invalid_blocks", "msg_too_long", "msg_blocks_too_long", "too_many_blocks"]


@pytest.fixture
async def shown(serve: Any, settings: Any, slack_world: Any) -> AsyncIterator[Any]:
    """An installation whose cards are shown in a channel."""
    made = await serve(settings.model_copy(update={"slack_channel": "C0INC"}))
    await made.publish()
    yield made
    slack_world.faults.clear()


def refuses(code: str, times: int) -> Fault:
    return Fault("chat.postMessage", status=200, times=times, body={"ok": False, "error": code})


async def told(installation: Any, approval: Any) -> dict[str, Any]:
    client = await installation.client(Role.AUDITOR)
    found: dict[str, Any] = (await client.get(f"/v1/approvals/{approval}")).json()
    listed = (await client.get("/v1/approvals")).json()["items"]
    assert {one["approval_id"]: one["delivered"] for one in listed}[str(approval)] == found["delivered"]
    return found


@pytest.mark.parametrize("code", TOO_MUCH)
async def test_a_card_that_slack_refuses_comes_in_a_short_form(shown: Any, slack_world: Any, code: str) -> None:
    slack_world.faults.inject(refuses(code, 1))
    _, question, nonce = await shown.asked()
    assert (await told(shown, question))["delivered"] == "short"
    answer = await shown.slack(shown.click(question, nonce, "U0ANN", "review"))
    assert answer.status_code == 200


@pytest.mark.parametrize("code", ["channel_not_found", "invalid_blocks"])
async def test_a_card_that_is_not_delivered_is_told_of(shown: Any, slack_world: Any, code: str) -> None:
    slack_world.faults.inject(refuses(code, 0))
    _, question, _ = await shown.asked()
    found = await told(shown, question)
    assert found["delivered"] == "refused"
    assert code in found["card_problem"]
    async with shown.engine.connection():
        checks = await doctor.examine(shown.app.settings)
    (check,) = [one for one in checks if one.what == "cards"]
    assert check.state is doctor.State.BROKEN
    assert str(question) in check.detail


async def test_a_card_that_is_delivered_says_so(shown: Any) -> None:
    _, question, _ = await shown.asked()
    assert (await told(shown, question))["delivered"] == "posted"


async def test_doctor_names_questions_that_nobody_can_decide(shown: Any) -> None:
    from tests.support.people import deactivate

    _, question, _ = await shown.asked()
    for person in ("ann", "bob"):
        await deactivate(shown.engine, "default", person)
    checks = await doctor.examine(shown.app.settings)
    (check,) = [one for one in checks if one.what == "questions"]
    assert (check.state, str(question) in check.detail) == (doctor.State.BROKEN, True)
