"""Signed notes (C2SP signed-note v1.0.0): a text with signature lines, and the keys that verify them.

A key is written as ``name+id+key``. Three kinds are known: Ed25519, with which a log signs, and the two kinds of
witnesses' cosignatures (C2SP tlog-cosignature), Ed25519 and ML-DSA-44.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from hashlib import sha256
from typing import Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ed25519
from msgspec import Struct

from core.errors import InputError

NOTE_BYTES_MAX = 256 * 1024
_SIGNATURES_MAX = 100
_ID_BYTES = 4
_STAMP_BYTES = 8
_LINE = re.compile(r"— ([^\s+]+) ([A-Za-z0-9+/]+={0,2})\n")
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f]")
_KEY_PARTS = 3


class Kind(IntEnum):
    """The kinds of signatures, by the byte that the specifications assign them."""

    ED25519 = 0x01
    COSIGNED_ED25519 = 0x04
    COSIGNED_ML_DSA_44 = 0x06


_KEY_BYTES = {Kind.ED25519: 32, Kind.COSIGNED_ED25519: 32, Kind.COSIGNED_ML_DSA_44: 1312}


class NoteKey(Struct, frozen=True):
    """A public key with the name under which it signs."""

    name: str
    kind: Kind
    key: bytes

    @property
    def id(self) -> bytes:
        """The four bytes that begin each of its signatures."""
        return sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.key).digest()[:_ID_BYTES]

    @property
    def text(self) -> str:
        """The key as it is handed out."""
        return f"{self.name}+{self.id.hex()}+{_coded(bytes([self.kind]) + self.key)}"

    @classmethod
    def parse(cls, text: str, where: str = "key") -> NoteKey:
        """Read a key as it is handed out. ``InputError`` for anything else."""
        parts = text.strip().split("+", _KEY_PARTS - 1)
        data = _decoded(parts[-1])
        try:
            found = cls(parts[0], Kind(data[0]), data[1:])
        except (ValueError, IndexError):
            raise InputError("is no key of a log or a witness: name+id+key", where=where) from None
        if len(parts) != _KEY_PARTS or parts[1] != found.id.hex() or len(found.key) != _KEY_BYTES[found.kind]:
            raise InputError("is no key of a log or a witness: its parts do not fit each other", where=where)
        check_name(found.name, where)
        return found

    def renamed(self, name: str) -> NoteKey:
        """The same key under another name."""
        return NoteKey(name, self.kind, self.key)


class Signature(Struct, frozen=True):
    """A signature line: the name, the key's id, and the bytes that the kind of the key gives a meaning."""

    name: str
    id: bytes
    data: bytes

    @property
    def line(self) -> str:
        """The line of a note."""
        return f"— {self.name} {_coded(self.id + self.data)}\n"


class Note(Struct, frozen=True):
    """A text, which ends in a newline, and its signatures."""

    text: str
    signatures: Sequence[Signature]

    @property
    def packed(self) -> bytes:
        """The note as it is stored and sent."""
        return f"{self.text}\n{''.join(each.line for each in self.signatures)}".encode()

    @classmethod
    def parse(cls, data: bytes, where: str = "note") -> Note:
        """Read a note. ``InputError`` for anything that is not exactly one."""
        try:
            text = data[: NOTE_BYTES_MAX + 1].decode()
        except UnicodeDecodeError:
            raise InputError("is not UTF-8", where=where) from None
        body, blank, lines = text.rpartition("\n\n")
        if len(data) > NOTE_BYTES_MAX or not blank or _CONTROLS.search(text):
            raise InputError("is no signed note", where=where)
        return cls(f"{body}\n", signature_lines(lines, where))

    def by(self, keys: Iterable[NoteKey]) -> list[tuple[NoteKey, Signature]]:
        """The signatures that name one of these keys, unverified."""
        known = {(key.name, key.id): key for key in keys}
        return [(known[one.name, one.id], one) for one in self.signatures if (one.name, one.id) in known]


def signature_lines(text: str, where: str = "note") -> list[Signature]:
    """Read signature lines. ``InputError`` if any line is none."""
    found, end = list[Signature](), 0
    for match in _LINE.finditer(text):
        data = _decoded(match[2])
        if match.start() != end or len(data) <= _ID_BYTES:
            break
        found.append(Signature(match[1], data[:_ID_BYTES], data[_ID_BYTES:]))
        end = match.end()
    if end != len(text) or not 0 < len(found) <= _SIGNATURES_MAX:
        raise InputError("has a line that is no signature", where=where)
    return found


class Signs(Protocol):
    """A private key: it signs bytes."""

    def sign(self, data: bytes) -> bytes:
        """Sign ``data`` itself."""


def signed(text: str, key: NoteKey, private: Signs) -> Note:
    """The text as a note with one plain signature."""
    return Note(text, [Signature(key.name, key.id, private.sign(text.encode()))])


def is_signed(note: Note, key: NoteKey) -> bool:
    """True if a plain signature of this key is on the note, and all that name the key are good."""
    found = [one for _, one in note.by([key])]
    return bool(found) and all(valid(key, note.text.encode(), one.data) for one in found)


def valid(key: NoteKey, message: bytes, signature: bytes) -> bool:
    """True if the signature over these bytes is of the key."""
    try:
        if key.kind is Kind.COSIGNED_ML_DSA_44:
            # Older releases of cryptography lack it, and verify everything else.
            from cryptography.hazmat.primitives.asymmetric import mldsa

            mldsa.MLDSA44PublicKey.from_public_bytes(key.key).verify(signature, message)
        else:
            ed25519.Ed25519PublicKey.from_public_bytes(key.key).verify(signature, message)
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        return False
    return True


def check_name(name: str, where: str = "name") -> None:
    """Raise ``InputError`` if the name cannot stand in a note."""
    if not name or any(letter.isspace() or letter == "+" or ord(letter) < ord(" ") for letter in name):
        raise InputError(f"{name[:80]!r} cannot name a key: no spaces, no '+'", where=where)


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    """The bytes of canonical base64; none if it is no base64."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return b""
    return data if _coded(data) == text else b""
