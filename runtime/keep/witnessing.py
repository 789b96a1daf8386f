"""Has witnesses cosign checkpoints over HTTP (C2SP tlog-witness v1.0.0)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx
import structlog
from msgspec import Struct

from core.errors import InputError
from evidence.log import tree
from evidence.log.checkpoints import Checkpoint
from evidence.log.notes import Note, NoteKey
from evidence.log.witness import OK, OTHER_SIZE, accepted, body_of

log = structlog.get_logger(__name__)

_SECONDS = 20.0
_SIZE_CHARACTERS_MAX = 20


class WitnessAddress(Struct, frozen=True):
    """A witness: the prefix of its address, and its key."""

    url: str
    key: NoteKey


async def cosigned(witnesses: Sequence[WitnessAddress], note: Note, leaves: Sequence[bytes]) -> Note:
    """The checkpoint with the cosignatures of all witnesses that answer. A witness that does not answer is logged.

    ``leaves`` are the hashes of all leaves. A crash leaves a checkpoint without cosignatures; the next one gets them.
    """
    async with httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as client:
        found = await asyncio.gather(*(_asked(client, one, note, leaves) for one in witnesses))
    have = {(one.name, one.id) for one in note.signatures}
    new = [one for each in found for one in each.signatures if (one.name, one.id) not in have]
    return Note(note.text, [*note.signatures, *new])


async def _asked(client: httpx.AsyncClient, witness: WitnessAddress, note: Note, leaves: Sequence[bytes]) -> Note:
    size, before, url = Checkpoint.parse(note.text).size, 0, f"{witness.url.rstrip('/')}/add-checkpoint"
    try:
        for _ in range(2):  # the first answer may say which size it knows
            proof = tree.consistency(leaves[:size], before)
            answer = await client.post(url, content=body_of(before, proof, note))
            text = answer.text.strip()
            if answer.status_code != OTHER_SIZE or len(text) > _SIZE_CHARACTERS_MAX or not text.isdigit():
                break
            before = int(text)
            if before > size:
                raise InputError(f"has cosigned {before} leaves, and the log has {size}: it was cut off", where=url)
        if answer.status_code == OK:
            return accepted(note, answer.text, [witness.key])
        problem = f"it answered {answer.status_code}: {answer.text[:200].strip()}"
    except InputError as error:
        problem = str(error)
    except httpx.HTTPError as error:
        problem = f"it could not be reached: {type(error).__name__}"
    log.error("a witness did not cosign", witness=witness.key.name, url=url, reason=problem)
    return note
