"""Nothing is done again, and nobody is offered to, while what was sent may still arrive (promise 2)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from connectors.port import InDoubt, NotSent, Probe, ProbeVerdict
from runtime.engine.life.doubt import GRACE, SEND_WITHIN
from runtime.work.setbacks import LEASES_MAX

STEPS = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: %s}
"""
PROBED = STEPS % "probe.effect.apply, with: {name: a}"
ASKED = STEPS % "probe.mail.send, with: {text: hello}"
MAIL = "probe.mail.send"
SPAN = timedelta(seconds=30) + SEND_WITHIN + GRACE  # the operations of these tests may take 30 s


async def begun(runtime: Any, text: str) -> Any:
    await runtime.tenant()
    await runtime.policy()
    await runtime.person("olga", ("operators",))
    await runtime.publish(text)
    return (await runtime.start("w")).run_id


async def due(runtime: Any) -> timedelta:
    """The time from the intent to the next look at the step."""
    wait, receipt = await runtime.books.wait(kind="retry", open=True), await runtime.books.receipt()
    span: timedelta = wait.due_at - receipt.intended_at
    return span


@pytest.mark.parametrize("text", [PROBED, ASKED])
async def test_a_dead_worker_s_request_is_waited_for_before_anything_is_done_again(
    runtime: Any, gate: Any, text: str
) -> None:
    run_id = await begun(runtime, text)
    await runtime.crash(gate, "a" if text is PROBED else MAIL, long_ago=False)
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("failed_retryable", [])
    assert await runtime.books.approvals() == []
    assert abs(await due(runtime) - SPAN) < timedelta(seconds=2)
    await runtime.at_rest_but_waiting()
    # A wait that ends too early, by whatever clock, changes nothing.
    await runtime.wait_is_due(long_ago=False)
    assert (await runtime.status(run_id), runtime.outside.effects) == ("failed_retryable", [])
    assert await runtime.books.approvals() == []
    await runtime.wait_is_due()
    if text is ASKED:
        assert (await runtime.vote("olga", "again")).counted
        await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    await runtime.history(run_id)
    await runtime.at_rest()


async def test_a_request_that_arrives_late_is_found_and_not_done_twice(runtime: Any, gate: Any) -> None:
    run_id = await begun(runtime, PROBED)
    await runtime.crash(gate, "a", long_ago=False)
    await runtime.worker().work_off()
    assert runtime.outside.last_call is not None
    runtime.outside.effects.append(runtime.outside.last_call)  # only now
    await runtime.wait_is_due()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    assert runtime.outside.probes == 2


async def test_what_is_found_at_once_is_not_waited_for(runtime: Any, late_gate: Any) -> None:
    run_id = await begun(runtime, PROBED)
    await runtime.crash(late_gate, "a", long_ago=False)
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


async def test_a_probe_that_cannot_tell_puts_no_question_too_early(runtime: Any, gate: Any) -> None:
    run_id = await begun(runtime, PROBED)
    await runtime.crash(gate, "a", long_ago=False)
    runtime.outside.verdict = Probe(ProbeVerdict.CANNOT_TELL, "no idea")
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "failed_retryable"
    assert abs(await due(runtime) - SPAN) < timedelta(seconds=2)
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "waiting_approval"


async def test_a_worker_that_got_no_answer_asks_nobody_too_early(runtime: Any) -> None:
    runtime.outside.script[MAIL] = [InDoubt("the connection broke")]
    run_id = await begun(runtime, ASKED)
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "failed_retryable"
    assert abs(await due(runtime) - SPAN) < timedelta(seconds=2)
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "waiting_approval"


async def test_an_action_that_is_sent_again_is_waited_for_from_then(runtime: Any) -> None:
    runtime.outside.script[MAIL] = [InDoubt("no answer"), InDoubt("no answer")]
    run_id = await begun(runtime, ASKED)
    await runtime.worker().work_off()
    await runtime.wait_is_due()
    assert (await runtime.vote("olga", "again")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "failed_retryable"
    assert abs(await due(runtime) - SPAN) < timedelta(seconds=2)
    await runtime.wait_is_due()
    assert (await runtime.vote("olga", "again")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    await runtime.history(run_id)


async def test_looks_at_a_doubt_use_up_no_attempts(runtime: Any, gate: Any) -> None:
    """Three attempts are declared: two looks and a wait between them leave all that were not made."""
    run_id = await begun(runtime, PROBED)
    await runtime.crash(gate, "a", long_ago=False)
    runtime.outside.verdict = Probe(ProbeVerdict.CANNOT_TELL, "too early", retry_after_seconds=7)
    await runtime.worker().work_off()
    await runtime.wait_is_due(long_ago=False)
    runtime.outside.verdict = None
    await runtime.wait_is_due(long_ago=False)
    runtime.outside.script["a"] = [NotSent("busy"), NotSent("busy")]
    await runtime.wait_is_due()
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "failed_retryable"
    await runtime.wait_is_due()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


async def test_leases_that_end_time_and_again_are_counted_across_the_waits(runtime: Any, quiet: Any) -> None:
    run_id = await begun(runtime, PROBED)
    for count in range(LEASES_MAX):
        await runtime.crash(runtime.gate_type(), "a", long_ago=False)
        if count < LEASES_MAX - 1:
            await runtime.worker().work_off()
            assert await runtime.status(run_id) == "failed_retryable"
            await runtime.time_passes()
            await runtime.trouble.make_waits_due()
            await runtime.sweep()
    assert (await runtime.error(run_id))["code"] == "lease_lost"
    assert runtime.outside.effects == []


@pytest.mark.parametrize(
    ("lease", "stalled", "readings"), [(30, SEND_WITHIN.total_seconds() + 1, 3), (3, 4, 3), (3, 4, 1)]
)
async def test_a_worker_that_stalls_between_intent_and_call_sends_nothing(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, lease: float, stalled: float, readings: int
) -> None:
    """Too late for its reader, or under a lease that may be somebody else's by then: an append does not renew it."""
    run_id = await begun(runtime, ASKED)
    loop = asyncio.get_running_loop()
    clock = loop.time
    started: list[float] = []

    def time() -> float:
        # The first readings are those around the claim and before the intent; every other one is after the stall.
        started.append(clock())
        return started[-1] if len(started) <= readings else clock() + stalled

    worker = runtime.worker(lease=lease)
    with monkeypatch.context() as patched:
        patched.setattr("runtime.work.lease.Lease.now", staticmethod(time))
        await worker.work_off()
    assert runtime.outside.effects == []
    assert (await runtime.books.receipt()).status == "failed"
    assert await runtime.status(run_id) == "failed_retryable"
    await runtime.wait_is_due()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    assert await runtime.books.approvals() == []
    await runtime.history(run_id)
