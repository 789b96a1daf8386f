"""Leaves of the log: who writes them and when, their order, and that nobody else touches them (promise 7)."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from core.db import ENGINE_ROLE, Database
from evidence.log.leaves import Leaf
from runtime.store import logs
from tests.support.runtime_stage import ALLOW_ALL

ASK = ALLOW_ALL.replace("outcome: allow", "outcome: needs_approval\n    approvers: [{group: owners}]")
SIMPLE = "workflow: simple\nversion: 1\nreference: r\nsteps: [{id: a, do: probe.effect.apply, with: {name: a}}]\n"


async def leaves(runtime: Any, tenant: str = "acme") -> list[Leaf]:
    """All leaves, the ordered ones first."""
    async with runtime.database.connection() as connection:
        found = [leaf async for _, leaf in logs.leaves(connection, tenant)]
        return [*found, *await logs.without_place(connection, tenant)]


async def kinds(runtime: Any) -> list[str]:
    return [str(leaf.kind) for leaf in await leaves(runtime)]


async def asked(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy(ASK)
    await runtime.publish(SIMPLE)
    await runtime.person("olga", ("owners",))
    await runtime.start("simple")
    await runtime.worker().work_off()


@pytest.mark.req("P-3")
async def test_each_fact_of_a_run_has_its_leaf(runtime: Any) -> None:
    await asked(runtime)
    assert await kinds(runtime) == ["opened", "parked"]
    assert (await runtime.vote("olga", "approve")).counted
    await runtime.sweep()
    assert await kinds(runtime) == ["opened", "parked", "moved"], "the head of an open run, once a minute"
    await runtime.worker().work_off()
    await runtime.trouble.make_purge_due()
    await runtime.sweep()
    found = await leaves(runtime)
    assert [str(leaf.kind) for leaf in found] == ["opened", "parked", "moved", "closed"]
    run = await runtime.one("SELECT audit_count, audit_head FROM runs")
    assert (found[-1].count, found[-1].head, found[0].number) == (run["audit_count"], run["audit_head"], 1)


@pytest.mark.req("P-3")
async def test_runs_are_numbered_without_gaps_whoever_starts_them_at_once(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(SIMPLE)
    await asyncio.gather(*(runtime.start("simple", ref=str(number % 20)) for number in range(40)))
    assert sorted(leaf.number or 0 for leaf in await leaves(runtime)) == [*range(1, 21)]


@pytest.mark.tampers
@pytest.mark.req("P-3")
@pytest.mark.parametrize("function", ["log_run", "log_opened", "log_told"])
async def test_no_login_puts_a_trigger_of_the_log_on_a_table_of_its_own(runtime: Any, function: str) -> None:
    for login in (runtime.database, runtime.faces):
        async with login.connection() as connection:
            await connection.execute("CREATE TEMP TABLE mine (tenant_id text, seq bigint, hash text)")
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for function"):
                await connection.execute(f"CREATE TRIGGER t AFTER INSERT ON mine EXECUTE FUNCTION {function}()")
            await connection.execute("DROP TABLE mine")


@pytest.mark.req("P-3")
async def test_two_keepers_give_every_leaf_one_place(runtime: Any, database_url: str) -> None:
    """While one has given places and not committed, the other waits: it sees them then."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(SIMPLE)
    await runtime.start("simple", ref="1")
    async with Database(database_url, ENGINE_ROLE) as other:

        async def order() -> int:
            async with other.connection() as connection:
                return await logs.order(connection, "acme")

        async with runtime.database.connection() as connection, connection.transaction():
            assert await logs.order(connection, "acme") == 1
            await runtime.start("simple", ref="2")
            second = asyncio.create_task(order())
            await runtime.until("SELECT 1 FROM pg_locks WHERE NOT granted")
        assert await asyncio.gather(second, return_exceptions=True) == [1]
    async with runtime.database.connection() as connection:
        assert [place async for place, _ in logs.leaves(connection, "acme")] == [0, 1]
