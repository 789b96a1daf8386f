"""A witness (C2SP tlog-witness v1.0.0): it cosigns a checkpoint only if the log has grown from the one before.

``body_of`` and ``accepted`` are the log's side, ``Witness`` is the witness's. Neither knows HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from core.canonical import Json
from core.errors import InputError
from evidence.log import tree
from evidence.log.checkpoints import Checkpoint, coded, cosign, cosigned_at, hashed
from evidence.log.notes import Kind, Note, NoteKey, Signs, is_signed, signature_lines
from evidence.log.signer import replace_file

BODY_BYTES_MAX = 256 * 1024
OK, BAD, UNSIGNED, UNKNOWN, OTHER_SIZE, INCONSISTENT = 200, 400, 403, 404, 409, 422


class Answer(NamedTuple):
    """The answer of a witness: the status of HTTP, the type of the content, and the content."""

    status: int
    text: str
    kind: str = "text/plain; charset=utf-8"


def body_of(before: int, proof: Sequence[bytes], note: Note) -> bytes:
    """The body of ``add-checkpoint``: the size that the witness knows, the proof from it, the checkpoint."""
    lines = [f"old {before}", *map(coded, proof)]
    return ("\n".join(lines) + "\n\n").encode() + note.packed


def accepted(note: Note, text: str, keys: Iterable[NoteKey]) -> Note:
    """The note with the cosignatures in this answer that are of these keys. ``InputError`` if there is none."""
    known = [*keys]
    found = Note(note.text, signature_lines(text, "the witness's answer"))
    good = [one for key in known if cosigned_at(found, key) is not None for _, one in found.by([key])]
    if not good:
        raise InputError("holds no cosignature of a key that is known here", where="the witness's answer")
    return Note(note.text, [*note.signatures, *good])


class Witness(Struct):
    """Cosigns the logs with these keys, and keeps the last checkpoint of each in ``folder``."""

    folder: Path
    logs: Sequence[NoteKey]
    signers: Sequence[tuple[NoteKey, Signs]]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_checkpoint(self, body: bytes, seconds: int) -> Answer:
        """Answer a submission at this time. The new checkpoint is on the disk before it is cosigned.

        A crash in between leaves a checkpoint whose cosignature nobody has got; the log submits it again.
        """
        try:
            before, proof, note = _parsed(body)
            checkpoint = Checkpoint.parse(note.text)
        except InputError as error:
            return Answer(BAD, f"{error.message}\n")
        keys = [key for key in self.logs if key.name == checkpoint.origin]
        if not keys:
            return Answer(UNKNOWN, "this log is not known here\n")
        named = [key for key, _ in note.by(keys)]
        if not named or not all(is_signed(note, key) for key in named):
            return Answer(UNSIGNED, "not signed by a key of this log that is known here\n")
        if before > checkpoint.size:
            return Answer(BAD, "the old size is larger than the new one\n")
        with self._lock:
            known = self._last(checkpoint.origin)
            if before != known.size:
                return Answer(OTHER_SIZE, f"{known.size}\n", "text/x.tlog.size")
            if not _grown(known, checkpoint, proof):
                return Answer(INCONSISTENT, "the log does not begin with what was cosigned before\n")
            signatures = [cosign(checkpoint, note.text, key, private, seconds) for key, private in self.signers]
            mine = [one for key in named for _, one in note.by([key])]
            replace_file(self._path(checkpoint.origin), Note(note.text, [*mine, *signatures]).packed)
        return Answer(OK, "".join(one.line for one in signatures))

    def checkpoint(self, digest: str) -> bytes | None:
        """The last checkpoint that was cosigned of the log whose origin has this SHA-256."""
        names = [key.name for key in self.logs if sha256(key.name.encode()).hexdigest() == digest]
        path = self._path(names[0]) if names else None
        return path.read_bytes() if path is not None and path.exists() else None

    def _last(self, origin: str) -> Checkpoint:
        path = self._path(origin)
        if not path.exists():
            return Checkpoint(origin, 0, tree.EMPTY)
        return Checkpoint.parse(Note.parse(path.read_bytes(), str(path)).text, str(path))

    def _path(self, origin: str) -> Path:
        return self.folder / f"{sha256(origin.encode()).hexdigest()}.checkpoint"


def _grown(known: Checkpoint, new: Checkpoint, proof: Sequence[bytes]) -> bool:
    if new.size == 0 and new.root != tree.EMPTY:
        return False
    if known.size == 0:
        return not proof
    return tree.consistent(known.size, known.root, new.size, new.root, proof)


def _parsed(body: bytes) -> tuple[int, list[bytes], Note]:
    head, blank, rest = body.partition(b"\n\n")
    first, *lines = head.decode("ascii", errors="replace").split("\n")
    word, _, number = first.partition(" ")
    proof = [found for line in lines if (found := hashed(line)) is not None]
    plain = number.isascii() and number.isdigit() and str(int(number)) == number
    if word != "old" or not plain or not blank or len(body) > BODY_BYTES_MAX:
        raise InputError("is no submission of a checkpoint", where="body")
    if len(proof) != len(lines) or len(proof) > tree.PROOF_HASHES_MAX:
        raise InputError("has a line that is no hash, or too many", where="body")
    return int(number), proof, Note.parse(rest, "body")


class Policy(Struct, frozen=True):
    """The witnesses of which ``quorum`` have to have cosigned a checkpoint."""

    keys: tuple[NoteKey, ...] = ()
    quorum: int = 0

    def times(self, note: Note) -> dict[str, int]:
        """The time of each witness's cosignature, by name. ``InputError`` for a false cosignature, or too few."""
        found = {key.name: at for key in self.keys if (at := cosigned_at(note, key)) is not None}
        if len(found) < self.quorum:
            words = f"has the cosignatures of {len(found)} of {len({key.name for key in self.keys})} witnesses"
            raise InputError(f"{words}, and {self.quorum} are needed", where="checkpoint")
        return found

    def to_json(self) -> Json:
        """The policy in words for programs."""
        return {"witnesses": [key.text for key in self.keys], "quorum": self.quorum}


def key_kinds() -> dict[str, Kind]:
    """The kinds of keys with which a witness cosigns, by the word of the command line."""
    return {"ed25519": Kind.COSIGNED_ED25519, "ml-dsa-44": Kind.COSIGNED_ML_DSA_44}
