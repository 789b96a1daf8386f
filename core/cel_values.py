"""Converts the CEL engine's results to plain JSON, and its error messages to messages that help an author."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from core.canonical import DEPTH_MAX, Json
from core.errors import ExpressionError, nearest

PLAIN = frozenset({str, int, bool, type(None)})
"""The types whose values are plain JSON without conversion."""

IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "int": lambda value: type(value) is int,
    "bool": lambda value: type(value) is bool,
    "double": lambda value: type(value) is float,
    "timestamp": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list),
    "list<string>": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    "list<list<string>>": lambda value: isinstance(value, list) and all(map(IS["list<string>"], value)),
    "map": lambda value: isinstance(value, dict),
    "map<string,string>": lambda value: (
        isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
    ),
    "dyn": lambda _: True,
}
"""One test for each type that a caller can demand of a result."""


def fits(value: object, kind: str) -> bool:
    """True if a value is of this fact type."""
    return IS[kind](value)


class Unfit(Exception):
    """A value of the wrong type; used in core only. The text completes "… gives" or "… where int is declared"."""


def to_json(value: object, depth: int) -> Json:
    """A result as plain JSON; ``Unfit`` if JSON cannot hold it."""
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


def compile_error(source: str, text: str, variables: Collection[str]) -> ExpressionError:
    """The engine's first error about ``source``, with its column and the nearest declared name."""
    match = re.search(r"ERROR: <input>:(-?\d+):(-?\d+): ([^\n]*)", text)
    if match is None:
        return ExpressionError(f"{runtime_text(text)} in {quote(source)}")
    line, column, message = int(match[1]), int(match[2]), match[3]
    message = message.replace(" (in container '')", "").split(" expecting {")[0].removesuffix(" [INVALID_ARGUMENT]")
    message = message.rstrip(".")
    place = "" if column < 1 else f" at column {column}" if line == 1 else f" at line {line}, column {column}"
    undeclared = re.search(r"undeclared reference to '([^']+)'", message)
    remedy = _suggest(undeclared[1], source, variables) if undeclared else ""
    return ExpressionError(f"{message}{place} of {quote(source)}.", remedy=remedy)


def runtime_text(text: str) -> str:
    """An engine's message without its status codes."""
    text = re.sub(r"^[A-Z_]+: |\s*\[[A-Z_]+\]\Z", "", text.split("\n", 1)[0])
    missing = re.match(r'No value with name "([^"]+)" found in Activation', text)
    return f"{missing[1]!r} has no value" if missing else text


def quote(source: str) -> str:
    """An expression inside a message, shortened if it is long."""
    return f"`{source if len(source) <= 160 else source[:157] + '...'}`"


def one_of(names: Collection[str]) -> str:
    """The remedy for a name that is not among ``names``: a list of these."""
    return f"One of {', '.join(sorted(names))}."


def _suggest(name: str, source: str, variables: Collection[str]) -> str:
    # The engine reports only the part of a dotted name that it tried to resolve; the author meant the whole name.
    longer = re.search(re.escape(name) + r"(\.[A-Za-z_][A-Za-z0-9_]*)*", source)
    return nearest(longer[0] if longer else name, variables)


def moment(value: object) -> datetime:
    """The datetime of an RFC 3339 text or of a datetime. ``Unfit`` without a time zone."""
    try:
        value = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise Unfit("is not an RFC 3339 timestamp") from None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise Unfit("is not a timestamp with a time zone")
    return value
