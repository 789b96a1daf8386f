"""Reads of the console's lists: open questions by their deadline, a person's own requests and answers, runs.

Each names the tenant, and row-level security stands behind it (promise 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from msgspec import Struct

from core.db import Connection
from runtime.engine.book.contributors import told_of
from runtime.store.approvals import ASKED, ASKED_IN, StoredApproval, question, stored_of
from runtime.store.read_models import LAST_ID, LAST_TIME, Row, Statement, every

_QUESTIONS = f"""
SELECT {ASKED}, t.paused, t.directory_digest, to_jsonb(a) AS approval, now() AS now, r.workspace_id,
  r.workflow, r.workflow_version, r.reference,
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id)) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes
FROM approvals a {ASKED_IN} JOIN tenants t ON t.tenant_id = a.tenant_id
WHERE a.tenant_id = :tenant"""
_OPEN = Statement(f"{_QUESTIONS} AND a.status = 'requested' ORDER BY a.expires_at, a.approval_id LIMIT :limit")
_OF_RUN = Statement(f"{_QUESTIONS} AND a.run_id = :run ORDER BY a.created_at, a.approval_id LIMIT :limit")
# A run of an older release holds no person; then it is nobody's request here.
_REQUESTED = Statement(f"""{_QUESTIONS} AND r.requester = :person
  AND (a.created_at, a.approval_id) < (:after_at, :after_id)
ORDER BY a.created_at DESC, a.approval_id DESC LIMIT :limit""")
_ANSWERED = Statement(f"""
SELECT q.*, mine.voted_at, mine.choice AS answer FROM ({_QUESTIONS}) q
JOIN votes mine ON mine.approval_id = (q.approval->>'approval_id')::uuid AND mine.person_id = :person
WHERE (mine.voted_at, mine.approval_id) < (:after_at, :after_id)
ORDER BY mine.voted_at DESC, mine.approval_id DESC LIMIT :limit""")

_RUNS = Statement("""
SELECT r.run_id, r.workspace_id, r.workflow, r.workflow_version, r.trigger_type, r.reference, r.requested_by,
  coalesce(p.name, r.requested_by) AS asked_by, r.status, r.error, r.created_at, r.started_at, r.finished_at,
  q.approval_id, q.expires_at, q.step_key AS asks,
  EXISTS (SELECT FROM commands c
    WHERE c.tenant_id = r.tenant_id AND c.run_id = r.run_id AND c.status = 'failed') AS dead
FROM runs r LEFT JOIN people p ON p.tenant_id = r.tenant_id AND p.person_id = r.requester
LEFT JOIN LATERAL (SELECT a.approval_id, a.expires_at, a.step_key FROM approvals a
  WHERE a.run_id = r.run_id AND a.status = 'requested' ORDER BY a.expires_at, a.approval_id LIMIT 1) q ON true
WHERE r.tenant_id = :tenant AND (r.created_at, r.run_id) < (:after_at, :after_id)
  AND (CAST(:statuses AS text[]) IS NULL OR r.status = ANY (CAST(:statuses AS text[])))
  AND (CAST(:workflow AS text) IS NULL OR r.workflow = :workflow)
  AND (CAST(:since AS timestamptz) IS NULL OR r.created_at >= :since)
  AND (CAST(:named AS text) IS NULL OR r.reference = :named OR starts_with(r.run_id::text, lower(:named)))
  AND (CAST(:person AS text) IS NULL OR r.requester = :person OR r.started_by = :person OR EXISTS (
    SELECT FROM approvals a JOIN votes v USING (approval_id) WHERE a.run_id = r.run_id AND v.person_id = :person))
ORDER BY r.created_at DESC, r.run_id DESC LIMIT :limit""")
_WORKFLOWS = Statement("SELECT DISTINCT name FROM workflows WHERE tenant_id = :tenant ORDER BY name LIMIT 200")
_DEAD = Statement("""
SELECT c.command_id, c.run_id, c.kind, c.attempts, c.last_error, c.created_at, r.reference
FROM commands c LEFT JOIN runs r USING (run_id)
WHERE c.tenant_id = :tenant AND c.status = 'failed' ORDER BY c.created_at DESC, c.command_id LIMIT :limit""")


# The key of the last row of the page before: a time, and an id.
Key: TypeAlias = tuple[datetime, UUID]
NEWEST: Key = (LAST_TIME, LAST_ID)


class Told(Struct, frozen=True):
    """A question with the run that asks it. ``answered_at`` and ``answer`` are a person's own, if asked for."""

    stored: StoredApproval
    workflow: str
    workflow_version: int
    reference: str
    answered_at: datetime | None = None
    answer: str | None = None


def _told(row: Row) -> Told:
    asked = question(row, UUID(row["approval"]["approval_id"]))
    stored = stored_of(row, asked, asked.digest, asked.shown or {}, told_of(asked))
    run = (row["workflow"], row["workflow_version"], row["reference"])
    return Told(stored, *run, row.get("voted_at"), row.get("answer"))


async def open_questions(connection: Connection, tenant: str, limit: int) -> list[Told]:
    """The open questions, what runs out first before all others."""
    return [_told(row) for row in await every(connection, _OPEN, tenant=tenant, limit=limit)]


async def questions_of_run(connection: Connection, tenant: str, run_id: UUID, limit: int) -> list[Told]:
    """The questions of a run, oldest first."""
    return [_told(row) for row in await every(connection, _OF_RUN, tenant=tenant, run=run_id, limit=limit)]


async def requested(
    connection: Connection,
    tenant: str,
    person: str,
    limit: int,
    after: Key = NEWEST,
) -> list[Told]:
    """The questions of runs that this person requested, newest first."""
    given = {"person": person, "limit": limit, "after_at": after[0], "after_id": after[1]}
    return [_told(row) for row in await every(connection, _REQUESTED, tenant=tenant, **given)]


async def answered(
    connection: Connection,
    tenant: str,
    person: str,
    limit: int,
    after: Key = NEWEST,
) -> list[Told]:
    """The questions that this person has answered, newest first."""
    given = {"person": person, "limit": limit, "after_at": after[0], "after_id": after[1]}
    return [_told(row) for row in await every(connection, _ANSWERED, tenant=tenant, **given)]


class RunsWanted(Struct, frozen=True):
    """A filter of runs. ``named`` is a reference or the beginning of an id; ``person`` has to do with them."""

    statuses: Sequence[str] | None = None
    workflow: str | None = None
    since: datetime | None = None
    named: str | None = None
    person: str | None = None


async def runs(
    connection: Connection,
    tenant: str,
    wanted: RunsWanted,
    limit: int,
    after: Key = NEWEST,
) -> list[Row]:
    """Runs, newest first, each with the open question that runs out first, and whether a message of it is dead."""
    values: dict[str, Any] = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
    return await every(connection, _RUNS, tenant=tenant, limit=limit, after_at=after[0], after_id=after[1], **values)


async def workflow_names(connection: Connection, tenant: str) -> list[str]:
    """The names of workflows, for a filter."""
    return [row["name"] for row in await every(connection, _WORKFLOWS, tenant=tenant)]


async def dead_letters(connection: Connection, tenant: str, limit: int) -> list[Row]:
    """The messages that nobody tries to deliver any more, newest first."""
    return await every(connection, _DEAD, tenant=tenant, limit=limit)
