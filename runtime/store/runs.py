"""Small reads of runs that several requests share."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import asyncpg

from core.db import Connection
from core.errors import NotFoundError
from runtime.engine.book import contributors
from runtime.engine.model.run import Family
from runtime.store.statements import statements
from runtime.store.views import Graphs, load

_SQL = statements("runs")
_RUN_OF_TRIGGER = _SQL["run_of_trigger"]
_GOING_OF = _SQL["going_of"]
_PROPOSAL = _SQL["proposal"]
_ENDING = _SQL["ending"]
_OPEN_CHILDREN = _SQL["open_children"]
_BELOW = _SQL["below"]
_WAIT = _SQL["wait"]
_ROOT = _SQL["root"]
_MAKE = _SQL["make"]
_BEGUN = _SQL["begun"]
_OF_PART = _SQL["of_part"]
_REVERSALS = _SQL["reversals"]


async def ending_of(connection: Connection, run_id: UUID) -> asyncpg.Record:
    """The status of a run, its result, and the run that waits for it; ``NotFoundError`` if there is no such run."""
    row = await connection.fetchrow(_ENDING, run_id)
    if row is None:
        raise NotFoundError(f"There is no run {run_id}.")
    return row


async def shapers_of(connection: Connection, ending: asyncpg.Record, graphs: Graphs) -> tuple[str, ...]:
    """The marks of everybody who shaped anything in a run; ``ending`` is the row from ``ending_of``."""
    if not ending["shaped"]:
        return ()
    view = await load(connection, UUID(int=ending["run_id"].int), graphs)
    words = contributors.wrote_failures(view.run.state) if view.run.error is not None else ()
    return tuple(sorted(contributors.shapers({*contributors.everybody(view.run.state), *words})))


async def run_of_trigger(
    connection: Connection, tenant: str, workflow: str, trigger_type: str, trigger_ref: str
) -> asyncpg.Record | None:
    """The run that a trigger has started; None if it has started none."""
    return await connection.fetchrow(_RUN_OF_TRIGGER, tenant, workflow, trigger_type, trigger_ref)


async def going_of(connection: Connection, tenant: str, workflow: str) -> list[UUID]:
    """The runs of a workflow that are not over, the oldest first."""
    return [row["run_id"] for row in await connection.fetch(_GOING_OF, tenant, workflow)]


async def proposal(
    connection: Connection, tenant: str, workflow: str, trigger_type: str, about: str
) -> tuple[UUID, str, UUID | None] | None:
    """The open run that asks about ``about``, its requester, and its open question, if it has asked one already."""
    row = await connection.fetchrow(_PROPOSAL, tenant, workflow, trigger_type, f"{about}:")
    return None if row is None else (row["run_id"], row["requested_by"], row["approval"])


async def open_children(connection: Connection, run_id: UUID) -> list[tuple[UUID, str]]:
    """The runs that this one waits for, with their workflows."""
    return [(row["run_id"], row["workflow"]) for row in await connection.fetch(_OPEN_CHILDREN, run_id)]


async def below(
    connection: Connection, tenant: str, run_id: UUID, named: Collection[UUID], without: Collection[UUID], most: int
) -> dict[UUID, bool]:
    """The ``named`` runs, and the children of this run except ``without``: at most ``most``, each with True if open."""
    rows = await connection.fetch(_BELOW, tenant, run_id, [*named], [*without], most)
    return {UUID(int=row["run_id"].int): row["going"] for row in rows}


async def wait(connection: Connection, wait_id: UUID) -> asyncpg.Record | None:
    """The row of a wait as JSON, and its run."""
    return await connection.fetchrow(_WAIT, wait_id)


async def root_of(connection: Connection, run_id: UUID) -> UUID | None:
    """Lock this run's row; return the outermost run of its family, or None if it has no family yet."""
    known = await connection.fetchval(_ROOT, run_id)
    return None if known is None else UUID(int=known.int)


async def begin(connection: Connection, tenant: str, family: Family) -> None:
    """Begin a family with the counters of its root so far. The caller has locked the root.

    The gate of the root moves as well: so an append that was built without these counters is refused, and built anew. A
    crash before the caller's commit leaves neither the counters nor the other run.
    """
    counted = (family.writes, family.refused, family.asked, family.writes_max, dict(family.same), dict(family.failed))
    await connection.execute(_MAKE, family.root, tenant, *counted, family.anew)
    await connection.execute(_BEGUN, family.root)


async def of_part(connection: Connection, tenant: str, part: UUID) -> list[UUID]:
    """The runs to which a part with this id may belong: the first bytes of a part's id are those of its run."""
    first, last = part.bytes[:6] + bytes(10), part.bytes[:6] + b"\xff" * 10
    rows = await connection.fetch(_OF_PART, tenant, UUID(bytes=first), UUID(bytes=last))
    return [UUID(int=row["run_id"].int) for row in rows]


async def reversals(connection: Connection, tenant: str, receipt_id: UUID) -> list[asyncpg.Record]:
    """The runs that were started to reverse this effect, the oldest first."""
    return list(await connection.fetch(_REVERSALS, tenant, f"{receipt_id}:"))
