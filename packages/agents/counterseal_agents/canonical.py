"""The arguments of a call as JSON, and the digest of the call.

A value has one JSON form, or the call is refused: nothing is left out, cut or turned into text by chance.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from pathlib import PurePath
from typing import Any, TypeAlias
from uuid import UUID

import rfc8785

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"

DEPTH_MAX = 32
_TEXTS: tuple[tuple[tuple[type, ...], Callable[[Any], str]], ...] = (
    ((datetime, date, time), lambda value: str(value.isoformat())),
    ((UUID, Decimal, PurePath), str),
)


def canonical(value: Json) -> bytes:
    """The RFC 8785 form. ``ValueError`` for what has none: NaN, an integer of 2^53 or more, a lone surrogate."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeError) as error:
        raise ValueError(f"has no canonical JSON form: {error}") from None


def digest_of_call(tool: str, arguments: JsonObject) -> str:
    """SHA-256, in hexadecimal, over the RFC 8785 form of the call. The server computes the same."""
    return sha256(canonical({"arguments": arguments, "mode": "gate", "tool": tool})).hexdigest()


def parse(data: bytes) -> object:
    """The JSON that the text says. ``ValueError`` for what two readers could read differently."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _distinct(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError("a name stands twice")
        found[name] = value
    return found


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def as_json(value: object, depth: int = 0) -> Json:
    """The JSON form of an argument. ``ValueError`` for a type that has none of its own."""
    if depth > DEPTH_MAX:
        raise ValueError(f"is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Enum):
        return as_json(value.value, depth + 1)
    if value is None or isinstance(value, bool | int | float | str):
        return _scalar(value)
    if isinstance(value, list | tuple):
        return [as_json(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return _members(value, depth)
    for types, text in _TEXTS:
        if isinstance(value, types):
            return text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _members(fields, depth)
    if not isinstance(value, type) and hasattr(value, "model_dump"):
        return _of_model(value, depth)
    raise ValueError(f"is a {type(value).__name__}, which has no JSON form")


def _of_model(value: Any, depth: int) -> Json:
    """A model of pydantic, which is not imported here. What it hides, as secrets are, nobody would decide on."""
    shown = as_json(value.model_dump(mode="json", by_alias=True), depth + 1)
    if type(value).model_validate(shown) != value:
        raise ValueError(f"is a {type(value).__name__} that does not show all that it holds")
    return shown


def _scalar(value: bool | int | float | str | None) -> Json:
    """The value itself; one of a subclass could read otherwise than it is shown."""
    if type(value) not in (bool, int, float, str, type(None)):
        raise ValueError(f"is a {type(value).__name__}, which may not be what it reads as")
    return value


def _members(value: Mapping[Any, object], depth: int) -> JsonObject:
    for name in value:
        if type(name) is not str:
            raise ValueError(f"has a key that is a {type(name).__name__}, and no text")
    return {name: as_json(item, depth + 1) for name, item in value.items()}
