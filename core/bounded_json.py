"""JSON from outside, parsed only after its size and depth are checked.

Deeply nested data crashes native expression engines and exhausts recursive code, so anything deeper than ``DEPTH_MAX``
is refused. Duplicate keys are refused too: two readers would understand them differently.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from core.budgets import most
from core.canonical import DEPTH_MAX, Json, JsonObject
from core.errors import InputError

BODY_BYTES_MAX = most("request_bytes")
# Matches each string of a document, even an unterminated one, and each bracket outside of strings, in linear time.
_TOKENS = re.compile(rb'(?s:"(?:[^"\\]|\\.)*+"?)|[\[\]{}]')
# The characters that PostgreSQL or UTF-8 cannot hold: U+0000 and lone surrogates.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def parse(data: bytes, *, bytes_max: int = BODY_BYTES_MAX, where: str = "body") -> Json:
    """Parse UTF-8 JSON. ``InputError`` names ``where`` for anything too large, too deep, ambiguous or malformed."""
    if len(data) > bytes_max:
        raise InputError(f"is {len(data)} bytes long; at most {bytes_max} are accepted", where=where)
    if _depth(data) > DEPTH_MAX:
        raise InputError(f"is nested deeper than {DEPTH_MAX} levels", where=where)
    try:
        value: Json = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise InputError("is not UTF-8", where=where) from None
    except _DuplicateKey as error:
        raise InputError(f"has the key {error.args[0]!r} twice in one object", where=where) from None
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=where) from None
    _refuse_unusable(value, where)
    return value


def parse_object(data: bytes, *, bytes_max: int = BODY_BYTES_MAX, where: str = "body") -> JsonObject:
    """Parse JSON that must be an object; errors as for ``parse``."""
    return object_of(parse(data, bytes_max=bytes_max, where=where), where)


def object_of(value: Json, where: str = "body") -> JsonObject:
    """The value, if it is an object; ``InputError`` otherwise."""
    if not isinstance(value, dict):
        raise InputError("is not a JSON object", where=where)
    return value


class _DuplicateKey(Exception):
    pass


def _unique(pairs: list[tuple[str, Json]]) -> JsonObject:
    result: JsonObject = {}
    for key, value in pairs:
        if key in result:
            raise _DuplicateKey(key)
        result[key] = value
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _depth(data: bytes) -> int:
    """The deepest nesting, found without recursion and before anything is parsed."""
    depth = deepest = 0
    for token in _TOKENS.finditer(data):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                deepest = max(deepest, depth)
            case b"]" | b"}":
                depth -= 1
    return deepest


def _refuse_unusable(value: Json, where: str) -> None:
    """Refuse ``UNSTORABLE`` characters in any key or string."""
    if isinstance(value, str):
        if UNSTORABLE.search(value):
            raise InputError("holds a character that cannot be stored (U+0000 or a lone surrogate)", where=where)
    elif isinstance(value, list):
        for item in value:
            _refuse_unusable(item, where)
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_unusable(key, where)
            _refuse_unusable(item, f"{where}.{key}")
