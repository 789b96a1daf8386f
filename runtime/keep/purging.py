"""Removes the payloads of runs whose retention is over (X-20)."""

from __future__ import annotations

from uuid import UUID

from core.db import Database
from evidence.events import EventType
from runtime.definition.catalog import Definitions
from runtime.engine.draft import ENGINE
from runtime.requests.looking import folded
from runtime.store import audit, books, retention


async def purge(database: Database, definitions: Definitions, run_id: UUID) -> bool:
    """Remove the payloads of a run, if it is time; its audit and its evidence stay.

    The run's key goes as well, so nobody who was not told a value can ever open what the audit commits to. All of it is
    one transaction: a crash leaves the run whole, and the next sweep begins again. ``Diverged`` for a run whose book is
    not what was told: a purge would remove what can still be compared.
    """
    async with database.transaction() as connection:
        tenant = await retention.hold(connection, run_id)
        if tenant is None:
            return False
        book = await books.read(connection, tenant, run_id)
        past = await folded(connection, definitions, book)
        await retention.remove_payloads(connection, book, past)
        await audit.record(connection, tenant, EventType.RUN_PURGED, ENGINE, {"run": str(run_id)})
    return True
