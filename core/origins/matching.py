"""Finds the origins of an agent's calls: looks for the model's arguments in the sources that it was shown before.

A value that the model said first stays the model's, even if a later source repeats it. A source matches only by whole
words; the model's own words match by any part of a word. A value in a text of our own people is theirs only if they
designate it (``designation``); otherwise it is ``mentioned``. Work is counted; a value that would take too much is
``unknown``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from core.canonical import Json
from core.origins.alike import alike
from core.origins.disguises import disguises, plain
from core.origins.kinds import ArgumentKind, MatchKind, Sought, designates
from core.origins.leaves import Leaf, Scalar, leaves, same, scalars
from core.origins.lookups import bears, names_in, phrased, records_at
from core.origins.model_words import SHORT, ModelWords, Parts
from core.origins.words import Words, at_clock, borders

VERSION = 2  # 2: only designated values count as our people's; 1: all their words did
STEPS_MAX = 4_000_000
VALUE_CHARS_MAX = 64 * 1024
SOURCE_CHARS_MAX = 1024 * 1024
VALUE_COSTS = 16  # the fixed cost of each value, in characters, besides its length
CONVERSATION_CHARS_MAX = 4 * 1024 * 1024
CARRIED_CHARS_MIN = 5
_LEAF_STEPS = 4

# The labels of outsiders' texts. A person who repeats such a value in a form does not make it their own.
_OF_OTHERS = ("tool:", "trigger:", "signal:", "unknown")

REQUESTER, WORKFLOW, PERSON, MODEL, UNKNOWN, TEXT = "requester", "workflow", "person", "model", "unknown", "text"
MENTIONED, SPENT = "mentioned", "spent"
"""Among the words of somebody of ours who designates nothing with them; designated by the requester, and used before.

