"""Time comes from the database. Between two readings of it, the monotonic clock says how much has passed.

A wall clock is never read: what is decided by time (leases, due waits, expiry) the database decides by ``now()``.
This clock stamps audit events of commits that need no reading of their own.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import datetime, timedelta


class DatabaseClock:
    """Starts from a reading of the database's time, made just now."""

    def __init__(self, reading: datetime) -> None:
        self._reading = reading
        self._read_at = time.monotonic()

    def age(self) -> float:
        """How many seconds ago that was; a clock drifts."""
        return time.monotonic() - self._read_at

    def now(self) -> datetime:
        """The database's time, as far as this process can tell without asking again."""
        return self._reading + timedelta(seconds=time.monotonic() - self._read_at)


async def rest(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, and so many seconds at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
