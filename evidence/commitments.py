"""Salted commitments: the audit can prove a value to those who get its disclosure, and reveals nothing to others.

salt        = BLAKE2b-128 of the path, keyed with the run key (RFC 7693), in hexadecimal
commitment  = SHA-256(RFC 8785 bytes of [salt, path, value]), in hexadecimal
disclosure  = exactly those bytes; in a bundle of the second format, their unpadded base64url

An unsalted hash of a value with few possibilities (an amount, a priority) hides nothing: anybody can try them all. The
salts come from one secret per run, so deleting that secret erases every value that was not disclosed, and the chain
stays valid. Within a run a path must be used for one value only: start it with the id of the thing that has the value.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b, sha256
from secrets import token_bytes
from typing import TypeAlias

import orjson
from msgspec import Struct

from core import bounded_json
from core.canonical import AS_RFC_8785, SCALARS, Json, canonical_bytes
from core.errors import InputError

RUN_KEY_BYTES = 32
DISCLOSURE_BYTES_MAX = 1024 * 1024
_SALT_BYTES = 16


def new_run_key() -> bytes:
    """A secret for one run: 32 random bytes. Deleting it erases the run's undisclosed values."""
    return token_bytes(RUN_KEY_BYTES)


Opening: TypeAlias = tuple[str, str, Json]


class Disclosed(Struct, frozen=True):
    """One opened disclosure: ``value`` was at ``path``; the audit must hold ``commitment``."""

    path: str
    value: Json
    commitment: str


@lru_cache(maxsize=4096)  # most are the names of fields
def path_of(*parts: str) -> str:
    """A JSON Pointer (RFC 6901) over ``parts``, such as ``/receipt/0198…/input/priority``."""
    return "/" + "/".join([part.replace("~", "~0").replace("/", "~1") for part in parts])


def reason_path(approval: str, person: str, ts: str) -> str:
    """The path of a vote's reason: the approval, the voter, and the vote's time as in its line."""
    return path_of("approval", approval, "vote", person, ts, "reason")


def commit(run_key: bytes, path: str, value: object) -> str:
    """The commitment to ``value`` at ``path``. ``InputError`` if the value has no canonical JSON form."""
    return sha256(_preimage(run_key, path, value)).hexdigest()


def commit_paths(run_key: bytes, values: Iterable[tuple[str, object]]) -> list[Json]:
    """List ``[path, commitment]`` of every value, in the given order. Faster than ``commit`` for many values."""
    keyed, made = blake2b(digest_size=_SALT_BYTES, key=run_key), list[Json]()
    try:
        for path, value in values:
            salt = keyed.copy()
            salt.update(path.encode())
            preimage = [salt.hexdigest(), path, value]
            # Most values are scalars, which need no check of the audit domain: this is the hottest loop of a commit.
            scalar = type(value) in SCALARS
            content = orjson.dumps(preimage, option=AS_RFC_8785) if scalar else canonical_bytes(preimage)
            made.append([path, sha256(content).hexdigest()])
    except (TypeError, ValueError) as error:
        raise InputError(f"has no canonical JSON form: {error}") from None
    return made


def commit_fields(run_key: bytes, prefix: str, fields: Mapping[str, object]) -> list[Json]:
    """List ``[path, commitment]`` of every field in order of path, for ``committed`` of an event."""
    return commit_paths(run_key, sorted((prefix + path_of(name), value) for name, value in fields.items()))


def opening(run_key: bytes, path: str, value: Json) -> Opening:
    """The salt, the path and the value, whose canonical bytes have the commitment as their SHA-256."""
    return blake2b(path.encode(), digest_size=_SALT_BYTES, key=run_key).hexdigest(), path, value


def disclosure(run_key: bytes, path: str, value: object) -> str:
    """The line that opens the commitment to ``value`` at ``path`` in a bundle of the second format."""
    return base64.urlsafe_b64encode(_preimage(run_key, path, value)).rstrip(b"=").decode()


def open_disclosure(line: str) -> Disclosed:
    """Read a disclosure. ``InputError`` unless it is canonical base64url of JSON ``[salt, path, value]``.

    The JSON need not be checked for canonical form: any other spelling has another hash, which matches no commitment.
    """
    try:
        preimage = base64.b64decode(line + "=" * (-len(line) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InputError("is not base64url", where="disclosure") from None
    if base64.urlsafe_b64encode(preimage).rstrip(b"=").decode() != line:
        raise InputError("is not canonical base64url", where="disclosure")
    parsed = bounded_json.parse(preimage, bytes_max=DISCLOSURE_BYTES_MAX, where="disclosure")
    match parsed:
        case [str(salt), str(path), value] if len(salt) == 2 * _SALT_BYTES:
            return Disclosed(path, value, sha256(preimage).hexdigest())
    raise InputError("is not [salt, path, value]", where="disclosure")


def blind(run_key: bytes, digest: str) -> str:
    """An action's digest as the evidence shows it: keyed, so that nobody can guess the input from it.

    The action's own digest is an unsalted hash of its input. Within a run, equal digests stay equal.
    """
    return blake2b(digest.encode(), digest_size=32, key=run_key, person=b"digest").hexdigest()


def _preimage(run_key: bytes, path: str, value: object) -> bytes:
    return canonical_bytes([blake2b(path.encode(), digest_size=_SALT_BYTES, key=run_key).hexdigest(), path, value])
