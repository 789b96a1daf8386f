"""The only place where new identifiers are made."""

from __future__ import annotations

import os
import secrets
import time
from uuid import UUID, uuid5


def new_id() -> UUID:
    """A UUIDv7 (RFC 9562 5.7): sorts by time of creation, so that index inserts stay local."""
    milliseconds = time.time_ns() // 1_000_000
    tail = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (1 << 48) - 1) << 80 | 7 << 76 | (tail >> 68 & 0xFFF) << 64 | 2 << 62 | tail & (1 << 62) - 1
    return UUID(int=value)


def correlation_id(run_id: UUID, name: str) -> UUID:
    """The correlation id that we give to an outside system: a UUIDv5 in the run's namespace."""
    return uuid5(run_id, name)


def new_nonce() -> str:
    """A nonce for a button or a waiting token: 128 random bits, URL-safe."""
    return secrets.token_urlsafe(16)
