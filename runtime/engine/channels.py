"""Channels: named pieces of business state, and the reducers that fold steps' writes into them (P-2, P-7, X-5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import ExpressionError


class Reducer(StrEnum):
    """How a new write and the value so far become the next value."""

    REPLACE = "replace"
    APPEND = "append"
    MERGE = "merge"
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    UNION = "union"


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel's declaration. ``keep`` bounds a list to its last items; ``initial`` is the value before any write.

    ``ledger`` keeps every write in a row of its own, however few the channel itself keeps (P-7).
    """

    name: str
    reducer: Reducer = Reducer.REPLACE
    keep: int | None = None
    initial: Json = None
    ledger: bool = False


def fold(channels: Mapping[str, Channel], values: JsonObject, writes: JsonObject) -> JsonObject:
    """The channel values after one step's writes. ``ExpressionError`` names a channel that cannot take its write."""
    result = dict(values)
    for name, value in writes.items():
        channel = channels[name]
        result[name] = _bounded(_REDUCERS[channel.reducer](name, result.get(name), value), channel.keep)
    return result


def initial_values(channels: Mapping[str, Channel]) -> JsonObject:
    """The values of all channels before the first step."""
    return {channel.name: channel.initial for channel in channels.values()}


def _bounded(value: Json, keep: int | None) -> Json:
    return value[-keep:] if keep is not None and isinstance(value, list) else value


def _replace(_: str, __: Json, write: Json) -> Json:
    return write


def _append(name: str, value: Json, write: Json) -> Json:
    return [*_list(name, value), write]


def _merge(name: str, value: Json, write: Json) -> Json:
    if not isinstance(write, dict) or not (value is None or isinstance(value, dict)):
        raise ExpressionError("merges objects only", where=f"state.{name}")
    return {**(value or {}), **write}


def _union(name: str, value: Json, write: Json) -> Json:
    """Each distinct value once, in order of first appearance; a list adds its items."""
    items, seen = _list(name, value), set()
    result: list[Json] = []
    for item in [*items, *(write if isinstance(write, list) else [write])]:
        mark = canonical_bytes(item)
        if mark not in seen:
            seen.add(mark)
            result.append(item)
    return result


def _number(choose: Callable[[Any, Any], Any]) -> Callable[[str, Json, Json], Json]:
    def reduce(name: str, value: Json, write: Json) -> Json:
        if not _is_number(write) or not (value is None or _is_number(value)):
            raise ExpressionError("takes numbers only", where=f"state.{name}")
        result: Json = write if value is None else choose(value, write)
        return result

    return reduce


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _list(name: str, value: Json) -> list[Json]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ExpressionError("holds no list to add to", where=f"state.{name}")
    return value


_REDUCERS: Mapping[Reducer, Callable[[str, Json, Json], Json]] = {
    Reducer.REPLACE: _replace,
    Reducer.APPEND: _append,
    Reducer.MERGE: _merge,
    Reducer.SUM: _number(lambda a, b: a + b),
    Reducer.MAX: _number(max),
    Reducer.MIN: _number(min),
    Reducer.UNION: _union,
}
