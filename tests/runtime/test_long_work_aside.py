"""One tenant's long books hold up nobody else (promise 9): they are folded in bounded turns, beside everything else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from evidence.chain import Actor
from runtime.engine.replay.past import refold
from runtime.keep import reviewing
from runtime.keep.sweeper import Sweeper
from runtime.requests import consequences
from runtime.requests.policies import publish_policy
from runtime.store.views import load

OPS = Actor("person", "olga")
POLICY = """
policy: p
version: %d
rules:
  - {id: all, match: {connector: probe}, outcome: %s%s}
"""
ASKS = """
workflow: asks
version: 1
reference: r
steps: [{id: a, do: probe.effect.apply, with: {name: a}}]
"""
SLEEPS = """
workflow: sleeps
version: 1
reference: r
channels: {done: {initial: ''}}
steps: [{id: t, wait: {for: PT1H}}, {set: {done: 'yes'}}]
"""


def policy_of(version: int, outcome: str) -> str:
    return POLICY % (version, outcome, ", approvers: [{group: owners}]" if outcome == "needs_approval" else "")


@asynccontextmanager
async def keeping(runtime: Any) -> AsyncIterator[None]:
    stop = asyncio.Event()
    keeper = Sweeper(runtime.database, runtime.definitions, interval=timedelta(seconds=0.05))
    task = asyncio.create_task(keeper.run(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


async def test_timers_of_everybody_end_while_a_tenants_questions_are_judged(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judging does not come to its end before the timer of another tenant has."""
    for tenant in ("acme", "other"):
        await runtime.tenant(tenant)
        await runtime.policy(policy_of(1, "needs_approval"), tenant)
        await runtime.publish(ASKS, tenant)
        await runtime.publish(SLEEPS, tenant)
    await runtime.start("asks")
    timer = (await runtime.start("sleeps", tenant="other")).run_id
    await runtime.worker().work_off()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def long(*_: Any, **__: Any) -> Any:
        begun.set()
        await ended.wait()
        return reviewing.Reviewed(False, 1)

    monkeypatch.setattr(reviewing, "review_question", long)
    await _publish(runtime, 2, "needs_approval")
    async with keeping(runtime):
        await asyncio.wait_for(begun.wait(), 60)
        await runtime.trouble.make_waits_due("timer")
        async with runtime.working():
            await runtime.until(lambda: _over(runtime, timer))
        ended.set()


async def test_questions_are_judged_in_turns_bounded_by_the_lines_that_are_folded(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn judges one of these, and all of them are judged in the end; whoever publishes waits for none."""
    await runtime.tenant()
    await runtime.policy(policy_of(1, "needs_approval"))
    await runtime.publish(ASKS)
    runs = [(await runtime.start("asks", ref=str(number))).run_id for number in range(4)]
    await runtime.worker().work_off()
    monkeypatch.setattr(reviewing, "LINES_MAX", 2)
    monkeypatch.setattr(consequences, "LINES_MAX", 2)
    published = await _publish(runtime, 2, "deny")
    assert published.consequences["unread"] == published.questions == 4, "they are counted, and judged after it"
    turns = 0
    while left := len(await runtime.books.approvals(open=True)):
        await runtime.sweep()
        assert len(await runtime.books.approvals(open=True)) == left - 1
        turns += 1
    assert turns == 4
    await runtime.go_on()
    assert [await runtime.status(run_id) for run_id in runs] == ["failed_terminal"] * 4
    assert runtime.outside.effects == []


@pytest.mark.parametrize("who", ["review", "face"])
async def test_a_book_of_any_length_is_folded_beside_the_event_loop(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """A long book is folded whole in a thread, whoever asks for it, and its transaction stays open meanwhile."""
    await runtime.tenant()
    await runtime.policy(policy_of(1, "needs_approval"))
    await runtime.publish(ASKS)
    run_id = (await runtime.start("asks")).run_id
    await runtime.worker().work_off()
    threads: set[bool] = set()
    real = refold

    def told(*given: Any) -> Any:
        threads.add(threading.current_thread() is threading.main_thread())
        return real(*given)

    monkeypatch.setattr("runtime.store.views.refold", told)
    monkeypatch.setattr("runtime.store.offload.LONG", 1)
    if who == "review":
        question = await runtime.question()
        assert not (await reviewing.review_question(runtime.database, runtime.definitions, question)).voided
    else:
        async with runtime.faces.transaction("acme") as connection:
            await load(connection, run_id, runtime.definitions.graphs, whole=True, tenant="acme")
    assert threads == {False}


async def _publish(runtime: Any, version: int, outcome: str) -> Any:
    text = policy_of(version, outcome)
    async with runtime.faces.transaction("acme") as connection:
        return await publish_policy(connection, runtime.definitions, "acme", text, "p.yaml", OPS)


async def _over(runtime: Any, run_id: Any) -> bool:
    return bool(await runtime.status(run_id) == "succeeded")
