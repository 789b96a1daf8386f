"""Particulars that a text of one of our own people designates, as opposed to the words that merely occur in it.

A value is designated if the text quotes it, or has it as a whole and in the form of a particular: an address, an
account number, an identifier, an amount, a date or a name. A common word never is, nor is a part of a sentence. A name
is a run of capitalized words; capitals at the beginning of a sentence tell nothing, so such a word is a name only if a
record has it. Everything takes linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from unicodedata import ucd_3_2_0

from core.origins.words import MONTHS, Words, borders, is_address, number, numeral, spaced, squeeze

Key = tuple[str, ...]

_ENDS = frozenset(".!?:;\n")
_CLOSES = {"'": "'", '"': '"', "`": "`", "\u201c": "\u201d", "\u201e": "\u201c", "\u2018": "\u2019", "\u00ab": "\u00bb"}
_QUOTES = frozenset(_CLOSES) | frozenset(_CLOSES.values())
_PARTICLES = frozenset({"of", "de", "del", "la", "le", "van", "von", "der", "den", "da", "al", "bin"})
_MONEY = frozenset("$\u20ac\u00a3\u00a5")
_GAP = re.compile(r"\{[^{}]*\}")
_SENTENCE_WORDS_MIN = 3
_CHUNKS_MAX = 4
_SHOUTED_MIN = 4


@dataclass(frozen=True)
class _Token:
    """A word or sign: folded, as written, and if a blank or nothing stands before it. ``sentence`` counts from 0.

    ``quoted``: it stands in quotes, which designate as a whole.
    """

    folded: str
    raw: str
    apart: bool
    first: bool
    sentence: int
    quoted: bool = False

    @property
    def form(self) -> str:
        """The form in which values are compared: with case, but in a number or an address without a path."""
        plain = number(self.folded) is not None or (is_address(self.folded) and "/" not in self.folded)
        return self.folded if plain else self.raw

    @property
    def is_word(self) -> bool:
        return len(self.folded) > 1 or self.folded.isalnum()

    @property
    def has_digit(self) -> bool:
        return any(map(str.isdecimal, self.folded))

    @property
    def is_capital(self) -> bool:
        """True for a word with a capital, or with one inside (``iPhone``); the pronoun I and months are common."""
        capitals = any(ucd_3_2_0.category(one) in ("Lu", "Lt") for one in self.raw)
        return (
            self.is_word
            and capitals
            and not is_address(self.folded)
            and self.folded not in MONTHS
            and self.folded != "i"
        )


@dataclass(frozen=True)
class Designation:
    """The values that a text designates, each with the sentences where it does; ``names`` are folded.

    ``initial`` are capitalized words that begin a sentence: names only if a record has them. ``sentences`` are the
    words of each sentence.
    """

    keys: dict[Key, set[int]] = field(default_factory=dict)
    names: dict[Key, set[int]] = field(default_factory=dict)
    quoted: set[Key] = field(default_factory=set)
    numbers: dict[Decimal, set[int]] = field(default_factory=dict)
    numerals: dict[str, set[int]] = field(default_factory=dict)
    initial: dict[Key, set[int]] = field(default_factory=dict)
    sentences: list[frozenset[str]] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    _text: Key = ()
    _starts: frozenset[int] = frozenset()
    _ends: frozenset[int] = frozenset()

    @classmethod
    def of(cls, text: str) -> Designation:
        """Read a text."""
        tokens = [*_tokens(text)]
        found = cls(
            _text=tuple(one.folded for one in tokens),
            _starts=frozenset(at for at, one in enumerate(tokens) if one.first),
            _ends=frozenset(at for at, one in enumerate(tokens) if one.folded in _ENDS) | {len(tokens)},
        )
        words: list[list[str]] = [[] for _ in range(tokens[-1].sentence + 1)] if tokens else []
        for one in tokens:
            words[one.sentence].append(one.folded)
        found.sentences.extend(map(frozenset, words))
        _quotes(tokens, found)
        _particulars(tokens, found)
        _names(tokens, found)
        return found

    def says(self, text: str) -> bool:
        """True if the text is quoted, or is whole sentences of this one: at least three words."""
        wanted = _bare(tuple(one.folded for one in _tokens(text)))
        if wanted in self.quoted:
            return True
        if sum(len(one) > 1 or one.isalnum() for one in wanted) < _SENTENCE_WORDS_MIN:
            return False
        return any(at in self._starts and at + len(wanted) in self._ends for at in _places(wanted, self._text))

    def filled(self, text: str) -> list[str] | None:
        """The texts that fill the gaps of a quoted text, such as ``Dinner at {place}``; None if this is none."""
        told = _joined([*_tokens(text)])
        return next((found for one in self.templates if (found := _gaps(one, told)) is not None), None)


def folded_key(text: str) -> Key:
    """The words and signs of a name, folded."""
    return _bare(tuple(one.folded for one in _tokens(text)), ends="\n")


def key_of(text: str) -> Key:
    """The words and signs of a value, as they are looked up."""
    return _bare(tuple(one.form for one in _tokens(text)), ends="\n")


def _bare(key: Key, ends: str = ".!?\n") -> Key:
    end = len(key)
    while end and key[end - 1] in ends:
        end -= 1
    return key[:end]


def _places(wanted: Key, text: Key) -> Iterator[int]:
    """Yield where a sequence begins in another one (Knuth-Morris-Pratt, linear time)."""
    border, at = borders(wanted), 0
    for place, one in enumerate(text):
        while at and (at == len(wanted) or wanted[at] != one):
            at = border[at - 1]
        at += wanted[at] == one
        if at == len(wanted):
            yield place + 1 - at


def _tokens(text: str) -> Iterator[_Token]:
    sentence, first = 0, True
    for line in text.splitlines():
        shaped, at, apart = spaced(line), 0, True
        for lexeme in Words.of(line).lexemes:
            raw, at = shaped[at : at + len(lexeme)], at + len(lexeme)
            if lexeme == " ":
                apart = True
                continue
            ends = lexeme in _ENDS
            yield _Token(lexeme, raw, apart, first and not ends, sentence)
            first, apart = ends or (first and lexeme in _QUOTES | {"(", "-", "*"}), False
            sentence += ends and lexeme != ":"  # what follows a colon belongs to what stands before it
        yield _Token("\n", "\n", False, False, sentence)
        sentence, first = sentence + 1, True


def _joined(tokens: Sequence[_Token]) -> str:
    return "".join(f"{' ' if one.apart else ''}{one.folded}" for one in tokens).strip(" \n")


def _gaps(template: str, text: str) -> list[str] | None:
    literals = _GAP.split(template)
    if len(literals) < 2 or not squeeze("".join(literals)):  # without a word of its own it would be anything
        return None
    first, *inner, last = literals
    if not text.startswith(first) or not text.endswith(last):
        return None
    at, found, end = len(first), list[str](), len(text) - len(last)
    for literal in inner:
        place = text.find(literal, at + 1, end)
        if not literal or place < 0:
            return None
        found, at = [*found, text[at:place]], place + len(literal)
    return [*found, text[at:end]] if at < end else None


def _add(keys: dict[Key, set[int]], tokens: Sequence[_Token]) -> None:
    keys.setdefault(tuple(one.form for one in tokens), set()).add(tokens[0].sentence)


def _quotes(tokens: list[_Token], found: Designation) -> None:
    """Find what stands in quotes as a whole. An apostrophe within a word opens and closes nothing."""
    closers: dict[str, list[int]] = {}
    for at, one in enumerate(tokens):
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        if one.folded in _QUOTES and not one.apart and (after is None or after.apart or not after.is_word):
            closers.setdefault(one.folded, []).append(at)
    at = 0
    while at < len(tokens) - 1:
        one, before = tokens[at], tokens[at - 1] if at else None
        opens = one.folded in _CLOSES and (one.apart or before is None or not before.is_word)
        places = closers.get(_CLOSES.get(one.folded, ""), []) if opens and not tokens[at + 1].apart else []
        index = bisect_right(places, at + 1)
        if index < len(places):
            inner = tokens[at + 1 : places[index]]
            _add(found.keys, inner)
            if any(each.folded == "{" for each in inner):
                found.templates.append(_joined(inner))
            found.quoted.add(_bare(tuple(each.folded for each in inner)))
            tokens[at + 1 : places[index]] = [replace(each, quoted=True) for each in inner]
            at = places[index]
        at += 1


def _particulars(tokens: Sequence[_Token], found: Designation) -> None:
    """Find numbers, addresses, and words with a digit or an underscore in them, or with # or @ before them."""
    for at, one in enumerate(tokens):
        after = tokens[at + 1].folded if at + 1 < len(tokens) else ""
        value = number(one.folded)
        if value is not None:
            if after != "%" and not (one.first and after in (".", ")")):  # neither a share nor the number of a point
                found.numbers.setdefault(value, set()).add(one.sentence)
                found.numerals.setdefault(numeral(one.folded) or "", set()).add(one.sentence)
            if at and tokens[at - 1].folded in _MONEY and not one.apart:
                _add(found.keys, tokens[at - 1 : at + 1])
        elif one.is_word and (one.has_digit or _is_path(one.folded) or is_address(one.folded)):
            _add(found.keys, [one])
        elif one.folded in "#@" and one.apart and at + 1 < len(tokens) and not tokens[at + 1].apart:
            _add(found.keys, tokens[at : at + 2])
            _add(found.keys, tokens[at + 1 : at + 2])


