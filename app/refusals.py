"""The audit of requests that were refused at an address that belongs to a tenant. An attacker cannot fill it.

One line per address and reason a minute; what is refused meanwhile is counted, and the next line says how many. Nothing
of the request is kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import asyncpg
import structlog

from core.canonical import JsonObject
from core.db import Database
from core.errors import CountersealError
from evidence.chain import Actor, EventType
from runtime.store import audit

log = structlog.get_logger(__name__)

WINDOW_SECONDS = 60.0
_STRANGERS_MAX = 1000


@dataclass
class _Window:
    opened: float
    uncounted: int = 0


class RefusalLog:
    """``now`` gives monotonic seconds. Keys are configured addresses and fixed codes, so memory is bounded."""

    def __init__(self, database: Database, *, now: Callable[[], float] | None = None) -> None:
        self._database = database
        self._now = now
        self._windows: dict[tuple[str, str, str], _Window] = {}

    async def note(self, tenant: str, endpoint: str, code: str) -> None:
        """Record a refusal, or count it. Never raises: whatever happens here, the request stays refused."""
        now = self._now() if self._now is not None else asyncio.get_running_loop().time()
        key = (tenant, endpoint, code)
        window = self._windows.get(key)
        if window is not None and now - window.opened < WINDOW_SECONDS:
            window.uncounted += 1
            return
        self._windows[key] = _Window(now)
        await self._record(key, 1 + (window.uncounted if window is not None else 0))

    async def run(self, stop: asyncio.Event) -> None:
        """Write what was only counted, once a minute and at the end."""
        while not stop.is_set():
            try:
                async with asyncio.timeout(WINDOW_SECONDS):
                    await stop.wait()
            except TimeoutError:
                await self.flush()
        await self.flush()

    async def flush(self) -> None:
        """Write what was only counted."""
        for key, window in list(self._windows.items()):
            if window.uncounted:
                count, window.uncounted = window.uncounted, 0
                await self._record(key, count)

    async def _record(self, key: tuple[str, str, str], count: int) -> None:
        tenant, endpoint, code = key
        data: JsonObject = {"endpoint": endpoint, "code": code, "count": count}
        try:
            async with self._database.transaction(tenant) as connection:
                await audit.record(connection, tenant, EventType.REQUEST_REFUSED, Actor("face", endpoint), data)
        except (CountersealError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            log.error("a refusal could not be audited", endpoint=endpoint, code=code, reason=str(error))


class StrangerLog:
    """The audit of accounts that may do nothing here, and tried: one line per account, question and reason a minute.

    It is the tenant's stream, not the run's chain: whoever is refused may not move a run, nor make its chain longer.
    """

    def __init__(self, database: Database, *, now: Callable[[], float] | None = None) -> None:
        self._database = database
        self._now = now
        self._windows: OrderedDict[tuple[str, ...], _Window] = OrderedDict()

    async def note(self, tenant: str, kind: EventType, actor: Actor, data: JsonObject) -> None:
        """Record that ``actor`` was refused for ``data['code']``, or count it: the next line's ``count`` tells."""
        now = self._now() if self._now is not None else asyncio.get_running_loop().time()
        key = (actor.id, str(data.get("approval") or data.get("task")), str(data["code"]))
        window = self._windows.get(key)
        if window is not None and now - window.opened < WINDOW_SECONDS:
            window.uncounted += 1
            return
        count = 1 + (window.uncounted if window is not None else 0)
        # A crash before the commit loses the line and the window together: nothing counted, and the next click tells.
        async with self._database.transaction(tenant) as connection:
            await audit.record(connection, tenant, kind, actor, {**data, "count": count})
        self._windows[key] = _Window(now)
        self._windows.move_to_end(key)
        while len(self._windows) > _STRANGERS_MAX:
            self._windows.popitem(last=False)
