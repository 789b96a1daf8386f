"""Reading everything that a bundle holds, and remembering where a bundle is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from core.db import Connection
from core.errors import NotFoundError
from evidence.blobs import StoredBlob
from evidence.bundle import Bundle

_RUN = """
SELECT r.*, i.trigger, i.run_key, w.source FROM runs r JOIN run_inputs i USING (run_id)
JOIN workflows w ON w.tenant_id = r.tenant_id AND w.name = r.workflow AND w.version = r.workflow_version
WHERE r.run_id = $1"""
_LINES = "SELECT line FROM audit_events WHERE stream_id = $1 ORDER BY seq"
_APPROVALS = "SELECT * FROM approvals WHERE run_id = $1 ORDER BY approval_id"
_RECEIPTS = "SELECT * FROM receipts WHERE run_id = $1 ORDER BY receipt_id"
_STEPS = "SELECT step_key, output FROM steps WHERE run_id = $1 ORDER BY step_index, step_key"
_POLICIES = """
SELECT name, version, source FROM policies
WHERE tenant_id = $1 AND digest IN (SELECT policy_digest FROM decisions WHERE run_id = $2) ORDER BY name, version"""
_REMEMBER = """
INSERT INTO bundles (run_id, tenant_id, name, uri, version_id, sha256, bytes, key_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (run_id) DO NOTHING"""
_WHERE = "SELECT name, uri, version_id, sha256, bytes, key_id, created_at FROM bundles WHERE run_id = $1"


@dataclass(frozen=True, slots=True)
class RunRows:
    """The rows of one run, and the votes as its events tell them (a changed vote is two events and one row)."""

    run: asyncpg.Record
    run_key: bytes
    trigger: Mapping[str, Any]
    workflow_source: str
    policies: Sequence[asyncpg.Record]
    lines: Sequence[bytes]
    approvals: Sequence[asyncpg.Record]
    receipts: Sequence[asyncpg.Record]
    steps: Sequence[asyncpg.Record]
    votes: Sequence[Mapping[str, Any]]


async def read_run(connection: Connection, run_id: UUID) -> RunRows:
    """Everything about a run. A closed run does not change any more, so these reads agree with each other."""
    run = await connection.fetchrow(_RUN, run_id)
    if run is None:
        raise NotFoundError(f"There is no run {run_id}.")
    lines = [row["line"] for row in await connection.fetch(_LINES, run_id)]
    return RunRows(
        run=run,
        run_key=run["run_key"],
        trigger=run["trigger"],
        workflow_source=run["source"],
        policies=await connection.fetch(_POLICIES, run["tenant_id"], run_id),
        lines=lines,
        approvals=await connection.fetch(_APPROVALS, run_id),
        receipts=await connection.fetch(_RECEIPTS, run_id),
        steps=await connection.fetch(_STEPS, run_id),
        votes=[vote for line in lines if (vote := _vote(line)) is not None],
    )


def _vote(line: bytes) -> Mapping[str, Any] | None:
    if b'"approval.voted"' not in line:
        return None
    event = orjson.loads(line)
    if event["type"] != "approval.voted":
        return None
    data = event["data"]
    return {
        "approval": data["approval"],
        "voter": event["actor"]["id"],
        "choice": data["choice"],
        "channel": data["channel"],
        "at": event["ts"],
    }


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
