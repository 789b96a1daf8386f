"""The results of expressions: plain JSON, and its types."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from core.canonical import DEPTH_MAX, Json

PLAIN = frozenset({str, int, bool, type(None)})
"""The types whose values are plain JSON as they stand."""

IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "int": lambda value: type(value) is int,
    "bool": lambda value: type(value) is bool,
    "double": lambda value: type(value) is float,
    "timestamp": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list),
    "list<string>": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    "map": lambda value: isinstance(value, dict),
    "map<string,string>": lambda value: (
        isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
    ),
    "dyn": lambda _: True,
}
"""Tests of plain JSON, one for each type that a caller can demand of a result."""


class Unfit(Exception):
    """A value that has no place, for core only. The text completes "… gives" or "… where int is declared"."""


def to_json(value: object, depth: int) -> Json:
    """A result as plain JSON."""
    if depth > DEPTH_MAX:
        raise Unfit(f"data nested deeper than {DEPTH_MAX} levels")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise Unfit("a number that JSON cannot hold")
        return value
    if isinstance(value, list):
        return [to_json(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise Unfit("a map whose keys are not strings")
        return {key: to_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return f"PT{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "S"
    raise Unfit(kind_of(value))


def kind_of(value: object) -> str:
    names = {type(None): "null", bool: "a bool", int: "an int", float: "a double", str: "a string"}
    names |= {list: "a list", dict: "a map", bytearray: "bytes", bytes: "bytes"}
    return names.get(type(value), f"a value of type {type(value).__name__}")
