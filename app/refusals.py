"""The audit of requests that were refused at an address that belongs to a tenant. An attacker cannot flood it.

We write one line per address and reason a minute. Further refusals in that minute are only counted, and the next line
holds the count. Nothing of the request is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import asyncpg
import structlog

from core.canonical import JsonObject
from core.clock import repeat
from core.db import Database
from core.errors import CountersealError
from evidence.chain import Actor, EventType
from runtime.store import audit

log = structlog.get_logger(__name__)

WINDOW_SECONDS = 60.0
STRANGERS_MAX = 1000


@dataclass
class _Window:
    opened: float
    uncounted: int = 0


class _Windows:
    """Rate limit of one line per key and minute; further refusals are counted. ``now`` gives monotonic seconds."""

    def __init__(self, database: Database, *, now: Callable[[], float] | None = None) -> None:
        self._database = database
        self._now = now
        self._windows: OrderedDict[tuple[str, ...], _Window] = OrderedDict()

    def _counted(self, key: tuple[str, ...]) -> tuple[_Window, int]:
        """Count a refusal. Return its window, and the number of refusals that the next line covers; 0 for no line."""
        now = self._now() if self._now is not None else asyncio.get_running_loop().time()
        window = self._windows.get(key)
        if window is not None and now - window.opened < WINDOW_SECONDS:
            window.uncounted += 1
            return window, 0
        return _Window(now), 1 + (window.uncounted if window is not None else 0)


class RefusalLog(_Windows):
    """Audits refused requests. Keys are configured addresses and fixed codes, so memory is bounded."""

    async def note(self, tenant: str, endpoint: str, code: str) -> None:
        """Record a refusal, or count it. Never raises: the request stays refused in any case."""
        key = (tenant, endpoint, code)
        self._windows[key], count = self._counted(key)
        if count:
            await self._record(key, count)

    async def run(self, stop: asyncio.Event) -> None:
        """Write the counted refusals once a minute and at the end."""
        await repeat(stop, self.flush, WINDOW_SECONDS, "refusals could not be counted")
        await self.flush()

    async def flush(self) -> None:
        """Write the counted refusals that have no line yet."""
        for key, window in list(self._windows.items()):
            if window.uncounted:
                count, window.uncounted = window.uncounted, 0
                await self._record(key, count)

    async def _record(self, key: tuple[str, ...], count: int) -> None:
        tenant, endpoint, code = key
        data: JsonObject = {"endpoint": endpoint, "code": code, "count": count}
        try:
            async with self._database.transaction(tenant) as connection:
                await audit.record(connection, tenant, EventType.REQUEST_REFUSED, Actor("face", endpoint), data)
        except (CountersealError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            log.error("a refusal could not be audited", endpoint=endpoint, code=code, reason=str(error))


class StrangerLog(_Windows):
    """The audit of attempts by accounts without rights: one line per account, question and reason a minute.

    Lines go to the tenant's stream: a refused person must not move a run nor lengthen its chain.
    """

    async def note(self, tenant: str, kind: EventType, actor: Actor, data: JsonObject) -> None:
        """Record that ``actor`` was refused for ``data['code']``, or count it for the next line's ``count``."""
        key = (actor.id, str(data.get("approval") or data.get("task") or data.get("wait")), str(data["code"]))
        window, count = self._counted(key)
        if not count:
            return
        # A crash before the commit loses the line and the window together; the next click writes the line.
        async with self._database.transaction(tenant) as connection:
            await audit.record(connection, tenant, kind, actor, {**data, "count": count})
        self._windows[key] = window
        self._windows.move_to_end(key)
        while len(self._windows) > STRANGERS_MAX:
            self._windows.popitem(last=False)


class UnreadSecrets:
    """The log of secrets of incoming requests that could not be read: one line per secret a minute.

    The sender of the request has proved nothing yet, and gets the same answer as for an unknown endpoint.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._logged_at: dict[tuple[str, str], float] = {}

    def note(self, tenant: str, place: str, reason: str) -> None:
        """Log it for the operators, unless this place of the tenant's settings was logged within the last minute."""
        now, key = self._now(), (tenant, place)
        if now - self._logged_at.get(key, -WINDOW_SECONDS) >= WINDOW_SECONDS:
            self._logged_at[key] = now
            log.error("a secret of incoming requests cannot be had", tenant=tenant, place=place, reason=reason)
