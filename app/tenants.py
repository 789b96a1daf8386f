"""Tenants exist because somebody created them, never because somebody named them.

A mistyped name is an error that tells the names that there are. Only the tenant of an installation without settings
comes by itself, with ``up`` and the demo.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.settings import Settings
from core.db import ENGINE_ROLE, Connection, Database
from core.errors import NotFoundError, nearest
from runtime.requests.publishing import ensure_tenant
from runtime.store import tenants

DEFAULT: str = Settings.model_fields["tenant"].default


async def found_default(database: Database) -> None:
    """Create the tenant that nobody has to name. A crash leaves it whole or not there; the next ``up`` makes it."""
    async with database.transaction(DEFAULT) as connection:
        await ensure_tenant(connection, DEFAULT)


async def require(database: Database, url: str, names: Iterable[str]) -> None:
    """``NotFoundError`` for one that is not there. ``database`` is under the faces' role, ``url`` its address."""
    for name in names:
        async with database.transaction(name) as connection:
            there = await tenants.exists(connection, name)
        if not there:
            # Whoever has the database's address operates the installation: what it holds is no secret from them.
            async with Database(url, ENGINE_ROLE, connections=1) as engine, engine.transaction() as connection:
                raise await unknown(connection, name)


async def unknown(connection: Connection, name: str) -> NotFoundError:
    """The error for a tenant that is not there. ``connection`` is under the engine's role."""
    others = nearest(name, await tenants.names(connection))
    remedy = f"`counterseal tenant create {name}` creates it."
    return NotFoundError(f"There is no tenant {name!r}.", remedy=f"{others} {remedy}".lstrip())
