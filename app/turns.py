"""Turns: of what comes at once for one name, one goes on at a time, so that the others hold no connection meanwhile.

The database has the same turn for all processes. Here nobody waits for it with a connection of theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary


@dataclass
class Turns:
    """The turns of one process. A name that nobody waits for is forgotten."""

    _locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(default_factory=WeakValueDictionary)

    @asynccontextmanager
    async def of(self, tenant: str, name: str) -> AsyncIterator[None]:
        """Wait for the turn. A caller that goes away gives it to the next one."""
        lock = self._locks.get((tenant, name))
        if lock is None:
            lock = self._locks[tenant, name] = asyncio.Lock()
        async with lock:
            yield
