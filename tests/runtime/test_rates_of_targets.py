"""A target with a rate takes so many calls in any minute, whoever makes them; a step waits and loses nothing."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from connectors.port import Connectors, Done, NotSent, Pace, Probe, ProbeVerdict
from runtime.store import turns

RATE = 2
MINUTE = timedelta(minutes=1)
ONE = """
workflow: one
version: 1
reference: ${{ trigger.name }}
steps:
  - {id: a, do: OPERATION, with: {name: "${{ trigger.name }}"EXTRA}}
"""
FIELDS = ', fields: {priority: "1"}'
ASK = """
policy: ask
version: 1
rules:
  - id: asked
    match: {connector: probe}
    outcome: needs_approval
    tier: low
    unresolved: ask
    approvers: [{group: owners}]
    because: It is a test.
"""


async def begun(runtime: Any, operation: str, count: int, policy: str | None = None, extra: str = "") -> list[Any]:
    await runtime.tenant()
    await runtime.policy(*([] if policy is None else [policy]))
    await runtime.publish(ONE.replace("OPERATION", operation).replace("EXTRA", extra))
    return [(await runtime.start("one", {"name": f"n{n}"}, ref=str(n))).run_id for n in range(count)]


async def two_workers(runtime: Any) -> None:
    await asyncio.gather(runtime.worker("w1").work_off(), runtime.worker("w2").work_off())


async def next_minute(runtime: Any) -> None:
    await runtime.trouble.let_turns_pass(MINUTE)
    await runtime.trouble.make_waits_due("retry")
    await runtime.sweep()
    await two_workers(runtime)


@pytest.mark.parametrize(
    ("operation", "policy", "extra"),
    [
        ("probe.effect.apply", None, ""),
        ("probe.key.put", None, ""),
        ("probe.record.update", None, FIELDS),
        ("probe.effect.apply", ASK, ""),
        ("probe.record.update", ASK, FIELDS),
    ],
    ids=["allowed", "deduped", "read-before", "approved", "approved-and-read-before"],
)
async def test_no_more_go_out_in_a_minute_and_all_go_out_once(
    runtime: Any, operation: str, policy: str | None, extra: str
) -> None:
    runtime.connectors.rates = {"probe": RATE}
    runs = await begun(runtime, operation, 5, policy, extra)
    for person in ("olga", "otto"):
        await runtime.person(person, ("owners",))
    await two_workers(runtime)
    minutes = 0
    while len(runtime.outside.effects) < len(runs):
        minutes += 1
        assert minutes < 12, "each minute lets some out"
        before = len(runtime.outside.effects)
        await next_minute(runtime)
        for question in await runtime.books.approvals(status="requested"):
            await runtime.vote("olga", "approve", on=question.id)
        await two_workers(runtime)
        assert len(runtime.outside.effects) - before <= RATE
        assert await runtime.trouble.turns_used() <= RATE
    assert set(runtime.outside.landed().values()) == {1}
    assert [await runtime.status(run) for run in runs] == ["succeeded"] * len(runs)
    asked = await runtime.books.approvals()
    assert len(asked) == (0 if policy is None else len(runs)), "nobody is asked again because of the rate"


async def test_a_step_that_waits_says_so_and_uses_up_no_attempt(runtime: Any) -> None:
    runtime.connectors.rates = {"probe": 1}
    first, second = await begun(runtime, "probe.effect.apply", 2)
    await runtime.worker().work_off()
    waiting = second if await runtime.status(first) == "succeeded" else first
    for _ in range(4):  # it comes too early, again and again
        await runtime.trouble.make_waits_due("retry")
        await runtime.sweep()
        await runtime.worker().work_off()
    step = await runtime.books.step("a", run=waiting)
    assert (step.error["code"], step.attempt) == ("rate", 0)
    assert "probe takes at most 1 calls a minute" in step.error["message"]
    assert len(runtime.outside.effects) == 1
    await next_minute(runtime)
    assert await runtime.status(waiting) == "succeeded"


async def test_what_is_sent_again_waits_for_its_turn_too(runtime: Any) -> None:
    runtime.connectors.rates = {"probe": 1}
    runtime.outside.script["n0"] = [NotSent("429", 5.0), Done({})]
    (run,) = await begun(runtime, "probe.effect.apply", 1)
    for _ in range(2):
        await runtime.worker().work_off()
        await runtime.trouble.make_waits_due("retry")
        await runtime.sweep()
    assert await runtime.trouble.turns_used() == 1
    runtime.outside.verdict = Probe(ProbeVerdict.NOT_APPLIED, "it is not there")
    await next_minute(runtime)
    assert await runtime.status(run) == "succeeded"


async def test_turns_that_are_taken_at_the_same_moment_are_counted_once(runtime: Any) -> None:
    await runtime.tenant()

    async def take() -> float:
        async with runtime.database.connection() as connection:
            return await turns.take(connection, "acme", "crm.example", 3, uuid4())

    delays = sorted(await asyncio.gather(*(take() for _ in range(8))))
    assert [round(each / 60) for each in delays] == [0, 0, 0, 1, 1, 1, 2, 2]


async def test_another_tenant_has_turns_of_its_own(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("globex")
    async with runtime.database.connection() as connection:
        for tenant in ("acme", "globex"):
            assert await turns.take(connection, tenant, "crm.example", 1, uuid4()) == 0
        assert 59 < await turns.take(connection, "acme", "crm.example", 1, uuid4()) <= 60


@pytest.mark.parametrize("calls", [1, 3, 7])
async def test_no_order_of_coming_lets_more_out_in_any_minute(runtime: Any, calls: int) -> None:
    await runtime.tenant()
    chance, now, waiting, out = random.Random(calls), 0.0, dict[Any, float](), list[float]()
    async with runtime.database.connection() as connection:
        for _ in range(120):
            passed = chance.choice([0.5, 3.0, 20.0, 70.0 if chance.random() < 0.1 else 5.0])
            await runtime.trouble.let_turns_pass(timedelta(seconds=passed))
            now += passed
            due = [step for step, at in waiting.items() if at <= now] if chance.random() < 0.7 else []
            for step in chance.sample([*due, uuid4(), uuid4()], len(due) + 2):
                delay = await turns.take(connection, "acme", "crm.example", calls, step)
                waiting.pop(step, None)
                if delay > 0:
                    waiting[step] = now + delay
                else:
                    out.append(now)
    assert all(later - out[n] >= 59 for n, later in enumerate(out[calls:])), "no minute has more"
    assert len(out) >= calls * now / 60 * 0.5, "and turns are not wasted"


@pytest.mark.parametrize(
    ("name", "inputs", "found"),
    [
        ("http", {"url": "https://CRM.example:8443/a"}, ("crm.example:8443", 1)),
        ("http", {"url": "https://user@crm.example/a"}, ("crm.example", 2)),
        ("http", {"url": "https://crm\N{IDEOGRAPHIC FULL STOP}example/a"}, ("crm.example", 2)),
        ("http", {"url": "https://b\xfccher.example:443/"}, ("xn--bcher-kva.example:443", 5)),
        ("http", {"url": "https://b\xfccher.example/"}, ("xn--bcher-kva.example:443", 5)),
        ("http", {"url": "https://crm .example/"}, ("http", 3)),
        ("http", {"url": None}, ("http", 3)),
        ("http", {"url": "https://other.example/"}, ("http", 3)),
        ("servicenow", {"url": "https://crm.example/"}, ("servicenow", 4)),
        ("slack", {}, None),
    ],
)
def test_the_rate_is_of_the_host_or_of_the_connector(
    name: str, inputs: dict[str, Any], found: tuple[str, int] | None
) -> None:
    rates = {"crm.example:8443": 1, "crm.example": 2, "http": 3, "servicenow": 4, "xn--bcher-kva.example:443": 5}
    assert Connectors(rates=rates).pace(name, inputs) == (None if found is None else Pace(*found))
