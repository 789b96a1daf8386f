"""Canonical JSON (RFC 8785) and SHA-256 digests over it.

``canonical_bytes`` accepts any JSON value. ``audit_bytes`` accepts only the domain of the audit chain (no floats,
ASCII keys, bounded depth), in which orjson and RFC 8785 agree byte for byte, so an auditor can check a line with any
JSON library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeAlias

import orjson
import rfc8785

from core.errors import InputError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"

DEPTH_MAX = 32
INTEGER_MAX = 2**53 - 1


def canonical_bytes(value: object) -> bytes:
    """RFC 8785 bytes of a JSON value; ``InputError`` if it has none (NaN, big integers, lone surrogates, depth)."""
    if _in_audit_domain(value, 0):
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except (TypeError, ValueError) as error:
            raise InputError(f"has no canonical JSON form: {error}") from None
    _refuse_depth(value, 0)
    try:
        return rfc8785.dumps(value)  # type: ignore[arg-type]
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeError, TypeError) as error:
        raise InputError(f"has no canonical JSON form: {error}") from None


def audit_bytes(value: Mapping[str, object]) -> bytes:
    """Canonical bytes of one audit line, without its newline; ``InputError`` outside the audit domain."""
    if not _in_audit_domain(value, 0):
        raise InputError("an audit line holds only strings, booleans, null and integers below 2^53 under ASCII keys")
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError) as error:
        raise InputError(f"has no canonical JSON form: {error}") from None


def sha256_hex(data: bytes) -> str:
    """Lower-case hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def digest(value: object) -> str:
    """SHA-256 of the canonical bytes of a JSON value, in hexadecimal."""
    return sha256_hex(canonical_bytes(value))


def _in_audit_domain(value: object, depth: int) -> bool:
    if depth > DEPTH_MAX:
        return False
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return -INTEGER_MAX <= value <= INTEGER_MAX  # type: ignore[operator]
    if kind is dict:
        return all(
            type(key) is str and key.isascii() and _in_audit_domain(item, depth + 1)
            for key, item in value.items()  # type: ignore[attr-defined]
        )
    if kind is list or kind is tuple:
        return all(_in_audit_domain(item, depth + 1) for item in value)  # type: ignore[attr-defined]
    return False


def _refuse_depth(value: object, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InputError(f"is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        for item in value.values():
            _refuse_depth(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_depth(item, depth + 1)
