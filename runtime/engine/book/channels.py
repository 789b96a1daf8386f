"""The first values of channels: literal, computed from the trigger, or copied from the parent run. Pure.

Values that differ from the declaration are recorded with the run's opening, so the fold evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import ExpressionError, InputError
from runtime.engine.model.graph import Channel, Reducer
from runtime.engine.model.rows import LedgerRow


class Inherited(Struct, frozen=True):
    """The value of a channel that a child run inherits, and the reducer by which the parent folds writes into it."""

    value: Json
    reducer: Reducer


_WANTS: Mapping[Reducer, tuple[tuple[type, ...], str]] = {
    Reducer.APPEND: ((list,), "a list"),
    Reducer.UNION: ((list,), "a list"),
    Reducer.MERGE: ((dict,), "an object"),
    Reducer.SUM: ((int, float), "a number"),
    Reducer.MAX: ((int, float, type(None)), "a number"),
    Reducer.MIN: ((int, float, type(None)), "a number"),
}


def misfit(reducer: Reducer, value: Json) -> str | None:
    """The reason why a channel with this reducer cannot begin with this value; None if it can."""
    if reducer not in _WANTS:
        return None
    types, words = _WANTS[reducer]
    return None if isinstance(value, types) and not isinstance(value, bool) else f"{reducer} begins with {words}"


def first_values(
    channels: Mapping[str, Channel], constants: Mapping[str, object], inherited: Mapping[str, Inherited]
) -> JsonObject:
    """The first values of the channels whose first value is not the declared one. ``InputError`` names the channel."""
    found: JsonObject = {}
    for name, channel in channels.items():
        if name not in inherited and channel.start is not None:
            found[name] = _evaluated(channel, constants)
    for name, given in inherited.items():
        own = channels.get(name)
        if own is None or own.reducer is not given.reducer:
            words = f"the workflow has no channel {name!r} that is folded by {given.reducer}, and is to inherit it"
            raise InputError(words, where="inherit", remedy="Declare it as the workflow above does.")
        found[name] = given.value
    return {name: bounded(channels[name], value) for name, value in found.items()}


def _evaluated(channel: Channel, constants: Mapping[str, object]) -> Json:
    assert channel.start is not None
    where = f"channels.{channel.name}.initial"
    try:
        value = channel.start.render(constants)
        canonical_bytes(value)
    except ExpressionError as error:
        remedy = "Send the fields that it reads."
        raise InputError(f"cannot be made from this trigger: {error.message}", where=where, remedy=remedy) from None
    if problem := misfit(channel.reducer, value):
        raise InputError(f"gives the wrong type from this trigger: {problem}", where=where)
    return value


def bounded(channel: Channel, value: Json) -> Json:
    """The value, cut to the number of items that the channel keeps."""
    return value[-channel.keep :] if channel.keep is not None and isinstance(value, list) else value


def first_entries(channels: Mapping[str, Channel], values: Mapping[str, Json]) -> list[LedgerRow]:
    """The ledger entries for the first values of channels: one for each item of a list."""
    rows = []
    for name, channel in channels.items():
        value = values.get(name, channel.initial)
        items = value if isinstance(value, list) else [value] if value not in (None, {}, 0) else []
        if channel.ledger:
            rows += [LedgerRow(name, 0, f"[{number}]", item) for number, item in enumerate(items)]
    return rows
