"""Who works in a home folder: an installation or a demo, never both.

The demo has a home of its own, and settings of its own. Workers with different settings on one database would take
each other's steps, and fail those for which a setting is missing. So each side says that it is there before it looks
for the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app import file_locks
from core.errors import ConfigurationError

_REMEDY = "End that first (Ctrl-C), or set COUNTERSEAL_HOME to another folder."


@contextmanager
def installation(home: Path) -> Iterator[None]:
    """``up``, ``serve``, ``work`` or ``keep`` is in ``home``. ``ConfigurationError`` while somebody else's demo is."""
    parts, other = _file(home, "parts.lock"), _file(home, "demo.lock")
    present = file_locks.lock(parts, shared=True)
    try:
        if file_locks.is_held(other, shared=True) and _owner(other) != os.getppid():
            raise ConfigurationError(f"The demo is running in {home}, with settings of its own.", remedy=_REMEDY)
        yield
    finally:
        os.close(present)


@contextmanager
def demo(home: Path) -> Iterator[None]:
    """The demo is in ``home``; the ``up`` that it starts may come. ``ConfigurationError`` while anybody else is."""
    parts, own = _file(home, "parts.lock"), _file(home, "demo.lock")
    handle = file_locks.try_lock(own)
    if handle is None:
        raise ConfigurationError(f"A demo is running in {home} already.", remedy=_REMEDY)
    try:
        os.truncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        if file_locks.is_held(parts):
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
        raise ConfigurationError(
            f"{home} cannot be written to: {error.strerror}.", remedy="Set COUNTERSEAL_HOME to a folder of yours."
        ) from None
    return home / name


def _owner(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None
