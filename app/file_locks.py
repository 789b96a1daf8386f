"""Locks between processes: flock(2), which the kernel drops when the holder dies, however it dies.

Every call opens the file anew, so that two threads of one process exclude each other like two processes do. A locked
file that a child inherits stays locked until the child is gone as well.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def lock(path: Path, *, shared: bool = False, wait: bool = True) -> int:
    """The open file that holds the lock until it is closed. Without ``wait``, ``BlockingIOError`` if it is taken."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(handle)
        raise
    return handle


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """The open file that holds the lock, or None when somebody else's lock does not let us."""
    with suppress(BlockingIOError):
        return lock(path, shared=shared, wait=False)
    return None


def is_held(path: Path, *, shared: bool = False) -> bool:
    """Whether anybody holds the lock at this moment; ``shared``: whether anybody holds it alone."""
    handle = try_lock(path, shared=shared)
    if handle is not None:
        os.close(handle)
    return handle is None


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock exclusively inside the block."""
    handle = lock(path)
    try:
        yield
    finally:
        os.close(handle)


def wait_until(fact: Callable[[], bool], seconds: float) -> bool:
    """Ask every 20 ms; True once ``fact`` holds, False when it still does not after ``seconds``."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not fact():
        if time.monotonic() > end:
            return False
        pause.wait(0.02)
    return True
