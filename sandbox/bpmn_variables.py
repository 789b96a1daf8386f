"""Process variables on the wire, as ``{"value", "type", "valueInfo"}``, checked like in the real engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

_TEXT_MAX: Final = 4000
_RANGES: Final = {"Short": 2**15, "Integer": 2**31, "Long": 2**63}


class VariableError(Exception):
    """A variable that the engine refuses, in its own words."""


def read_variables(given: object) -> dict[str, object]:
    """Parse the ``variables`` of a request into values."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise VariableError("Cannot deserialize variables: a JSON object is needed")
    return {name: _read(name, item) for name, item in given.items()}


def write_variables(values: Mapping[str, object]) -> dict[str, object]:
    """Values in the form of the engine's answers."""
    return {name: _write(value) for name, value in values.items()}


def _read(name: str, item: object) -> object:
    if not isinstance(item, dict) or not set(item) <= {"value", "type", "valueInfo", "local"}:
        raise VariableError(f"Cannot deserialize variable {name}: an object with value, type and valueInfo is needed")
    kind, value = item.get("type"), item.get("value")
    if kind is None:
        kind = _kind(value)
    if not _fits(kind, value):
        raise VariableError(f"Couldn't convert value '{value}' of variable '{name}' to type {kind}")
    if kind == "Json" and isinstance(value, str):
        return _parsed(name, value)
    if isinstance(value, str) and len(value) > _TEXT_MAX:
        raise VariableError(f"ENGINE-03083 Value too long for column TEXT_ of variable '{name}'")
    return float(value) if kind == "Double" and isinstance(value, int) else value


def _fits(kind: object, value: object) -> bool:
    if kind == "Null":
        return value is None
    if value is None:
        return kind in ("String", "Boolean", "Double", "Json", *_RANGES)
    if kind in ("String", "Json"):
        return isinstance(value, str)
    if kind == "Boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "Double":
        return isinstance(value, int | float)
    limit = _RANGES.get(str(kind), 0)
    return isinstance(value, int) and -limit <= value < limit


def _parsed(name: str, value: str) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise VariableError(f"SPIN/JACKSON-JSON-01006 Unable to parse variable '{name}': {error}") from error


def _kind(value: object) -> str:
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return "Boolean"
    if isinstance(value, int):
        return "Integer" if -(2**31) <= value < 2**31 else "Long"
    if isinstance(value, float):
        return "Double"
    return "String" if isinstance(value, str) else "Json"


def _write(value: object) -> dict[str, object]:
    kind = _kind(value)
    shown = json.dumps(value, separators=(",", ":")) if kind == "Json" else value
    return {"type": kind, "value": shown, "valueInfo": {}}
