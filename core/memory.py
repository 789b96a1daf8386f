"""The memory of a process: what is free goes back to the system; what lives for good is not looked through again."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from functools import cache
from typing import Any, Final

# A collection begins after this many more containers were allocated than freed: some megabytes.
CONTAINERS_PER_ROUND: Final = 20_000
# Options of glibc's mallopt(3), by their numbers in malloc.h.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
# Larger blocks are pages of their own, which go back once they are free. Reads of a connection are smaller than that.
_LARGE: Final = 320 << 10
_ARENAS: Final = 2
_PAUSE_SECONDS: Final = 1.0
_last = 0.0


@cache
def _library() -> Any:
    """The C library if it is glibc, else None."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


def share_arenas() -> None:
    """Have threads share their arenas of memory, and keep large blocks out of them. Does nothing without glibc.

    By default each thread has its own arena, and blocks of up to 32 MiB stay in it once they are free: after work on
    large values the process would keep four times what it uses.
    """
    if (library := _library()) is not None:
        library.mallopt(_ARENA_MAX, _ARENAS)
        library.mallopt(_MMAP_THRESHOLD, _LARGE)


def return_freed() -> None:
    """Give freed memory back to the system, at most once a second. Takes milliseconds, without Python's lock."""
    global _last
    now = time.monotonic()
    if now - _last >= _PAUSE_SECONDS and (library := _library()) is not None:
        _last = now
        library.malloc_trim(0)


def keep_for_good() -> None:
    """Exclude everything loaded so far from garbage collection: it lives as long as the process.

    Each full collection over it would stop the process for a tenth of a second. Runs make hardly any cycles, so we also
    collect new objects less often than Python's default, which took a twentieth of the work.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(CONTAINERS_PER_ROUND)
