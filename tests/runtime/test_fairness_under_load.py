"""One tenant that offers a hundred times the load of the others: turns by weight, caps at every instant, no starvation.

Promise 9, for the steps of runs.

Waits are counted in turns, never in seconds: how many steps of anybody began between a run's being there and its own
beginning, by the audit. So the bounds hold on any machine.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import orjson
import pytest

from chaos import caps
from chaos.caps import Execution
from evidence.chain import timestamp
from runtime.store import claims

LEASE = timedelta(seconds=30)
ONE = """
workflow: one
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""
FLOOD = "flood"
WEIGHTS = {FLOOD: 1.0, "ann": 1.0, "bob": 2.0, "cara": 4.0}
CAPS = {FLOOD: 3, "ann": 2, "bob": 2, "cara": 2}
WORKERS, PLACES = 3, 4
EACH = 3


async def offered(runtime: Any, tenant: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await runtime.start("one", ref=str(number), tenant=tenant)


async def settled(runtime: Any, tenant: str, **columns: Any) -> None:
    await runtime.tenant(tenant, **columns)
    await runtime.policy(tenant=tenant)
    await runtime.publish(ONE, tenant)


@asynccontextmanager
async def at_work(runtime: Any) -> AsyncIterator[None]:
    """Several workers, and an outside that takes its time, so that executions overlap."""
    at_once = runtime.outside.perform

    async def taking_time(call: Any) -> Any:
        await asyncio.sleep(0.015)
        return await at_once(call)

    runtime.outside.perform = taking_time
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(WORKERS):
            group.create_task(runtime.worker(f"w{number}", concurrency=PLACES).run(stop))
        try:
            yield
        finally:
            stop.set()


async def executed(runtime: Any) -> list[Execution]:
    runs = await runtime.books.runs()
    return await caps.recorded(runtime.database, [(run.tenant, run.id) for run in runs])


async def there_since(runtime: Any) -> dict[Any, Any]:
    return {run.id: run.created_at for run in await runtime.books.runs()}


def waits_in_turns(order: Sequence[Execution], since: dict[Any, Any], tenant: str) -> list[int]:
    """Count for each run of a tenant how many steps of anybody began while it stood in line."""
    own = [one for one in order if one.tenant == tenant]
    return [sum(since[one.run] < other.opened < one.opened for other in order) for one in own]


def share(tenant: str) -> int:
    """The number of turns of which at least one is the tenant's, as long as it has something to do."""
    return math.ceil(sum(WEIGHTS.values()) / WEIGHTS[tenant])


def drop_in_bound(tenant: str) -> int:
    """A run that comes to an empty lane: its share, after what had been chosen before it was there."""
    return share(tenant) + WORKERS * PLACES


async def until(fact: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a fact of the database, for as long as much work may take on a slow machine."""
    async with asyncio.timeout(90):
        while not await fact():  # noqa: ASYNC110  the fact is the database's
            await asyncio.sleep(0.02)


async def all_over(runtime: Any) -> None:
    async def over() -> bool:
        return not await runtime.books.runs_under_way()

    await until(over)


@pytest.mark.req("Q-12")
@pytest.mark.req("Q-13")
async def test_a_flood_keeps_nobody_waiting_beyond_a_fair_share(runtime: Any) -> None:
    small = [tenant for tenant in WEIGHTS if tenant != FLOOD]
    for tenant, weight in WEIGHTS.items():
        await settled(runtime, tenant, concurrency=CAPS[tenant], weight=weight)
    await offered(runtime, FLOOD, 100 * EACH)
    for tenant in small:
        await offered(runtime, tenant, EACH)

    async def ended(count: int) -> bool:
        return bool(await runtime.books.runs_finished(FLOOD) >= count)

    async with at_work(runtime):
        for number in range(EACH, 2 * EACH):
            await until(partial(ended, 60 * (number - EACH + 1)))
            for tenant in small:
                await offered(runtime, tenant, 1, number)
        await all_over(runtime)
    found = await executed(runtime)
    order, since = caps.turns(found), await there_since(runtime)
    assert caps.counts(found) == {FLOOD: 100 * EACH} | dict.fromkeys(small, 2 * EACH)
    for tenant in small:
        begun, waits = backlog_turns(order, tenant), waits_in_turns(order, since, tenant)
        for number in range(EACH):
            assert begun[number] <= (number + 1) * share(tenant) + WORKERS * PLACES, (tenant, begun)
        assert max(waits[EACH:]) <= drop_in_bound(tenant), (tenant, waits)
    assert caps.exceeded(found, CAPS) == []
    assert caps.most_at_once(one for one in found if one.tenant == FLOOD).count == CAPS[FLOOD], "the cap was reached"
    assert caps.exceeded(found, {FLOOD: CAPS[FLOOD] - 1}), "and the check would have seen more"
    await runtime.at_rest()


def backlog_turns(order: Sequence[Execution], tenant: str) -> list[int]:
    """After how many turns of anybody each of a tenant's steps began."""
    return [number for number, one in enumerate(order) if one.tenant == tenant]


@pytest.mark.req("Q-13")
async def test_shares_follow_the_weights_while_everybody_has_a_backlog(runtime: Any) -> None:
    """Claims of the same moment may choose the same tenant, so the order is the weights' only on the whole.

    Up to twelve are of the same moment: of some 200 turns, that is well within half and twice a share.
    """
    whole = sum(WEIGHTS.values())
    for tenant, weight in WEIGHTS.items():
        await settled(runtime, tenant, concurrency=16, weight=weight)
        await offered(runtime, tenant, 200 if tenant == FLOOD else int(35 * weight))
    async with at_work(runtime):
        await all_over(runtime)
    order = caps.turns(await executed(runtime))
    # As far as nobody's backlog can have come to its end.
    contested = min(backlog_turns(order, tenant)[-1] for tenant in WEIGHTS)
    served = caps.counts(order[:contested])
    assert contested > 16 * whole
    for tenant, weight in WEIGHTS.items():
        fair = contested * weight / whole
        assert fair / 2 <= served[tenant] <= fair * 2, (contested, served)


@pytest.mark.tampers  # it takes leases by hand
@pytest.mark.req("Q-13")
async def test_a_tenant_of_weight_1_beside_one_of_weight_100_always_gets_its_turn(runtime: Any) -> None:
    await settled(runtime, "heavy", weight=100.0)
    await settled(runtime, "light", weight=1.0)
    await offered(runtime, "heavy", 310)
    await offered(runtime, "light", 3)
    order = []
    for _ in range(306):
        async with runtime.database.transaction() as connection:
            (found,) = await claims.claim_next(connection, "w", LEASE)
        order.append(found["run"]["tenant_id"])
        await runtime.trouble.free_slots()
    turns = [number for number, tenant in enumerate(order) if tenant == "light"]
    assert len(turns) == 3
    for number, turn in enumerate(turns):
        assert turn <= (number + 1) * 101, turns
    assert turns[0] <= 1, "whoever has had nothing is level with the others"


# -- the check itself ------------------------------------------------------------------------------------------------


def at(seconds: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def lines_of(*events: tuple[str, str | None, float]) -> list[bytes]:
    """The lines of a chain, as far as the check reads them: type, step, second."""
    opened = {"type": "run.opened", "step": None, "ts": timestamp(at(0)), "data": {"workflow": {"name": "w"}}}
    rest: list[Any] = [
        {"type": kind, "step": step, "ts": timestamp(at(second)), "data": {}} for kind, step, second in events
    ]
    return [orjson.dumps(line) for line in [opened, *rest]]


def spans(*events: tuple[str, str | None, float]) -> list[tuple[str, datetime, datetime | None]]:
    return [(one.step, one.opened, one.closed) for one in caps.executions("t", UUID(int=1), lines_of(*events))]


@pytest.mark.parametrize(
    "end", ["step.succeeded", "step.failed", "step.parked", "step.retry_scheduled", "lease.expired"]
)
def test_whatever_ends_a_lease_closes_its_execution(end: str) -> None:
    other = ("action.intended", "a", 1.5)
    assert spans(("step.started", "a", 1), other, (end, "a", 2)) == [("a", at(1), at(2))]
    again = spans(("step.started", "a", 1), (end, "a", 2), ("step.started", "a", 3), (end, "b", 4))
    assert again == [("a", at(1), at(2)), ("a", at(3), None)]


def test_an_execution_without_an_end_ends_with_its_run() -> None:
    assert spans(("step.started", "a", 1), ("run.closed", None, 5)) == [("a", at(1), at(5))]
    canceled = (("run.canceled", None, 1), ("step.started", "a", 2), ("action.doubt_resolved", "a", 3))
    assert spans(*canceled, ("run.closed", None, 9)) == [("a", at(2), at(3))]


def test_more_at_once_than_the_cap_is_seen_and_a_slot_that_is_handed_on_is_not() -> None:
    def one(name: str, opened: float, closed: float | None) -> Execution:
        return Execution("t", "w", UUID(int=1), name, at(opened), None if closed is None else at(closed))

    handed_on = [one("a", 0, 2), one("b", 2, 4), one("c", 4, None), one("nothing", 3, 3)]
    assert caps.exceeded(handed_on, {"t": 1, "other": 0}) == []
    overlap = [*handed_on, one("d", 3.9, 4.1)]
    (words,) = caps.exceeded(overlap, {"t": 1})
    assert "2 steps of t" in words
    assert "/d" in words
    assert caps.exceeded(overlap, {"w": 1}, key=lambda one: one.workflow) == [words.replace("of t", "of w")]
    assert caps.exceeded(overlap, {"t": 1}, blur=timedelta(seconds=0.2)) == []
