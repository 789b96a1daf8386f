"""The rows that are found by their keys are compared with the book, column by column and in both directions."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from runtime.engine.told import Diverged
from runtime.store.rows import check_rows
from runtime.store.views import load
from tests.support.asking import owning

# The rows are altered.
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
  - {id: held, do: probe.effect.apply, with: {name: held}, needs: [first]}
"""
POLICY = """
policy: p
version: 1
rules:
  - id: updates
    match: {operation: probe.record.update}
    outcome: needs_approval
    approvers: [{group: owners, of: 2}]
  - {id: tickets, match: {operation: probe.ticket.open}, outcome: allow}
  - {id: effects, match: {operation: probe.effect.apply}, outcome: allow}
"""
# What is changed of one row, the check that finds it, and how it is named.
OTHERWISE: list[tuple[str, str, str, str, str]] = [
    ("queue", "step_id = gen_random_uuid()", "step_key = 'held'", "queue", "step_id of the place in the queue"),
    ("queue", "status = 'sent'", "step_key = 'held'", "queue", "status of the place in the queue"),
    ("queue", "owner = 'w9'", "step_key = 'held'", "queue", "owner of the place in the queue"),
    ("queue", "epoch = 7", "step_key = 'held'", "queue", "epoch of the place in the queue"),
    ("waits", "step_key = 'first'", "kind = 'signal'", "waits", "step_key of the wait"),
    ("waits", "kind = 'timer'", "kind = 'signal'", "waits", "kind of the wait"),
    ("waits", "status = 'canceled'", "kind = 'signal'", "waits", "status of the wait"),
    ("waits", "token = 'other'", "kind = 'approval'", "waits", "token of the wait"),
    ("waits", "correlation_key = 'paid:j'", "kind = 'signal'", "waits", "correlation_key of the wait"),
    ("waits", "context = '{}'", "kind = 'approval'", "waits", "context of the wait"),
    ("waits", """result = '{"by": "person:eve"}'""", "kind = 'signal'", "waits", "result of the wait"),
    ("approvals", "step_key = 'paid'", "true", "approvals", "step_key of the approval"),
    ("approvals", "status = 'approved'", "true", "approvals", "status of the approval"),
    ("approvals", "choice = 'approve'", "true", "approvals", "choice of the approval"),
    ("approvals", "reason = 'because'", "true", "approvals", "reason of the approval"),
    ("approvals", "escalated = true", "true", "approvals", "escalated of the approval"),
    ("approvals", "consumed_at = now()", "true", "approvals", "consumed of the approval"),
    ("votes", "choice = 'reject'", "true", "approvals", "choice of the vote"),
    ("votes", "reason = 'another'", "true", "approvals", "reason of the vote"),
    ("votes", "groups = '{bosses}'", "true", "approvals", "groups of the vote"),
    ("votes", "channel = 'slack'", "true", "approvals", "channel of the vote"),
    ("votes", "person_id = 'eve'", "true", "approvals", "is stored, and in no line"),
    ("effects", "step_key = 'asked'", "true", "effects", "step_key of the effect"),
    ("effects", "receipt_id = gen_random_uuid()", "true", "effects", "receipt_id of the effect"),
    ("effects", "status = 'in_doubt'", "true", "effects", "status of the effect"),
    ("effects", "key = 'zz'", "true", "effects", "is not stored"),
    ("ledger", """value = '"two"'""", "true", "ledger", "value of the entry of the ledger"),
    ("ledger", "superstep = 9", "true", "ledger", "is not stored"),
    ("ledger", "step_key = 'asked'", "true", "ledger", "is stored, and in no line"),
    ("ledger", "channel = 'other'", "true", "ledger", "is stored, and in no line"),
]


async def found(connection: asyncpg.Connection[Any], run: Any, sql: str) -> Diverged:
    """Return what the comparison says if one row is changed so; the row is as it was afterwards."""
    await connection.execute("SAVEPOINT unchanged; SET LOCAL session_replication_role = replica")
    tag = await connection.execute(sql)
    assert tag.endswith(" 1"), f"{sql}: {tag}"
    with pytest.raises(Diverged) as raised:
        await check_rows(connection, run)
    await connection.execute("ROLLBACK TO unchanged")
    return raised.value


async def test_whatever_differs_in_a_row_is_named(runtime: Any, gate: Any) -> None:
    await runtime.tenant()
    await runtime.policy(POLICY)
    await runtime.person("olga", ("owners",))
    await runtime.publish(ALL)
    run_id = (await runtime.start("all")).run_id
    runtime.outside.gates["held"] = gate
    async with runtime.working():
        await asyncio.wait_for(gate.reached.wait(), 60)
        await runtime.until(lambda: runtime.books.approvals(open=True))
        await runtime.until(lambda: runtime.books.waits(kind="signal", open=True))
        await runtime.vote("olga", "approve")
        async with runtime.database.connection() as connection:
            run = (await load(connection, run_id, runtime.definitions.graphs, whole=True)).run
        async with owning(runtime.database) as connection:
            await check_rows(connection, run)
            for table, change, of, check, words in OTHERWISE:
                said = await found(connection, run, f"UPDATE {table} SET {change} WHERE {of}")
                assert (said.check, words in str(said)) == (check, True), str(said)
            for table, of in (("queue", "step_key = 'held'"), ("waits", "kind = 'signal'"), ("votes", "true")):
                said = await found(connection, run, f"DELETE FROM {table} WHERE {of}")
                assert "is not stored" in str(said)
            await check_rows(connection, run)
        gate.opened.set()
