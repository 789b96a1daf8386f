"""Checks the delegations of a directory: none to an unknown person or to oneself, no chains, no cycles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Protocol

from core.documents import Path
from core.identity import Delegation


class Days(Protocol):
    """A delegation as people write it."""

    @property
    def first(self) -> str:
        """The first day."""

    @property
    def last(self) -> str:
        """The last day, which is included."""


class Person(Protocol):
    """A person as people write them in the directory."""

    @property
    def id(self) -> str:
        """Their id."""

    @property
    def active(self) -> bool:
        """True if they may vote."""

    @property
    def delegate(self) -> Days | None:
        """The delegation as people write it."""

    @property
    def delegation(self) -> Delegation | None:
        """The delegation with its moments, by the person's clock."""


def impossible_days(people: Sequence[Person]) -> Iterator[tuple[Path, str, str]]:
    """Find delegations with days that do not exist, and delegations that end before they begin."""
    for number, person in enumerate(people):
        if person.delegate is None:
            continue
        place: Path = ("people", number, "delegate")
        found = []
        for key, day in (("from", person.delegate.first), ("until", person.delegate.last)):
            try:
                found.append(date.fromisoformat(day))
            except ValueError:
                yield (*place, key), f"There is no day {day}.", "Name one as 2026-12-24."
        if len(found) == 2 and found[1] < found[0]:
            yield (*place, "until"), "The delegation ends before it begins.", "Name a later day, or the same one."


def delegated_badly(people: Sequence[Person]) -> Iterator[tuple[Path, str, str]]:
    """Find delegations to somebody who cannot decide: an unknown person, the person themselves, or one who is away."""
    known = {person.id: person for person in people}
    spans = {person.id: person.delegation for person in people}
    for number, person in enumerate(people):
        own = spans[person.id]
        if own is None:
            continue
        place: Path = ("people", number, "delegate", "to")
        deputy = known.get(own.to)
        if own.to == person.id:
            yield place, f"{person.id!r} would decide for themselves.", "Name somebody else."
        elif deputy is None or not deputy.active:
            who = "is not among the people" if deputy is None else "is not active"
            yield place, f"{own.to!r}, who is to decide for {person.id!r}, {who}.", "Name an active person."
        elif (theirs := spans[own.to]) is not None and _overlap(own, theirs):
            message = f"{own.to!r}, who is to decide for {person.id!r}, has somebody else decide for them meanwhile."
            yield place, message, "Name somebody who is there: nobody decides for a third one."


def _overlap(one: Delegation, other: Delegation) -> bool:
    return one.begins < other.ends and other.begins < one.ends
