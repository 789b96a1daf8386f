"""Canonical JSON (RFC 8785), SHA-256 digests over it, ids from digests, and checks that a value or text can be stored.

``canonical_bytes`` accepts any JSON value. ``in_audit_domain`` is True for values of the audit domain: no floats,
ASCII keys, bounded depth. There orjson and RFC 8785 agree byte for byte, so an auditor can check a line with any JSON
library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import orjson
import rfc8785
from msgspec import convert

from core.budgets import most
from core.errors import InputError

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
    JsonObject: TypeAlias = "dict[str, Json]"
else:  # msgspec has no recursive alias, so it decodes any value
    Json = Any
    JsonObject = dict[str, Any]

DEPTH_MAX = 32
INTEGER_MAX = 2**53 - 1

# The scalar types of the audit domain.
SCALARS = frozenset({str, int, bool, type(None)})
# The options by which orjson writes values of the audit domain in their canonical form.
AS_RFC_8785 = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


def canonical_bytes(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value. ``InputError`` for NaN, big integers, lone surrogates, too much depth."""
    try:
        if in_audit_domain(value):
            return orjson.dumps(value, option=AS_RFC_8785)
        _refuse_depth(value, 0)
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"has no canonical JSON form: {error}") from None


def plain_bytes(value: object) -> bytes:
    """Canonical bytes of a value that the caller knows to be of the audit domain; this is not checked again.

    ``InputError`` for a lone surrogate and for an integer of 2^53 or more.
    """
    try:
        return orjson.dumps(value, option=AS_RFC_8785)
    except (TypeError, ValueError) as error:
        raise InputError(f"has no canonical JSON form: {error}") from None


def sha256_hex(data: bytes) -> str:
    """Lower-case hexadecimal SHA-256."""
    return sha256(data).hexdigest()


def digest(value: object) -> str:
    """SHA-256 of the canonical bytes of a JSON value, in hexadecimal."""
    return sha256(canonical_bytes(value)).hexdigest()


def derived_id(run_id: UUID, name: str) -> UUID:
    """The id of a part of a run, the same for the same name: a UUIDv8 (RFC 9562 5.8).

    It keeps the run's time prefix, so that the rows of one run are neighbours in an index.
    """
    of_run = run_id.bytes
    first, second, third, *rest = sha256(of_run + name.encode()).digest()[:10]
    version, variant = 0x80 | first >> 4, 0x80 | third & 0x3F
    return convert(of_run[:6] + bytes((version, (first << 4 | second >> 4) & 0xFF, variant, *rest)), UUID)


def in_audit_domain(value: Any, depth: int = 0) -> bool:
    """True if the value holds only strings, booleans, null and integers, under ASCII keys, and is not too deep.

    Integers of any size pass here; orjson refuses those of 2^53 and more. The loops test scalars inline, without a
    call, because this runs over every line, digest and checkpoint.
    """
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str or not key.isascii():
                return False
        items: Iterable[Any] = value.values()
    elif kind is list or kind is tuple:
        items = value
    else:
        return kind in SCALARS
    if depth == DEPTH_MAX:
        return not value
    for item in items:
        if type(item) in SCALARS:
            continue
        if not in_audit_domain(item, depth + 1):
            return False
    return True


def _refuse_depth(value: object, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InputError(f"is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        for item in value.values():
            _refuse_depth(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_depth(item, depth + 1)


# -- storable values -------------------------------------------------------------------------------------------------

# PostgreSQL, the checkpoint and the evidence must all be able to hold a value, and its size is bounded. An unstorable
# value would fail the commit that records it, at every attempt, so a performed call would never get its outcome. We
# check before the commit and fail the step with a reason instead.

# The limit of one step's input, of its output, and of its writes to channels.
VALUE_BYTES_MAX = most("value_bytes")
# The limit of a sentence that came from outside, such as an error's message.
TEXT_CHARACTERS_MAX = 4000


def unfit(value: object, what: str, *, bytes_max: int = VALUE_BYTES_MAX) -> str | None:
    """The reason why a value cannot be stored, as a sentence that begins with ``what``; None if it can be stored."""
    try:
        data = canonical_bytes(value)
    except InputError as error:
        return f"{what} cannot be recorded: it {error.message}."
    except (AttributeError, TypeError, ValueError):
        return f"{what} cannot be recorded: it is not JSON."
    if len(data) > bytes_max:
        return f"{what} is {len(data)} bytes long; at most {bytes_max} are kept."
    if b"\\u0000" in data and _has_nul(value):
        return f"{what} cannot be recorded: it holds the character U+0000."
    return None


def check_text(text: str, where: str) -> str:
    """Return ``text`` unchanged if it can be stored; otherwise raise ``InputError``, which names ``where``."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise InputError(f"is {len(text)} characters long; at most {TEXT_CHARACTERS_MAX} are kept", where=where)
    if clean(text) != text:
        raise InputError("holds a character that cannot be stored (U+0000 or a lone surrogate)", where=where)
    return text


def _has_nul(value: object) -> bool:
    """True if U+0000 is in any key or string. The recursion is safe: ``canonical_bytes`` has bounded the depth."""
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(_has_nul(item) for item in value)


def clean(text: object, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """A sentence from outside in storable form: unstorable characters are replaced, a long text is cut."""
    cut = str(text)[: characters_max + 1]
    shown = cut.encode(errors="replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return shown if len(shown) <= characters_max else f"{shown[: characters_max - 1]}…"
