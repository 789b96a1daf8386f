"""What a worker holds, and whether it can still be its own (Q-9, Q-10).

A worker that was stopped for a while (suspended, swapped out, starved) may have lost its lease without knowing, and
another may have found out meanwhile that nothing was sent, and have sent it. So nothing goes out under a lease that may
be over, and a call is given up when a heartbeat says that it is. The row decides all the same: a settle checks it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

Result = TypeVar("Result")


class LostLease(Exception):
    """Somebody else has the step, or it is over: nothing is ours to decide. What is known is told (``work.late``)."""


class Lease:
    """How long what is held stays ours unless a heartbeat says otherwise, on the monotonic clock of this process."""

    def __init__(self, span: timedelta) -> None:
        self._seconds = span.total_seconds()
        self._until = 0.0
        self._call: asyncio.Timeout | None = None

    @staticmethod
    def now() -> float:
        """When something begins that renews the lease: read it before, because the database counts from then."""
        return asyncio.get_running_loop().time()

    def taken(self, began: float) -> None:
        """A new lease was taken by what began then."""
        self._until = began + self._seconds

    def renewed(self, began: float) -> None:
        """The lease was extended by what began then."""
        self._until = max(self._until, began + self._seconds)

    def lost(self) -> None:
        """The lease is somebody else's: whatever is called under it is given up."""
        self._until = 0.0
        if self._call is not None:
            self._call.reschedule(self.now())
            self._call = None

    def is_ours(self) -> bool:
        """Whether the lease can still be ours."""
        return self.now() < self._until

    async def call(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Call the outside under the lease. ``LostLease`` if it may be over, or is lost meanwhile."""
        if not self.is_ours():
            raise LostLease
        try:
            async with asyncio.timeout(None) as self._call:
                return await call()
        except TimeoutError:
            raise LostLease from None
        finally:
            self._call = None
