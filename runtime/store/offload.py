"""Runs long work in a thread, so that the event loop goes on; tenants take turns at the threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary

import structlog
from msgspec.msgpack import encode

from core.db import Connection
from core.memory import return_freed
from core.turns import NOBODY, Turns

Answer = TypeVar("Answer")

# Books and other work of more lines than these are done in a thread.
LONG = 300
# The seconds between two signs of life on an open transaction: PostgreSQL ends one whose client is idle for longer.
ALIVE_SECONDS = 1.0
# The work of compiling any document: even a short one may name the same step many times.
COMPILING = LONG + 1
# Long work shares one interpreter with the loop: more threads would not end it earlier, but hold up everybody else and
# need more memory. The second thread is for other tenants than the first one's.
THREADS = 2
_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def work_units(*values: object, heavy: bool) -> int:
    """The work on these values, as a number of lines of a book. ``heavy``: it is long whatever the values are."""
    try:
        return LONG + 1 if heavy else len(encode(values)) // 64
    except OverflowError:  # an integer that cannot be stored: the work itself reports it
        return LONG + 1


async def offload(lines: int, work: Callable[[], Answer], connection: Connection | None = None) -> Answer:
    """Do work on this many lines: at once if they are few, otherwise in a thread when it is its tenant's turn.

    An open transaction of ``connection`` is kept alive meanwhile. A crash rolls it back.
    """
    if lines <= LONG:
        return work()
    working = asyncio.ensure_future(_in_thread(work))
    try:
        while True:
            await asyncio.wait({working}, timeout=ALIVE_SECONDS)
            if working.done():
                return working.result()
            if connection is not None and connection.is_in_transaction():
                await connection.execute("SELECT 1")
    finally:
        working.cancel()  # nobody waits for it any more


async def _in_thread(work: Callable[[], Answer]) -> Answer:
    loop, tenant = asyncio.get_running_loop(), structlog.contextvars.get_contextvars().get("tenant", NOBODY)
    turns = _TURNS.setdefault(loop, Turns(THREADS, of_one=1))
    await turns.take(tenant)
    done = loop.run_in_executor(None, copy_context().run, _freeing, work)
    done.add_done_callback(lambda _: turns.give(tenant))  # the thread ends with its work, even without a waiter
    return await asyncio.shield(done)


def _freeing(work: Callable[[], Answer]) -> Answer:
    """Do work on large values, then give their memory back."""
    try:
        return work()
    finally:
        return_freed()
