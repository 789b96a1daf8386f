"""Reads a log where it is published as files (C2SP tlog-tiles), and names each file that is missing or differs.

Nothing is trusted: a checkpoint counts if a key of the log has signed it, a tile if it fits the checkpoint's root.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import Protocol

from msgspec import Struct

from core.errors import InputError, NotFoundError
from evidence.log import tiles, tree
from evidence.log.checkpoints import Checkpoint
from evidence.log.notes import NOTE_BYTES_MAX, Note
from evidence.log.rings import Ring
from evidence.log.tiles import ENTRIES, Tile

CHECKPOINT = "checkpoint"
# The number of files that are read at once, and the number of problems after which reading ends.
_AT_ONCE, _NAMED_MAX = 16, 50


class Source(Protocol):
    """The place of one log's files: a folder, a store, a web address."""

    @property
    def where(self) -> str:
        """The place in words."""

    async def read(self, path: str, most: int) -> bytes:
        """The bytes of a file. ``NotFoundError`` if it is not there, ``InputError`` if it is larger than ``most`` or
        not a file of a log at all, ``TransportError`` if the place cannot be read."""


class Published(Struct, frozen=True):
    """A log as it is published: its signed checkpoint, and all its leaves."""

    checkpoint: Checkpoint
    note: Note
    leaves: Sequence[bytes]

    @property
    def hashes(self) -> list[bytes]:
        """The hashes of its leaves."""
        return [tree.leaf_hash(leaf) for leaf in self.leaves]


async def opened(source: Source, ring: Ring, origin: str) -> tuple[Checkpoint, Note]:
    """The checkpoint of the log of this origin. ``InputError`` if it is no checkpoint, unsigned, or another log's."""
    where = f"{source.where}/{CHECKPOINT}"
    found, note = ring.opened(await source.read(CHECKPOINT, NOTE_BYTES_MAX), where)
    if found.origin != origin:
        raise InputError(f"is of the log {found.origin}, not of {origin}", where=where)
    return found, note


async def read(source: Source, ring: Ring, origin: str) -> tuple[Published, list[str]]:
    """Read the whole log, and list each problem in words. Without a problem, every file fits the checkpoint."""
    checkpoint, note = await opened(source, ring, origin)
    leaves, problems = list[bytes](), list[str]()
    async for tile, data, problem in _each(source, (one for one in tiles.needed(checkpoint.size) if is_leaves(one))):
        try:
            some = tiles.entries(data)
        except InputError as error:
            some, problem = [], problem or f"{tile.path} {error.message}"
        if problem is None and len(some) != tile.width:
            problem = f"{tile.path} has {len(some)} leaves, and {tile.width} were signed"
        leaves += some
        problems += [] if problem is None else [problem]
        if len(problems) >= _NAMED_MAX:
            break
    found = Published(checkpoint, note, leaves)
    if problems:
        return found, [f"{source.where}: {one}" for one in problems]
    hashes = found.hashes
    rest = (one for one in tiles.needed(checkpoint.size) if not is_leaves(one))
    problems = [words async for words in differing(source, rest, tiles.levels_of(hashes))]
    if tree.root_of(hashes) != checkpoint.root:
        problems.insert(0, f"its {checkpoint.size} leaves do not come to the root that was signed: they are others")
    return found, [f"{source.where}: {one}" for one in problems]


def is_leaves(tile: Tile) -> bool:
    """True for a bundle of leaves."""
    return tile.level == ENTRIES


async def differing(source: Source, wanted: Iterable[Tile], levels: Sequence[Sequence[bytes]]) -> AsyncIterator[str]:
    """Each of these files that is missing or differs, in words. ``levels`` are the log's hashes by level."""
    named = 0
    async for tile, data, problem in _each(source, wanted):
        if problem is None and not tile.fits(data, levels):
            problem = f"{tile.path} is another than that of the log: it was changed"
        if problem is not None:
            yield problem
            named += 1
        if named >= _NAMED_MAX:
            yield f"more than {_NAMED_MAX} files differ: the rest was not read"
            return


async def _each(source: Source, wanted: Iterable[Tile]) -> AsyncIterator[tuple[Tile, bytes, str | None]]:
    """Each file with its bytes, in order; without bytes and with a problem if it cannot be read."""
    rest = iter(wanted)
    while some := [*islice(rest, _AT_ONCE)]:
        for tile, (data, problem) in zip(
            some, await asyncio.gather(*(_fetch(source, one) for one in some)), strict=True
        ):
            yield tile, data, problem


async def _fetch(source: Source, tile: Tile) -> tuple[bytes, str | None]:
    try:
        return await _bytes_of(source, tile), None
    except NotFoundError:
        return b"", f"{tile.path} is missing"
    except InputError as error:
        return b"", f"{tile.path} {error.message}"


async def _bytes_of(source: Source, tile: Tile) -> bytes:
    try:
        return await source.read(tile.path, tiles.FILE_BYTES_MAX)
    except NotFoundError:
        if tile.width == tiles.WIDTH:
            raise
    # A log may delete a partial tile when the whole one is there.
    whole = await source.read(tiles.path_of(tile.level, tile.number), tiles.FILE_BYTES_MAX)
    return tile.cut(whole)
