"""Read models of one tenant that faces show, for `Database.transaction(tenant)` under the faces' role.

Statements are built once. Each names the tenant, and row-level security stands behind it (promise 8). Lists come in
pages: rows after a key, in the order of that key. Callers ask for one row more than they show, to see if there is more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID

import orjson
from msgspec import Struct, structs

from core.db import Connection
from runtime.store.claims import STARTS_LEFT, STARTS_LEFT_OF_CAP

Row: TypeAlias = Mapping[str, Any]
_NAME = re.compile(r"(?<!:):([a-z_]+)")


class Statement:
    """A statement with named parameters (``:name``), each of which PostgreSQL knows by its number."""

    def __init__(self, text: str) -> None:
        self.names = [*dict.fromkeys(_NAME.findall(text))]
        self.sql = _NAME.sub(lambda name: f"${self.names.index(name[1]) + 1}", text)


# Before the first and after the last of anything, so that one statement serves every page.
FIRST_TIME = datetime(1, 1, 2, tzinfo=UTC)
LAST_TIME = datetime(9999, 1, 1, tzinfo=UTC)
FIRST_ID = UUID(int=0)
LAST_ID = UUID(int=2**128 - 1)


_RUN_COLUMNS = """r.run_id, r.workspace_id, r.workflow, r.workflow_version, r.trigger_type, r.trigger_ref, r.reference,
  r.requested_by, r.requester, r.started_by, r.status, r.version, r.superstep, r.writes, r.error, r.created_at,
  r.started_at, r.finished_at, r.purged_at, r.deadline_at"""
_RUNS = Statement(f"""
SELECT {_RUN_COLUMNS} FROM runs r
WHERE r.tenant_id = :tenant AND (r.created_at, r.run_id) < (:after_at, :after_id)
  AND (CAST(:status AS text) IS NULL OR r.status = :status)
  AND (CAST(:workflow AS text) IS NULL OR r.workflow = :workflow)
  AND (CAST(:reference AS text) IS NULL OR r.reference = :reference)
  AND (CAST(:requester AS text) IS NULL OR r.requester = :requester
    OR r.requester IS NULL AND r.requested_by = ANY (CAST(:texts AS text[])))
ORDER BY r.created_at DESC, r.run_id DESC LIMIT :limit""")

# The cap that keeps a run from starting, its workflow's before its tenant's.
_STARTS_HELD = f"""CASE WHEN r.status = 'queued' THEN (
    SELECT 'its start: ' || CASE
      WHEN {STARTS_LEFT_OF_CAP} < 1 THEN format('caps.max_runs_per_min of %s is %s', c.cap, c.max_runs_per_min)
      WHEN {STARTS_LEFT} < 1 THEN format('max_runs_per_min of the tenant %s is %s', t.tenant_id, t.max_runs_per_min)
      END
    FROM tenants t LEFT JOIN caps c ON (c.tenant_id, c.cap) = (r.tenant_id, r.cap) WHERE t.tenant_id = r.tenant_id)
  END"""
_HELD = Statement(f"SELECT {_STARTS_HELD} AS held FROM runs r WHERE r.tenant_id = :tenant AND r.run_id = :run")

# Only the oldest children, because a loop over many items may have one for each. ``evidence_problem`` says why the
# evidence was not signed or stored, if nobody tries that any more.
_RUN = Statement(f"""
SELECT {_RUN_COLUMNS}, r.audit_count, r.audit_head, r.result, r.parent_run_id, r.extensions, r.open_until,
  CASE WHEN r.open_until IS NOT NULL AND r.status = 'waiting' AND r.executing = 0
    AND NOT EXISTS (SELECT FROM waits w WHERE w.run_id = r.run_id AND w.status = 'waiting') THEN 'more steps'
    ELSE {_STARTS_HELD} END AS waiting_for,
  (SELECT count(*) FROM runs c WHERE c.parent_run_id = r.run_id) AS children_count,
  ARRAY(SELECT c.run_id FROM runs c WHERE c.parent_run_id = r.run_id ORDER BY c.created_at, c.run_id LIMIT 100)
    AS children,
  (SELECT jsonb_build_object('name', b.name, 'uri', b.uri, 'sha256', b.sha256, 'bytes', b.bytes) FROM bundles b
    WHERE b.run_id = r.run_id ORDER BY b.lines DESC LIMIT 1) AS bundle,
  ARRAY(SELECT b.name FROM bundles b WHERE b.run_id = r.run_id ORDER BY b.lines) AS editions,
  (SELECT c.last_error FROM commands c
    WHERE c.tenant_id = r.tenant_id AND c.run_id = r.run_id AND c.kind = 'bundle' AND c.status = 'failed'
      AND NOT EXISTS (SELECT FROM bundles b WHERE b.run_id = c.run_id AND b.lines = r.audit_count)
    ORDER BY c.command_id DESC LIMIT 1) AS evidence_problem
FROM runs r WHERE r.tenant_id = :tenant AND r.run_id = :run""")

# By their ids, because only the open waits are indexed by their run.
_WAITS = Statement("""
SELECT wait_id, step_key, kind, status, correlation_key, token, due_at, created_at, completed_at FROM waits
WHERE tenant_id = :tenant AND wait_id = ANY (:ids) AND (created_at, wait_id) > (:after_at, :after_id)
ORDER BY created_at, wait_id LIMIT :limit""")

# The writes of a super-step are recorded in one commit, so their numbers within it never change.
_LEDGER = Statement("""
SELECT * FROM (
  SELECT superstep, step_key, channel, value, written_at,
    row_number() OVER (PARTITION BY superstep ORDER BY step_key, channel) AS number
  FROM ledger WHERE tenant_id = :tenant AND run_id = :run AND superstep >= :after_superstep) l
