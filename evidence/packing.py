"""Writes and compares the one zip that a set of files makes: entries are uncompressed, sorted, of one fixed time."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TypeAlias

from core.errors import InputError

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold
_CHUNK = 1024 * 1024

# The name of a file, its size, and its content in chunks.
Content: TypeAlias = tuple[str, int, Iterable[bytes]]


def pack(files: Iterable[Content], into: IO[bytes]) -> None:
    """Write the zip. The files come in the order of their names."""
    with zipfile.ZipFile(into, "w", zipfile.ZIP_STORED) as archive:
        for name, size, chunks in files:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = 3  # Unix
            entry.external_attr = 0o100644 << 16  # a plain file
            entry.file_size = size
            with archive.open(entry, "w") as file:
                for chunk in chunks:
                    file.write(chunk)


def check_exact(path: Path, files: Iterable[Content]) -> None:
    """Pack the files again, and compare. ``InputError`` if the file at ``path`` is any other zip of them.

    A zip may hold more than its list says: bytes before it, behind it, or between its entries, and other lists.
    """
    with TemporaryFile() as made, path.open("rb") as found:
        pack(files, made)
        made.seek(0)
        at = 0
        while (ours := made.read(_CHUNK)) == (theirs := found.read(_CHUNK)):
            if not ours:
                return
            at += len(ours)
        same = next((n for n, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
        at += min(len(ours), len(theirs)) if same is None else same
        raise InputError(f"is another zip of its files: it differs from byte {at} on", where="container")
