"""Evidence with its leaf of the tenant's log: of a run that goes on, and the check that the log has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import orjson

from app import adapters
from app.faces import version
from app.settings import Settings
from app.shown import ENDED
from connectors.catalog import load_catalog
from core.canonical import JsonObject
from core.db import Connection, Database
from core.errors import ConsistencyError, InputError, NotFoundError
from evidence.bundle import Bundle, build_bundle
from evidence.chain import Actor
from evidence.container import stated
from evidence.events import EventType
from evidence.layout import LEAF, PROOF
from evidence.log.checkpoints import check_proof
from evidence.log.notes import NoteKey
from evidence.log.rings import Ring
from evidence.log.witness import Policy
from evidence.signing import FileSigner
from runtime.definition.catalog import Definitions
from runtime.keep.bundling import Bundling, content_of
from runtime.requests.sealing import Sealed, sealed
from runtime.store import audit, books

_UNSEALED = "The log has no signed leaf of the run as it is now."
_REMEDY = "Try again in a minute: keepers log what has moved, and `counterseal log sign` signs it."


async def so_far(
    settings: Settings, database: Database, tenant: str, run_id: UUID, actor: Actor
) -> tuple[Bundle, Sealed]:
    """The signed evidence of a run that goes on, up to its newest leaf. The export is an event of the tenant.

    ``ConsistencyError`` if the run has ended, or moved on since its newest signed leaf. A crash leaves no event, and
    nothing was handed out.
    """
    signer = FileSigner.load(settings.signing_key_path)
    definitions = Definitions(load_catalog())
    bundling = Bundling(adapters.blobs_of(settings), signer, f"counterseal {version()}", definitions)
    async with database.connection() as connection:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            status = (await books.read(connection, tenant, run_id)).row["status"]
            if status in ENDED:
                raise ConsistencyError(f"The run is {status}.", remedy="Leave out --so-far.")
            seal = await _sealed(connection, tenant, run_id)
            material = await bundling.material(connection, tenant, run_id)
        head = material.book.head
        if (seal.leaf.count, seal.leaf.head) != (head.count, head.hash):
            raise ConsistencyError(_UNSEALED, remedy=_REMEDY)
        made = build_bundle(content_of(material, bundling.producer), signer, final=False)
        facts: JsonObject = {"run": str(run_id), "sha256": made.sha256, "what": "so far"}
        async with connection.transaction():
            await audit.record(connection, tenant, EventType.EVIDENCE_EXPORTED, actor, facts)
    return made, seal


async def leaf_of(database: Database, tenant: str, run_id: UUID, lines: int) -> Sealed:
    """The newest signed leaf of a run. ``ConsistencyError`` if there is none yet of a book with so many lines."""
    async with database.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        found = await _sealed(connection, tenant, run_id)
    if found.leaf.count != lines:
        raise ConsistencyError(_UNSEALED, remedy=_REMEDY)
    return found


async def _sealed(connection: Connection, tenant: str, run_id: UUID) -> Sealed:
    seal = await sealed(connection, tenant, run_id)
    if seal is None:
        raise ConsistencyError(_UNSEALED, remedy=_REMEDY)
    return seal


def logged(path: Path, ring: Ring, witnesses: Sequence[NoteKey], quorum: int) -> JsonObject:
    """Check, offline, that the log has the leaf of this bundle, by the two files beside it.

    ``InputError`` if it has not, or too few witnesses have cosigned; ``NotFoundError`` without the files.
    """
    beside = [path.with_name(path.name + end) for end in (LEAF, PROOF)]
    try:
        data, leaf, proof = (one.read_bytes() for one in (path, *beside))
    except OSError as error:
        raise NotFoundError(f"{error.filename} cannot be read: {error.strerror}.") from None
    said, claimed = stated(data), orjson.loads(leaf)
    if any(said[name] != claimed.get(name) for name in ("tenant", "run", "count", "head")):
        raise InputError("is not the leaf of this bundle", where=str(beside[0]))
    keys = [ring.first, *(one.new for one in ring.rotations)]
    origin = f"{ring.first.name}/{said['tenant']}"
    place, checkpoint, note = check_proof(proof, leaf, [key.renamed(origin) for key in keys])
    ring.opened(note.packed, str(beside[1]))
    times = Policy(tuple(witnesses), quorum).times(note)
    return {
        "run": said["run"], "kind": claimed["kind"], "ts": claimed["ts"], "log": origin, "index": place,
        "size": checkpoint.size, "cosigned": len(times), "witnesses": dict(sorted(times.items())),
    }  # fmt: skip
