"""Removes the payloads of a run that is over: what it was given, saw, said and kept.

These stay: the audit's lines, the bundle, who decided what and by which rules, what ran when and how it ended, and the
effects' keys, so that none is repeated. Commands name only ids, so there is nothing in them to remove. Nobody can fold
the book any more, so the rows that faces show are written once, when the values go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from core.canonical import digest
from core.db import Connection
from evidence.blobs import StoredBlob
from evidence.bundle import Bundle, DocumentText
from runtime.engine.book.recorded import Diverged
from runtime.engine.replay.past import REMOVED, Past, Row, emptied, questions
from runtime.store.books import Book

# A run is purged only after its evidence is stored, if no message that it has ordered is on its way, and no run waits
# for its result. A message that could not be delivered for 30 days holds up nothing any more. The messages on their way
# are read once; the rest is checked for one run after the other (OFFSET 0), until enough are found.
_ON_ITS_WAY = "SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status ="
_HELD_BY_NOBODY = f"""EXISTS (SELECT FROM bundles b WHERE b.run_id = r.run_id AND b.lines = r.audit_count OFFSET 0)
  AND r.run_id NOT IN ({_ON_ITS_WAY} 'pending') AND r.run_id NOT IN ({_ON_ITS_WAY} 'leased')
  AND NOT EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.finished_at IS NULL OFFSET 0)"""
MAY_BE_PURGED = f"r.purge_at <= now() AND {_HELD_BY_NOBODY}"
# A run that holds inherited values is purged after the run above, whatever its own retention.
COPIES = f"""r.inherits AND r.purged_at IS NULL AND r.finished_at IS NOT NULL
  AND EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.purged_at IS NOT NULL)
  AND {_HELD_BY_NOBODY}"""

_HOLD = f"SELECT r.tenant_id FROM runs r WHERE r.run_id = $1 AND ({MAY_BE_PURGED} OR {COPIES}) FOR UPDATE OF r"


def _facts(column: str) -> str:
    """The facts of an error or a cancel that the audit has as well. The words go, because they may hold values."""
    return f"""(SELECT jsonb_object_agg(key, value) FROM jsonb_each({column})
      WHERE key IN ('class', 'code', 'step', 'by'))"""


_WAITS = f"""
UPDATE waits SET result = NULL, context = CASE kind
  WHEN 'task' THEN context || '{{"title": "{REMOVED}", "description": ""}}'
  ELSE context - 'correlate' - 'error' END
