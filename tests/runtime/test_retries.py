"""Contexts that waits keep for their resume, and steps that go on beside each other: counted, not supposed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from connectors.port import Call, NotSent
from runtime.requests.views import receipt_of
from runtime.store import approvals
from tests.support.runtime_governance import ALLOW, EFFECT

BESIDE = """
workflow: beside
version: 1
reference: ${{ run.id }}
steps:
  - {id: begin, do: probe.value.read, with: {name: begin}}
  - {id: left, do: probe.effect.apply, with: {name: left}, needs: [begin]}
  - {id: right, do: probe.effect.apply, with: {name: right}, needs: [begin]}
"""
THINKS = """
workflow: thinks
version: 1
reference: ${{ run.id }}
steps:
  - {id: model, do: probe.value.read, with: {name: model, value: "what it said"}}
  - {id: tool, do: probe.effect.apply, with: {name: tool, value: "${{ string(steps.model.output.value) }}"}}
"""
ASK = """
policy: ask
version: 1
rules:
  - id: all
    match: {connector: probe}
    outcome: needs_approval
    approvers: [{group: owners, of: 1}]
    expires: PT8H
"""
CASE = """
workflow: case
version: 1
reference: ${{ run.id }}
channels: {said: {}}
steps:
  - {id: case, do: probe.case.open, with: {name: c}, set: {said: "${{ output.decided }}"}}
"""
JOINED = """
workflow: joined
version: 1
reference: ${{ run.id }}
steps:
  - {id: told, wait: {signal: told, correlate: x}, needs: []}
  - {id: beside, do: probe.effect.apply, with: {name: beside}, needs: []}
  - {id: join, do: probe.effect.apply, with: {name: join}, needs: [told, beside]}
"""
FOLLOWED = """
workflow: followed
version: 1
reference: ${{ run.id }}
steps:
  - {id: next, continue_with: {workflow: effect}}
