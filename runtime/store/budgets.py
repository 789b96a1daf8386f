"""Counts a tenant's open runs, kept signals and open questions only up to their limits, so the cost is bounded."""

from __future__ import annotations

from collections.abc import Mapping

from core.db import Connection
from runtime.store.statements import statements

_SQL = statements("budgets")
_STOCK = _SQL["stock"]


async def stock(connection: Connection, tenant: str, limits: Mapping[str, int]) -> dict[str, int]:
    """The number of open runs, kept signals and open questions of a tenant, each at most as its limit says."""
    row = await connection.fetchrow(_STOCK, tenant, *(limits[name] for name in NAMES))
    assert row is not None, "counts always make a row"
    return {name: row[name] for name in NAMES}


NAMES = ("open_runs", "signals_kept", "open_questions")
