"""Finds names in expressions that a schema lacks, such as misspelled members of outputs and triggers.

A schema that lists properties lists all of them, unless it has ``additionalProperties`` or ``patternProperties``. A
value without a schema may hold anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from connectors.schema import pointed
from core.canonical import Json
from core.cel_ast import ITEM
from core.errors import nearest

_APPLIED = ("allOf", "anyOf", "oneOf")
_CONDITIONAL = ("then", "else")


class Misnamed(Struct, frozen=True):
    """A member that does not exist: its name, and the remedy."""

    place: str
    remedy: str


def misnamed(schema: Json, variable: str, members: Sequence[str]) -> Misnamed | None:
    """The first of these members that a value of this schema never has; None if it may have them all."""
    root, here, place = schema if isinstance(schema, dict) else {}, [schema], variable
    for member in members:
        parts = [part for one in here for part in _parts(one, root)]
        place = f"{place}[]" if member == ITEM else f"{place}.{member}"
        if member == ITEM:
            here = [part["items"] for part in parts if "items" in part]
        elif (known := _closed(parts)) is None:
            here = [part["properties"][member] for part in parts if member in part.get("properties", {})]
        elif member in known:
            here = known[member]
        else:
            return Misnamed(place, nearest(member, known, "It has") or "It has no members.")
        if not here:
            return None
    return None


def within(schema: Json, members: Sequence[str]) -> dict[str, Any]:
    """The schema of the value at these members; an empty one if it is not known."""
    root, here = schema if isinstance(schema, dict) else {}, [schema]
    for member in members:
        parts = [part for one in here for part in _parts(one, root)]
        if member == ITEM:
            here = [part["items"] for part in parts if "items" in part]
        else:
            here = [part["properties"][member] for part in parts if member in part.get("properties", {})]
    found: dict[str, Any] = {"anyOf": here, "$defs": root.get("$defs", {})}
    return found if here else {}


def _closed(parts: list[dict[str, Any]]) -> dict[str, list[Json]] | None:
    """The properties by name; None if there may be others."""
    known: dict[str, list[Json]] = {}
    for part in parts:
        if part.get("additionalProperties") or "patternProperties" in part:
            return None
        for name, schema in part.get("properties", {}).items():
            known.setdefault(name, []).append(schema)
    if known:
        return known
    kinds = {kind for part in parts for kind in _kinds(part)}
    # A text or a number has no members. An object without properties may have any.
    return {} if kinds and kinds.isdisjoint(("object", "array")) else None


def _kinds(part: dict[str, Any]) -> list[str]:
    kind = part.get("type", ())
    return [kind] if isinstance(kind, str) else [*kind]


def _parts(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a schema and those that apply to the same value."""
    if not isinstance(schema, dict) or depth > 20:
        return
    yield schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from _parts(pointed(root, reference), root, depth + 1)
    for name in _APPLIED:
        for one in schema.get(name, ()):
            yield from _parts(one, root, depth + 1)
    for name in _CONDITIONAL:
        if name in schema:
            yield from _parts(schema[name], root, depth + 1)
