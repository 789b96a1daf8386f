"""Which values go into an expression, and what comes out of it: plain JSON, checked against declared types."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import isfinite

from core.canonical import DEPTH_MAX, Json

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1

WANTED: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "bool": (bool,),
    "double": (float,),
    "timestamp": (str,),
    "list": (list,),
    "list<string>": (list,),
    "map": (dict,),
    "map<string,string>": (dict,),
    "dyn": (object,),
}
"""What a result is in Python, for each type that a caller can demand."""


class Unfit(Exception):
    """For core only: a value that has no place here. The text completes "… gives" or "… where int is declared"."""


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


def _only(fits: Callable[[object], bool]) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not fits(value):
            raise Unfit(f"is {kind_of(value)}")
        return value

    return check


def is_strings(value: object) -> bool:
    """True for a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_string_map(value: object) -> bool:
    """True for a map from strings to strings."""
    return isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())


def _check_int(value: object) -> object:
    if type(value) is not int:
        raise Unfit(f"is {kind_of(value)}")
    if not _INT_MIN <= value <= _INT_MAX:
        raise Unfit("is an integer over 64 bit")
    return value


def _check_double(value: object) -> object:
    """JSON writes 250 for 250.0, so whole numbers are doubles too, as long as they are exact."""
    if type(value) is int and abs(value) <= 2**53:
        return float(value)
    if type(value) is not float or not isfinite(value):
        raise Unfit(f"is {kind_of(value)}")
    return value


def _check_timestamp(value: object) -> object:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise Unfit("is not an RFC 3339 timestamp") from None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise Unfit("is not a timestamp with a time zone")
    return value


def _check_dyn(value: object, depth: int = 0) -> object:
    """Any JSON. The engine converts recursively in native code: too deep is a crash of the process, so it ends here."""
    if depth > DEPTH_MAX:
        raise Unfit(f"is nested deeper than {DEPTH_MAX} levels")
    if value is None or type(value) is bool or isinstance(value, str):
        return value
    if type(value) is int:
        return _check_int(value)
    if type(value) is float and isfinite(value):
        return value
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise Unfit("has a key that is not a string")
            _check_dyn(item, depth + 1)
        return value
    if isinstance(value, list):
        for item in value:
            _check_dyn(item, depth + 1)
        return value
    raise Unfit(f"holds {kind_of(value)}")


CHECKS: dict[str, Callable[[object], object]] = {
    "string": _only(lambda value: isinstance(value, str)),
    "int": _check_int,
    "bool": _only(lambda value: type(value) is bool),
    "double": _check_double,
    "timestamp": _check_timestamp,
    "list<string>": _only(is_strings),
    "map<string,string>": _only(is_string_map),
    "dyn": _check_dyn,
}


def kind_of(value: object) -> str:
    names = {type(None): "null", bool: "a bool", int: "an int", float: "a double", str: "a string"}
    names |= {list: "a list", dict: "a map", bytearray: "bytes", bytes: "bytes"}
    return names.get(type(value), f"a value of type {type(value).__name__}")
