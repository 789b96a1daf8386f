"""The file that a bundle is: signed, and packed into a zip.

A bundle is a zip whose entries are stored uncompressed, sorted, with one fixed time: the same content signed by the
same Ed25519 key gives the same bytes on every machine (a compressor's output is not the same everywhere), so writing a
bundle twice is idempotent. Nothing about the container is trusted; the signed statement lists every other file.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

from core.canonical import sha256_hex
from evidence import layout
from evidence.signing import Signer, seal_envelope

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold
_FILE_MODE = 0o100644 << 16
_UNIX = 3


@dataclass(frozen=True, slots=True)
class Bundle:
    """A finished bundle: its bytes, their SHA-256 in hexadecimal, and a file name."""

    bytes: bytes
    sha256: str
    name: str


@dataclass(frozen=True, slots=True)
class Unsigned:
    """A bundle but for its signature: all other files, and the statement that lists them, in canonical form."""

    name: str
    files: Mapping[str, bytes]
    statement: bytes


def seal(unsigned: Unsigned, signer: Signer) -> Bundle:
    """Sign it as it is."""
    envelope = seal_envelope(layout.PAYLOAD_TYPE, unsigned.statement, signer)
    data = _zip({**unsigned.files, layout.ENVELOPE: envelope})
    return Bundle(data, sha256_hex(data), unsigned.name)


def _zip(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = _UNIX
            entry.external_attr = _FILE_MODE
            archive.writestr(entry, files[name])
    return buffer.getvalue()
