"""Proves that a tenant's log has the newest leaf of a run: the leaf, and a proof file that is verified offline."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from core.db import Connection
from evidence.log import tree
from evidence.log.checkpoints import Checkpoint, proof_file
from evidence.log.leaves import Leaf
from evidence.log.notes import Note
from runtime.store import logs


class Sealed(Struct, frozen=True):
    """The newest leaf of a run that a signed checkpoint covers, with its proof."""

    leaf: Leaf
    proof: bytes


async def sealed(connection: Connection, tenant: str, run_id: UUID) -> Sealed | None:
    """The newest signed leaf of a run; None if there is none yet. Writes nothing."""
    data = await logs.checkpoint(connection, tenant)
    if data is None:
        return None
    note, hashes, found = Note.parse(data), list[bytes](), None
    size = Checkpoint.parse(note.text).size
    async for place, leaf in logs.leaves(connection, tenant):
        if place >= size:
            break
        hashes.append(tree.leaf_hash(leaf.bytes))
        if leaf.run == str(run_id):
            found = (place, leaf)
    if found is None:
        return None
    place, newest = found
    return Sealed(newest, proof_file(place, tree.inclusion(hashes, place), note))
