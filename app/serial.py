"""Serial work: of what comes at once for one name, one goes on at a time, and no other holds a connection.

The database puts it in order for all processes. Here nobody waits for that with a connection of theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary


@dataclass
class Serial:
    """The names for which something is being done in this process. One that nobody waits for is forgotten."""

    _locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _made: dict[tuple[object, ...], asyncio.Task[UUID]] = field(default_factory=dict)

    @asynccontextmanager
    async def of(self, tenant: str, name: str) -> AsyncIterator[None]:
        """Go on when nobody else does for this name. A caller that goes away lets the next one go on."""
        lock = self._locks.get((tenant, name))
        if lock is None:
            lock = self._locks[tenant, name] = asyncio.Lock()
        async with lock:
            yield

    async def once(self, name: tuple[object, ...], make: Callable[[], Coroutine[Any, Any, UUID]]) -> UUID:
        """The answer of ``make``. Whoever asks for the same while it is being made gets the same answer.

        A caller that goes away ends its waiting alone.
        """
        task = self._made.get(name)
        if task is None:
            task = self._made[name] = asyncio.create_task(make(), name="serial")
            task.add_done_callback(lambda done: self._made.pop(name) and (done.cancelled() or done.exception()))
        return await asyncio.shield(task)
