"""The counters of a family of runs: an outermost run, the runs within it, and those that continue it, at any depth.

A run has none until it starts another run. From then on each append that counts something adds it there as well, so
that a cap and a rule see what all of them have done. The appends that count wait for each other at this row.
"""

from __future__ import annotations

from uuid import UUID

from core.db import Connection
from runtime.engine.run import Family

_ROOT = "SELECT root_run_id FROM runs WHERE run_id = $1 FOR UPDATE"
_MAKE = """
INSERT INTO families (root_run_id, tenant_id, writes, refused, asked, writes_max, same)
VALUES ($1, $2, $3, $4, $5, $6, $7)"""
_BEGUN = "UPDATE runs SET root_run_id = run_id, gate = gate + 1 WHERE run_id = $1"


async def root_of(connection: Connection, run_id: UUID) -> UUID | None:
    """The outermost run of this one, whose row is locked by then; None if it has no family yet."""
    known = await connection.fetchval(_ROOT, run_id)
    return None if known is None else UUID(int=known.int)


async def begin(connection: Connection, tenant: str, family: Family) -> None:
    """Begin a family with what its root, which the caller has locked, has counted so far.

    The gate of the root moves with that: an append that was built without these counters is refused, and built anew. A
    crash before the caller's commit leaves neither the counters nor the other run.
    """
    counted = (family.writes, family.refused, family.asked, family.writes_max, dict(family.same))
    await connection.execute(_MAKE, family.root, tenant, *counted)
    await connection.execute(_BEGUN, family.root)
