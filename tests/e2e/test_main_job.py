"""Webhook to evidence with every part in a process of its own: duplicates, races, drift."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from sandbox.servicenow_webhook import sign

OUTAGE = "Outage of the production order system"
LOW_OUTAGE = {"short_description": OUTAGE, "impact": "3", "urgency": "3"}
WEBHOOK_SECRET = "a-webhook-secret-of-the-tests"


async def _card(stack: Any, action: str = "counterseal.approve") -> str:
    """Wait for a card with this button. A click counts once its message is recorded. Returns its timestamp."""
    slack = stack.world.slack

    async def recorded() -> Any:
        return [one for one in await stack.books.approvals() if one.message_ts == found().ts]

    def found() -> Any:
        return next((m for m in slack.state.messages("C0OPS") if action in str(m.blocks)), None)

    await slack.state.until(lambda: found() is not None, seconds=60)
    await stack.until(recorded)
    return str(found().ts)


@pytest.mark.req("Q-1")
@pytest.mark.req("P-11")
async def test_a_webhook_delivered_ten_times_at_once_starts_one_run(stack: Any) -> None:
    await stack.run("db", "upgrade")
    await stack.publish_examples()
    await stack.spawn("serve")
    await stack.healthy()
    stack.world.servicenow.webhooks.url = ""
    record = stack.world.servicenow.state.insert("incident", {"short_description": OUTAGE}, "raj.quist")
    fields = ("sys_id", "sys_mod_count", "number", "short_description", "priority", "sys_updated_by")
    body = json.dumps({"table": "incident", "event": "insert", **{name: record[name] for name in fields}}).encode()
    now = int(time.time())

    async def deliver(encoding: str) -> list[str]:
        headers = {
            "X-Counterseal-Timestamp": str(now),
            "X-Counterseal-Signature": sign(WEBHOOK_SECRET, now, body, encoding),
            "Content-Type": "application/json",
        }
        answer = await stack.client.post(f"{stack.url}/webhooks/servicenow/tests", content=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return [run["run_id"] for run in answer.json()["runs"]]

    answers = await asyncio.gather(*(deliver(encoding) for encoding in ["hex", "base64"] * 5))
    assert len({tuple(runs) for runs in answers}) == 1
    assert len(await stack.books.runs()) == 1
    assert await deliver("hex") == answers[0]


async def test_drift_between_the_approval_and_the_act_asks_again(stack: Any) -> None:
    await stack.run("db", "upgrade")
    await stack.publish_examples()
    _, _, worker = await asyncio.gather(*(stack.spawn(role) for role in ("serve", "keep", "work")))
    await stack.healthy()
    servicenow, slack = stack.world.servicenow, stack.world.slack
    record = servicenow.state.insert("incident", LOW_OUTAGE, "raj.quist")
    first = await _card(stack)
    await stack.kill(worker)
    outcome = await slack.people.click("C0OPS", first, "counterseal.approve", "U0ANA")
    assert outcome.ok, outcome
    before = servicenow.state.update("incident", record["sys_id"], {"priority": "3"}, "raj.quist")["priority"]
    assert before == "3"
    await stack.spawn("work")
    await slack.state.until(lambda: any("Void" in str(m.blocks) for m in slack.state.messages("C0OPS")), seconds=60)
    await slack.state.until(
        lambda: sum("counterseal.approve" in str(m.blocks) for m in slack.state.messages("C0OPS")) == 1, seconds=60
    )
    second = await _card(stack)
    assert second != first
    assert servicenow.state.record("incident", record["sys_id"])["priority"] == "3"
    card = (await stack.books.approval(open=True)).card
    assert '"before": "3"' in json.dumps(card)
    await asyncio.gather(
        *(slack.people.click("C0OPS", second, "counterseal.approve", user) for user in ["U0ANA", "U0BEN"] * 5)
    )
    await stack.run_status("succeeded")
    assert servicenow.state.record("incident", record["sys_id"])["priority"] == "1"
    assert len(await stack.books.audit(type="approval.decided")) == 2
    raises = [
        effect
        for effect in servicenow.state.writes("incident", record["sys_id"], "counterseal.integration")
        if "priority" in str(effect)
    ]
    assert len(raises) == 1


@pytest.mark.req("U-5")
async def test_who_reported_the_incident_may_not_approve_it(stack: Any) -> None:
    await stack.run("db", "upgrade")
    await stack.publish_examples()
    await asyncio.gather(*(stack.spawn(role) for role in ("serve", "keep", "work")))
    await stack.healthy()
    slack = stack.world.slack
    stack.world.servicenow.state.insert("incident", LOW_OUTAGE, "raj.quist")
    card = await _card(stack)
    assert (await slack.people.click("C0OPS", card, "counterseal.approve", "U0REQ")).ok
    await slack.state.until(
        lambda: any(m.ephemeral_for == "U0REQ" and "requested this" in m.text for m in slack.state.messages("C0OPS")),
        seconds=60,
    )
    assert (await stack.books.run()).status == "waiting_approval"
    assert len(await stack.books.audit(type="approval.vote_refused")) == 1
