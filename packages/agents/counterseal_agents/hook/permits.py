"""The permits of tools that run now, kept between the hook before a tool and the one after it.

One file for each call, in a folder that is the user's alone. A file is made before the call is asked for, so that one
id never stands for two calls. A crash leaves its file: the call with this id is then refused, and the action is in
doubt once its lease ends.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from counterseal_agents.canonical import parse
from counterseal_agents.contract import Call, Permit

# Files that are older belong to calls whose lease has ended, however often it was extended.
_OLD_SECONDS = 24 * 3600


class Unkept(Exception):
    """The folder, or a file in it, is not as this module leaves it."""


@dataclass(frozen=True)
class Place:
    """The file of one call."""

    file: Path

    def reserve(self) -> None:
        """Make the file. ``Unkept`` if this id has been used by a call that is not reported."""
        _own(self.file.parent)
        try:
            os.close(os.open(self.file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        except FileExistsError:
            raise Unkept("a call with the same id was let out, and is not reported") from None

    def keep(self, permit: Permit) -> None:
        """Write the permit. A crash before leaves no permit, so nothing can be reported: a doubt."""
        document = {
            "tool": permit.call.tool, "arguments": permit.call.arguments, "action": permit.action,
            "permit": permit.permit, "lease": permit.lease, "ends": permit.ends,
        }  # fmt: skip
        with os.fdopen(os.open(self.file, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "wb") as file:
            file.write(json.dumps(document).encode())

    def kept(self) -> Permit | None:
        """The permit; None if this call has none."""
        try:
            _own(self.file.parent)
            with os.fdopen(os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                found = parse(file.read())
            if not isinstance(found, dict):
                return None
            call = Call(found["tool"], found["arguments"])
            return Permit(call, found["action"], found["permit"], float(found["lease"]), float(found["ends"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def forget(self) -> None:
        """Remove the file, and those of long ago."""
        self.file.unlink(missing_ok=True)
        before = time.time() - _OLD_SECONDS
        for other in self.file.parent.glob("*.json"):
            with suppress(OSError):
                if other.lstat().st_mtime < before:
                    other.unlink()


def place(folder: Path, host: str, session: str, use: str) -> Place:
    """The place of a call, by its host's ids."""
    name = sha256("\0".join((host, session, use)).encode("utf-8", "surrogatepass")).hexdigest()
    return Place(folder / f"{name}.json")


def default_folder(environment: Mapping[str, str]) -> Path:
    """The folder in the user's home for what programs keep."""
    state_home = environment.get("XDG_STATE_HOME", "")
    return (
        (Path(state_home) if state_home.startswith("/") else Path.home() / ".local" / "state") / "counterseal" / "hook"
    )


def _own(folder: Path) -> None:
    """Make the folder if there is none. ``Unkept`` if others can write into it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Unkept(f"{folder} is not a folder of this user alone (chmod 700)")
