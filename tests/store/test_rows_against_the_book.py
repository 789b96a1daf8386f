"""Rows that are found by their keys say what the book says, column by column and in both directions (promise 6)."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from runtime.engine.book.recorded import Diverged
from runtime.requests.views import RunReader
from runtime.store.rows import check_rows
from runtime.store.views import load
from tests.support.asking import owning

pytestmark = [pytest.mark.tampers, pytest.mark.req("Q-21")]

ALL = """
workflow: all
version: 1
reference: r
channels: {seen: {reduce: append, ledger: true}}
steps:
  - {id: first, do: probe.ticket.open, with: {name: t}, set: {seen: one}}
  - {id: asked, do: probe.record.update, with: {name: x, fields: {priority: "1"}}, needs: [first]}
  - {id: paid, wait: {signal: paid, correlate: k}, timeout: P1D, needs: [first]}
"""
POLICY = """
policy: p
version: 1
rules:
  - {id: updates, match: {operation: probe.record.update}, outcome: needs_approval, approvers: [{group: owners, of: 2}]}
  - {id: tickets, match: {operation: probe.ticket.open}, outcome: allow}
"""
# What is changed, also where the book says that there is nothing, and the check that finds it.
OTHERWISE: list[tuple[str, str, str, str]] = [
    ("waits", "kind = 'timer'", "kind = 'signal'", "waits"),
    ("waits", "correlation_key = 'paid:j'", "kind = 'signal'", "waits"),
    ("waits", """result = '{"by": "person:eve"}'""", "kind = 'signal'", "waits"),
    ("approvals", "status = 'approved'", "true", "approvals"),
    ("approvals", "choice = 'approve'", "true", "approvals"),
    ("approvals", "escalated = true", "true", "approvals"),
    ("approvals", "consumed_at = now()", "true", "approvals"),
    ("votes", "choice = 'reject'", "true", "approvals"),
    ("votes", "groups = '{bosses}'", "true", "approvals"),
    ("votes", "channel = 'slack'", "true", "approvals"),
    ("votes", "person_id = 'eve'", "true", "approvals"),
    ("effects", "status = 'in_doubt'", "true", "effects"),
    ("effects", "key = 'zz'", "true", "effects"),
    ("ledger", """value = '"two"'""", "true", "ledger"),
]


async def test_a_row_that_says_something_else_than_the_book_is_found(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy(POLICY)
    await runtime.person("olga", ("owners",))
    await runtime.publish(ALL)
    run_id = (await runtime.start("all")).run_id
    await runtime.worker().work_off()
    await runtime.vote("olga", "approve")
    async with runtime.database.connection() as connection:
        run = (await load(connection, run_id, runtime.definitions.graphs, whole=True)).run
    async with owning(runtime.database) as connection:
        await check_rows(connection, run)
        for table, change, of, check in OTHERWISE:
            said = await found(connection, run, f"UPDATE {table} SET {change} WHERE {of}")
            assert said.check == check, (table, change, str(said))
        for table, of in (("waits", "kind = 'signal'"), ("votes", "true")):
            await found(connection, run, f"DELETE FROM {table} WHERE {of}")
        await check_rows(connection, run)


async def found(connection: asyncpg.Connection[Any], run: Any, sql: str) -> Diverged:
    """Return what the comparison says if one row is changed so; the row is as it was afterwards."""
    await connection.execute("SAVEPOINT unchanged; SET LOCAL session_replication_role = replica")
    assert (await connection.execute(sql)).endswith(" 1"), sql
    with pytest.raises(Diverged) as raised:
        await check_rows(connection, run)
    await connection.execute("ROLLBACK TO unchanged")
    return raised.value


async def test_a_run_whose_row_says_something_else_than_its_book_is_not_shown(runtime: Any) -> None:
    run_id = await runtime.go(ALL)
    reader = RunReader(runtime.faces, runtime.definitions)
    assert (await reader.at("acme", run_id)).last > 0
    async with owning(runtime.database) as connection:
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute("UPDATE runs SET reference = 'other' WHERE run_id = $1", run_id)
    with pytest.raises(Diverged):
        await reader.at("acme", run_id)
