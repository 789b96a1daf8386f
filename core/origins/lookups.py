"""Finds out which of the records that a query found the words of the query can mean."""

from __future__ import annotations

import re
from collections.abc import Iterable

from core.canonical import Json
from core.origins.disguises import plain
from core.origins.leaves import Leaf, Scalar, leaves, pointed, same

_RECORDS_MAX = 1_000
_PHRASE_MIN = 8
_WORDS = re.compile(r"\w+")


def records_at(result: Json, pointer: str) -> list[Json] | None:
    """The records of a result; None if there are none, too many, or values that are no records."""
    there = pointed(result, pointer)
    found: list[Json] = [*there] if isinstance(there, list) else [there]
    return found if 0 < len(found) <= _RECORDS_MAX and all(isinstance(one, dict) for one in found) else None


def names_in(record: Json, records: str, protected: frozenset[str]) -> list[Leaf]:
    """The values of those fields of a record that not just anyone may write."""
    return [one for one in leaves(record, records, records) if not one.key and one.name in protected]


def bears(names: list[Leaf], wanted: Iterable[Scalar | None]) -> bool:
    """True if one of the names equals the whole wanted value."""
    texts = [Leaf(one, "", "") for one in wanted if isinstance(one, str)]
    return any(same(name, text) for text in texts for name in names)


def phrased(value: Scalar, names: list[Leaf]) -> bool:
    """True if a text of several words is part of one of the names: ``grocery list`` of ``grocery-list-today.docx``."""
    if not isinstance(value, str) or len(value.split()) < 2 or len(plain(value)) < _PHRASE_MIN:
        return False
    return any(f" {_separated(value)} " in f" {_separated(name.text)} " for name in names)


def _separated(text: str) -> str:
    """The words of a text, separated by single blanks, without signs."""
    return " ".join(_WORDS.findall(text.lower().replace("_", " ")))
