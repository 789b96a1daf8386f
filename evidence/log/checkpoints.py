"""Checkpoints (C2SP tlog-checkpoint v1.0.0), witnesses' cosignatures (tlog-cosignature), proofs in files (tlog-proof).

A checkpoint says how many leaves a log has, and their root. Whoever keeps one can check later that the log
has only grown since.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from core.errors import InputError
from evidence.log import tree
from evidence.log.notes import Kind, Note, NoteKey, Signature, Signs, is_signed, valid

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_TEXT_LINES = 3
_STAMP_BYTES = 8
_ORIGIN_BYTES_MAX = 255
_PROOF = "c2sp.org/tlog-proof@v1"
_SUBTREE = b"subtree/v1\n\0"


class Checkpoint(Struct, frozen=True):
    """A log's origin, how many leaves it has, and their root."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{coded(self.root)}\n"

    @classmethod
    def parse(cls, text: str, where: str = "checkpoint") -> Checkpoint:
        """Read the text of a note. ``InputError`` for anything else; lines of extensions are passed over."""
        lines = text.split("\n")
        root = hashed(lines[2]) if len(lines) > _TEXT_LINES else None
        if root is None or not lines[0] or not _NUMBER.fullmatch(lines[1]):
            raise InputError("is no checkpoint of a log", where=where)
        return cls(lines[0], int(lines[1]), root)


def hashed(text: str) -> bytes | None:
    """The hash in this line of base64; None if it holds none."""
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return found if len(found) == tree.HASH_BYTES and coded(found) == text else None


def opened(data: bytes, keys: Iterable[NoteKey], where: str = "checkpoint") -> tuple[Checkpoint, Note]:
    """The checkpoint in a note that one of these keys of the log has signed. ``InputError`` if none has."""
    note = Note.parse(data, where)
    found = Checkpoint.parse(note.text, where)
    usable = [key for key in keys if key.name == found.origin and key.kind is Kind.ED25519]
    if not any(is_signed(note, key) for key in usable):
        raise InputError(f"is not signed by a key of the log {found.origin} that is known here", where=where)
    return found, note


def cosign(checkpoint: Checkpoint, text: str, key: NoteKey, private: Signs, seconds: int) -> Signature:
    """A witness's cosignature at this time."""
    stamp = seconds.to_bytes(_STAMP_BYTES, "big")
    return Signature(key.name, key.id, stamp + private.sign(_cosigned(checkpoint, text, key, seconds)))


def cosigned_at(note: Note, key: NoteKey) -> int | None:
    """The time of a witness's cosignature on a checkpoint; None without one. ``InputError`` for one that is false."""
    found = None
    for _, one in note.by([key]):
        seconds = int.from_bytes(one.data[:_STAMP_BYTES], "big")
        message = _cosigned(Checkpoint.parse(note.text), note.text, key, seconds)
        if key.kind is Kind.ED25519 or not seconds or not valid(key, message, one.data[_STAMP_BYTES:]):
            raise InputError(f"has a false cosignature in the name of {key.name}", where="checkpoint")
        found = max(found or 0, seconds)
    return found


def _cosigned(checkpoint: Checkpoint, text: str, key: NoteKey, seconds: int) -> bytes:
    if key.kind is not Kind.COSIGNED_ML_DSA_44:
        return f"cosignature/v1\ntime {seconds}\n{text}".encode()
    name, origin = key.name.encode(), checkpoint.origin.encode()
    if max(len(name), len(origin)) > _ORIGIN_BYTES_MAX:
        raise InputError("is longer than 255 bytes", where="the name of a witness or a log")
    parts = (
        _SUBTREE, bytes([len(name)]), name, seconds.to_bytes(_STAMP_BYTES, "big"), bytes([len(origin)]), origin,
        bytes(_STAMP_BYTES), checkpoint.size.to_bytes(_STAMP_BYTES, "big"), checkpoint.root,
    )  # fmt: skip
    return b"".join(parts)


def proof_file(index: int, proof: Sequence[bytes], note: Note) -> bytes:
    """A proof that a leaf is in the log, which is verified offline."""
    lines = (_PROOF, f"index {index}", *map(coded, proof))
    return "\n".join(lines).encode() + b"\n\n" + note.packed


def check_proof(data: bytes, leaf: bytes, keys: Iterable[NoteKey]) -> tuple[int, Checkpoint, Note]:
    """The place of ``leaf`` in a log by a proof in a file, and the checkpoint. ``InputError`` if it proves nothing."""
    head, blank, rest = data.partition(b"\n\n")
    lines = head.decode("ascii", errors="replace").split("\n")
    rows = lines[2:] if lines[1:2] and lines[1].startswith("extra ") else lines[1:]
    word, _, number = (rows[0] if rows else "").partition(" ")
    proof = [hashed(one) for one in rows[1:]]
    if lines[0] != _PROOF or not blank or word != "index" or not _NUMBER.fullmatch(number) or None in proof:
        raise InputError("is no proof of a log", where="tlog-proof")
    checkpoint, note = opened(rest, keys, "tlog-proof")
    path = [one for one in proof if one is not None]
    if not tree.includes(checkpoint.root, checkpoint.size, int(number), tree.leaf_hash(leaf), path):
        raise InputError("does not show that this leaf is in the log", where="tlog-proof")
    return int(number), checkpoint, note


def coded(data: bytes) -> str:
    """Base64 of a hash, as notes and proofs write it."""
    return base64.b64encode(data).decode()
