"""Replaces the package orjson in the single-file verifier: JSON in its sorted form, with the standard library."""

from __future__ import annotations

import json
from typing import Any, NoReturn

OPT_SORT_KEYS = 1
OPT_STRICT_INTEGER = 2
_INTEGER_MAX = 2**53 - 1


def loads(data: bytes | str) -> Any:
    """Parse UTF-8 JSON. ``ValueError`` for anything else."""
    try:
        text = data if isinstance(data, str) else data.decode()
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dumps(value: object, option: int = 0) -> bytes:
    """The JSON of a value of the audit's domain, without white space. ``TypeError`` and ``ValueError`` for others."""
    if option & OPT_STRICT_INTEGER:
        _check(value)
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=bool(option & OPT_SORT_KEYS)
    )
    return text.encode()


def _check(value: object) -> None:
    """Refuse integers that some readers would round, and keys that are no texts."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a key is no text")
        for each in value.values():
            _check(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _check(each)
    elif isinstance(value, int) and abs(value) > _INTEGER_MAX:
        raise TypeError("an integer is too large")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
