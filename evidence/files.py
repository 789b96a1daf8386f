"""Blobs in a directory, each whole or absent. Their URIs, ``file:<key>``, stay valid if the directory moves."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from core.canonical import sha256_hex
from core.errors import ConsistencyError, NotFoundError, TransportError
from evidence.blobs import StoredBlob, check_got, check_put, check_read, key_of, write_new
from evidence.log.signer import replace_file

_PREFIX = "file:"


class FileBlobStore:
    """A ``BlobStore`` in ``root``, which is created when needed. Only the owner can read the files."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, key: str, data: bytes, sha256: str, *, erasable: bool = False) -> StoredBlob:
        """See ``BlobStore.put``. Nothing is ever locked in a directory."""
        check_put(key, data, sha256)
        try:
            await asyncio.to_thread(self._write, key, data)
        except OSError as error:
            raise TransportError(f"the evidence file {key} cannot be written: {error.strerror}") from error
        return StoredBlob(_PREFIX + key, None, sha256)

    async def replace(self, key: str, data: bytes) -> None:
        """See ``BlobStore.replace``."""
        check_put(key, data, sha256_hex(data))
        try:
            await asyncio.to_thread(self._put_over, key, data)
        except OSError as error:
            raise TransportError(f"the evidence file {key} cannot be written: {error.strerror}") from error

    async def get(self, blob: StoredBlob) -> bytes:
        """See ``BlobStore.get``."""
        return check_got(blob, await self._got(key_of(blob, _PREFIX), -1))

    async def read(self, key: str, most: int) -> bytes:
        """See ``BlobStore.read``."""
        return check_read(key, await self._got(key, most + 1), most)

    async def _got(self, key: str, most: int) -> bytes:
        try:
            return await asyncio.to_thread(self._read, key, most)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise NotFoundError(f"{_PREFIX}{key} is not in the evidence directory") from None
        except OSError as error:
            raise TransportError(f"the evidence file {key} cannot be read: {error.strerror}") from error

    async def keys(self, prefix: str) -> list[str]:
        """See ``BlobStore.keys``."""
        return await asyncio.to_thread(self._keys, prefix)

    async def erase(self, prefix: str, end: str) -> int:
        """See ``BlobStore.erase``."""
        keys = [key for key in await self.keys(prefix) if key.endswith(end)]
        try:
            await asyncio.to_thread(self._erase, keys)
        except OSError as error:
            raise TransportError(f"evidence below {prefix} cannot be deleted: {error.strerror}") from error
        return len(keys)

    def _erase(self, keys: list[str]) -> None:
        for key in keys:
            (self._root / key).unlink(missing_ok=True)
            _sync((self._root / key).parent)  # a crash before it may bring the file back: then it is deleted again

    def _keys(self, prefix: str) -> list[str]:
        found = (path.relative_to(self._root) for path in (self._root / prefix).glob("**/*") if path.is_file())
        return sorted(path.as_posix() for path in found if not path.name.startswith("."))

    def _write(self, key: str, data: bytes) -> None:
        path = self._root / key
        _make_directory(path.parent)
        if not write_new(path, data) and self._read(key) != data:
            raise ConsistencyError(f"{_PREFIX}{key} exists already, with other content")
        _sync(path.parent)

    def _put_over(self, key: str, data: bytes) -> None:
        _make_directory((self._root / key).parent)
        replace_file(self._root / key, data)

    def _read(self, key: str, most: int = -1) -> bytes:
        with os.fdopen(os.open(self._root / key, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return file.read(most)


def _make_directory(path: Path) -> None:
    """Create ``path`` and its parents, and sync each entry: a crash that loses a directory loses its synced files."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
