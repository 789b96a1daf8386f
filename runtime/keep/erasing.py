"""Erases a run whose retention is over: its payloads, its key, and the sidecars of its bundles. Public lines stay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias
from uuid import UUID

from core.db import Connection, Database
from core.errors import ConsistencyError
from evidence import layout
from evidence.blobs import BlobStore
from evidence.events import EventType
from runtime.definition.catalog import Definitions
from runtime.engine.book.draft import ENGINE
from runtime.requests.views import folded
from runtime.store import audit, books, retention

# Gives the store of a tenant's evidence; None if the tenant has configured none.
Stores: TypeAlias = Callable[[Connection, str], Awaitable[BlobStore | None]]


async def purge(database: Database, definitions: Definitions, run_id: UUID, stores: Stores | None = None) -> bool:
    """Remove the payloads of a run, if it is time. Its audit and its evidence stay, except the sidecars of values.

    The run's key is removed as well, so nobody can open the audit's commitments without having the values. All of it is
    one transaction: a crash leaves the run whole, and the next sweep begins again. ``Diverged`` for a run whose book is
    not what was recorded: a purge would remove the evidence of that.
    """
    async with database.transaction() as connection:
        tenant = await retention.hold(connection, run_id)
        if tenant is None:
            return False
        book = await books.read(connection, tenant, run_id)
        past = await folded(connection, definitions, book)
        await retention.remove_payloads(connection, book, past)
        if stores is not None:
            await _erase(await stores(connection, tenant), f"{tenant}/{run_id}/")
        # This comes last, because it locks the tenant, and others must not wait for a store meanwhile.
        await audit.record(connection, tenant, EventType.RUN_PURGED, ENGINE, {"run": str(run_id)})
    return True


async def _erase(store: BlobStore | None, prefix: str) -> None:
    """Delete the sidecars of a run after everything else that could fail, and before the commit that says *erased*.

    A crash in between leaves a run that is due and has no sidecars: the next sweep goes on. ``ConsistencyError`` if the
    store has nothing of the run although its bundle is stored: then its values are in another store.
    """
    if store is None or not await store.keys(prefix):
        words = f"The tenant's store has no evidence below {prefix}, so values cannot be erased there."
        raise ConsistencyError(words, remedy="Name the store in which it was written; the next sweep goes on.")
    await store.erase(prefix, layout.VALUES)