def _is_path(word: str) -> bool:
    return "_" in word or "." in word[1:-1] or word.count("/") > 1


def _names(tokens: Sequence[_Token], found: Designation) -> None:
    """Find runs of capitalized words, and postal addresses: several such runs with commas between and a digit."""
    loud = _shouted(tokens, len(found.sentences))
    runs: list[tuple[int, int]] = []
    at = 0
    while at < len(tokens):
        end, after = _run(tokens, at)
        if end == at or tokens[at].sentence in loud or tokens[at].quoted:
            at = max(after, at + 1)
            continue
        run = tokens[at:end]
        opening = run[0].first and run[0].is_capital
        if opening and not any(one.is_capital for one in run[1:]):
            _add(found.initial, run[:1])
            at = end
            continue
        for name in (run, run[1:]) if opening else (run,):
            _add(found.keys, name)
            found.names.setdefault(tuple(one.folded for one in name), set()).add(name[0].sentence)
        runs.append((at, end))
        _postal(tokens, runs, found)
        at = end


def _run(tokens: Sequence[_Token], at: int) -> tuple[int, int]:
    """The end of the run of names that begins here, ``at`` if none does; and how far was looked."""
    end, last, capital = at, at, False
    while end < len(tokens) and tokens[end].sentence == tokens[at].sentence:
        one = tokens[end]
        if one.quoted != tokens[at].quoted:
            break
        inner = end > at and (one.folded in _PARTICLES or (one.folded in "'\u2019" and not one.apart))
        if one.is_word and (one.is_capital or one.has_digit):
            last, capital = end + 1, capital or one.is_capital
        elif not inner or last != end:
            break
        end += 1
    return (last if capital else at), end


def _postal(tokens: Sequence[_Token], runs: Sequence[tuple[int, int]], found: Designation) -> None:
    """Add the runs before the last one that only commas part from it, as far as a digit is in all of it."""
    end = runs[-1][1]
    for index in range(len(runs) - 2, max(-1, len(runs) - 1 - _CHUNKS_MAX), -1):
        if tokens[runs[index][1]].folded != "," or runs[index][1] + 1 != runs[index + 1][0]:
            return
        whole = tokens[runs[index][0] : end]
        if any(one.has_digit for one in whole):
            _add(found.keys, whole)


def _shouted(tokens: Sequence[_Token], count: int) -> set[int]:
    """The sentences in which capitals tell nothing: nearly every word has one."""
    words, capitals = [0] * count, [0] * count
    for one in tokens:
        words[one.sentence] += one.is_word and not one.has_digit
        capitals[one.sentence] += one.is_capital and not one.has_digit
    return {at for at in range(count) if words[at] >= _SHOUTED_MIN and capitals[at] * 4 > words[at] * 3}
