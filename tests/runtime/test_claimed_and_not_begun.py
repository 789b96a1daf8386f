"""Between a claim and the intent nothing is told yet: whatever changes meanwhile is found by the first append."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from runtime.requests.steering import cancel_run
from runtime.store import claims
from runtime.work.driving import Drive
from runtime.work.holding import Tools
from runtime.work.lease import Lease
from runtime.work.setbacks import LEASES_MAX
from tests.support.for_all import ForAll

LEASE = timedelta(seconds=30)
ONE = """
workflow: one
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""
DENY = """
policy: deny-all
version: 2
rules:
  - {id: nothing, match: {connector: probe}, outcome: deny, because: It is a test.}
"""


async def started(runtime: Any) -> UUID:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(ONE)
    run: UUID = (await runtime.start("one")).run_id
    return run


async def claimed(runtime: Any, owner: str) -> Callable[[], Awaitable[None]]:
    """A worker has claimed the step; it begins when it is told to."""
    began = Lease.now()
    async with runtime.database.connection() as connection:
        (record,) = await claims.claim_next(connection, owner, LEASE)
    tools = Tools(runtime.database, runtime.definitions, ForAll(runtime.connectors), owner, LEASE)
    return lambda: Drive(tools).run(record, began)


@pytest.mark.req("V-13")
async def test_a_run_that_is_canceled_meanwhile_does_nothing(runtime: Any) -> None:
    run_id = await started(runtime)
    go_on = await claimed(runtime, "w")
    async with runtime.faces.transaction("acme") as connection:
        assert await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no") == "canceled"
    await go_on()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("canceled", [])
    await runtime.at_rest()


async def test_a_policy_that_denies_meanwhile_is_obeyed(runtime: Any) -> None:
    run_id = await started(runtime)
    go_on = await claimed(runtime, "w")
    await runtime.policy(DENY)
    await go_on()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("failed_terminal", [])
    await runtime.at_rest()


@pytest.mark.req("Q-9")
async def test_a_claim_that_postgresql_lost_does_nothing_beside_the_one_that_has_its_epoch(runtime: Any) -> None:
    """Claims are not flushed: a crash of PostgreSQL takes the newest along, and then gives their epochs again."""
    run_id = await started(runtime)
    lost = await claimed(runtime, "first")
    await runtime.trouble.forget_claims()
    kept = await claimed(runtime, "second")
    await lost()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("queued", [])
    await kept()
    await lost()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    assert (await runtime.books.step()).lease_epoch == 1
    await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.req("Q-8")
async def test_a_worker_that_dies_before_it_begins_leaves_the_step_to_the_next(runtime: Any) -> None:
    run_id = await started(runtime)
    late = await claimed(runtime, "dead")
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() == 1
    assert (await runtime.books.step()).error["leases"] == 1
    await late()
    assert runtime.outside.effects == []
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.usefixtures("quiet")
async def test_a_step_that_no_worker_lives_to_begin_ends_itself(runtime: Any) -> None:
    run_id = await started(runtime)
    for _ in range(LEASES_MAX):
        await claimed(runtime, "dead")
        await runtime.trouble.expire_leases()
        assert await runtime.sweep() == 1
    assert await runtime.status(run_id) == "failed_terminal"
    assert (await runtime.error(run_id))["code"] == "lease_lost"
    await runtime.history(run_id)
    await runtime.at_rest()
