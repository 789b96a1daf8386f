"""A target with a rate takes so many calls in any minute, whoever makes them; a step waits and loses nothing."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from connectors import frozen
from connectors.exchange import retry_after_seconds
from connectors.port import Connectors, Done, InDoubt, NotSent, Pace, Probe, ProbeVerdict
from runtime.store import claims, turns
from tests.support.outside import Outside

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
    await runtime.trouble.let_busy_pass(MINUTE)
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


@pytest.mark.parametrize("died", ["before its turn", "with a turn to call now", "with a turn that is kept for later"])
async def test_a_worker_that_dies_with_a_turn_wastes_no_more_than_that(runtime: Any, died: str) -> None:
    """The turn lands or is lost; either way the step is called once, and at most one minute later than without."""
    runtime.connectors.rates = {"probe": 1}
    (run,) = await begun(runtime, "probe.effect.apply", 1)
    async with runtime.database.connection() as connection:
        (record,) = await claims.claim_next(connection, "dead", timedelta(minutes=1))
        if "later" in died:
            assert await turns.take(connection, "acme", "probe", 1, uuid4()) == 0
        if "before" not in died:
            delay = await turns.take(connection, "acme", "probe", 1, UUID(record["step"]["step_id"]))
            assert (delay > 0) is ("later" in died)
    await runtime.trouble.expire_leases()
    await runtime.sweep()
    await two_workers(runtime)
    assert len(runtime.outside.effects) == ("before" in died)
    await next_minute(runtime)
    assert await runtime.status(run) == "succeeded"
    assert set(runtime.outside.landed().values()) == {1}


async def test_ten_thousand_steps_wait_for_one_rate_and_none_of_them_is_looked_at(runtime: Any) -> None:
    """Each has its own time, so a sweep in between finds nothing due."""
    await runtime.tenant()
    async with runtime.database.connection() as connection:
        for _ in range(300):
            last = await turns.take(connection, "acme", "crm.example", 1, uuid4())
        assert 298 * 60 < last <= 299 * 60
        (found,) = (await turns.standing(connection, "acme")).values()
    assert (found.used, found.waiting) == (1, 0), "a turn of a step that waits for nothing is nobody's"


AFTER = {
    "7": 7.0,
    "0": 0.0,
    "-5": None,
    "soon": None,
    "": None,
    "9" * 400: 1e9,
    "\N{ARABIC-INDIC DIGIT FIVE}": None,
    "Fri, 01 Jan 2027 00:00:10 GMT": 10.0,
    "Thu, 01 Jan 1970 00:00:00 GMT": 0.0,
    "Fri, 01 Jan 99999999999999999999 00:00:00 GMT": None,
    "Fri, 01 Jan 2027 00:00:00 +9999": None,
}


@pytest.mark.parametrize("text", AFTER)
def test_what_is_no_time_in_retry_after_is_none(text: str) -> None:
    answered = [(b"Date", b"Fri, 01 Jan 2027 00:00:00 GMT"), (b"Retry-After", text.encode())]
    assert retry_after_seconds(httpx.Headers(answered)) == AFTER[text]


@pytest.mark.parametrize(("asked", "held"), [(10 * 365 * 86_400.0, 3600), (-5.0, 0), (0.4, 0), (90.0, 90)])
async def test_a_target_is_left_alone_for_an_hour_at_most(runtime: Any, asked: float, held: int) -> None:
    await runtime.tenant()
    async with runtime.database.connection() as connection:
        for _ in range(3):
            until = await turns.note_busy(connection, "acme", "http crm.example:443", asked)
        for n in range(250):
            await turns.note_busy(connection, "acme", f"http h{n}.example:443", 60)
        (moment,) = await connection.fetchrow("SELECT clock_timestamp()")
        found = await turns.busy(connection, "acme")
    # It is held until a whole second: so at most one second longer than asked, with what is cut off of 0.4.
    assert held - 60 < (until - moment).total_seconds() < held + 2
    assert len(found) <= 200


PLACES = {
    ("http", "https://CRM.example/a"): "http crm.example:443",
    ("http", "https://crm.example:443/b"): "http crm.example:443",
    ("http", "https://crm.example./"): "http crm.example:443",
    ("http", "https://crm\N{IDEOGRAPHIC FULL STOP}example/"): "http crm.example:443",
    ("http", "https://crm.example:8443/"): "http crm.example:8443",
    ("http", "http://crm.example/"): "http crm.example:80",
    ("mcp", "https://crm.example/mcp"): "mcp crm.example:443",
    ("servicenow", "https://other.example/"): "servicenow https://now.example",
    ("slack", ""): "slack",
}


@pytest.mark.parametrize("called", PLACES)
def test_a_target_has_one_name_however_it_is_called(called: tuple[str, str]) -> None:
    at = Connectors({"servicenow": Outside(target="https://now.example")})
    connector, address = called
    fixed = frozen.URL if connector == "mcp" else "url"
    # The arguments of a tool name no system, whatever they are called.
    assert at.place(connector, {"url": "https://elsewhere.example/", fixed: address}) == PLACES[called]


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


async def later(runtime: Any, by: timedelta = timedelta(hours=2)) -> None:
    """So much time passes, for targets that want no calls and for the steps that wait."""
    await runtime.trouble.let_busy_pass(by)
    await runtime.trouble.make_waits_due("retry")
    await runtime.sweep()
    await two_workers(runtime)


DOUBT = Probe(ProbeVerdict.CANNOT_TELL, "it is too early", None, 15.0, 60.0)
TOLD = {
    "429 of a call": ("probe.effect.apply", "", [NotSent("429", 60.0)]),
    "429 of a call by approval": ("probe.effect.apply", "", [NotSent("429", 60.0)]),
    "429 of a read before": ("probe.record.update", FIELDS, [NotSent("429", 60.0)]),
    "503 in doubt": ("probe.key.put", "", [InDoubt("503", (), 60.0)]),
    "503 of a probe": ("probe.effect.apply", "", [InDoubt("503")]),
    "429 of a read": ("probe.value.read", "", [NotSent("429", 60.0)]),
}


@pytest.mark.parametrize("told", TOLD)
async def test_a_target_that_asks_for_no_calls_gets_none_of_this_tenant_and_all_of_others(
    runtime: Any, told: str
) -> None:
    operation, extra, said = TOLD[told]
    (first,) = await begun(runtime, operation, 1, ASK if "approval" in told else None, extra)
    for person in ("olga", "otto"):
        await runtime.person(person, ("owners",))
    outside = runtime.outside
    (outside.unread if "before" in told else outside.script.setdefault("n0", [])).extend(said)
    outside.verdict = DOUBT
    await runtime.worker("w0").work_off()
    if "approval" in told:
        await runtime.vote("olga", "approve")
        await runtime.worker("w0").work_off()
    if "probe" in told:
        await runtime.trouble.make_waits_due("retry")
        await runtime.sweep()
        await runtime.worker("w0").work_off()
    asked = outside.called
    others = [(await runtime.start("one", {"name": f"m{n}"}, ref=f"m{n}")).run_id for n in range(4)]
    for _ in range(3):  # they come too early, again and again, to two other workers
        await two_workers(runtime)
        for question in await runtime.books.approvals(status="requested"):
            await runtime.vote("olga", "approve", on=question.id)
        await two_workers(runtime)
        await runtime.trouble.make_waits_due("retry")
        await runtime.sweep()
    await two_workers(runtime)
    assert outside.called == asked, "no call goes to the target, whoever makes it"
    for run in others:
        step = await runtime.books.step("a", run=run)
        assert (step.status, step.error["code"], step.attempt) == ("waiting", "busy", 0)
        assert "probe asks for no calls until" in step.error["message"]
    await runtime.tenant("globex")
    await runtime.policy(tenant="globex")
    await runtime.publish(ONE.replace("OPERATION", operation).replace("EXTRA", extra), "globex")
    theirs = (await runtime.start("one", {"name": "theirs"}, ref="t", tenant="globex")).run_id
    await two_workers(runtime)
    assert await runtime.status(theirs) == "succeeded", "another tenant goes on"
    outside.verdict = Probe(ProbeVerdict.NOT_APPLIED, "it is not there")
    for _ in range(4):
        await later(runtime)
    # A doubt is sent again only when its first call can no longer arrive.
    over = others if "probe" in told else [first, *others]
    assert {await runtime.status(run) for run in over} == {"succeeded"}
    assert set(outside.landed().values()) <= {1}
