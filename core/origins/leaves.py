"""The leaves (scalars and keys) of structured sources and of arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TypeAlias

from core.canonical import Json
from core.origins.designation import Designation
from core.origins.words import Date, Words, moment, number, numeral

Scalar: TypeAlias = str | int | float | bool


@dataclass(frozen=True)
class Leaf:
    """One scalar or key of a source. ``pointer`` leads to it (RFC 6901); ``name`` is that without list indexes."""

    value: Scalar
    pointer: str
    name: str
    key: bool = False

    @cached_property
    def text(self) -> str:
        """The value as a text."""
        return self.value if isinstance(self.value, str) else _plain(self.value)

    @cached_property
    def words(self) -> Words:
        """The words of the value as a text."""
        return Words.of(self.text)

    @cached_property
    def designation(self) -> Designation:
        """The particulars that the value designates, if it is a text by one of our own people."""
        return Designation.of(self.text)

    @cached_property
    def number(self) -> Decimal | None:
        """The value as a number; the text of a number counts too."""
        return _number(self.value)

    @cached_property
    def numeral(self) -> str | None:
        """The text of the value if it is a number, as for ``words.numeral``; None if it is not."""
        return numeral(self.text.strip())

    @cached_property
    def moment(self) -> tuple[Date, str | None] | None:
        """The date, with its time of day, if the value is a date; None if it is not."""
        return moment(self.value) if isinstance(self.value, str) else None


def leaves(value: Json, pointer: str = "", name: str = "") -> Iterator[Leaf]:
    """Yield each scalar and each key of a structured source."""
    if isinstance(value, dict):
        for key, item in value.items():
            step = key.replace("~", "~0").replace("/", "~1")
            yield Leaf(key, f"{pointer}/{step}", f"{name}/{step}", key=True)
            yield from leaves(item, f"{pointer}/{step}", f"{name}/{step}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from leaves(item, f"{pointer}/{at}", name)
    elif value is not None:
        yield Leaf(value, pointer, name)


def pointed(value: Json, pointer: str) -> Json:
    """The value at a JSON Pointer; None if there is none."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        value = value.get(key) if isinstance(value, dict) else None
    return value


def scalars(value: Json, known: Collection[str] | None = None) -> Iterator[Scalar | None]:
    """Yield each scalar; with ``known``, also each key that is not in it."""
    if isinstance(value, dict):
        for key, item in value.items():
            if known is not None and key not in known:
                yield key
            yield from scalars(item, known)
    elif isinstance(value, list):
        for item in value:
            yield from scalars(item, known)
    else:
        yield value


def same(leaf: Leaf, wanted: Leaf) -> bool:
    """True if the whole leaf equals the wanted value."""
    if isinstance(leaf.value, bool):
        return False
    if not isinstance(leaf.value, str) or not isinstance(wanted.value, str):
        if isinstance(wanted.value, str):
            return wanted.numeral == leaf.text
        return leaf.number is not None and leaf.number == wanted.number
    return leaf.words.folded == wanted.words.folded != ""


def _number(value: Scalar) -> Decimal | None:
    if isinstance(value, bool):
        return None
    return Decimal(_plain(value)) if not isinstance(value, str) else number(value.strip())


def _plain(value: int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else format(Decimal(repr(value)).normalize(), "f")