They never stand alone: with no other source, the value is the model's as well, so a rule against ``model`` holds.
"""
_OURS = (REQUESTER, WORKFLOW, PERSON)


@dataclass(frozen=True)
class _Event:
    """A source that the model was shown (``label``) or its own words (``words``). ``hidden``: withheld or too large."""

    label: str = ""
    leaves: tuple[Leaf, ...] = ()
    tool: str = ""
    only: str | None = None  # the pointer of the only record that the requester's words can mean
    words: ModelWords | None = None
    hidden: bool = False
    protected: frozenset[str] = frozenset()  # the fields of a result that not just anyone may write outside


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
    _read: set[int] = field(default_factory=set)

    def add_source(self, label: str, value: Json) -> None:
        """Add a source with its label: ``requester``, ``workflow``, ``person``, ``trigger:…`` or ``signal:…``."""
        self._add(label, value)

    def add_call(self, arguments: Json) -> bool:
        """Add a model's call, performed or refused. Returns True if all of its values are in the requester's words."""
        every = self._within(arguments)
        if every is None:
            self._events.append(_Event(words=ModelWords.of(()), hidden=True))
            return False
        values, keys = [leaf for leaf in every if not leaf.key], [leaf for leaf in every if leaf.key]
        absent, self.steps = any(value is None for value in scalars(arguments)), 0
        own = bool(values) and not absent and all(self._is_requesters(leaf.value) for leaf in values)
        texts = [leaf.text for leaf in (*values, *keys)]
        self._parts.add(texts, len(self._events))
        self._events.append(_Event(words=ModelWords.of(texts)))
        return own

    def add_result(
        self,
        operation: str,
        result: Json,
        *,
        records: str | None = None,
        own: bool = False,
        protected: Collection[str] = (),
        asked: Json = None,
    ) -> None:
        """Add the result of a performed call. ``records`` is the JSON Pointer to its records, ``asked`` its arguments.

        ``own``: the call's values were all in the requester's words. If the result then has only one record, or only
        one with the name that was asked for, its fields are a ``lookup`` of the requester's words. ``protected`` are
        the fields (pointers without list indexes) that not just anyone may write outside: a name in them counts as a
        name of a record.
        """
        names = frozenset(protected)
        only = None if records is None else self._only(result, records, names, asked, own=own)
        self._add(f"tool:{operation}", result, operation, only, names)

    def _only(self, result: Json, records: str, protected: frozenset[str], asked: Json, *, own: bool) -> str | None:
        """The pointer to the only record that a query in the requester's words can mean; None if there is none."""
        found = records_at(result, records)
        if found is None:
            return None
        self.steps, values = 0, [*scalars(asked)]
        if len(found) == 1:
            names = names_in(found[0], records, protected)
            own = own or (bool(values) and all(self._asks_for(one, names) for one in values))
            return records if own else None
        bearers = [at for at, one in enumerate(found) if bears(names_in(one, records, protected), values)]
        return f"{records}/{bearers[0]}" if own and len(bearers) == 1 else None

    def _asks_for(self, value: Scalar | None, names: list[Leaf]) -> bool:
        """True if a query is the requester's value, or several of their words that are in the record's name."""
        if value is None or isinstance(value, bool):
            return False
        found = self._of(value)
        return UNKNOWN not in found and (REQUESTER in found or (MENTIONED in found and phrased(value, names)))

    def withheld(self) -> None:
        """Add a source that cannot be read: any later value may come from it, so ``unknown`` is among its origins."""
        self._events.append(_Event(hidden=True))

    def origins(
        self, value: Json, kind: ArgumentKind = ArgumentKind.VALUE, *, known: Collection[str] = (), name: str = ""
    ) -> list[list[str]]:
        """The origins of an argument: one list for each value in it, at least one.

        ``known`` are the property names that the schema declares; every other key counts as a value too. ``name`` is
        the argument's own, which a ``named`` value must have beside it.
        """
        self.steps = 0
        self._read.clear()
        if kind is ArgumentKind.FLAG:
            return [[MODEL]]
        found, cue = [], frozenset(name.lower().split("_")) - {""}
        for part in scalars(value, known):
            if part is None or isinstance(part, bool) or part == "":
                found.append([MODEL])
            elif kind is ArgumentKind.TEXT and isinstance(part, str):
                found += self._text(part)
            else:
                found.append(self._of(part, ArgumentKind.VALUE if kind is ArgumentKind.TEXT else kind, cue))
        return found or [[MODEL]]

    def carries(self, value: Json) -> list[str]:
        """The fields of results whose whole value (five characters or more) is contained in ``value``; sorted."""
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

    def _add(
        self, label: str, value: Json, tool: str = "", only: str | None = None, protected: frozenset[str] = frozenset()
    ) -> None:
        every = self._within(value)
        self._events.append(
            _Event(hidden=True) if every is None else _Event(label, every, tool, only, protected=protected)
        )

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
        whole = self._of(text, ArgumentKind.TEXT)
        try:
            every = [self._cut(other) for other in (text, *self._disguises(text))]
        except _TooMuch:
            return [[UNKNOWN]]
        parts = dict.fromkeys(part for words in every for part in words.addresses())
        found = [self._of(part) for part in parts]
        filled = self._filled(text) if MODEL in whole else None
        if filled is not None:
            return [[REQUESTER], *([*self._of(one), TEXT] for one in filled), *found]
        return [[*whole, TEXT] if MODEL in whole else whole, *found]

    def _filled(self, text: str) -> list[str] | None:
        """The texts in the gaps, if the text fits a template with gaps that the requester has quoted; else None."""
        for event in self._events:
            for leaf in event.leaves if event.label == REQUESTER else ():
                self.steps += len(leaf.text) + len(text)
                found = leaf.designation.filled(text)
                if found is not None:
                    return found
        return None

    def _disguises(self, text: str) -> Iterator[str]:
        self._step(len(text))
        return disguises(text) if len(text) <= VALUE_CHARS_MAX else iter(())

    def _of(
        self, value: Scalar, kind: ArgumentKind = ArgumentKind.VALUE, cue: frozenset[str] = frozenset()
    ) -> list[str]:
        """The alternatives for one value, sorted."""
        found: set[str] = set()
        if isinstance(value, bool):
            return [MODEL]
        try:
            wanted = Sought(Leaf(value, "", ""), kind, cue)
            self._cut(str(value))
            form = plain(wanted.leaf.text)
            complete = self._parts.complete(form, self._step)
            for at, event in enumerate(self._events):
                if event.hidden:
                    found.add(UNKNOWN)
                    if event.words is not None:
                        break
                elif event.words is not None:
                    if self._was_said(event.words, wanted.leaf, form) or (complete is not None and complete <= at):
                        break
                elif event.label in _OURS:
                    found |= self._ours(at, event, wanted, found)
                else:
                    found |= self._in(event, wanted.leaf)
        except _TooMuch:
            return [UNKNOWN]
        return sorted(found | ({MODEL} if found <= {MENTIONED, UNKNOWN} and found != {UNKNOWN} else set()))

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

    def _ours(self, at: int, event: _Event, wanted: Sought, others: set[str]) -> set[str]:
        """The label of our own person if they designate the value; ``mentioned`` if it merely occurs.

        A value that came from others is not the person's, even if the person repeats it in another spelling.
        """
        occurs = False
        for leaf in event.leaves:
            self._step(_LEAF_STEPS)
            whole = not leaf.key and same(leaf, wanted.leaf)
            how = self._matches(leaf, wanted.leaf) or (MatchKind.WORDS if whole else None)
            if how is None:
                continue
            occurs = True
            if not leaf.key and self._designates(leaf, how, wanted, whole=whole):
                theirs = self._others(at, wanted.leaf, others) if event.label == PERSON else set()
                return theirs or {event.label}
        return {MENTIONED} if occurs else set()

    def _others(self, at: int, wanted: Leaf, found: set[str]) -> set[str]:
        """The labels of earlier sources from others with this value, in the same or another spelling."""
        same_value = {one for one in found if one.startswith(_OF_OTHERS)}
        if same_value:
            return same_value
        for event in self._events[:at]:
            for leaf in event.leaves if event.label.startswith(_OF_OTHERS) else ():
                self._step(len(leaf.text) + len(wanted.text))
                if not leaf.key and alike(leaf, wanted):
                    return {event.label}
        return set()

    def _designates(self, leaf: Leaf, how: MatchKind, wanted: Sought, *, whole: bool) -> bool:
        """True if a text by our own people designates a value that occurs in it, for an argument of this kind."""
        if id(leaf) not in self._read:  # a text is read once for all values of an argument
            self._read.add(id(leaf))
            self._step(2 * len(leaf.text))
        if wanted.kind in (ArgumentKind.TEXT, ArgumentKind.NAMED):
            self._step(len(leaf.text))
        return designates(leaf, how, wanted, lambda: self._is_recorded(wanted.leaf), whole=whole)

    def _is_recorded(self, wanted: Leaf) -> bool:
        """True if a record has this name as a whole, in a field that not just anyone may write."""
        for event in self._events:
            for leaf in event.leaves if event.protected else ():
                self._step(1)
                if not leaf.key and leaf.name in event.protected and same(leaf, wanted):
                    return True
        return False

    def _matches(self, leaf: Leaf, wanted: Leaf) -> MatchKind | None:
        """The way in which the leaf holds the value; None if it does not. Words are whole.

        A number never matches in part; ``same`` compares whole ones.
        """
        if isinstance(leaf.value, bool) or not (isinstance(leaf.value, str) or wanted.words.accounts):
            return None
        words = leaf.words
        if not isinstance(wanted.value, str):
            return MatchKind.NUMBER if wanted.number is not None and wanted.number in words.numbers else None
        if wanted.numeral is not None and wanted.numeral in words.numerals:
            return MatchKind.NUMBER
        if not wanted.words.squeezed:  # a value of signs alone would match everywhere
            return None
        day = wanted.moment
        if day is not None and ({day[0], (None, *day[0][1:])} & words.dates):
            self._step(len(words.set))
            return MatchKind.DATE if day[1] is None or at_clock(day[1], words) else None
        if wanted.words.accounts and wanted.words.squeezed in words.accounts:
            return MatchKind.ACCOUNT
        return MatchKind.WORDS if self._holds(words, wanted.words) else None

    def _was_said(self, own_words: ModelWords, wanted: Leaf, form: str) -> bool:
        self._step(len(own_words.forms) + 1)
        if wanted.number is not None and wanted.number in own_words.words.numbers:
            return True
        return form in own_words.forms if len(form) >= SHORT else self._holds(own_words.words, wanted.words)

    def _holds(self, words: Words, wanted: Words) -> bool:
        """True if ``words`` contains ``wanted`` as a contiguous sequence (Knuth-Morris-Pratt, linear time)."""
        pattern = wanted.lexemes
        self._step(len(pattern))
        if not pattern or not words.set.issuperset(pattern):
            return False
        if len(pattern) == 1:
            return True
        text, border, at = words.lexemes, borders(pattern), 0
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
