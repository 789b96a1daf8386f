"""Wakes the steps that share an effect when it has ended: each by its own append, and each is judged anew."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from core.db import Database
from core.errors import ConsistencyError
from runtime.definition.catalog import Definitions
from runtime.engine.book.draft import ENGINE
from runtime.requests.signaling import end_wait, persistently
from runtime.store import effects


async def wake(database: Database, definitions: Definitions, tenant: str, key: str) -> int:
    """Wake every step that waits for the end of this effect; return their number.

    After a crash a repeated message or a sweep wakes the rest. Needs the engine's role.
    """
    async with database.connection() as connection:
        found = [row for row in await effects.sharing(connection, tenant, key) if row["waiting"]]
    for row in found:
        place = (row["run_id"], row["step_key"], row["wait_id"])

        async def attempt(lock: bool, place: tuple[UUID, str, UUID] = place) -> bool:
            async with database.transaction(tenant) as connection:
                return await end_wait(connection, definitions, tenant, place, {}, ENGINE, lock=lock)

        with suppress(ConsistencyError):  # its run has moved on: it was canceled, or somebody else has woken the step
            await persistently(attempt)
    return len(found)
