"""The port to a store of bundles, the checks that all stores share, and write-once files."""

from __future__ import annotations

import os
import re
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from core.canonical import sha256_hex
from core.errors import ConsistencyError, InputError

KEY_LENGTH_MAX = 512
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,127}(?:/[A-Za-z0-9_][A-Za-z0-9._=-]{0,127})*", re.ASCII)


class LockMode(StrEnum):
    """S3's modes of retention: GOVERNANCE lets a special permission shorten it, COMPLIANCE lets nobody."""

    GOVERNANCE = "GOVERNANCE"
    COMPLIANCE = "COMPLIANCE"


class StoredBlob(Struct, frozen=True):
    """The place of a blob, as the database stores it. ``version_id`` is None if the store has no versions."""

    uri: str
    version_id: str | None
    sha256: str


class BlobStore(Protocol):
    """Stores bytes under a key, once. Safe for concurrent use. ``TransportError`` if the store cannot be reached."""

    async def put(self, key: str, data: bytes, sha256: str, *, erasable: bool = False) -> StoredBlob:
        """Store ``data``; ``sha256`` is its hexadecimal SHA-256. Idempotent. What is ``erasable`` is never locked.

        ``ConsistencyError`` if the key holds other bytes already. ``InputError`` if key or digest is not usable.
        """

    async def replace(self, key: str, data: bytes) -> None:
        """Store ``data``, never locked, in place of what the key holds. A crash leaves the old or the new bytes."""

    async def get(self, blob: StoredBlob) -> bytes:
        """The bytes of exactly that version. ``NotFoundError`` if they are gone, ``ConsistencyError`` if their SHA-256
        is not ``blob.sha256``."""

    async def read(self, key: str, most: int) -> bytes:
        """The bytes that the key holds now. ``NotFoundError`` without any, ``InputError`` if there are
        more than ``most``."""

    async def keys(self, prefix: str) -> list[str]:
        """The keys of all blobs below this prefix, which ends in a slash."""

    async def erase(self, prefix: str, end: str) -> int:
        """Delete all versions of the blobs below this prefix whose keys end with ``end``. Return how many blobs."""


def check_put(key: str, data: bytes, sha256: str) -> None:
    """Raise ``InputError`` unless ``key`` is plain ``/``-separated names and ``sha256`` is the digest of ``data``."""
    if len(key) > KEY_LENGTH_MAX or not _KEY.fullmatch(key):
        raise InputError(f"{key[:100]!r} is not a usable key: plain names separated by '/'", where="key")
    if sha256_hex(data) != sha256:
        raise InputError("is not the SHA-256 of the data", where="sha256")


def check_got(blob: StoredBlob, data: bytes) -> bytes:
    """Return ``data``; ``ConsistencyError`` if its digest is not that of ``blob``."""
    found = sha256_hex(data)
    if found != blob.sha256:
        raise ConsistencyError(f"{blob.uri} holds bytes with SHA-256 {found}, not {blob.sha256}: it was changed")
    return data


def check_read(key: str, data: bytes, most: int) -> bytes:
    """Return ``data``; ``InputError`` if it is more than ``most``."""
    if len(data) > most:
        raise InputError(f"is larger than {most} bytes", where=key)
    return data


def key_of(blob: StoredBlob, prefix: str) -> str:
    """The key in a URI that starts with ``prefix``; ``InputError`` for a URI of another store."""
    key = blob.uri.removeprefix(prefix)
    if key == blob.uri or not _KEY.fullmatch(key):
        raise InputError(
            f"{blob.uri[:200]!r} is not in the store that this installation uses ({prefix})",
            where="uri",
            remedy="Configure the store in which the evidence was written.",
        )
    return key


def write_new(path: Path, data: bytes) -> bool:
    """Write a whole file, synced, with mode 0600. Returns False if the name is taken; the old file stays."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link fails if the name is taken, so it never replaces a file.
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        Path(temporary).unlink()
    return True
