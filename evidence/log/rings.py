"""The keys of a log and their rotations: each key is valid up to a size of the log, and signs its own end.

A reader trusts one key, and follows the rotations from it. What an old key signs later is not valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from core.errors import InputError
from evidence.chain import timestamp
from evidence.log.checkpoints import Checkpoint, opened
from evidence.log.notes import Kind, Note, NoteKey, Signs, is_signed, signed

_TITLE = "counterseal.log/rotation/v1"
_HEAD_LINES = 4
# The most bytes that AWS KMS signs at once.
_NOTE_BYTES_MAX = 4096


class Rotation(Struct, frozen=True):
    """The end of one key and the beginning of the next. ``sizes`` are those of the last checkpoints, by origin."""

    old: NoteKey
    new: NoteKey
    sizes: Mapping[str, int]
    note: Note

    @classmethod
    def parse(cls, data: bytes, where: str = "rotation") -> Rotation:
        """Read a rotation that its old key has signed. ``InputError`` for anything else."""
        note = Note.parse(data, where)
        title, *lines = note.text.removesuffix("\n").split("\n")
        if title != _TITLE or len(lines) < _HEAD_LINES - 1:
            raise InputError("is no rotation of a log's key", where=where)
        old, new = NoteKey.parse(lines[1], where), NoteKey.parse(lines[2], where)
        pairs = [one.rpartition(" ") for one in lines[3:]]
        if not all(origin and size.isascii() and size.isdigit() for origin, _, size in pairs):
            raise InputError("has a line that is no origin with its size", where=where)
        if old.kind is not Kind.ED25519 or new.kind is not Kind.ED25519 or not is_signed(note, old):
            raise InputError("is not signed by the key that it ends", where=where)
        return cls(old, new, {origin: int(size) for origin, _, size in pairs}, note)


def rotate(old: NoteKey, private: Signs, new: NoteKey, sizes: Mapping[str, int], at: datetime) -> Sequence[Note]:
    """The notes in which the old key names the new one, which follows it after checkpoints of these sizes.

    There is one, or several if the sizes of many logs are more than a key service signs at once.
    """
    head = "\n".join([_TITLE, timestamp(at), old.text, new.text, ""])
    texts = [head]
    for origin, size in sorted(sizes.items()):
        line = f"{origin} {size}\n"
        if texts[-1] != head and len((texts[-1] + line).encode()) > _NOTE_BYTES_MAX:
            texts.append(head)
        texts[-1] += line
    return [signed(text, old, private) for text in texts]


class Ring(Struct, frozen=True):
    """A trusted key of an installation's logs, and the rotations that follow from it."""

    first: NoteKey
    rotations: tuple[Rotation, ...] = ()

    @classmethod
    def of(cls, first: NoteKey, rotations: Iterable[Rotation]) -> Ring:
        """Follow the rotations from this key; those that do not follow are left out. ``InputError`` for a fork."""
        known = list(rotations)
        found, at = list[Rotation](), first
        while following := [one for one in known if one.old == at]:
            if len({one.new for one in following}) > 1:
                raise InputError(f"the key {at.text[:60]}… has signed two successors", where="rotation")
            step = following[0]
            sizes = {pair for one in following for pair in one.sizes.items()}
            if len(sizes) != len(dict(sizes)):
                raise InputError(f"the key {at.text[:60]}… has signed two sizes of its end", where="rotation")
            found.append(Rotation(step.old, step.new, dict(sizes), step.note))
            known, at = [one for one in known if one.old != at], step.new
        return cls(first, tuple(found))

    @property
    def newest(self) -> NoteKey:
        """The key that signs now."""
        return self.rotations[-1].new if self.rotations else self.first

    def holding(self, origin: str, size: int) -> NoteKey:
        """The key that may sign a checkpoint of this log of this size."""
        for one in self.rotations:
            if size <= one.sizes.get(origin, 0):
                return one.old.renamed(origin)
        return self.newest.renamed(origin)

    def opened(self, data: bytes, where: str = "checkpoint") -> tuple[Checkpoint, Note]:
        """Read a signed checkpoint. ``InputError`` unless the key that is valid for its size has signed it."""
        checkpoint = Checkpoint.parse(Note.parse(data, where).text, where)
        return opened(data, [self.holding(checkpoint.origin, checkpoint.size)], where)
