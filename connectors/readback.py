"""Compares a target's values after a write with the requested ones: its success alone is not believed (promise 3).

A field that the target does not show is unreadable: nobody knows its value, so it counts neither as written nor as
altered. A value that a system rewrites without changing its meaning (spaces, the form of a number or a time) is not
altered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from typing import Any, TypeAlias

from msgspec import Struct, field

from core.canonical import INTEGER_MAX, Json, JsonObject, canonical_bytes, clean
from core.errors import InputError

ASKED, FOUND = "asked", "found"
SHOWN_CHARACTERS_MAX = 300
Same: TypeAlias = Callable[[Json, Json], bool]

_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{1,30})?")
_FLAGS = {"true": True, "false": False, "1": True, "0": False}
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LINK = re.compile(r"<([^<>|]+)(?:\|[^<>]*)?>")
_SCHEME = re.compile(r"https?://|mailto:|tel:")
_EMOJI = re.compile(r":[a-z0-9_+'-]+:|[\u200d\ufe0f\u2190-\u2bff\u3030\u303d\u3297\u3299]|[\U0001f000-\U0001faff]")


class Readback(Struct, frozen=True):
    """The difference between requested and found values: ``altered`` by field, and the unreadable fields."""

    altered: JsonObject = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """The field names as outputs have them; ``unreadable`` only if there are some."""
        names: JsonObject = {"altered": [*self.altered]}
        return names | {"unreadable": [*self.unreadable]} if self.unreadable else names


def compare(asked: JsonObject, found: JsonObject, same: Same | None = None) -> Readback:
    """Compare field by field. ``same`` tells if a found value means the requested one; without it, equal JSON does."""
    means = same or (lambda one, other: type(one) is type(other) and one == other)
    altered: JsonObject = {}
    for name, value in asked.items():
        if name in found and not means(value, found[name]):
            altered[name] = {ASKED: shown(value), FOUND: shown(found[name])}
    return Readback(altered, tuple(name for name in asked if name not in found))


def shown(value: Json) -> Json:
    """A value in a form that can be kept: a short scalar as it is, otherwise the beginning of its text."""
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) <= INTEGER_MAX):
        return value
    try:
        text = value if isinstance(value, str) else canonical_bytes(value).decode()
    except InputError:
        text = repr(value)
    return clean(text, SHOWN_CHARACTERS_MAX)


def same_text(asked: Json, found: Json) -> bool:
    """True if a system of texts has the requested value, however it writes spaces, numbers, flags, times and lists."""
    one, other = _text(asked), _text(found)
    if one == other or (isinstance(asked, bool) and _FLAGS.get(other.lower()) is asked):
        return True
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return Decimal(one) == Decimal(other)
    if one.lower() in ("true", "false") and other.lower() in ("true", "false"):
        return one.lower() == other.lower()
    first, second = _moment(one), _moment(other)
    if first is not None and second is not None:
        return first == second
    return "," in one and _members(one) is not None and _members(one) == _members(other)


def same_json(asked: Json, found: Json) -> bool:
    """True if an answer's JSON has the requested value; a scalar may be written as a text."""
    if isinstance(asked, dict | list) or isinstance(found, dict | list):
        return type(asked) is type(found) and asked == found
    return same_text(asked, found) and (asked is None) == (found is None)


def same_message(asked: Json, found: Json) -> bool:
    """True if a message is the requested one, after Slack has escaped it, added links and named its emoji."""
    return _words(asked) == _words(found)


def _text(value: Json) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return canonical_bytes(value).decode()
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").strip().split("\n"))


def _moment(text: str) -> datetime | None:
    """The moment of a date or a time; a time without a zone is GMT, and a day is its midnight."""
    if _DAY.fullmatch(text[:10]) is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _members(text: str) -> frozenset[str] | None:
    """The members of a list of ids or addresses; None for any other text."""
    members = [part.strip() for part in text.split(",") if part.strip()]
    return None if any(re.search(r"\s", member) for member in members) else frozenset(members)


def _words(value: Json) -> str:
    text = unescape(_LINK.sub(r"\1", str("" if value is None else value)))
    bare = _SCHEME.sub("", _EMOJI.sub("", _LINK.sub(r"\1", text)))
    return re.sub(r"\s+", " ", bare).strip()


def sentence(altered: JsonObject, hidden: Iterable[str] = (), outcome: str = "It was done, but altered") -> str:
    """The difference in words: the requested and the found values. The values of ``hidden`` fields are left out."""
    secret, differing = frozenset(hidden), []
    for name, each in altered.items():
        both: Any = each
        values = (
            "its values are hidden" if name in secret else f"asked {quoted(both[ASKED])}, found {quoted(both[FOUND])}"
        )
        differing.append(f"{name}: {values}")
    return f"{outcome}. {'; '.join(differing)}."


def quoted(value: Json) -> str:
    """A value within a sentence."""
    return "nothing" if value in (None, "") else repr(value) if isinstance(value, str) else str(value)
