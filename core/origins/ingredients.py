"""The origins of a value: for each ingredient, a list of its possible origins. Needs no expression engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Origins: TypeAlias = list[list[str]]
"""One list for each ingredient, which holds the alternatives for it."""


def distinct(origins: Iterable[Sequence[str]]) -> Origins:
    """The ingredients without duplicates, in order."""
    return [list(one) for one in dict.fromkeys(tuple(sorted(set(inner))) for inner in origins)]
