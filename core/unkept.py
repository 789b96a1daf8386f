"""Markers in place of values that cannot be kept: too large, too deep, no JSON, or text that cannot be stored.

An effect that has happened is recorded as done, whatever its answer holds. A part of the answer that cannot be kept is
replaced by a marker with the reason, its size and a digest. An expression that reads the marker fails.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, TypeGuard

from core.canonical import VALUE_BYTES_MAX, Json, JsonObject, canonical_bytes, unfit
from core.errors import InputError

NOT_KEPT = "$not_kept"
REASON, SIZE, DIGEST = "reason", "bytes", "sha256"
_LEVELS = 4


def is_marker(value: object) -> TypeGuard[JsonObject]:
    """True for the marker of a value that was not kept."""
    return type(value) is dict and NOT_KEPT in value


def marker(value: object, reason: str) -> JsonObject:
    """The marker for this value. Size and digest are those of its JSON, or of its ``repr`` if it has none."""
    try:
        data = canonical_bytes(value)
    except (InputError, AttributeError, TypeError, ValueError):
        data = _bytes_of(value)
    return {NOT_KEPT: {REASON: reason, SIZE: len(data), DIGEST: sha256(data).hexdigest()}}


def storable(output: object, *, bytes_max: int = VALUE_BYTES_MAX) -> JsonObject:
    """The output as an object that can be stored: unchanged, or with markers for members that cannot be stored."""
    if type(output) is dict and unfit(output, "It") is None:
        return output
    if type(output) is not dict:
        return marker(output, unfit(output, "It") or "It is no object.")
    cleaned = _members(output, _LEVELS)
    while (problem := unfit(cleaned, "It", bytes_max=bytes_max)) is not None:
        large = {name: value for name, value in cleaned.items() if not is_marker(value)}
        if not large:
            return marker(output, problem)
        name = max(large, key=lambda each: len(canonical_bytes(large[each])))
        cleaned[name] = marker(large[name], f"With it, the whole is too large. {problem}")
    return cleaned


def first_marker(value: object) -> JsonObject | None:
    """The first marker in this value; None if there is none. The value's depth is bounded, as in the store."""
    if is_marker(value):
        return value
    items: Any = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for item in items if (found := first_marker(item)) is not None), None)


def describe(found: JsonObject) -> str:
    """The marker in words."""
    about: Any = found[NOT_KEPT]
    facts = about if isinstance(about, dict) else {}
    return f"was not kept. {facts.get(REASON)} (SHA-256 {str(facts.get(DIGEST))[:16]}…)"


def _members(value: dict[Any, Any], levels: int) -> JsonObject:
    members: JsonObject = {}
    for name, item in value.items():
        key = name if unfit(name, "It") is None and type(name) is str else ascii(name)[:200]
        members[key] = _kept(item, levels - 1) if key == name else marker(item, "Its name cannot be kept.")
    return members


def _kept(item: Any, levels: int) -> Json:
    problem = unfit(item, "It")
    if problem is None:
        stored: Json = item
        return stored
    if type(item) is dict and levels:
        inner = _members(item, levels)
        return inner if unfit(inner, "It") is None else marker(item, problem)
    return marker(item, problem)


def _bytes_of(value: object) -> bytes:
    try:
        return json.dumps(value, default=ascii).encode()
    except (RecursionError, TypeError, ValueError):
        return type(value).__name__.encode()
