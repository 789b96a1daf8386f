"""Keeps the model's own words: a value that it said first stays its own, even if it said it in parts or in disguise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core.origins.disguises import disguises, plain
from core.origins.words import Words

# Values shorter than SHORT and parts shorter than _PART_MIN are not compared: they would match by chance.
SHORT = 5
_PART_MIN = 2


@dataclass(frozen=True)
class ModelWords:
    """The words of one call or text. ``forms`` holds them without punctuation, and their decoded forms."""

    words: Words
    forms: str

    @classmethod
    def of(cls, texts: Sequence[str]) -> ModelWords:
        """Join the texts: a value may be said in adjacent parts."""
        text = " ".join(texts)
        others = [plain(other) for other in disguises(text)]
        return cls(Words.of(text), "\n".join((plain(text), *others)))


@dataclass
class Parts:
    """All texts that the model has said, without punctuation, each with the place where it was first said."""

    _first: dict[str, int] = field(default_factory=dict)
    _lengths: set[int] = field(default_factory=set)

    def add(self, texts: Sequence[str], at: int) -> None:
        """Add texts that the model said at place ``at``."""
        for part in map(plain, texts):
            if len(part) >= _PART_MIN:
                self._first.setdefault(part, at)
                self._lengths.add(len(part))

    def complete(self, wanted: str, step: Callable[[int], None]) -> int | None:
        """The first place at which the said texts together make up the whole value; None if they never do.

        ``step`` counts the work.
        """
        if len(wanted) < SHORT:
            return None
        reached: dict[int, int] = {0: -1}
        for at in range(len(wanted)):
            before = reached.pop(at, None)
            if before is None:
                continue
            for length in self._lengths:
                step(length)
                found_at = self._first.get(wanted[at : at + length])
                if found_at is not None:
                    place = max(before, found_at)
                    reached[at + length] = min(place, reached.get(at + length, place))
        return reached.get(len(wanted))
