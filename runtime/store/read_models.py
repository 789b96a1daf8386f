"""The read models of one tenant that faces show. Callers use ``Database.transaction(tenant)`` under the faces' role.

Each statement names the tenant, and row-level security restricts it to that tenant as well (promise 8). Lists come in
pages: rows after a key, in the order of that key. Callers ask for one row more than they show, to see if there is
another page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID

import orjson
from msgspec import Struct, structs

from core.db import Connection
from runtime.store.statements import statements

Row: TypeAlias = Mapping[str, Any]

# Keys before every row and after every row, so that one statement serves the first page too.
FIRST_TIME = datetime(1, 1, 2, tzinfo=UTC)
LAST_TIME = datetime(9999, 1, 1, tzinfo=UTC)
FIRST_ID = UUID(int=0)
LAST_ID = UUID(int=2**128 - 1)

_SQL = statements("read_models")
_RUNS = _SQL["runs"]
_HELD = _SQL["held"]
_RUN = _SQL["run"]
_WAITS = _SQL["waits"]
_LEDGER = _SQL["ledger"]
_APPENDS = _SQL["appends"]
_BUNDLE = _SQL["bundle"]
_POLICIES = _SQL["policies"]
_COUNTS = _SQL["counts"]
_NAMED = _SQL["named"]
_APPROVALS_NAMED = _SQL["approvals_named"]
_WAITING = _SQL["waiting"]
_WAITING_LONGEST = _SQL["waiting_longest"]


class RunFilter(Struct, frozen=True):
    """A filter of runs by status, workflow, business reference and requester; without any, it finds all runs.

    ``requester`` is a person's id. Runs of an older release hold only texts: ``texts`` are the texts that name the
    person. ``names`` and ``values`` are pairs of the workflows' ``search``, all of which a run must have.
    """

    status: str | None = None
    workflow: str | None = None
    reference: str | None = None
    requester: str | None = None
    texts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


async def every(connection: Connection, statement: str, *values: Any) -> list[Row]:
    """All rows."""
    return [dict(row) for row in await connection.fetch(statement, *values)]


async def first(connection: Connection, statement: str, *values: Any) -> Row | None:
    """The first row; None if there is none."""
    return next(iter(await every(connection, statement, *values)), None)


async def runs_page(
    connection: Connection,
    tenant: str,
    wanted: RunFilter,
    limit: int,
    after_at: datetime = LAST_TIME,
    after_id: UUID = LAST_ID,
) -> list[Row]:
    """Runs, newest first."""
    return await every(connection, _RUNS, tenant, after_at, after_id, *structs.astuple(wanted), limit)


async def run(connection: Connection, tenant: str, run_id: UUID) -> Row | None:
    """One run, with the head of its audit and its bundle; None if there is no such run."""
    return await first(connection, _RUN, tenant, run_id)


async def named(
    connection: Connection, tenant: str, reference: str, first_id: UUID | None, last_id: UUID | None, limit: int
) -> list[Row]:
    """The newest runs with this reference, or with an id between ``first_id`` and ``last_id``, if these are given."""
    return await every(connection, _NAMED, tenant, reference, first_id, last_id, limit)


async def approvals_named(
    connection: Connection, tenant: str, first_id: UUID | None, last_id: UUID | None, limit: int
) -> list[UUID]:
    """The ids of approvals from ``first_id`` to ``last_id``, newest first."""
    found = await every(connection, _APPROVALS_NAMED, tenant, first_id, last_id, limit)
    return [row["approval_id"] for row in found]


async def waiting(connection: Connection, tenant: str, runs: Sequence[UUID], limit: int) -> dict[UUID, list[Row]]:
    """The open waits of each run, ordered by their due time: at most ``limit`` of a run."""
    found: dict[UUID, list[Row]] = {}
    for row in await every(connection, _WAITING, tenant, runs, limit):
        found.setdefault(row["run_id"], []).append(row)
    return found


async def waiting_longest(
    connection: Connection, tenant: str, limit: int, after_at: datetime = FIRST_TIME, after_id: UUID = FIRST_ID
) -> list[Row]:
    """The open waits of a tenant, what has waited the longest first."""
    return await every(connection, _WAITING_LONGEST, tenant, limit, after_at, after_id)


async def start_held(connection: Connection, tenant: str, run_id: UUID) -> str | None:
    """The cap that holds up the start of a run; None if no cap does, or the run has started."""
    row = await first(connection, _HELD, tenant, run_id)
    return None if row is None else row["held"]


async def waits_page(
    connection: Connection,
    tenant: str,
    ids: Sequence[UUID],
    limit: int,
    after_at: datetime = FIRST_TIME,
    after_id: UUID = FIRST_ID,
) -> list[Row]:
    """The waits with these ids, which are those of a run by its book, open and ended, oldest first."""
    return await every(connection, _WAITS, tenant, ids, after_at, after_id, limit)


async def ledger_page(
    connection: Connection, tenant: str, run_id: UUID, limit: int, after_superstep: int = -1, after_number: int = 0
) -> list[Row]:
    """Writes to channels with a ledger, in the order of super-steps; ``number`` counts the writes of a super-step."""
    return await every(connection, _LEDGER, tenant, run_id, after_superstep, after_number, limit)


async def audit_page(connection: Connection, tenant: str, run_id: UUID, limit: int, after_seq: int = -1) -> list[Row]:
    """The lines of a run's chain with their places, as the exact bytes that are hashed; altered lines are shown too."""
    found = await every(connection, _APPENDS, tenant, run_id, after_seq, limit)
    lines = [_line(row, n, line) for row in found for n, line in enumerate(row["lines"].split(b"\n"))]
    return [line for line in lines if line["seq"] > after_seq][:limit]


def _line(row: Row, number: int, line: bytes) -> Row:
    try:
        kind = str(orjson.loads(line)["type"])
    except (ValueError, TypeError, LookupError):
        kind = "unreadable"
    return {"seq": row["first_seq"] + number, "append": row["n"], "type": kind, "line": line}


async def bundle(connection: Connection, tenant: str, run_id: UUID) -> Row | None:
    """The place of a run's evidence; None until it is written."""
    return await first(connection, _BUNDLE, tenant, run_id)


async def policy_versions(connection: Connection, tenant: str) -> list[Row]:
    """Every published policy, and which one is active."""
    return await every(connection, _POLICIES, tenant)


async def run_counts(connection: Connection, tenant: str, most: int) -> list[tuple[str, int]]:
    """The number of runs with each status among the newest ``most`` runs, so that the cost is bounded."""
    return [(row["status"], row["count"]) for row in await every(connection, _COUNTS, tenant, most)]
