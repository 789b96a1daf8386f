"""Reads of the console's lists: open questions by their deadline, a person's own requests and answers, runs.

Each statement names the tenant, and row-level security restricts it to that tenant as well (promise 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from core.db import Connection
from runtime.engine.book.contributors import stated_contributors
from runtime.store.approvals import StoredApproval, question, stored_of
from runtime.store.read_models import LAST_ID, LAST_TIME, Row, every
from runtime.store.statements import statements

_SQL = statements("console")
_OPEN = _SQL["open"]
_OF_RUN = _SQL["of_run"]
_REQUESTED = _SQL["requested"]
_ANSWERED = _SQL["answered"]
_RUNS = _SQL["runs"]
_WORKFLOWS = _SQL["workflow_names"]
_DEAD = _SQL["dead_letters"]

# The key of the last row of the previous page: a time and an id.
Key: TypeAlias = tuple[datetime, UUID]
NEWEST: Key = (LAST_TIME, LAST_ID)


class ListedQuestion(Struct, frozen=True):
    """A question with the run that asks it. ``answered_at`` and ``answer`` are one person's, if a person was given."""

    stored: StoredApproval
    workflow: str
    workflow_version: int
    reference: str
    answered_at: datetime | None = None
    answer: str | None = None


def _listed(row: Row) -> ListedQuestion:
    asked = question(row, UUID(row["approval"]["approval_id"]))
    stored = stored_of(row, asked, asked.digest, asked.shown or {}, stated_contributors(asked))
    run = (row["workflow"], row["workflow_version"], row["reference"])
    return ListedQuestion(stored, *run, row.get("voted_at"), row.get("answer"))


async def open_questions(connection: Connection, tenant: str, limit: int) -> list[ListedQuestion]:
    """The open questions, ordered by deadline."""
    return [_listed(row) for row in await every(connection, _OPEN, tenant, limit)]


async def questions_of_run(connection: Connection, tenant: str, run_id: UUID, limit: int) -> list[ListedQuestion]:
    """The questions of a run, oldest first."""
    return [_listed(row) for row in await every(connection, _OF_RUN, tenant, run_id, limit)]


async def requested(
    connection: Connection,
    tenant: str,
    person: str,
    limit: int,
    after: Key = NEWEST,
) -> list[ListedQuestion]:
    """The questions of runs that this person requested, newest first."""
    return [_listed(row) for row in await every(connection, _REQUESTED, tenant, person, *after, limit)]


async def answered(
    connection: Connection,
    tenant: str,
    person: str,
    limit: int,
    after: Key = NEWEST,
) -> list[ListedQuestion]:
    """The questions that this person has answered, newest first."""
    return [_listed(row) for row in await every(connection, _ANSWERED, tenant, person, *after, limit)]


class RunsFilter(Struct, frozen=True):
    """A filter of runs. ``named`` is a reference or the beginning of an id; ``person`` takes part in the runs."""

    statuses: Sequence[str] | None = None
    workflow: str | None = None
    since: datetime | None = None
    named: str | None = None
    person: str | None = None


async def runs(
    connection: Connection,
    tenant: str,
    wanted: RunsFilter,
    limit: int,
    after: Key = NEWEST,
) -> list[Row]:
    """Runs, newest first, each with its most urgent open question, and a flag if one of its messages is dead."""
    given = (wanted.statuses, wanted.workflow, wanted.since, wanted.named, wanted.person)
    return await every(connection, _RUNS, tenant, *after, *given, limit)


async def workflow_names(connection: Connection, tenant: str) -> list[str]:
    """The names of workflows, for a filter."""
    return [row["name"] for row in await every(connection, _WORKFLOWS, tenant)]


async def dead_letters(connection: Connection, tenant: str, limit: int) -> list[Row]:
    """The messages that nobody tries to deliver any more, newest first."""
    return await every(connection, _DEAD, tenant, limit)
