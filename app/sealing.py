"""Evidence with its leaf of the tenant's log: the evidence of an unfinished run, and the check that the log has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

from app import adapters
from app.faces import version
from app.published import whole
from app.settings import Settings
from app.shown import ENDED
from connectors.catalog import load_catalog
from core.canonical import JsonObject
from core.db import Connection, Database
from core.errors import ConsistencyError, InputError, NotFoundError
from evidence.bundle import Bundle, build_bundle
from evidence.chain import Actor
from evidence.container import read_predicate
from evidence.events import EventType
from evidence.layout import LEAF, PROOF
from evidence.log.checkpoints import Checkpoint, check_proof
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
    """The signed evidence of an unfinished run, up to its newest leaf. The export is an event of the tenant.

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
    """The newest signed leaf of a run. ``ConsistencyError`` if there is none yet for this number of lines."""
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
    paths = [path.with_name(path.name + end) for end in (LEAF, PROOF)]
    data, leaf, proof = (_read(one) for one in (path, *paths))
    predicate, claimed = read_predicate(data), orjson.loads(leaf)
    if not _is_of(claimed, predicate):
        raise InputError("is not the leaf of this bundle", where=str(paths[0]))
    keys = [ring.first, *(one.new for one in ring.rotations)]
    origin = f"{ring.first.name}/{predicate['tenant']}"
    place, checkpoint, note = check_proof(proof, leaf, [key.renamed(origin) for key in keys])
    ring.opened(note.packed, str(paths[1]))
    return _result(claimed, place, checkpoint, Policy(tuple(witnesses), quorum).times(note))


async def logged_in(published: str, path: Path, ring: Ring, witnesses: Sequence[NoteKey], quorum: int) -> JsonObject:
    """Check that the log, as it is published at this place, has the leaf of this bundle. Errors as for ``logged``."""
    predicate = read_predicate(_read(path))
    log, problems = await whole(published, ring, str(predicate["tenant"]))
    if problems:
        raise InputError(f"is not as it was signed: {problems[0]}", where=published, remedy="See `log verify`.")
    for place, leaf in enumerate(log.leaves):
        if _is_of(claimed := orjson.loads(leaf), predicate):
            return _result(claimed, place, log.checkpoint, Policy(tuple(witnesses), quorum).times(log.note))
    words = f"has no leaf of this bundle among its {log.checkpoint.size}"
    raise InputError(words, where=published, remedy="It is older than the bundle, or the bundle is of no run of it.")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"{error.filename} cannot be read: {error.strerror}.") from None


def _is_of(leaf: Mapping[str, Any], predicate: Mapping[str, Any]) -> bool:
    return all(predicate[name] == leaf.get(name) for name in ("tenant", "run", "count", "head"))


def _result(leaf: Mapping[str, Any], place: int, checkpoint: Checkpoint, times: Mapping[str, int]) -> JsonObject:
    return {
        "run": leaf["run"], "kind": leaf["kind"], "ts": leaf["ts"], "log": checkpoint.origin, "index": place,
        "size": checkpoint.size, "cosigned": len(times), "witnesses": dict(sorted(times.items())),
    }  # fmt: skip
