"""Writes several files into a new folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.errors import InputError
from evidence.blobs import write_new


def write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files, for their owner's eyes only. ``InputError`` if the folder has files, or cannot be written.

    A crash leaves some of them: take another folder then.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(folder.iterdir()):
            raise InputError("is not empty.", where=str(folder), remedy="Name a new folder.")
        for name, data in files.items():
            write_new(folder / name, data)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(folder)) from None
