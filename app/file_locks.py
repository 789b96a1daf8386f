"""Locks between processes: flock(2), which the kernel drops when the holder dies, however it dies.

Every call opens the file anew, so that two threads of one process exclude each other like two processes do. A locked
file that a child inherits stays locked until the child is gone as well.

The locks also keep an installation and a demo out of the same home folder. The demo has its own settings. Workers with
different settings on one database would take each other's steps, and would fail those for which they lack a setting.
Each side takes its own lock before it checks the other's, so at least one of them sees the other.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.errors import ConfigurationError

if sys.platform != "win32":
    import fcntl

_REMEDY = "End that first (Ctrl-C), or set COUNTERSEAL_HOME to another folder."


def lock(path: Path, *, shared: bool = False, wait: bool = True) -> int:
    """Lock the file and return its descriptor; closing that releases the lock.

    Without ``wait``, ``BlockingIOError`` if somebody else holds the lock.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(handle)
        raise
    return handle


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Like ``lock``, but return None if somebody else holds the lock."""
    with suppress(BlockingIOError):
        return lock(path, shared=shared, wait=False)
    return None


def is_held(path: Path, *, shared: bool = False) -> bool:
    """True if anybody holds the lock at this moment; with ``shared``, if anybody holds it exclusively."""
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


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock exclusively inside the block; ``BlockingIOError`` if somebody else holds it."""
    handle = lock(path, wait=False)
    try:
        yield
    finally:
        os.close(handle)


def wait_until(fact: Callable[[], bool], seconds: float) -> bool:
    """Poll ``fact`` every 20 ms. True as soon as it holds; False if it does not within ``seconds``."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not fact():
        if time.monotonic() > end:
            return False
        pause.wait(0.02)
    return True


@contextmanager
def installation(home: Path) -> Iterator[None]:
    """Hold ``home`` for ``up``, ``serve``, ``work`` or ``keep``.

    ``ConfigurationError`` if a demo holds it that is not our parent process.
    """
    parts, other = _file(home, "parts.lock"), _file(home, "demo.lock")
    present = lock(parts, shared=True)
    try:
        if is_held(other, shared=True) and other.read_bytes() != b"%d" % os.getppid():
            raise ConfigurationError(f"The demo is running in {home}, with settings of its own.", remedy=_REMEDY)
        yield
    finally:
        os.close(present)


@contextmanager
def demo(home: Path) -> Iterator[None]:
    """Hold ``home`` for the demo and the ``up`` that it starts. ``ConfigurationError`` if anybody else holds it."""
    parts, own = _file(home, "parts.lock"), _file(home, "demo.lock")
    handle = try_lock(own)
    if handle is None:
        raise ConfigurationError(f"A demo is running in {home} already.", remedy=_REMEDY)
    try:
        os.truncate(handle, 0)
        os.pwrite(handle, b"%d" % os.getpid(), 0)
        if is_held(parts):
            raise ConfigurationError(
                f"Counterseal is running in {home}, with other settings than the demo's.", remedy=_REMEDY
            )
        yield
    finally:
        os.close(handle)


def _file(home: Path, name: str) -> Path:
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / name).touch(mode=0o600)
    except OSError as error:
        remedy = "Set COUNTERSEAL_HOME to a folder of yours."
        raise ConfigurationError(f"{home} cannot be written to: {error.strerror}.", remedy=remedy) from None
    return home / name
