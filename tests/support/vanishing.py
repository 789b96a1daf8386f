"""Processes that vanish: from one statement on they say nothing more, and their connections stay open, or are cut."""

from __future__ import annotations

import asyncio
from typing import Any

from core.db import Connection, Database
from core.limits import Limits

# The limits of a test: who has vanished is gone soon, and whoever waits for that waits for a fact.
SHORT = Limits(lock=0.3, idle=1.0, statement=10.0, answer=12.0, alive=6.0)
_ASKS = ("fetchrow", "fetch", "fetchval", "execute")


class Vanishing(Database):
    """A database whose process vanishes before its statement of the number ``at``; ``gone`` is set then.

    ``how``: ``frozen`` (the process is stopped, or its machine has gone: the connection stays open) or ``killed`` (the
    system closes its connections).
    """

    def __init__(self, url: str, role: str, at: int, how: str) -> None:
        super().__init__(url, role, connections=4, limits=SHORT)
        self.gone = asyncio.Event()
        self.asked: list[str] = []
        self._at, self._how = at, how

    async def connect(self) -> Connection:
        made: Any = _Asked(self, await super().connect())
        found: Connection = made
        return found

    async def ask(self, connection: Any, name: str, given: Any) -> Any:
        if len(self.asked) == self._at or self.gone.is_set():
            self.gone.set()
            if self._how == "killed":
                connection.terminate()
            await asyncio.Event().wait()
        self.asked.append(str(given[0]).strip().split("\n")[0][:60])
        return await getattr(connection, name)(*given)


class _Asked:
    def __init__(self, database: Vanishing, connection: Connection) -> None:
        self._database, self._connection = database, connection

    def __getattr__(self, name: str) -> Any:
        if name not in _ASKS:
            return getattr(self._connection, name)

        async def ask(*given: Any) -> Any:
            return await self._database.ask(self._connection, name, given)

        return ask


async def vanishes(database: Vanishing, act: Any) -> asyncio.Task[Any] | None:
    """Let an act go on until its process vanishes: the task that says nothing more. None if it came to its end."""
    acting: asyncio.Task[Any] = asyncio.create_task(act)
    gone = asyncio.ensure_future(database.gone.wait())
    async with asyncio.timeout(60):
        await asyncio.wait({acting, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if acting.done():
        acting.result()
        return None
    return acting
