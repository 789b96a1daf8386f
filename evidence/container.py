"""Reads a bundle that may be hostile: a zip file, or the directory into which it was extracted."""

from __future__ import annotations

import base64
import io
import os
import stat
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

import orjson

from core.errors import InputError
from evidence import layout
from evidence.packing import check_exact

FILES_MAX = 100_000
STREAM_BYTES_MAX = 4 * 1024**3
FILE_BYTES_MAX = 64 * 1024**2
CHUNK_BYTES = 1024 * 1024
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)


class Files(ABC):
    """The files of a bundle, by name, with their sizes in bytes."""

    sizes: Mapping[str, int]

    @abstractmethod
    def chunks(self, name: str) -> Generator[bytes]:
        """Yield a file in chunks. ``InputError`` if it is missing, or cannot be read in full."""

    def read(self, name: str) -> bytes:
        """A whole file. ``InputError`` as for ``chunks``."""
        return b"".join(self.chunks(name))

    def lines(self, name: str, line_bytes_max: int) -> Generator[bytes]:
        """Yield the lines of a file without newlines. ``InputError`` for a line that is too long or unfinished."""
        rest = b""
        for chunk in self.chunks(name):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
            if len(rest) > line_bytes_max:
                raise InputError(f"has a line longer than {line_bytes_max} bytes", where=name)
        if rest:
            raise InputError("does not end with a newline", where=name)


class Spool(Files):
    """The files of a bundle while it is made. Long ones are on disk, without a name: a crash leaves nothing behind."""

    def __init__(self) -> None:
        self._files: dict[str, IO[bytes]] = {}
        self.sizes = self._sizes = dict[str, int]()

    def write(self, name: str, data: bytes) -> None:
        """Append to a file; the first call creates it. ``InputError`` for a name that no bundle has."""
        if name not in self._files:
            _check_name(name)
            # The envelope will be one more file.
            _check_size(name, 0, len(self._files) + 2)
            self._files[name], self._sizes[name] = _spooled(), 0
        self._files[name].write(data)
        self._sizes[name] += len(data)
        _check_size(name, self.sizes[name], 1)

    def chunks(self, name: str) -> Generator[bytes]:
        """Yield a file in chunks. It may be read at several places at once."""
        if name not in self._files:
            raise InputError("is missing", where=name)
        file, at = self._files[name], 0
        while True:
            file.seek(at)
            if not (chunk := file.read(CHUNK_BYTES)):
                return
            at += len(chunk)
            yield chunk

    def close(self) -> None:
        """Release the files."""
        for file in self._files.values():
            file.close()


class HeldFiles(Files):
    """The files of a bundle in memory, before signing, under the same bounds as a bundle that is read."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self.sizes = {name: len(data) for name, data in files.items()}
        for number, (name, size) in enumerate(self.sizes.items(), 1):
            _check_name(name)
            # The envelope will be one more file.
            _check_size(name, size, number + 1)

    def chunks(self, name: str) -> Generator[bytes]:
        """The file in one piece."""
        if name not in self._files:
            raise InputError("is missing", where=name)
        yield self._files[name]


def read_predicate(data: bytes) -> Mapping[str, Any]:
    """The predicate that a packed bundle states: its tenant, run, count, head, sidecar. No signature is checked.

    ``InputError`` if the bytes are no bundle.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_size(layout.ENVELOPE, archive.getinfo(layout.ENVELOPE).file_size, 1)
            envelope = orjson.loads(archive.read(layout.ENVELOPE))
        predicate = orjson.loads(base64.b64decode(envelope["payload"]))["predicate"]
        named = {name: predicate[name] for name in ("tenant", "run", "count", "head")}
        return {**named, layout.SIDECAR: predicate.get(layout.SIDECAR)}
    except (*_UNREADABLE, LookupError, TypeError):
        raise InputError("is no bundle", where="container") from None


