"""The files of a log as others read it (C2SP tlog-tiles v0.1.0): tiles of 256 hashes, and bundles of 256 leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.errors import InputError
from evidence.log import tree

WIDTH = 256
# A tile that is not full has its width in its path, after this.
PARTIAL = ".p/"
_LEAF_BYTES_MAX = 65535
_THOUSAND = 1000


def path_of(level: str, number: int, width: int = WIDTH) -> str:
    """The path of a tile; ``level`` is a number, or ``entries`` for a bundle of leaves."""
    parts = [f"{number % _THOUSAND:03}"]
    while number := number // _THOUSAND:
        parts.insert(0, f"x{number % _THOUSAND:03}")
    return f"tile/{level}/{'/'.join(parts)}{'' if width == WIDTH else f'{PARTIAL}{width}'}"


def bundles(leaves: Sequence[bytes], first: int = 0) -> Iterator[tuple[str, bytes]]:
    """The files of leaves of a log, path and bytes. ``leaves`` begin at the place ``first``, which begins a bundle."""
    for number, some in _parts(leaves, 0):
        yield path_of("entries", first // WIDTH + number, len(some)), b"".join(map(_entry, some))


def tiles(hashes: Sequence[bytes], before: int = 0) -> Iterator[tuple[str, bytes]]:
    """The tiles of a log with these hashes of leaves that one with its first ``before`` leaves did not have."""
    level, known = 0, before
    while hashes:
        for number, found in _parts(hashes, known):
            yield path_of(str(level), number, len(found)), b"".join(found)
        full = len(hashes) // WIDTH
        hashes = [tree.root_of(hashes[number * WIDTH : (number + 1) * WIDTH]) for number in range(full)]
        level, known = level + 1, known // WIDTH


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
