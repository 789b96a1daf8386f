"""Signs the tenants' logs, and publishes each of them: tiles, leaves, the newest checkpoint; see ``LogStore``.

It does not trust the database: its own memory knows what it has signed before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog
from msgspec import Struct, field

from core.db import Database, check_tenant
from core.errors import ConsistencyError, CountersealError, InputError, TransportError
from evidence.log import signer, tiles, tree
from evidence.log.checkpoints import Checkpoint
from evidence.log.notes import Note, NoteKey, Signs
from evidence.log.published import CHECKPOINT
from evidence.log.signer import Grown, Memory, replace_file
from runtime.keep.log_storing import LogStore
from runtime.store import logs

log = structlog.get_logger(__name__)


class LogSigner(Struct):
    """Signs new leaves. ``key`` has the installation's name; the name of a log is that name with the tenant's.

    ``witness`` adds cosignatures to a signed checkpoint; it gets the hashes of all leaves. The log is written into the
    ``folder``, and into the ``store`` if there is one.
    """

    database: Database
    key: NoteKey
    private: Signs
    memory: Memory
    folder: Path
    witness: Callable[[Note, Sequence[bytes]], Awaitable[Note]] | None = None
    store: LogStore | None = None
    _known: dict[str, Grown] = field(default_factory=dict)

    def forget(self) -> None:
        """Read every leaf again in the next turn, to notice leaves that were changed since."""
        self._known.clear()

    async def turn(self, tenants: Sequence[str] | None = None) -> tuple[list[Checkpoint], list[str]]:
        """Sign each tenant's log; return the signed checkpoints, and the errors. An error in one log stops no other."""
        signed, refused = list[Checkpoint](), list[str]()
        if tenants is None:
            async with self.database.connection() as connection:
                tenants = await logs.tenants(connection)
            there = {f"{self.key.name}/{tenant}" for tenant in tenants}
            missing = sorted(one.origin for one in self.memory.all() if one.origin not in there)
            refused += [f"The log {origin} was signed, and the database has no such tenant." for origin in missing]
        for tenant in tenants:
            try:
                check_tenant(tenant)  # it names a folder and a line of the checkpoint, and comes from the database
                if (found := await self.sign(tenant)) is not None:
                    signed.append(found)
            except (ConsistencyError, InputError, TransportError) as error:
                log.error("a log was not signed, or not stored", tenant=tenant, reason=str(error))
                refused.append(str(error))
        return signed, refused

    async def sign(self, tenant: str) -> Checkpoint | None:
        """Sign a tenant's log if it has new leaves. ``ConsistencyError`` if it contradicts what was signed before.

        Memory, folder, database and store are written in this order; after a crash in between, the next turn completes
        them. ``TransportError`` if the store did not accept it; everything else is done by then.
        """
        key = self.key.renamed(f"{self.key.name}/{tenant}")
        grown, first, bodies = await self._read(tenant)
        known = self.memory.of(key.name)
        if known is None and await self._signed_before(tenant):
            words = f"The log {key.name} was signed before, and the memory in {self.memory.folder} does not know it."
            remedy = "Restore the signer's memory, or teach it a checkpoint that you trust: `log sign --learn FILE`."
            raise ConsistencyError(words, remedy=remedy)
        note = await asyncio.to_thread(signer.sign, self.memory, key, self.private, grown)
        again = known is not None and known.size == grown.size
        stored = self.store is None or self.store.has(tenant, grown.size)
        if note is None or (again and stored and await self._published(tenant) == grown.size):
            return None
        if self.witness is not None:
            note = await self.witness(note, grown.leaves)
        await asyncio.to_thread(self._publish, tenant, first, bodies, note)
        async with self.database.connection() as connection:
            await logs.keep(connection, tenant, grown.size, note.packed)
        if self.store is not None:
            await self._store(self.store, tenant, first, bodies, note)
        return Checkpoint.parse(note.text)

    async def _store(self, store: LogStore, tenant: str, first: int, bodies: Sequence[bytes], note: Note) -> None:
        """Write the log into the store. If that fails, the next turn reads all leaves, and stores the missing files."""
        grown = self._known.pop(tenant)
        try:
            await store.put(tenant, first, bodies, grown.leaves, note)
        except CountersealError as error:
            words = f"The log {self.key.name}/{tenant} was signed, and not stored: {error}"
            raise TransportError(words) from error
        self._known[tenant] = grown

    async def _read(self, tenant: str) -> tuple[Grown, int, list[bytes]]:
        """Read the log, and the bytes of its leaves from the last known full bundle on.

        ``ConsistencyError`` if a leaf is missing, is another tenant's, or is not the one that was read before.
        """
        grown = self._known.get(tenant) or Grown()
        first = grown.size // tiles.WIDTH * tiles.WIDTH
        bodies = list[bytes]()
        async with self.database.connection() as connection:
            # Committed leaves without a place get one now, so that the checkpoint covers them too.
            await logs.order(connection, tenant)
            async for place, leaf in logs.leaves(connection, tenant, first):
                if place != first + len(bodies) or leaf.tenant != tenant:
                    raise ConsistencyError(f"The leaf {first + len(bodies)} of the log of {tenant} is missing.")
                bodies.append(leaf.bytes)
        hashes, old = [tree.leaf_hash(body) for body in bodies], grown.size - first
        if hashes[:old] != grown.leaves[first:]:
            raise ConsistencyError(f"A leaf of the log of {tenant} was changed or removed since it was read.")
        grown.grow(hashes[old:])
        self._known[tenant] = grown
        return grown, first, bodies

    async def _signed_before(self, tenant: str) -> bool:
        async with self.database.connection() as connection:
            return await logs.checkpoint(connection, tenant) is not None

    async def _published(self, tenant: str) -> int | None:
        """The size of the checkpoint in the folder."""
        try:
            data = await asyncio.to_thread((self.folder / tenant / CHECKPOINT).read_bytes)
            return Checkpoint.parse(Note.parse(data).text).size
        except (OSError, CountersealError):
            return None

    def _publish(self, tenant: str, first: int, bodies: Sequence[bytes], note: Note) -> None:
        """Write the files that are new, and then the checkpoint that names them."""
        root = self.folder / tenant
        hashes = self._known[tenant].leaves
        for path, data in (*tiles.bundles(bodies, first), *tiles.tiles(hashes, first)):
            if not (root / path).exists() or ".p/" in path:
                replace_file(root / path, data)
        replace_file(root / CHECKPOINT, note.packed)
