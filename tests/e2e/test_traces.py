"""A trace follows a run from the webhook to the bundle, over processes that exchange nothing but the book."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.collector import attributes, collecting

LOW_OUTAGE = {"short_description": "Outage of the production order system", "impact": "3", "urgency": "3"}
EACH = ("start", "step", "call", "question", "vote", "receipt", "message", "bundle", "run")


@pytest.mark.req("Q-12")
async def test_a_trace_arrives_from_the_webhook_to_the_bundle_over_three_processes(stack: Any) -> None:
    await stack.run("db", "upgrade")
    await stack.publish_examples()
    with collecting() as collector:
        stack.environment |= {"COUNTERSEAL_OTEL_ENDPOINT": collector.url, "COUNTERSEAL_LOG_FORMAT": "json"}
        processes = await asyncio.gather(*(stack.spawn(role) for role in ("serve", "keep", "work")))
        await stack.healthy()
        slack = stack.world.slack
        stack.world.servicenow.state.insert("incident", LOW_OUTAGE, "raj.quist")
        asked = await stack.until(lambda: _question(stack))
        for user in ("U0ANA", "U0BEN"):
            assert (await slack.people.click("C0OPS", asked, "counterseal.approve", user)).ok
        await stack.run_status("succeeded")
        run_id = str((await stack.books.run()).id)

        async def whole() -> bool:
            return set(EACH) <= set(collector.of(run_id))

        await stack.until(whole)
        for process in processes:
            process.terminate()
            await process.wait()
    trace = collector.of(run_id)
    spans = {span.span_id: span for named in trace.values() for span in named}
    assert len(spans) == sum(map(len, trace.values()))
    (root,) = [span for span in spans.values() if not span.parent_span_id]
    assert root in trace["start"]
    assert root.end_time_unix_nano > root.start_time_unix_nano
    assert {span.parent_span_id for span in spans.values()} - {b""} <= set(spans)
    (question,) = trace["question"]
    assert attributes(question)["outcome"] == "approved"
    assert question.end_time_unix_nano > question.start_time_unix_nano
    assert {vote.parent_span_id for vote in trace["vote"]} == {question.span_id}
    assert {span.parent_span_id for span in trace["receipt"]} <= {span.span_id for span in trace["call"]}
    for name in ("counterseal.step.duration", "counterseal.call.duration", "counterseal.decision.duration"):
        assert collector.figures[name]
    body = b"".join(collector.bodies)
    for value in (b"Outage of the production", b"raj.quist", b"ana", b"xoxb-", b"a-webhook-secret"):
        assert value not in body


async def _question(stack: Any) -> str | None:
    messages = stack.world.slack.state.messages("C0OPS")
    shown = {message.ts for message in messages if "counterseal.approve" in str(message.blocks)}
    return next((one.message_ts for one in await stack.books.approvals() if one.message_ts in shown), None)
