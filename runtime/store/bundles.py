"""Reading everything that a bundle holds, and remembering where a bundle is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from core.db import Connection
from core.errors import NotFoundError
from core.ids import new_id
from evidence.archive import Bundle
from evidence.blobs import StoredBlob
from runtime.kernel.commit import ReceiptRow
from runtime.store import journal
from runtime.store.commits import MESSAGES_CHANNEL
from runtime.store.receipts import receipt_row

_RUN = """
SELECT r.*, i.trigger, i.run_key, w.source FROM runs r JOIN run_inputs i USING (run_id)
JOIN workflows w ON w.tenant_id = r.tenant_id AND w.name = r.workflow AND w.version = r.workflow_version
WHERE r.run_id = $1"""
# Of a person's votes on one question the last is the row, and its reason is kept.
_APPROVALS = """
SELECT a.*, (SELECT jsonb_object_agg(v.person_id, v.reason) FROM votes v WHERE v.approval_id = a.approval_id) AS reasons
FROM approvals a WHERE a.run_id = $1 ORDER BY a.approval_id"""
_RECEIPTS = "SELECT to_jsonb(r) AS receipt FROM receipts r WHERE run_id = $1 ORDER BY receipt_id"
_STEPS = "SELECT step_key, output FROM steps WHERE run_id = $1 ORDER BY step_index, step_key"
_POLICIES = """
SELECT name, version, source FROM policies
WHERE tenant_id = $1 AND digest IN (SELECT policy_digest FROM decisions WHERE run_id = $2) ORDER BY name, version"""
_REMEMBER = """
INSERT INTO bundles (run_id, tenant_id, name, uri, version_id, sha256, bytes, key_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (run_id) DO NOTHING"""
_WHERE = "SELECT name, uri, version_id, sha256, bytes, key_id, created_at FROM bundles WHERE run_id = $1"

_GIVEN_UP = """c.kind = 'bundle' AND c.status = 'failed'
  AND NOT EXISTS (SELECT FROM bundles b WHERE b.run_id = c.run_id)
  AND NOT EXISTS (SELECT FROM commands n WHERE n.run_id = c.run_id AND n.kind = 'bundle'
    AND n.status IN ('pending', 'leased'))"""
_FAILURES = f"""
SELECT DISTINCT ON (c.run_id) c.run_id, c.last_error FROM commands c
WHERE c.tenant_id = $1 AND {_GIVEN_UP} ORDER BY c.run_id, c.command_id DESC"""
_STATE = f"""
SELECT EXISTS (SELECT FROM bundles b WHERE b.run_id = r.run_id) AS bundled,
  EXISTS (SELECT FROM commands c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.run_id AND {_GIVEN_UP}) AS failed
FROM runs r WHERE r.tenant_id = $1 AND r.run_id = $2"""
_ORDER = f"""
WITH ordered AS (
  INSERT INTO commands (command_id, tenant_id, workspace_id, run_id, kind, dedupe_key, payload, status, ordering_key)
  SELECT $1::uuid, tenant_id, workspace_id, run_id, 'bundle', $1::text, '{{}}', 'pending', 'run:' || run_id FROM runs
  WHERE tenant_id = $2 AND run_id = $3)
SELECT pg_notify('{MESSAGES_CHANNEL}', '')"""


@dataclass(frozen=True, slots=True)
class RunRows:
    """The rows of one run. ``approvals`` have the ``reasons`` of the votes that stand, by voter."""

    run: asyncpg.Record
    run_key: bytes
    trigger: Mapping[str, Any]
    workflow_source: str
    policies: Sequence[asyncpg.Record]
    lines: Sequence[bytes]
    approvals: Sequence[asyncpg.Record]
    receipts: Sequence[ReceiptRow]
    steps: Sequence[asyncpg.Record]


async def read_run(connection: Connection, run_id: UUID) -> RunRows:
    """Everything about a run. A closed run does not change any more, so these reads agree with each other."""
    run = await connection.fetchrow(_RUN, run_id)
    if run is None:
        raise NotFoundError(f"There is no run {run_id}.")
    return RunRows(
        run=run,
        run_key=run["run_key"],
        trigger=run["trigger"],
        workflow_source=run["source"],
        policies=await connection.fetch(_POLICIES, run["tenant_id"], run_id),
        lines=await journal.lines(connection, run_id),
        approvals=await connection.fetch(_APPROVALS, run_id),
        receipts=[receipt_row(row["receipt"]) for row in await connection.fetch(_RECEIPTS, run_id)],
        steps=await connection.fetch(_STEPS, run_id),
    )


async def remember(
    connection: Connection, tenant: str, run_id: UUID, bundle: Bundle, stored: StoredBlob, key_id: str
) -> None:
    """Note where the run's bundle is, and its SHA-256 (Q-21)."""
    await connection.execute(
        _REMEMBER, run_id, tenant, bundle.name, stored.uri, stored.version_id, bundle.sha256, len(bundle.bytes), key_id
    )


async def where(connection: Connection, run_id: UUID) -> asyncpg.Record | None:
    """Where the run's bundle is; None while there is none."""
    return await connection.fetchrow(_WHERE, run_id)


async def failures(connection: Connection, tenant: str) -> list[tuple[UUID, str]]:
    """The runs of a tenant whose evidence was not stored and will not be unless it is ordered again, and why."""
    return [(row["run_id"], row["last_error"]) for row in await connection.fetch(_FAILURES, tenant)]


async def state(connection: Connection, tenant: str, run_id: UUID) -> asyncpg.Record | None:
    """Whether a run's evidence is stored, and whether the writing of it was given up; None without such a run."""
    return await connection.fetchrow(_STATE, tenant, run_id)


async def order(connection: Connection, tenant: str, run_id: UUID) -> None:
    """Order a run's bundle. Those that were ordered before and given up stay on record."""
    await connection.execute(_ORDER, new_id(), tenant, run_id)