"""


@pytest.mark.req("X-19")
async def test_each_retry_keeps_why_and_has_a_token_of_its_own(runtime: Any) -> None:
    runtime.outside.script["a"] = [NotSent("connection refused"), NotSent("connection reset")]
    await runtime.go(EFFECT)
    seen = []
    for attempt, said in ((1, "connection refused"), (2, "connection reset")):
        wait = await runtime.books.wait(open=True)
        assert wait.context["attempt"] == attempt
        assert said in (wait.context.get("error") or {}).get("message", "")
        assert said in (await runtime.books.step("a")).error["message"]
        seen.append(wait.token)
        await runtime.wait_is_due()
    assert len(set(seen)) == 2
    assert len(runtime.outside.effects) == 1


@pytest.mark.req("O-3")
async def test_a_card_shows_what_became_of_the_newest_attempt(runtime: Any) -> None:
    runtime.outside.script["a"] = [NotSent("connection refused")]
    run_id = await runtime.go(EFFECT, policy=ASK)
    await runtime.person("olga", ("owners",))
    approval = await runtime.question()
    await runtime.vote("olga", "approve")
    await runtime.worker().work_off()

    async def shown() -> tuple[str, Any]:
        async with runtime.faces.transaction("acme") as connection:
            row = await receipt_of(connection, runtime.definitions, await approvals.read(connection, approval))
        assert row is not None
        return row["status"], (row["error"] or {}).get("message", "")

    assert await shown() == ("failed", "connection refused")
    await runtime.wait_is_due()
    assert (await runtime.status(run_id), await shown()) == ("succeeded", ("succeeded", ""))


@pytest.mark.req("V-16")
async def test_a_wait_keeps_in_the_book_what_its_resume_needs(runtime: Any) -> None:
    """After a restart of everything, with what the row says taken away: the book has it (promise 6)."""
    run_id = await runtime.go(CASE, policy=ALLOW)
    wait = await runtime.books.wait(kind="external")
    assert wait.context == {"operation": "probe.case.open"}
    again = runtime.restarted()
    await again.signal(str(wait.correlation_key), {"decided": "yes"})
    await again.worker().work_off()
    assert await again.status(run_id) == "succeeded"
    assert (await again.state(run_id))["channels"]["said"] == "yes"


@pytest.mark.req("V-8")
@pytest.mark.parametrize("workers", [1, 2])
async def test_steps_that_are_ready_together_are_inside_together(runtime: Any, workers: int) -> None:
    """By one worker with two steps in hand, and by two workers inside one run: each under a lease of its own."""
    left, right = (runtime.outside.gates.setdefault(name, runtime.gate_type()) for name in ("left", "right"))
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(BESIDE)
    run_id = (await runtime.start("beside")).run_id
    stop = asyncio.Event()
    every = [runtime.worker(f"w{number}", concurrency=2 // workers) for number in range(workers)]
    working = [asyncio.create_task(worker.run(stop)) for worker in every]
    met = asyncio.gather(left.reached.wait(), right.reached.wait())
    await asyncio.wait({met}, timeout=10)
    together, places = met.done(), await runtime.books.places()
    left.opened.set()
    right.opened.set()
    await runtime.until(lambda: over(runtime, run_id))
    stop.set()
    await asyncio.gather(*working)
    assert together, "one of them waited for the other"
    assert len({place.lease_id for place in places}) == 2
    assert len({place.owner for place in places}) == workers
    assert runtime.outside.crowd == 2


async def over(runtime: Any, run_id: Any) -> bool:
    return await runtime.status(run_id) == "succeeded"


@pytest.mark.req("V-5")
async def test_a_join_waits_for_everything_that_it_needs(runtime: Any) -> None:
    run_id = await runtime.go(JOINED, policy=ALLOW)
    assert [effect.input["name"] for effect in runtime.outside.effects] == ["beside"]
    await runtime.signal("told:x")
    await runtime.worker().work_off()
    assert [effect.input["name"] for effect in runtime.outside.effects] == ["beside", "join"]
    assert await runtime.status(run_id) == "succeeded"


@pytest.mark.req("P-10")
@pytest.mark.req("U-6")
async def test_a_crash_in_a_tool_asks_the_model_once(runtime: Any, late_gate: Any) -> None:
    """Answers of the model are kept, and each effect has one receipt with its outcome."""
    asked: list[str] = []

    def heard(call: Call) -> None:
        if call.operation == "probe.value.read":
            asked.append(call.operation)

    runtime.outside.on_perform = heard
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(THINKS)
    run_id = (await runtime.start("thinks")).run_id
    await runtime.crash(late_gate, "tool")
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert len(asked) == 1
    (effect,) = runtime.outside.effects
    assert effect.input["value"] == "what it said"
    (receipt,) = await runtime.books.receipts()
    assert (receipt.step, receipt.status) == ("tool", "succeeded")


@pytest.mark.req("X-14")
async def test_a_crash_after_a_continuation_began_starts_no_second_one(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(EFFECT)
    await runtime.publish(FOLLOWED)
    await runtime.start("followed", ref="1")
    await runtime.worker().work_off()
    followed = [run for run in await runtime.books.runs() if run.workflow == "effect"]
    assert len(followed) == 1
    assert [run.status for run in await runtime.books.runs()] == ["succeeded"] * 2
    assert len(runtime.outside.effects) == 1


@pytest.mark.req("Q-3")
async def test_a_vote_a_second_after_its_time_is_over_decides_nothing(runtime: Any) -> None:
    """By the database's clock, also before a sweeper has come (promise 1)."""
    await runtime.tenant()
    await runtime.policy(ASK)
    await runtime.publish(EFFECT)
    await runtime.person("ana", ("owners",))
    run_id = (await runtime.start("effect")).run_id
    await runtime.worker().work_off()
    approval = await runtime.question()
    await runtime.trouble.leave_questions_alone(timedelta(hours=8, seconds=1))
    assert (await runtime.vote("ana", "approve", on=approval)).code == "expired"
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert await runtime.status(run_id) == "waiting_approval"