WHERE run_id = $1"""
_APPROVALS = f"UPDATE approvals SET reason = '{REMOVED}' WHERE run_id = $1 AND reason > ''"
_REFUSALS = f"UPDATE refusals SET reason = '{REMOVED}' WHERE run_id = $1 AND reason > ''"
_VOTES = f"""
UPDATE votes SET reason = '{REMOVED}' FROM approvals a
WHERE a.run_id = $1 AND votes.approval_id = a.approval_id AND votes.reason > ''"""
_SIGNALS = """
UPDATE inbox SET payload = '{}' FROM waits w
WHERE w.run_id = $1 AND inbox.tenant_id = w.tenant_id AND inbox.correlation_key = w.correlation_key
  AND inbox.correlation_key IS NOT NULL AND inbox.result->>'run' = w.run_id::text"""
# The results that the children of this run have handed over, even if nobody had to wait for them.
_CHILDREN = """
UPDATE inbox SET payload = '{}' FROM runs c WHERE c.parent_run_id = $1 AND inbox.tenant_id = c.tenant_id
  AND inbox.source = 'run' AND inbox.notification_id = c.run_id::text"""
# One event may have started several runs: the last of them to be purged takes it along.
_EVENT = """
UPDATE inbox SET payload = '{}' WHERE tenant_id = $2 AND source = $3 AND notification_id = $4
  AND NOT EXISTS (SELECT FROM jsonb_array_elements_text(result->'runs') e JOIN runs r ON r.run_id = e::uuid
    WHERE r.run_id <> $1 AND r.purged_at IS NULL)"""
# Removes the ledger, the values of the book and the run's key. Only this function may, and only when it is time.
_RECORDS = "SELECT purge_records($1)"
_RUN = f"""
UPDATE runs SET result = NULL, error = {_facts("error")},
  canceling = {_facts("canceling")}, version = version + 1 WHERE run_id = $1"""

_KEEP = """
INSERT INTO remains (run_id, tenant_id, steps, receipts, extensions, questions)
SELECT run_id, tenant_id, $2, $3, $4, $5 FROM runs WHERE run_id = $1"""
_REMAINS = "SELECT steps, receipts, extensions FROM remains WHERE run_id = $1"

_IDS = frozenset({"step_id", "receipt_id", "run_id"})


async def hold(connection: Connection, run_id: UUID) -> str | None:
    """Lock a run whose retention is over; return its tenant, or None if it is not time. Only one sweeper gets it."""
    tenant: str | None = await connection.fetchval(_HOLD, run_id)
    return tenant


async def remove_payloads(connection: Connection, book: Book, past: Past) -> None:
    """Remove a run's payloads in the caller's transaction, which holds its lock, and keep what may still be shown.

    A crash leaves the run whole.
    """
    run_id = book.run_id
    rows = [orjson.loads(orjson.dumps(each)) for each in (*emptied(past), questions(past))]
    await connection.execute(_KEEP, run_id, *rows)
    if book.row["trigger_type"] == "servicenow":
        # Under this source and id the inbox keeps the event that started a run: see ``runtime.requests.triggers``.
        source, event = f"servicenow:{book.row['trigger_ref'].partition(':')[0]}", digest(book.opened.inputs or {})
        await connection.execute(_EVENT, run_id, book.row["tenant_id"], source, event)
    for statement in (_SIGNALS, _CHILDREN, _WAITS, _APPROVALS, _REFUSALS, _VOTES, _RECORDS, _RUN):
        await connection.execute(statement, run_id)


async def remains(connection: Connection, run_id: UUID) -> tuple[Sequence[Row], Sequence[Row], Sequence[Row]]:
    """The remains of a run: the rows of steps, receipts and extensions. ``Diverged`` if somebody has deleted them."""
    row = await connection.fetchrow(_REMAINS, run_id)
    if row is None:
        raise Diverged(f"The row that retention kept of the run {run_id} is missing", "remains")
    steps, receipts, extensions = ([_typed(each) for each in many] for many in row)
    return steps, receipts, extensions


def _typed(row: Row) -> Row:
    return {name: _value(name, value) for name, value in row.items()}


def _value(name: str, value: Any) -> Any:
    if value is None or not isinstance(value, str):
        return value
    if name in _IDS:
        return UUID(value)
    return datetime.fromisoformat(value) if name.endswith("_at") else value


_SOURCE = "SELECT source FROM workflows WHERE tenant_id = $1 AND name = $2 AND version = $3"
_POLICIES = """
SELECT name, version, source FROM policies WHERE tenant_id = $1 AND digest = ANY ($2::text[]) ORDER BY name, version"""
_REMEMBER = """
INSERT INTO bundles (run_id, tenant_id, lines, name, uri, version_id, sha256, bytes, key_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (run_id, lines) DO NOTHING"""

_NEWEST = """
SELECT b.sha256 FROM bundles b JOIN runs r ON r.run_id = b.run_id AND b.lines = r.audit_count
WHERE r.tenant_id = $1 AND r.run_id = $2"""
_GIVEN_UP = """c.kind = 'bundle' AND c.status = 'failed'
  AND NOT EXISTS (SELECT FROM bundles b JOIN runs w ON w.run_id = b.run_id AND w.audit_count = b.lines
    WHERE b.run_id = c.run_id)
  AND NOT EXISTS (SELECT FROM commands n WHERE n.run_id = c.run_id AND n.kind = 'bundle'
    AND n.status IN ('pending', 'leased'))"""
_FAILURES = f"""
SELECT DISTINCT ON (c.run_id) c.run_id, c.last_error FROM commands c
WHERE c.tenant_id = $1 AND {_GIVEN_UP} ORDER BY c.run_id, c.command_id DESC"""
_STATE = f"""
SELECT EXISTS (SELECT FROM bundles b WHERE b.run_id = r.run_id AND b.lines = r.audit_count) AS bundled,
  EXISTS (SELECT FROM commands c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.run_id AND {_GIVEN_UP}) AS failed
FROM runs r WHERE r.tenant_id = $1 AND r.run_id = $2"""


async def texts(
    connection: Connection, book: Book, policies: Iterable[str]
) -> tuple[DocumentText, tuple[DocumentText, ...]]:
    """The workflow that a run runs, as it was published, and the policies with these digests."""
    row = book.row
    source = await connection.fetchval(_SOURCE, row["tenant_id"], row["workflow"], row["workflow_version"])
    found = await connection.fetch(_POLICIES, row["tenant_id"], [*policies])
    workflow = DocumentText(row["workflow"], row["workflow_version"], source)
    return workflow, tuple(DocumentText(each["name"], each["version"], each["source"]) for each in found)


async def remember(connection: Connection, book: Book, bundle: Bundle, stored: StoredBlob, key_id: str) -> None:
    """Note where this edition of the run's bundle is, and its SHA-256 (Q-21)."""
    where = (bundle.name, stored.uri, stored.version_id, bundle.sha256, len(bundle.bytes), key_id)
    await connection.execute(_REMEMBER, book.run_id, book.row["tenant_id"], book.head.count, *where)


async def failures(connection: Connection, tenant: str) -> list[tuple[UUID, str]]:
    """The runs of a tenant whose evidence was not stored and will not be unless it is ordered again, and why."""
    return [(row["run_id"], row["last_error"]) for row in await connection.fetch(_FAILURES, tenant)]


async def newest(connection: Connection, tenant: str, run_id: UUID) -> str | None:
    """The SHA-256 of the bundle of a run as it ended last; None if that is not stored."""
    found: str | None = await connection.fetchval(_NEWEST, tenant, run_id)
    return found


async def state(connection: Connection, tenant: str, run_id: UUID) -> asyncpg.Record | None:
    """Two flags of a run's evidence: it is stored, its writing was given up; None without such a run."""
    return await connection.fetchrow(_STATE, tenant, run_id)
