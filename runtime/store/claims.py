"""Takes leases of steps, and extends them.

One statement chooses the tenant that is furthest behind and has a step to run, locks it, and takes as many of its steps
as its caps have free places. A held row of the queue occupies a place, so the caps are exact. Fairness is start-time
fair queueing over tenants, then over a tenant's workspaces: the one with the least service, by weight, is next, and one
that was idle starts where the last turn began. Within a workspace, steps that resume go before steps that start a run.

Claims of one tenant wait for each other at its row. A claim that had to wait has counted the places before the other
claim took some, so it takes nothing and looks again: ``xmin`` tells if the row is still the one that it read. Lock
order: tenant, rows of the queue, cap of a workflow, workspace; a claim takes no lock on a run.

A crash after a claim leaves leases that run out. Claims are not flushed, so PostgreSQL may lose one when it crashes.
The worker that holds a lost lease is then refused by the lease's id, even if a newer lease has the same epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg

from core.db import Connection
from runtime.engine.model.rows import Claim
from runtime.store.statements import statements

_SQL = statements("claims")
_CLAIM_OF_RUN = _SQL["claim_of_run"]
_CLAIM_STEP = _SQL["claim_step"]
_CLAIM_NEXT = _SQL["claim_next"]
_ADMIT = _SQL["admit"]
_WHOSE_TURN = _SQL["whose_turn"]
_EXPECTED = _SQL["expected"]
_HEARTBEAT = _SQL["heartbeat"]
_HOLD = _SQL["hold"]

# The most looks of one claim: the chosen steps may be locked, or another claim of the tenant may come first.
LOOKS_MAX = 64

# The most tenants that one claim passes over.
HELD_MAX = 8


async def claim_next(connection: Connection, owner: str, lease: timedelta, count: int = 1) -> list[asyncpg.Record]:
    """Lease up to ``count`` steps of the tenant whose turn it is; none if no cap leaves a place or nothing is ready."""
    return await _in_turn(connection, _CLAIM_NEXT, "step", owner, lease, count)


async def claim_of_run(connection: Connection, owner: str, lease: timedelta, run_id: UUID) -> list[asyncpg.Record]:
    """Lease a ready step of this run; none if no step is ready, no place is free, or the tenant's row is locked."""
    try:
        return await _first(connection, _CLAIM_OF_RUN, "step", owner, lease, 1, run_id)
    except asyncpg.LockNotAvailableError:
        return []  # it stays ready, and is claimed like every other step


async def claim_step(connection: Connection, owner: str, lease: timedelta, step_id: UUID) -> list[asyncpg.Record]:
    """Lease the step that a queue's message named; none if its row is not ``sent`` (it is leased already, or over)."""
    return await connection.fetch(_CLAIM_STEP, owner, lease, step_id)


async def admit(connection: Connection, owner: str, lease: timedelta, count: int = 1) -> list[asyncpg.Record]:
    """Reserve places for steps of the tenant whose turn it is; the caller sends the steps to a queue."""
    return await _in_turn(connection, _ADMIT, "step_id", owner, lease, count)


async def _in_turn(connection: Connection, statement: str, found: str, *parameters: object) -> list[asyncpg.Record]:
    """Take steps of the tenant whose turn it is; if somebody holds its row, of the next one.

    ``LockNotAvailableError`` if no other tenant has a step to run: the caller looks again.
    """
    held: list[str] = []
    try:
        return await _first(connection, statement, found, *parameters, held)
    except asyncpg.LockNotAvailableError as error:
        met = error
    while len(held) < HELD_MAX:
        # Meanwhile it may be another tenant's turn: then that tenant loses this one turn.
        tenant = await connection.fetchval(_WHOSE_TURN, held)
        if tenant is None:
            break
        held.append(tenant)
        try:
            rows = await _first(connection, statement, found, *parameters, held)
        except asyncpg.LockNotAvailableError as error:
            met = error
            continue
        if rows:
            return rows
        break
    raise met


async def _first(connection: Connection, statement: str, found: str, *parameters: object) -> list[asyncpg.Record]:
    for _ in range(LOOKS_MAX):
        rows = await connection.fetch(statement, *parameters)
        if not rows or rows[0][found] is not None:
            return rows
    return []


async def expected(connection: Connection, steps: Sequence[tuple[UUID, str]], within: timedelta) -> None:
    """Store that the queue has these steps. If nobody claims one in time, the sweeper lets it be sent again."""
    await connection.execute(_EXPECTED, [run for run, _ in steps], [key for _, key in steps], within)


async def hold(connection: Connection, run_id: UUID, held: Sequence[Claim]) -> dict[UUID, str]:
    """Lock the rows of a run's leases, before the run's row is locked; the status of each lease that is still newest.

    A status of claimable or sent says that the lease has run out, and nobody has taken its step since.
    """
    columns = ([getattr(claim, name) for claim in held] for name in ("key", "id", "epoch"))
    return {row["lease_id"]: row["status"] for row in await connection.fetch(_HOLD, run_id, *columns)}


async def heartbeat(connection: Connection, span: timedelta, held: Sequence[tuple[UUID, Claim]]) -> set[UUID]:
    """Extend leases; return the ids of those that are still ours. A missing one is lost, and must not be settled."""
    runs, keys, ids = [run for run, _ in held], [claim.key for _, claim in held], [claim.id for _, claim in held]
    return {row["lease_id"] for row in await connection.fetch(_HEARTBEAT, span, runs, keys, ids)}
