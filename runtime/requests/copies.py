"""Compares copies of a tenant's log, in the store or where the log is published, with the database's log.

A copy is read before the database's snapshot is taken: so a working signer does not make the copy seem ahead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from core.errors import InputError, NotFoundError
from evidence.blobs import BlobStore
from evidence.log import tiles
from evidence.log.checkpoints import Checkpoint
from evidence.log.published import CHECKPOINT, Source, differing, opened
from evidence.log.rings import Ring
from evidence.log.signer import Grown
from evidence.log.tiles import Tile

# No tenant's name begins like this, so no bundle lies below it.
FOLDER = "_log"


class StoredLog(Struct, frozen=True):
    """The copy of a tenant's log in the store of evidence."""

    blobs: BlobStore
    tenant: str

    @property
    def where(self) -> str:
        """See ``Source.where``."""
        return "the log's copy in the store"

    async def read(self, path: str, most: int) -> bytes:
        """See ``Source.read``."""
        return await self.blobs.read(f"{FOLDER}/{self.tenant}/{path}", most)

    async def listed(self) -> list[str]:
        """The paths of all its files."""
        prefix = f"{FOLDER}/{self.tenant}/"
        return [key.removeprefix(prefix) for key in await self.blobs.keys(prefix)]


class Copy(Struct, frozen=True):
    """A copy as it was when it was read. ``listed`` are its files; None if they cannot be listed."""

    source: Source
    checkpoint: Checkpoint | None
    problem: str | None
    listed: Sequence[str] | None = None


class Known(Struct, frozen=True):
    """The database's log in one snapshot: its hashes, and the time of each leaf."""

    grown: Grown
    times: Sequence[datetime]
    now: datetime


async def look(source: Source, ring: Ring, origin: str, listed: Sequence[str] | None = None) -> Copy:
    """Read the checkpoint of a copy. A fault in it is reported later, with all other problems of the copy."""
    try:
        checkpoint, _ = await opened(source, ring, origin)
    except NotFoundError:
        problem = None if listed == [] else "its checkpoint is missing"
        return Copy(source, None, problem, listed)
    except InputError as error:
        return Copy(source, None, f"its checkpoint {error.message}", listed)
    return Copy(source, checkpoint, None, listed)


async def problems_of(copy: Copy, origin: str, known: Known, patience: timedelta) -> list[str]:
    """List, in sentences, the differences between a copy and the database's log."""
    found = [] if copy.problem is None else [copy.problem]
    if copy.checkpoint is not None:
        found += [] if (words := inconsistent(copy.checkpoint, origin, known.grown)) is None else [words]
        found += _behind(copy.checkpoint.size, known, patience)
    found += [words async for words in _files(copy, known)]
    return [f"{copy.source.where}: {words}" for words in found]


def inconsistent(checkpoint: Checkpoint, origin: str, grown: Grown) -> str | None:
    """The reason why a signed checkpoint does not belong to this log; None if it does."""
    if checkpoint.origin != origin:
        return f"it is of the log {checkpoint.origin}, not of {origin}"
    if checkpoint.size > grown.size:
        words = f"{checkpoint.size} leaves were signed, and the log has {grown.size}"
        return f"{words}: its end was cut off, or a backup was restored"
    if grown.root_at(checkpoint.size) != checkpoint.root:
        return f"the first {checkpoint.size} leaves are others than those that were signed: it is a second history"
    return None


def _behind(size: int, known: Known, patience: timedelta) -> Iterator[str]:
    if size < len(known.times) and known.now - known.times[size] > patience:
        since = f"leaf {size} is of {known.times[size]:%Y-%m-%d %H:%M:%SZ}"
        yield f"it ends with {size} leaves, and {since}: nobody has stored what came later, or an old copy was put back"


async def _files(copy: Copy, known: Known) -> AsyncIterator[str]:
    levels, wanted = tiles.levels_of(known.grown.leaves), dict[Tile, None]()
    if copy.checkpoint is not None:
        wanted |= dict.fromkeys(tiles.needed(min(copy.checkpoint.size, known.grown.size)))
    for path in copy.listed or ():
        tile = Tile.parse(path)
        if tile is not None and tile.within(levels):
            wanted[tile] = None
        elif path != CHECKPOINT:
            yield f"{path} is no file of the log that the database has"
    async for words in differing(copy.source, wanted, levels):
        yield words
