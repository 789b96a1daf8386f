"""Canonical JSON (RFC 8785) and SHA-256 digests over it.

``canonical_bytes`` accepts any JSON value. ``audit_bytes`` accepts only the domain of the audit chain (no floats,
ASCII keys, bounded depth), in which orjson and RFC 8785 agree byte for byte, so an auditor can check a line with any
JSON library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, TypeAlias

import orjson
import rfc8785

from core.errors import InputError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"

DEPTH_MAX = 32
INTEGER_MAX = 2**53 - 1

# The types of values that are of the audit domain wherever they stand.
SCALARS = frozenset({str, int, bool, type(None)})
_AS_RFC_8785 = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


def canonical_bytes(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value; ``InputError`` if it has none (NaN, big integers, lone surrogates, depth)."""
    if in_audit_domain(value):
        return plain_bytes(value)
    try:
        _refuse_depth(value, 0)
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"has no canonical JSON form: {error}") from None


def audit_bytes(value: Mapping[str, object]) -> bytes:
    """Canonical bytes of one audit line, without its newline; ``InputError`` outside the audit domain."""
    if not in_audit_domain(value):
        raise InputError("an audit line holds only strings, booleans, null and integers below 2^53 under ASCII keys")
    return plain_bytes(value)


def plain_bytes(value: object) -> bytes:
    """Canonical bytes of a value that is known to be of the audit domain: nothing looks at it any more.

    ``InputError`` for a lone surrogate and for an integer of 2^53 or more.
    """
    try:
        return orjson.dumps(value, option=_AS_RFC_8785)
    except (TypeError, ValueError) as error:
        raise InputError(f"has no canonical JSON form: {error}") from None


def sha256_hex(data: bytes) -> str:
    """Lower-case hexadecimal SHA-256."""
    return sha256(data).hexdigest()


def digest(value: object) -> str:
    """SHA-256 of the canonical bytes of a JSON value, in hexadecimal."""
    return sha256(canonical_bytes(value)).hexdigest()


def in_audit_domain(value: Any, depth: int = 0) -> bool:
    """True if the value holds strings, booleans, null and integers only, under ASCII keys, and is not too deep.

    Integers are in it whatever their size: orjson refuses those of 2^53 and more. Plain loops look at a scalar where
    it stands: this runs over every line, digest and checkpoint.
    """
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str or not key.isascii():
                return False
        items: Iterable[Any] = value.values()
    elif kind is list or kind is tuple:
        items = value
    else:
        return kind in SCALARS
    if depth == DEPTH_MAX:
        return not value
    for item in items:
        if type(item) in SCALARS:
            continue
        if not in_audit_domain(item, depth + 1):
            return False
    return True


def _refuse_depth(value: object, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InputError(f"is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        for item in value.values():
            _refuse_depth(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_depth(item, depth + 1)