class Container(Files):
    """The files of a bundle on disk, by name. ``InputError`` for a container in which a name could mean two things.

    It refuses duplicate names, absolute names, names with ``..`` or unusual characters, links and other special files,
    encryption, and more or larger files than a bundle has.
    """

    def __init__(self, path: Path) -> None:
        self._zip: zipfile.ZipFile | None = None
        self._root = path
        try:
            if path.is_dir():
                self.sizes = dict(_bounded(_walk(path, path)))
            else:
                self._zip = zipfile.ZipFile(path)
                self.sizes = dict(_bounded(_entries(self._zip)))
        except (InputError, *_UNREADABLE) as error:
            self.close()
            if isinstance(error, InputError):
                raise
            raise InputError(f"cannot be read: {error}", where="container") from None

    def check_exact(self) -> None:
        """Check that a zip is the one that its files make, byte for byte. ``InputError`` says where it differs."""
        if self._zip is not None:
            try:
                check_exact(self._root, ((name, self.sizes[name], self.chunks(name)) for name in sorted(self.sizes)))
            except _UNREADABLE as error:
                raise InputError(f"cannot be read: {error}", where="container") from None

    def close(self) -> None:
        """Release the file."""
        if self._zip is not None:
            self._zip.close()

    def chunks(self, name: str) -> Generator[bytes]:
        """Yield a file in chunks, as it is on disk."""
        if name not in self.sizes:
            raise InputError("is missing", where=name)
        try:
            with self._open(name) as file:
                left = self.sizes[name]
                while chunk := file.read(CHUNK_BYTES):
                    left -= len(chunk)
                    if left < 0:
                        raise InputError("is longer than its entry says", where=name)
                    yield chunk
        except _UNREADABLE as error:
            raise InputError(f"cannot be read: {error}", where=name) from None

    def _open(self, name: str) -> IO[bytes]:
        if self._zip is not None:
            return self._zip.open(name)
        # O_NOFOLLOW: a link may have replaced the file since the walk.
        return os.fdopen(os.open(self._root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def _spooled() -> IO[bytes]:
    return SpooledTemporaryFile(max_size=CHUNK_BYTES)


def _entries(archive: zipfile.ZipFile) -> Iterator[tuple[str, int]]:
    seen: set[str] = set()
    entries = archive.infolist()
    if archive.comment:
        raise InputError("has an archive comment, which no bundle has", where="container")
    for entry in entries:
        kind = entry.external_attr >> 16
        _check_name(entry.orig_filename)
        if entry.orig_filename.casefold() in seen:
            raise InputError(f"has two files named {entry.filename!r}", where="container")
        if stat.S_IFMT(kind) not in (0, stat.S_IFREG) or entry.is_dir():
            raise InputError(f"has {entry.filename!r}, which is not a plain file", where="container")
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
            raise InputError(f"has {entry.filename!r} encrypted or in an unknown compression", where="container")
        seen.add(entry.orig_filename.casefold())
        yield entry.filename, entry.file_size


def _walk(root: Path, folder: Path) -> Iterator[tuple[str, int]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        name = Path(entry.path).relative_to(root).as_posix()
        _check_name(name)
        if entry.is_dir(follow_symlinks=False):
            if folder != root:
                raise InputError(f"has the folder {name!r}, which no bundle has", where="container")
            yield from _walk(root, folder / entry.name)
        elif entry.is_file(follow_symlinks=False):
            yield name, entry.stat(follow_symlinks=False).st_size
        else:
            raise InputError(f"has {name!r}, which is a link or not a plain file", where="container")


def _check_name(name: str) -> None:
    if not layout.NAME.fullmatch(name):
        raise InputError(f"has the name {name[:100]!r}, which no bundle has", where="container")


def _bounded(files: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    for number, (name, size) in enumerate(files, 1):
        _check_size(name, size, number)
        yield name, size


def _check_size(name: str, size: int, number: int) -> None:
    if number > FILES_MAX:
        raise InputError(f"has more than {FILES_MAX} files", where="container")
    limit = STREAM_BYTES_MAX if name in layout.STREAMS else FILE_BYTES_MAX
    if size > limit:
        raise InputError(f"has {name!r} with {size} bytes; at most {limit} are read", where="container")
