"""Fetches completions from the outside systems of all tenants; a completion ends only waits of its own tenant."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.outside import Outside, Outsides
from connectors.port import CompletionSource
from core.clock import repeat
from core.db import Database
from runtime.definition.catalog import Definitions
from runtime.keep.errands import Completing
from runtime.store import tenant_settings

# The interval at which new settings are looked for.
LOOK_SECONDS = 5.0


@dataclass
class _Following:
    outside: Outside
    stop: asyncio.Event
    task: asyncio.Task[None]


class TenantCompletions:
    """A keeper that polls for completions the connectors whose systems cannot call us back."""

    def __init__(self, database: Database, definitions: Definitions, outsides: Outsides) -> None:
        self._database, self._definitions, self._outsides = database, definitions, outsides
        self._following: dict[str, _Following] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Follow every tenant's sources until ``stop`` is set. New settings replace the sources of their tenant."""
        async with asyncio.TaskGroup() as group:

            async def turn() -> bool:
                for tenant in await self._tenants():
                    await self._follow(group, tenant)
                return False

            await repeat(stop, turn, LOOK_SECONDS, "settings of tenants could not be read")
            for one in self._following.values():
                one.stop.set()

    async def _tenants(self) -> list[str]:
        async with self._database.connection() as connection:
            return await tenant_settings.changed(
                connection,
                self._outsides.settings.tenant,
                {name: one.outside.version or 0 for name, one in self._following.items()},
            )

    async def _follow(self, group: asyncio.TaskGroup, tenant: str) -> None:
        async with self._database.connection() as connection:
            outside = await self._outsides.of(connection, tenant)
        if (known := self._following.get(tenant)) is not None:
            known.stop.set()
        sources = {name: one for name, one in outside.connectors.items() if isinstance(one, CompletionSource)}
        stop = asyncio.Event()
        completing = Completing(self._database, self._definitions, sources, tenant)
        task = group.create_task(completing.run(stop), name=f"completions of {tenant}")
        self._following[tenant] = _Following(outside, stop, task)
