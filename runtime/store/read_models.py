"""What faces show: read models of one tenant, for `Database.reading(tenant)` under the faces' role.

Statements are built once. Each names the tenant, and row-level security stands behind it (promise 8). Lists come in
pages: rows after a key, in the order of that key, one more than asked for where there are more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID

import orjson
from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncConnection

from runtime.store import read_statements as read

Row: TypeAlias = Mapping[str, Any]

# Before the first and after the last of anything, so that one statement serves every page.
FIRST_TIME = datetime(1, 1, 2, tzinfo=UTC)
LAST_TIME = datetime(9999, 1, 1, tzinfo=UTC)
FIRST_ID = UUID(int=0)
LAST_ID = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs: all, or those with this status, workflow, business reference."""

    status: str | None = None
    workflow: str | None = None
    reference: str | None = None


async def _all(connection: AsyncConnection, statement: Select[Any], **values: Any) -> list[Row]:
    return list((await connection.execute(statement, values)).mappings())


async def _one(connection: AsyncConnection, statement: Select[Any], **values: Any) -> Row | None:
    row: Row | None = (await connection.execute(statement, values)).mappings().one_or_none()
    return row


async def runs_page(
    connection: AsyncConnection,
    tenant: str,
    wanted: RunFilter,
    limit: int,
    after_at: datetime = LAST_TIME,
    after_id: UUID = LAST_ID,
) -> list[Row]:
    """Runs, newest first."""
    values = {"status": wanted.status, "workflow": wanted.workflow, "reference": wanted.reference}
    return await _all(connection, read.RUNS, tenant=tenant, limit=limit, after_at=after_at, after_id=after_id, **values)


async def run(connection: AsyncConnection, tenant: str, run_id: UUID) -> Row | None:
    """One run, with where its audit stands and its bundle, None until there is one."""
    return await _one(connection, read.RUN, tenant=tenant, run=run_id)


async def waits_page(
    connection: AsyncConnection,
    tenant: str,
    ids: Sequence[UUID],
    limit: int,
    after_at: datetime = FIRST_TIME,
    after_id: UUID = FIRST_ID,
) -> list[Row]:
    """The waits of a run, open and over, by the ids that its book tells, oldest first."""
    return await _all(connection, read.WAITS, tenant=tenant, ids=ids, limit=limit, after_at=after_at, after_id=after_id)


async def ledger_page(
    connection: AsyncConnection,
    tenant: str,
    run_id: UUID,
    limit: int,
    after_superstep: int = -1,
    after_number: int = 0,
) -> list[Row]:
    """Writes to channels with a ledger, in the order of super-steps; ``number`` counts within one."""
    after = {"after_superstep": after_superstep, "after_number": after_number}
    return await _all(connection, read.LEDGER, tenant=tenant, run=run_id, limit=limit, **after)


async def audit_page(
    connection: AsyncConnection, tenant: str, run_id: UUID, limit: int, after_seq: int = -1
) -> list[Row]:
    """The lines of a run's chain, with the exact bytes that are hashed and their places: also altered ones."""
    found = await _all(connection, read.APPENDS, tenant=tenant, run=run_id, limit=limit, after_seq=after_seq)
    lines = [_line(row, n, line) for row in found for n, line in enumerate(row["lines"].split(b"\n"))]
    return [line for line in lines if line["seq"] > after_seq][:limit]


def _line(row: Row, number: int, line: bytes) -> Row:
    try:
        kind = str(orjson.loads(line)["type"])
    except (ValueError, TypeError, LookupError):
        kind = "unreadable"
    return {"seq": row["first_seq"] + number, "append": row["n"], "type": kind, "line": line}


async def approvals_page(
    connection: AsyncConnection,
    tenant: str,
    limit: int,
    *,
    status: str | None = None,
    run_id: UUID | None = None,
    after_at: datetime = LAST_TIME,
    after_id: UUID = LAST_ID,
) -> list[Row]:
    """Approvals, newest first."""
    return await _all(
        connection,
        read.APPROVALS,
        tenant=tenant,
        limit=limit,
        status=status,
        run_or_none=run_id,
        after_at=after_at,
        after_id=after_id,
    )


async def approval(connection: AsyncConnection, tenant: str, approval_id: UUID) -> Row | None:
    """One approval."""
    return await _one(connection, read.APPROVAL, tenant=tenant, approval=approval_id)


async def bundle(connection: AsyncConnection, tenant: str, run_id: UUID) -> Row | None:
    """Where a run's evidence is; None until it was written."""
    return await _one(connection, read.BUNDLE_OF_RUN, tenant=tenant, run=run_id)


async def workflow_versions(connection: AsyncConnection, tenant: str) -> list[Row]:
    """Every published version of every workflow."""
    return await _all(connection, read.WORKFLOWS, tenant=tenant)


async def policy_versions(connection: AsyncConnection, tenant: str) -> list[Row]:
    """Every published policy, and which one is active."""
    return await _all(connection, read.POLICIES, tenant=tenant)


async def active_policy(connection: AsyncConnection, tenant: str) -> Row | None:
    """The policy that judges actions now, with its text; None means that nothing is allowed."""
    return await _one(connection, read.ACTIVE_POLICY, tenant=tenant)


async def tenant_row(connection: AsyncConnection, tenant: str) -> Row | None:
    """The tenant's caps and where its audit stands."""
    return await _one(connection, read.TENANT, tenant=tenant)


async def run_counts(connection: AsyncConnection, tenant: str) -> list[tuple[str, int]]:
    """How many runs have each status."""
    return [(row["status"], row["count"]) for row in await _all(connection, read.COUNTS, tenant=tenant)]
