"""The model's own words: whatever it has said first stays its own, in parts and in disguise too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core.origins.disguises import disguises, plain
from core.origins.words import Words

# Shorter values, and shorter parts of a value, are said by chance.
SHORT = 5
_PART_MIN = 2


@dataclass(frozen=True)
class Said:
    """The words of one call or text. ``forms`` has them without signs, and what they hold in disguise."""

    words: Words
    forms: str

    @classmethod
    def of(cls, texts: Sequence[str]) -> Said:
        """Take the texts in a row: a value may be said in parts that stand side by side."""
        text = " ".join(texts)
        others = [plain(other) for other in disguises(text)]
        return cls(Words.of(text), "\n".join((plain(text), *others)))


@dataclass
class Parts:
    """All texts that the model has said, by what is left of them without signs, each with where it said it first."""

    _first: dict[str, int] = field(default_factory=dict)
    _lengths: set[int] = field(default_factory=set)

    def add(self, texts: Sequence[str], at: int) -> None:
        """Add what was said at a place."""
        for part in map(plain, texts):
            if len(part) >= _PART_MIN:
                self._first.setdefault(part, at)
                self._lengths.add(len(part))

    def complete(self, wanted: str, step: Callable[[int], None]) -> int | None:
        """The first place by which all parts of a value were said, whole; None if it is not made of them.

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
                said = self._first.get(wanted[at : at + length]) if at + length <= len(wanted) else None
                if said is not None:
                    place = max(before, said)
                    reached[at + length] = min(place, reached.get(at + length, place))
        return reached.get(len(wanted))
