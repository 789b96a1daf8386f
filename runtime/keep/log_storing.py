"""Copies the tenants' logs into the store of evidence, so that a bucket has a whole log (C2SP tlog-tiles)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from core.canonical import sha256_hex
from evidence.blobs import BlobStore
from evidence.log import tiles
from evidence.log.notes import Note
from evidence.log.published import CHECKPOINT
from runtime.requests.copies import FOLDER


class LogStore(Struct):
    """A copy of each log in a store. Tiles are written once, and a checkpoint after all files that it names."""

    blobs: BlobStore
    _sizes: dict[str, int] = field(default_factory=dict)

    def has(self, tenant: str, size: int) -> bool:
        """True if this process has stored the tenant's log up to this number of leaves."""
        return self._sizes.get(tenant) == size

    async def put(self, tenant: str, first: int, bodies: Sequence[bytes], hashes: Sequence[bytes], note: Note) -> None:
        """Write the missing files, from the leaves from place ``first`` on, and then the checkpoint.

        A crash in between leaves tiles that no checkpoint names yet: the next turn puts the same bytes again.
        ``TransportError`` if the store is away, ``ConsistencyError`` if a tile of another log is in the way.
        """
        root = f"{FOLDER}/{tenant}/"
        there = set[str]() if first else {*await self.blobs.keys(root)}
        for path, data in (*tiles.bundles(bodies, first), *tiles.tiles(hashes, first)):
            if root + path not in there:
                # A partial tile is never locked, because it may be deleted when the whole tile replaces it.
                await self.blobs.put(root + path, data, sha256_hex(data), erasable=tiles.PARTIAL in path)
        await self.blobs.replace(root + CHECKPOINT, note.packed)
        self._sizes[tenant] = len(hashes)
