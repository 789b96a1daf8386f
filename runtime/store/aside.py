"""Folds long books in a thread, so that the event loop serves others meanwhile (promise 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from core.db import Connection

Answer = TypeVar("Answer")

# Books with more lines are checked and folded in another thread.
LONG = 300
# A transaction whose client says nothing for some seconds is ended: whoever works in one says so in between.
SAID_SECONDS = 1.0


async def aside(lines: int, work: Callable[[], Answer], connection: Connection | None = None) -> Answer:
    """Do work on this many lines: at once, or in a thread if they are many.

    An open transaction of ``connection`` stays open meanwhile. A crash rolls it back, as ever.
    """
    if lines <= LONG:
        return work()
    working = asyncio.ensure_future(asyncio.to_thread(work))
    while True:
        await asyncio.wait({working}, timeout=SAID_SECONDS)
        if working.done():
            return working.result()
        if connection is not None and connection.is_in_transaction():
            await connection.execute("SELECT 1")
