"""The files of a log as others read it (C2SP tlog-tiles v0.1.0): tiles of 256 hashes, and bundles of 256 leaves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from core.errors import InputError
from evidence.log import tree

WIDTH = 256
# The suffix in the path of a tile that is not full; its width follows.
PARTIAL = ".p/"
# The most bytes of one file of a log. It has 256 leaves, and ours have some 300 bytes each.
FILE_BYTES_MAX = 1024 * 1024
ENTRIES = "entries"
_LEAF_BYTES_MAX = 65535
_THOUSAND = 1000
_PATH = re.compile(r"tile/(entries|0|[1-9][0-9]?)/((?:x[0-9]{3}/){0,5}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?", re.ASCII)


class Tile(NamedTuple):
    """One file of a log; ``level`` is a number, or ``entries`` for a bundle of leaves."""

    level: str
    number: int
    width: int = WIDTH

    @classmethod
    def parse(cls, path: str) -> Tile | None:
        """The tile with this path; None if no tile has it."""
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        found = cls(match[1], int(re.sub(r"[x/]", "", match[2])), int(match[3] or WIDTH))
        return found if found.path == path else None

    @property
    def path(self) -> str:
        """Its path below the log's address."""
        return path_of(self.level, self.number, self.width)

    @property
    def first(self) -> int:
        """The place of its first hash, or leaf, in its level."""
        return self.number * WIDTH

    def cut(self, whole: bytes) -> bytes:
        """The bytes of this partial tile, from those of the whole one."""
        if self.level == ENTRIES:
            return b"".join(map(_entry, entries(whole)[: self.width]))
        return whole[: self.width * tree.HASH_BYTES]

    def within(self, levels: Sequence[Sequence[bytes]]) -> bool:
        """True if a log with these hashes, by level, has this file."""
        level = 0 if self.level == ENTRIES else int(self.level)
        return level < len(levels) and self.first + self.width <= len(levels[level])

    def fits(self, data: bytes, levels: Sequence[Sequence[bytes]]) -> bool:
        """True if these are its bytes in a log whose hashes are these, by level."""
        if not self.within(levels):
            return False
        wanted = levels[0 if self.level == ENTRIES else int(self.level)][self.first : self.first + self.width]
        if self.level != ENTRIES:
            return data == b"".join(wanted)
        try:
            return [tree.leaf_hash(leaf) for leaf in entries(data)] == [*wanted]
        except InputError:
            return False


def needed(size: int) -> Iterator[Tile]:
    """Every file that a log of this size has: first the leaves, then the hashes, level by level."""
    level, count = ENTRIES, size
    while count:
        for number in range(-(-count // WIDTH)):
            yield Tile(level, number, min(WIDTH, count - number * WIDTH))
        level, count = ("0", size) if level == ENTRIES else (str(int(level) + 1), count // WIDTH)


def levels_of(hashes: Sequence[bytes]) -> list[Sequence[bytes]]:
    """The hashes of a log's tiles, level by level, from those of its leaves on."""
    found = list[Sequence[bytes]]()
    while hashes:
        found.append(hashes)
        full = len(hashes) // WIDTH
        hashes = [tree.root_of(hashes[number * WIDTH : (number + 1) * WIDTH]) for number in range(full)]
    return found


def path_of(level: str, number: int, width: int = WIDTH) -> str:
    """The path of a tile; ``level`` is a number, or ``entries`` for a bundle of leaves."""
    parts = [f"{number % _THOUSAND:03}"]
    while number := number // _THOUSAND:
        parts.insert(0, f"x{number % _THOUSAND:03}")
    return f"tile/{level}/{'/'.join(parts)}{'' if width == WIDTH else f'{PARTIAL}{width}'}"


def bundles(leaves: Sequence[bytes], first: int = 0) -> Iterator[tuple[str, bytes]]:
    """The files of leaves of a log, path and bytes. ``leaves`` begin at the place ``first``, which begins a bundle."""
    for number, some in _parts(leaves, 0):
        yield path_of(ENTRIES, first // WIDTH + number, len(some)), b"".join(map(_entry, some))


def tiles(hashes: Sequence[bytes], before: int = 0) -> Iterator[tuple[str, bytes]]:
    """The tiles of a log with these hashes of leaves that are new or fuller since it had ``before`` leaves."""
    known = before
    for level, found in enumerate(levels_of(hashes)):
        for number, some in _parts(found, known):
            yield path_of(str(level), number, len(some)), b"".join(some)
        known //= WIDTH


def _parts(items: Sequence[bytes], before: int) -> Iterator[tuple[int, Sequence[bytes]]]:
    for number in range(before // WIDTH, -(-len(items) // WIDTH) if len(items) > before else 0):
        yield number, items[number * WIDTH : (number + 1) * WIDTH]


def entries(data: bytes) -> list[bytes]:
    """The leaves of a bundle of leaves. ``InputError`` if it is none."""
    found, at = list[bytes](), 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 2], "big")
        found.append(data[at + 2 : at + 2 + size])
        if len(found[-1]) != size or at + 2 > len(data):
            raise InputError("ends within a leaf", where="entries")
        at += 2 + size
    return found


def _entry(leaf: bytes) -> bytes:
    if len(leaf) > _LEAF_BYTES_MAX:
        raise InputError("is longer than a leaf may be", where="leaf")
    return len(leaf).to_bytes(2, "big") + leaf
