"""Replaces the package rfc8785 in the single-file verifier: canonical JSON with fractions and with any keys."""

from __future__ import annotations

import json
from math import isfinite

_INTEGER_MAX = 2**53 - 1
_PLAIN_MAX = 21


class CanonicalizationError(ValueError):
    """The value has no canonical form."""


def dumps(value: object) -> bytes:
    """The RFC 8785 bytes of a JSON value."""
    return _text(value).encode()


def _text(value: object) -> str:
    match value:
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            if abs(value) > _INTEGER_MAX:
                raise CanonicalizationError(f"{value} is beyond the integers that every reader keeps")
            return str(int(value))
        case float():
            return _number(value)
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise CanonicalizationError("a key is no text")
            names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
            return f"{{{','.join(f'{_text(name)}:{_text(value[name])}' for name in names)}}}"
        case list() | tuple():
            return f"[{','.join(map(_text, value))}]"
    raise CanonicalizationError(f"{type(value)} is no JSON")


def _number(value: float) -> str:
    """The shortest form of a number, as ECMAScript writes it."""
    if not isfinite(value):
        raise CanonicalizationError(f"{value} is no JSON")
    if value == 0:
        return "0"
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) if whole != "0" else len(digits) - len(fraction) + int(exponent or 0)
    digits = digits.rstrip("0")
    sign = "-" if value < 0 else ""
    if len(digits) <= point <= _PLAIN_MAX:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= _PLAIN_MAX:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"
