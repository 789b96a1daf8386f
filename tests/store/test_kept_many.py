"""Sweeps over many kept signals: their reads do not grow with those kept in vain, and they miss none."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from runtime.keep.sweeper import Sweeper
from runtime.store.inbox import NEWEST
from tests.support.insides import look_at_all_again, statement_of_a_sweep

LEASE = timedelta(seconds=30)
WAITING = "workflow: w\nversion: 1\nreference: c1\nsteps:\n  - {id: paid, wait: {signal: paid}}\n"
_KEPT = """
INSERT INTO inbox (tenant_id, source, notification_id, payload, correlation_key, received_at)
SELECT 'acme', 'signal', 'n' || n, '{}', 'nobody:' || n, now() - (110000 - n) * interval '1 ms'
FROM generate_series($1::int, $2::int) n"""


async def pages_read(runtime: Any) -> int:
    """The pages that one sweep's statement looks at."""
    async with runtime.database.connection() as connection:
        await connection.execute("ANALYZE inbox")
        statement = statement_of_a_sweep().replace("$1", "interval '30 s'").replace("$2", "false")
        rows = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
    (plan,) = json.loads(rows[0][0]) if isinstance(rows[0][0], str) else rows[0][0]
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


@pytest.mark.tampers
async def test_a_sweep_costs_the_same_however_many_signals_are_kept(runtime: Any) -> None:
    await runtime.tenant()
    async with runtime.database.connection() as connection:
        await connection.execute(_KEPT, 1, 2 * NEWEST)
        few = await pages_read(runtime)
        await connection.execute(_KEPT, 2 * NEWEST + 1, 110_000)
        many = await pages_read(runtime)
    assert many <= few * 1.1, (few, many)


async def test_one_behind_very_many_newer_ones_is_found_when_all_are_looked_at(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(WAITING)
    await runtime.signal("paid:c1", {}, id="old")
    async with runtime.database.connection() as connection:
        await connection.execute("UPDATE inbox SET received_at = now() - interval '1 h'")
        await connection.execute(_KEPT, 1, 2 * NEWEST)
    run_id = (await runtime.start("w")).run_id
    sweeper = Sweeper(runtime.database, runtime.definitions)
    assert await sweeper.sweep() == 0  # nobody waits yet, and this was a look at all of them
    await runtime.worker().work_off()
    assert await sweeper.sweep() == 0
    look_at_all_again(sweeper)  # a minute later
    assert await sweeper.sweep() == 1
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"


@pytest.mark.req("Q-10")
async def test_the_lease_of_a_dead_worker_outlives_no_clock_that_goes_back(runtime: Any, gate: Any) -> None:
    """The clock of the database went back by four hours: what ends then would hold the step for so long."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(
        WAITING.replace("{id: paid, wait: {signal: paid}}", "{id: a, do: probe.value.read, with: {}}")
    )
    run_id = (await runtime.start("w")).run_id
    async with runtime.database.connection() as connection:
        assert await runtime.trouble.hand_steps_to("dead") == 1  # for an hour
        assert await Sweeper(runtime.database, runtime.definitions, lease=LEASE).sweep() == 0
        assert await connection.fetchval("SELECT expires_at - now() FROM queue") <= LEASE
        # A lease of a worker that lives is not touched, nor what is on its way to one.
        ends = await connection.fetchval("UPDATE queue SET expires_at = now() + interval '29 s' RETURNING expires_at")
        await runtime.sweep()
        assert await connection.fetchval("SELECT expires_at FROM queue") == ends
        await runtime.trouble.expire_leases()
        assert await runtime.sweep() == 1
        await runtime.trouble.send_steps("scheduler")
        await connection.execute("UPDATE queue SET expires_at = now() + interval '4 h'")
        await runtime.sweep()
        left = await connection.fetchval("SELECT expires_at - now() FROM queue")
        assert timedelta(minutes=2) < left <= timedelta(minutes=10)
    await runtime.trouble.expire_sent()
    assert await runtime.sweep() == 1
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
