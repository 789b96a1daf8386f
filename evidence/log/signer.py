"""The signer's memory: the size and root of each log when it last signed, in files outside of the database.

It signs a checkpoint only if the log begins with what it remembers. So whoever rewrites, cuts off or restores the
database gets no signature, even with all rights on it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from core.errors import ConfigurationError, ConsistencyError
from evidence.log import tree
from evidence.log.checkpoints import Checkpoint
from evidence.log.notes import Note, NoteKey, Signs, signed


class Remembered(Struct, frozen=True):
    """The last checkpoint of a log that was signed."""

    origin: str
    size: int = 0
    root: bytes = tree.EMPTY


class Grown:
    """The hashes of a log's leaves, and its roots at the latest sizes to which it has grown."""

    def __init__(self) -> None:
        self.leaves: list[bytes] = []
        self._frontier, self._roots = tree.Frontier(), dict[int, bytes]()

    @property
    def size(self) -> int:
        """The number of leaves."""
        return len(self.leaves)

    def grow(self, leaves: Iterable[bytes]) -> None:
        """Append hashes of leaves."""
        self._roots[self.size] = self._frontier.root
        for leaf in leaves:
            self.leaves.append(leaf)
            self._frontier.add(leaf)
        self._roots = {size: self._roots[size] for size in sorted(self._roots)[-2:]} | {self.size: self._frontier.root}

    def root_at(self, size: int) -> bytes:
        """The root of its first ``size`` leaves."""
        return self._roots.get(size) or tree.root_of(self.leaves[:size])


class Memory(Struct, frozen=True):
    """A folder with one file for each log. Nobody else writes it."""

    folder: Path

    def of(self, origin: str) -> Remembered | None:
        """The last signed checkpoint of this log; None for an unknown log. ``ConfigurationError`` if unreadable."""
        try:
            document = json.loads(self._path(origin).read_text(encoding="utf-8"))
            found = Remembered(document["origin"], int(document["size"]), bytes.fromhex(document["root"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"the signer's memory {self._path(origin)} cannot be read: {error}") from None
        if found.origin != origin:
            raise ConfigurationError(f"the signer's memory {self._path(origin)} is of another log: {found.origin}")
        return found

    def all(self) -> list[Remembered]:
        """The last signed checkpoint of every log."""
        texts = [path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("*.json"))]
        origins = [json.loads(text)["origin"] for text in texts]
        return [one for one in map(self.of, origins) if one is not None]

    def keep(self, one: Remembered) -> None:
        """Remember a checkpoint. The file is on the disk, whole, before this returns; a crash leaves the old file."""
        document = {"origin": one.origin, "size": one.size, "root": one.root.hex()}
        replace_file(self._path(one.origin), json.dumps(document).encode() + b"\n")

    def _path(self, origin: str) -> Path:
        return self.folder / f"{sha256(origin.encode()).hexdigest()[:32]}.json"


def sign(memory: Memory, key: NoteKey, private: Signs, log: Grown) -> Note | None:
    """Sign the checkpoint of this log, whose origin is the key's name.

    None for a log without leaves. ``ConsistencyError`` if the log is shorter than what was signed, or does not begin
    with it. The checkpoint is remembered before it is signed. After a crash in between, the next turn signs the same
    checkpoint, or a larger one.
    """
    known = memory.of(key.name) or Remembered(key.name)
    if log.size < known.size:
        words = f"The log {key.name} has {log.size} leaves, and {known.size} were signed: nothing is signed."
        remedy = "Its end was cut off, or a backup was restored: `counterseal evidence monitor` says more."
        raise ConsistencyError(words, remedy=remedy)
    if log.root_at(known.size) != known.root:
        words = f"The first {known.size} leaves of the log {key.name} are others than were signed: nothing is signed."
        raise ConsistencyError(words, remedy="Its history was rewritten: `counterseal evidence monitor` says more.")
    if not log.size:
        return None
    found = Remembered(key.name, log.size, log.root_at(log.size))
    memory.keep(found)
    return signed(Checkpoint(found.origin, found.size, found.root).text, key, private)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in place of the old one. A crash leaves the old or the new file, whole."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