WHERE (superstep, number) > (:after_superstep, :after_number) ORDER BY superstep, number LIMIT :limit""")

# Reads from the append with the wanted line on. Each append has at least one line, so ``limit`` appends are enough.
_APPENDS = Statement("""
SELECT n, first_seq, lines FROM journal
WHERE tenant_id = :tenant AND run_id = :run AND n >= (
  SELECT coalesce(max(n), 0) FROM journal WHERE tenant_id = :tenant AND run_id = :run AND first_seq <= :after_seq + 1)
ORDER BY n LIMIT :limit""")

_BUNDLE = Statement("""
SELECT run_id, name, uri, version_id, sha256, bytes FROM bundles WHERE tenant_id = :tenant AND run_id = :run
ORDER BY lines DESC LIMIT 1""")
_POLICIES = Statement("""
SELECT p.name, p.version, p.digest, p.published_by, p.published_at, p.digest = ANY (t.policy_digests) AS active
FROM policies p JOIN tenants t USING (tenant_id) WHERE tenant_id = :tenant ORDER BY p.published_at DESC, p.digest""")
_COUNTS = Statement("""
SELECT status, count(*) AS count FROM (
  SELECT r.status FROM runs r WHERE r.tenant_id = :tenant ORDER BY r.created_at DESC, r.run_id DESC LIMIT :most) newest
GROUP BY status""")


class RunFilter(Struct, frozen=True):
    """A filter of runs: all, or those with this status, workflow, business reference, or that this person requested.

    ``requester`` is a person's id. Runs of an older release hold only texts: ``texts`` are those that name the person.
    """

    status: str | None = None
    workflow: str | None = None
    reference: str | None = None
    requester: str | None = None
    texts: tuple[str, ...] = ()


async def every(connection: Connection, statement: Statement, **values: Any) -> list[Row]:
    """All rows."""
    return [dict(row) for row in await connection.fetch(statement.sql, *(values[name] for name in statement.names))]


async def first(connection: Connection, statement: Statement, **values: Any) -> Row | None:
    """The first row; None if there is none."""
    return next(iter(await every(connection, statement, **values)), None)


async def runs_page(
    connection: Connection,
    tenant: str,
    wanted: RunFilter,
    limit: int,
    after_at: datetime = LAST_TIME,
    after_id: UUID = LAST_ID,
) -> list[Row]:
    """Runs, newest first."""
    values = {"limit": limit, "after_at": after_at, "after_id": after_id, **structs.asdict(wanted)}
    return await every(connection, _RUNS, tenant=tenant, **values)


async def run(connection: Connection, tenant: str, run_id: UUID) -> Row | None:
    """One run, with the head of its audit, and its bundle (None until there is one)."""
    return await first(connection, _RUN, tenant=tenant, run=run_id)


async def start_held(connection: Connection, tenant: str, run_id: UUID) -> str | None:
    """The cap that holds up the start of a run; None if no cap does, or the run has started."""
    row = await first(connection, _HELD, tenant=tenant, run=run_id)
    return None if row is None else row["held"]


async def waits_page(
    connection: Connection,
    tenant: str,
    ids: Sequence[UUID],
    limit: int,
    after_at: datetime = FIRST_TIME,
    after_id: UUID = FIRST_ID,
) -> list[Row]:
    """The waits of a run, open and over, by the ids that its book tells, oldest first."""
    return await every(connection, _WAITS, tenant=tenant, ids=ids, limit=limit, after_at=after_at, after_id=after_id)


async def ledger_page(
    connection: Connection, tenant: str, run_id: UUID, limit: int, after_superstep: int = -1, after_number: int = 0
) -> list[Row]:
    """Writes to channels with a ledger, in the order of super-steps; ``number`` counts within one."""
    after = {"after_superstep": after_superstep, "after_number": after_number}
    return await every(connection, _LEDGER, tenant=tenant, run=run_id, limit=limit, **after)


async def audit_page(connection: Connection, tenant: str, run_id: UUID, limit: int, after_seq: int = -1) -> list[Row]:
    """The lines of a run's chain, with the exact bytes that are hashed and their places: also altered ones."""
    found = await every(connection, _APPENDS, tenant=tenant, run=run_id, limit=limit, after_seq=after_seq)
    lines = [_line(row, n, line) for row in found for n, line in enumerate(row["lines"].split(b"\n"))]
    return [line for line in lines if line["seq"] > after_seq][:limit]


def _line(row: Row, number: int, line: bytes) -> Row:
    try:
        kind = str(orjson.loads(line)["type"])
    except (ValueError, TypeError, LookupError):
        kind = "unreadable"
    return {"seq": row["first_seq"] + number, "append": row["n"], "type": kind, "line": line}


async def bundle(connection: Connection, tenant: str, run_id: UUID) -> Row | None:
    """The place of a run's evidence; None until it was written."""
    return await first(connection, _BUNDLE, tenant=tenant, run=run_id)


async def policy_versions(connection: Connection, tenant: str) -> list[Row]:
    """Every published policy, and which one is active."""
    return await every(connection, _POLICIES, tenant=tenant)


async def run_counts(connection: Connection, tenant: str, most: int) -> list[tuple[str, int]]:
    """The number of runs with each status, among the newest ``most``: all of them may be very many."""
    return [(row["status"], row["count"]) for row in await every(connection, _COUNTS, tenant=tenant, most=most)]
