"""Origins of an agent's calls: looks for the model's arguments in the sources that the model was shown before.

A value that the model said first stays the model's, even if a later source repeats it. A source matches only by whole
words; the model's own words match by any part of a word. Work is counted; a value that would take too much is
``unknown``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from core.canonical import Json
from core.origins.disguises import disguises, plain
from core.origins.leaves import Leaf, Scalar, leaves, pointed, same, scalars
from core.origins.said import SHORT, Parts, Said
from core.origins.words import Words, at_clock

VERSION = 1
STEPS_MAX = 4_000_000
VALUE_CHARS_MAX = 64 * 1024
SOURCE_CHARS_MAX = 1024 * 1024
VALUE_COSTS = 16  # the fixed cost of each value, in characters, besides its length
CONVERSATION_CHARS_MAX = 4 * 1024 * 1024
CARRIED_CHARS_MIN = 5
_LEAF_STEPS = 4

# Labels of what outsiders wrote. A person who repeats it in a form does not make it the person's own.
_OF_OTHERS = ("tool:", "trigger:", "signal:", "unknown")

REQUESTER, WORKFLOW, PERSON, MODEL, UNKNOWN, TEXT = "requester", "workflow", "person", "model", "unknown", "text"


class ArgumentKind(StrEnum):
    """The kind of an argument: one value, free text (only its addresses are traced), or a flag (never traced)."""

    VALUE = "value"
    TEXT = "text"
    FLAG = "flag"


@dataclass(frozen=True)
class _Event:
    """A source that the model was shown (``label``) or its own words (``said``). ``hidden``: withheld or too large."""

    label: str = ""
    leaves: tuple[Leaf, ...] = ()
    tool: str = ""
    only: str | None = None  # the record's pointer prefix, if this result is the one record of the requester's words
    said: Said | None = None
    hidden: bool = False


class _TooMuch(Exception):
    pass


@dataclass
class Matcher:
    """The sources of one run, in the order in which the model saw them. ``steps`` is the work of the last query."""

    steps_max: int = STEPS_MAX
    steps: int = 0
    _events: list[_Event] = field(default_factory=list)
    _parts: Parts = field(default_factory=Parts)
    _size: int = 0

    def given(self, label: str, value: Json) -> None:
        """Add a source under a label: ``requester``, ``workflow``, ``person``, ``trigger:…`` or ``signal:…``."""
        self._add(label, value)

    def said(self, arguments: Json) -> bool:
        """Add a call of the model, performed or refused. Returns True if all of it is in the requester's words."""
        every = self._within(arguments)
        if every is None:
            self._events.append(_Event(said=Said.of(()), hidden=True))
            return False
        values, keys = [leaf for leaf in every if not leaf.key], [leaf for leaf in every if leaf.key]
        absent, self.steps = any(value is None for value in scalars(arguments)), 0
        own = bool(values) and not absent and all(self._is_requesters(leaf.value) for leaf in values)
        texts = [leaf.text for leaf in (*values, *keys)]
        self._parts.add(texts, len(self._events))
        self._events.append(_Event(said=Said.of(texts)))
        return own

    def shown(self, operation: str, result: Json, *, records: str | None = None, own: bool = False) -> None:
        """Add the result of a performed call. ``records`` is the JSON Pointer to its records.

        ``own``: ``said`` returned True for the call. If the result then has one record only, its fields are a
        ``lookup`` of the requester's words.
        """
        only = None
        if own and records is not None:
            there = pointed(result, records)
            if isinstance(there, dict) or (isinstance(there, list) and len(there) == 1 and isinstance(there[0], dict)):
                only = records
        self._add(f"tool:{operation}", result, operation, only)

    def withheld(self) -> None:
        """Add a source that cannot be read: any later value may come from it, so ``unknown`` is among its origins."""
        self._events.append(_Event(hidden=True))

    def origins(
        self, value: Json, kind: ArgumentKind = ArgumentKind.VALUE, *, known: Collection[str] = ()
    ) -> list[list[str]]:
        """The origins of an argument: one list for each value in it, at least one.

        ``known`` are the property names that the schema declares; every other key counts as a value too.
        """
        self.steps = 0
        if kind is ArgumentKind.FLAG:
            return [[MODEL]]
        found = []
        for part in scalars(value, known):
            if part is None or isinstance(part, bool) or part == "":
                found.append([MODEL])
            elif kind is ArgumentKind.TEXT and isinstance(part, str):
                found += self._text(part)
            else:
                found.append(self._of(part))
        return found or [[MODEL]]

    def carries(self, value: Json) -> list[str]:
        """The fields of results whose whole value (five characters or more) is contained in a text; sorted."""
        self.steps, found, texts = 0, set(), [part for part in scalars(value) if isinstance(part, str)]
        try:
            for text in (other for one in texts for other in (one, *self._disguises(one))):
                words = self._cut(text)
                shown = ((one, leaf) for one in self._events if one.tool for leaf in one.leaves)
                for event, leaf in shown:
                    self._step(1)
                    if leaf.key or not isinstance(leaf.value, str) or len(leaf.words.folded) < CARRIED_CHARS_MIN:
                        continue
                    if self._holds(words, leaf.words):
                        found.add(f"{event.tool}#{leaf.name}")
            if texts and any(event.hidden for event in self._events):
                found.add(UNKNOWN)
        except _TooMuch:
            return [UNKNOWN]
        return sorted(found)

    def _add(self, label: str, value: Json, tool: str = "", only: str | None = None) -> None:
        every = self._within(value)
        self._events.append(_Event(hidden=True) if every is None else _Event(label, every, tool, only))

    def _within(self, value: Json) -> tuple[Leaf, ...] | None:
        """The values and keys of a source; None if the source, or the conversation with it, is too large."""
        left, found = min(SOURCE_CHARS_MAX, CONVERSATION_CHARS_MAX - self._size), list[Leaf]()
        for leaf in leaves(value):
            cost = VALUE_COSTS + (len(leaf.value) if isinstance(leaf.value, str) else 0)
            if cost > left:
                return None
            left, self._size = left - cost, self._size + cost
            found.append(leaf)
        return tuple(found)

    def _is_requesters(self, value: Scalar) -> bool:
        found = self._of(value)
        return REQUESTER in found and UNKNOWN not in found

    def _text(self, text: str) -> list[list[str]]:
        """The origins of a text as a whole (the model's, unless one source holds all of it) and of its addresses."""
        whole = self._of(text)
        try:
            every = [self._cut(other) for other in (text, *self._disguises(text))]
        except _TooMuch:
            return [[UNKNOWN]]
        parts = dict.fromkeys(part for words in every for part in words.addresses())
        return [[MODEL, TEXT] if whole == [MODEL] else whole, *(self._of(part) for part in parts)]

    def _disguises(self, text: str) -> Iterator[str]:
        self._step(len(text))
        return disguises(text) if len(text) <= VALUE_CHARS_MAX else iter(())

    def _of(self, value: Scalar) -> list[str]:
        """The alternatives for one value, sorted."""
        found: set[str] = set()
        if isinstance(value, bool):
            return [MODEL]
        try:
            leaf = Leaf(value, "", "")
            self._cut(str(value))
            form = plain(leaf.text)
            complete = self._parts.complete(form, self._step)
            for at, event in enumerate(self._events):
                if event.hidden:
                    found.add(UNKNOWN)
                    if event.said is not None:
                        break
                elif event.said is not None:
                    if self._was_said(event.said, leaf, form) or (complete is not None and complete <= at):
                        break
                elif event.label != PERSON or not any(one.startswith(_OF_OTHERS) for one in found):
                    found |= self._in(event, leaf)
        except _TooMuch:
            return [UNKNOWN]
        return sorted(found) or [MODEL]

    def _in(self, event: _Event, wanted: Leaf) -> set[str]:
        found: set[str] = set()
        for leaf in event.leaves:
            self._step(_LEAF_STEPS)
            whole = not leaf.key and same(leaf, wanted)
            if whole or self._matches(leaf, wanted):
                found.add(event.label)
            if whole and event.tool:
                found.add(f"field:{event.tool}#{leaf.name}")
                if event.only is not None and leaf.pointer.startswith(f"{event.only}/"):
                    found.add(f"lookup:{event.tool}#{leaf.name}")
        return found

    def _matches(self, leaf: Leaf, wanted: Leaf) -> bool:
        """True if the leaf holds the value as whole words, as a number, a date or an account number."""
        if isinstance(leaf.value, bool) or not (isinstance(leaf.value, str) or wanted.words.accounts):
            return False  # a number never matches in part; ``same`` has compared it
        words = leaf.words
        if not isinstance(wanted.value, str):
            return wanted.number is not None and wanted.number in words.numbers
        if wanted.numeral is not None and wanted.numeral in words.numerals:
            return True
        if not wanted.words.squeezed:  # signs alone would match everywhere
            return False
        day = wanted.moment
        if day is not None and ({day[0], (None, *day[0][1:])} & words.dates):
            self._step(len(words.set))
            return day[1] is None or at_clock(day[1], words)
        if wanted.words.accounts and wanted.words.squeezed in words.accounts:
            return True
        return self._holds(words, wanted.words)

    def _was_said(self, said: Said, wanted: Leaf, form: str) -> bool:
        self._step(len(said.forms) + 1)
        if wanted.number is not None and wanted.number in said.words.numbers:
            return True
        return form in said.forms if len(form) >= SHORT else self._holds(said.words, wanted.words)

    def _holds(self, words: Words, wanted: Words) -> bool:
        """True if ``words`` contains ``wanted`` as a contiguous sequence (Knuth-Morris-Pratt, linear time)."""
        pattern = wanted.lexemes
        self._step(len(pattern))
        if not pattern or not words.set.issuperset(pattern):
            return False
        if len(pattern) == 1:
            return True
        text, border, at = words.lexemes, _borders(pattern), 0
        self._step(2 * len(text))
        for lexeme in text:
            while at and pattern[at] != lexeme:
                at = border[at - 1]
            at += pattern[at] == lexeme
            if at == len(pattern):
                return True
        return False

    def _cut(self, text: str) -> Words:
        if len(text) > VALUE_CHARS_MAX:
            raise _TooMuch
        self._step(len(text))
        return Words.of(text)

    def _step(self, count: int) -> None:
        self.steps += count
        if self.steps > self.steps_max:
            raise _TooMuch


def _borders(pattern: Sequence[str]) -> list[int]:
    border, at = [0] * len(pattern), 0
    for place in range(1, len(pattern)):
        while at and pattern[at] != pattern[place]:
            at = border[at - 1]
        at += pattern[at] == pattern[place]
        border[place] = at
    return border
