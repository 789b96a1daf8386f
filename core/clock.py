"""Waiting for an event, with a time limit."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def rest(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, and so many seconds at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
