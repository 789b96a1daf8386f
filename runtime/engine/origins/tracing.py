"""The facts about the origins of an action's values, computed only if they are needed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectors.operation import Operation
from core.action import Action
from core.canonical import Json, JsonObject, digest
from core.errors import CountersealError
from core.origins.expressions import under
from core.origins.ingredients import Origins, distinct
from core.origins.leaves import pointed
from core.origins.matching import UNKNOWN, VERSION, WORKFLOW
from core.templates import Template
from policy.facts import CARRIES, ORIGIN
from runtime.engine.model.traces import Trace
from runtime.engine.origins.follow import FIELD, TOOL, Follower, Traced, escaped, listed, plain


def trace(follower: Follower, node: str, inputs: object, operation: Operation, action: Action) -> Trace:
    """The origins of every argument of an action that a workflow's step would perform."""
    made = follower.template(inputs, node)
    facts: dict[str, list[list[str]] | list[str]] = {}
    arguments: JsonObject = {}
    for name in sorted(operation.arguments):
        places: list[tuple[str, ...]] = [(name,)] if name in action.input else []
        if isinstance(operation.writes, str) and name in action.fields:
            places.append((operation.writes, name))
        origins = distinct(one for place in places for one in _at(made, place, operation))
        facts[f"{ORIGIN}{name}"], facts[f"{CARRIES}{name}"] = origins, _carried(origins)
        if origins:
            arguments[name] = {"origins": listed(origins), "sources": _sources(follower, inputs, places)}
    return Trace(facts, {"matcher": VERSION, "arguments": arguments})


def _at(made: Traced, place: tuple[str, ...], operation: Operation) -> Origins:
    """The origins at a place of the input. A value that the declaration fixes comes from the workflow's author."""
    return [[WORKFLOW]] if place[0] in operation.params else under(made, place) or [[UNKNOWN]]


def _carried(origins: Origins) -> list[str]:
    """The result fields whose whole value is part of an argument; the whole result if the value is computed from it."""
    found = set[str]()
    for one in origins:
        fields = [label.removeprefix(FIELD) for label in one if label.startswith(FIELD)]
        found.update(fields or [f"{label.removeprefix(TOOL)}#" for label in one if label.startswith(TOOL)])
        found.update([UNKNOWN] if UNKNOWN in one else [])
    return sorted(found)


def _sources(follower: Follower, inputs: object, places: Sequence[tuple[str, ...]]) -> list[Json]:
    """The paths that an argument is made from, each with the digest of its current value."""
    found: dict[str, Json] = {}
    for place, ingredients in inputs.ingredients() if isinstance(inputs, Template) else ():
        if any(place[: len(one)] == one or one[: len(place)] == place for one in places):
            found |= {one: {"path": one, **_digest(follower.values, one)} for one in ingredients if one is not None}
    return [found[one] for one in sorted(found)]


def _digest(values: Mapping[str, object], path: str) -> JsonObject:
    found = value_at(values, path)
    if found is None:
        return {}
    pointer, value = found
    try:
        return {"pointer": pointer, "digest": digest(value)}
    except CountersealError:
        return {"pointer": pointer}


def value_at(values: Mapping[str, object], path: str) -> tuple[str, Json] | None:
    """The value that an expression reads at this path, and its pointer in the variable; None if there is none."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = plain(values[".".join(parts[:cut])])
        except KeyError:
            continue
        pointer = "".join(f"/{escaped(part)}" for part in parts[cut:])
        return pointer, pointed(value, pointer)
    return None
