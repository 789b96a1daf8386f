"""The parts of an operation's input and output that evidence may show, according to its schemas.

``x-evidence`` on a property: ``value`` shows the value, ``digest`` shows a commitment (the default), ``omit`` shows
nothing. It is inherited by everything below it, until another mark. ``x-secret: true`` is stronger: the value appears
nowhere, neither in evidence nor on a card.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from connectors.schema import pointed
from core.canonical import Json, JsonObject

LOCAL_REFERENCES_MAX = 8


class Treatment(StrEnum):
    """The form in which one value appears in evidence."""

    VALUE = "value"
    DIGEST = "digest"
    OMIT = "omit"


class Leaf(Struct, frozen=True):
    """One value that is no object, or an empty object. ``path`` is its JSON Pointer (RFC 6901)."""

    path: str
    value: Json
    treatment: Treatment
    secret: bool


def leaves(schema: JsonObject, value: Json) -> Iterator[Leaf]:
    """Yield every leaf of ``value`` with its treatment, in the value's own order. A list is one leaf.

    A list gets the strictest treatment that the schema of its items names.
    """
    yield from _walk(schema, schema, value, "", Treatment.DIGEST, secret=False)


def _walk(root: JsonObject, schema: Json, value: Json, path: str, above: Treatment, *, secret: bool) -> Iterator[Leaf]:
    here = resolved(root, schema)
    treatment = Treatment(str(here["x-evidence"])) if "x-evidence" in here else above
    hidden = secret or here.get("x-secret") is True
    if isinstance(value, dict) and value:
        named, other = here.get("properties"), here.get("additionalProperties")
        for name, item in value.items():
            below = named.get(name, other) if isinstance(named, dict) else other
            step = name.replace("~", "~0").replace("/", "~1")
            yield from _walk(root, below, item, f"{path}/{step}", treatment, secret=hidden)
        return
    inner = list(_marks(root, here.get("items"), set())) if isinstance(value, list) else []
    closed = [Treatment.OMIT, Treatment.DIGEST, Treatment.VALUE]
    treatment = min([treatment, *(mark for mark, _ in inner if mark)], key=closed.index)
    hidden = hidden or any(mark for _, mark in inner)
    yield Leaf(path, value, Treatment.OMIT if hidden else treatment, hidden)


def _marks(root: JsonObject, schema: Json, seen: set[int]) -> Iterator[tuple[Treatment | None, bool]]:
    """Yield every treatment and secrecy declared for a list's items and everything inside them, at any depth.

    ``seen`` are the schemas that were looked at: one may refer to itself.
    """
    here = resolved(root, schema)
    if id(here) in seen or not here:
        return
    seen.add(id(here))
    yield Treatment(str(here["x-evidence"])) if "x-evidence" in here else None, here.get("x-secret") is True
    properties = here.get("properties")
    inner = [*(properties.values() if isinstance(properties, dict) else ())]
    for item in [*inner, here.get("items"), here.get("additionalProperties")]:
        yield from _marks(root, item, seen)


def secret_names(schema: JsonObject, value: Json) -> tuple[str, ...]:
    """The sorted names of the members of ``value``, at any depth, that are or hold a secret: no channel shows them.

    Names are enough, because a card shows members of an input by their names only.
    """
    places = [leaf.path.split("/")[1:] for leaf in leaves(schema, value) if leaf.secret]
    return tuple(sorted({name.replace("~1", "/").replace("~0", "~") for place in places for name in place}))


def resolved(root: JsonObject, schema: Json) -> JsonObject:
    """The schema after its local reference is followed; empty without a target: then the inherited mark holds."""
    for _ in range(LOCAL_REFERENCES_MAX):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = pointed(root, reference)
    return {}
