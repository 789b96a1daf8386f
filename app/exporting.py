"""Hands audit events out: to a file or over HTTP, and moves the cursor when they are stored."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import httpx

from core.errors import InputError, TransportError

_SECONDS_MAX = 30.0


class Cursor:
    """The place of the next leaf in a tenant's log, kept in a file. Without one everything is exported."""

    def __init__(self, path: Path, tenant: str) -> None:
        self._path = path
        self._tenant = tenant

    def read(self) -> int:
        """The place. ``InputError`` if the file is of another tenant, or is no cursor."""
        if not self._path.exists():
            return 0
        try:
            match json.loads(self._path.read_bytes()):
                case {"tenant": self._tenant, "next": int(place)} if place >= 0:
                    return place
        except (OSError, ValueError):
            pass  # the error below says so
        remedy = "Name another with --cursor, or delete it: then everything is exported once more."
        raise InputError(f"is no cursor of the tenant {self._tenant}", where=str(self._path), remedy=remedy)

    def move(self, place: int) -> None:
        """Write the place atomically: a crash leaves the old one, and the events come once more."""
        with tempfile.NamedTemporaryFile("w", dir=self._path.parent, prefix=".cursor-", delete=False) as file:
            json.dump({"tenant": self._tenant, "next": place}, file)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(self._path)


def append_to(path: Path, data: bytes) -> None:
    """Append lines to a file, and sync. A crash within leaves a part of a line, and the events come once more."""
    try:
        with path.open("ab") as file:
            if file.tell() and not _ends_a_line(path):
                file.write(b"\n")  # after such a crash
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def post_to(url: str, data: bytes, token: str | None) -> None:
    """Send lines as one request. ``TransportError`` unless the receiver confirms them; then they are sent again."""
    headers = {"Content-Type": "application/x-ndjson", **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        answer = httpx.post(url, content=data, headers=headers, timeout=_SECONDS_MAX, follow_redirects=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TransportError(f"{url} cannot be reached: {type(error).__name__}") from None
    if not answer.is_success:
        raise TransportError(f"{url} answered {answer.status_code}")
