"""Finds the particulars that a text by one of our own people designates, not the words that merely occur in it.

A value is designated if the text quotes it, or has it as a whole and in the form of a particular: an address, an
account number, an identifier, an amount, a date or a name. A common word or a part of a sentence is never designated. A
name is a run of capitalized words; a capital at the beginning of a sentence proves nothing, so such a word is a name
only if a record has it. Everything takes linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from typing import TypeAlias
from unicodedata import ucd_3_2_0

from core.origins.figures import MONEY, accounts_in, clocks_in, dates_in, denied_in, is_amount, is_own, of_money
from core.origins.tokens import CLOSES, ENDS, QUOTES, Token, tokens_of
from core.origins.words import Date, Words, borders, is_address, number, numeral, squeeze

Key = tuple[str, ...]
Span: TypeAlias = range

_PARTICLES = frozenset({"of", "de", "del", "la", "le", "van", "von", "der", "den", "da", "al", "bin"})
_GAP = re.compile(r"\{[^{}]*\}")
_SENTENCE_WORDS_MIN = 3
_CHUNKS_MAX = 4
_SHOUTED_MIN = 4
_IS = (["as"], ["is"], ["for"])
_NEAR_MAX = 40


@dataclass(frozen=True)
class Designation:
    """The values that a text designates, each with the spans of words where it does; ``names`` are folded.

    ``initial`` are capitalized words that begin a sentence: names only if a record has them. ``amounts`` are the
    ``numbers`` that are sums; ``accounts`` are account numbers, without their blanks. ``dates`` have the sentences in
    which they occur, ``clocks`` are times of the day by sentence.
    """

    keys: dict[Key, set[Span]] = field(default_factory=dict)
    names: dict[Key, set[Span]] = field(default_factory=dict)
    quoted: set[Key] = field(default_factory=set)
    numbers: dict[Decimal, set[Span]] = field(default_factory=dict)
    numerals: dict[str, set[Span]] = field(default_factory=dict)
    amounts: set[Decimal] = field(default_factory=set)
    accounts: frozenset[str] = frozenset()
    initial: dict[Key, set[Span]] = field(default_factory=dict)
    templates: list[str] = field(default_factory=list)
    dates: dict[Date, set[int]] = field(default_factory=dict)
    clocks: dict[int, set[str]] = field(default_factory=dict)
    _tokens: Sequence[Token] = ()
    _taken: dict[int, Span] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Designation:
        """Parse a text."""
        tokens = tokens_of(text)
        refused = {*denied_in(tokens)}
        tokens = [replace(one, denied=True) if one.place in refused else one for one in tokens]
        found = cls(accounts=Words.of(accounts_in(tokens)).accounts, _tokens=tokens)
        _quotes(tokens, found)
        taken = _times(tokens, found)
        _particulars(tokens, taken, found)
        _names(tokens, found)
        for span in sorted({*chain(*found.numbers.values(), *found.keys.values(), *found.names.values())}, key=_length):
            found._taken.update(dict.fromkeys(span, span))
        return found

    def says(self, text: str) -> bool:
        """True if ``text`` has three words or more, and is quoted in this text or consists of whole sentences of it."""
        wanted = _bare(tuple(one.folded for one in tokens_of(text)))
        if wanted in self.quoted:
            return True
        if sum(len(one) > 1 or one.isalnum() for one in wanted) < _SENTENCE_WORDS_MIN:
            return False
        text_words = tuple(one.folded for one in self._tokens)
        return any(
            _begins(self._tokens, at) and _is_end(self._tokens, at + len(wanted)) for at in _places(wanted, text_words)
        )

    def has_date(self, day: Date, clock: str | None) -> bool:
        """True if the text has this date, and the time of day in the same sentence.

        A time in another sentence counts if the text has no other date, and the date's sentence no time.
        """
        places = self.dates.get(day, set()) | self.dates.get((None, *day[1:]), set())
        if clock is None or not places:
            return bool(places)
        times = [self.clocks[one] for one in places if one in self.clocks]
        if not times and len({one[1:] for one in self.dates}) == 1:
            times = [*self.clocks.values()]
        return any(clock in one for one in times)

    def context_of(self, span: Span) -> frozenset[str]:
        """The words of a particular, and the words that say what it is: before it, or after it behind ``as`` or ``is``.

        They end at another particular, at a comma, and at the end of the sentence.
        """
        inner = [self._tokens[at] for at in span]  # 12 Elm Street
        is_postal = any(one.has_digit for one in inner) and not any(one.quoted for one in inner)
        words = {one.folded for one in inner} if is_postal else set()
        before, _ = self._near(reversed(range(max(0, span.start - _NEAR_MAX), span.start)), span, ",;")
        behind, other = self._near(range(span.stop, min(span.stop + _NEAR_MAX, len(self._tokens))), span, ",;:")
        return frozenset({*words, *before, *(behind if behind[:1] in _IS and not other else ())})

    def _near(self, there: Iterable[int], span: Span, ends: str) -> tuple[list[str], bool]:
        """The words at these places, and whether another particular ended them."""
        words: list[str] = []
        for at in there:
            other, one = self._taken.get(at), self._tokens[at]
            if other is not None and (other.stop <= span.start or other.start >= span.stop):
                return words, True
            if one.folded in ends or one.sentence != self._tokens[span.start].sentence:
                break
            words += [one.folded] if one.is_word else []
        return words, False

    def filled(self, text: str) -> list[str] | None:
        """The texts in the gaps of a quoted template such as ``Dinner at {place}``; None if ``text`` fits none."""
        joined = _joined(tokens_of(text))
        return next((found for one in self.templates if (found := _gaps(one, joined)) is not None), None)


def folded_key(text: str) -> Key:
    """The words and signs of a name, folded."""
    return _bare(tuple(one.folded for one in tokens_of(text)), ends="\n")


def key_of(text: str) -> Key:
    """The words and signs of a value, as they are looked up."""
    return _bare(tuple(one.form for one in tokens_of(text)), ends="\n")


def _bare(key: Key, ends: str = ".!?\n") -> Key:
    end = len(key)
    while end and key[end - 1] in ends:
        end -= 1
    return key[:end]


def _places(wanted: Key, text: Key) -> Iterator[int]:
    """Yield the places at which a sequence occurs in another one (Knuth-Morris-Pratt, linear time)."""
    border, at = borders(wanted), 0
    for place, one in enumerate(text):
        while at and (at == len(wanted) or wanted[at] != one):
            at = border[at - 1]
        at += wanted[at] == one
        if at == len(wanted):
            yield place + 1 - at


def _joined(tokens: Sequence[Token]) -> str:
    return "".join(f"{' ' if one.apart else ''}{one.folded}" for one in tokens).strip(" \n")


def _gaps(template: str, text: str) -> list[str] | None:
    literals = _GAP.split(template)
    if len(literals) < 2 or not squeeze("".join(literals)):  # a template without a word of its own would match anything
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


def _begins(tokens: Sequence[Token], at: int) -> bool:
    """True if a sentence begins here. A small letter after a dot begins none (``i.e. this``)."""
    if not tokens[at].first:
        return False
    before = at - 1
    while before >= 0 and not tokens[before].is_word and tokens[before].folded not in ENDS:
        before -= 1
    return before < 0 or tokens[before].folded in ":\n" or (tokens[before].folded != ";" and not _is_small(tokens[at]))


def _is_end(tokens: Sequence[Token], at: int) -> bool:
    """True if a sentence ends before this place."""
    if at >= len(tokens) or tokens[at].folded == "\n":
        return True
    return tokens[at].folded in ".!?" and not (at + 1 < len(tokens) and _is_small(tokens[at + 1]))


def _is_small(one: Token) -> bool:
    return ucd_3_2_0.category(one.raw[0]) == "Ll"


def _length(span: Span) -> int:
    return len(span)


def _span(tokens: Sequence[Token]) -> Span:
    return range(tokens[0].place, tokens[-1].place + 1)


def _add(keys: dict[Key, set[Span]], tokens: Sequence[Token]) -> None:
    if not any(one.denied for one in tokens):
        keys.setdefault(tuple(one.form for one in tokens), set()).add(_span(tokens))


def _quotes(tokens: list[Token], found: Designation) -> None:
    """Find quoted texts. An apostrophe within a word is no quotation mark."""
    closers: dict[str, list[int]] = {}
    for at, one in enumerate(tokens):
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        if one.folded in QUOTES and not one.apart and (after is None or after.apart or not after.is_word):
            closers.setdefault(one.folded, []).append(at)
    at = 0
    while at < len(tokens) - 1:
        one, before = tokens[at], tokens[at - 1] if at else None
        opens = one.folded in CLOSES and (one.apart or before is None or not before.is_word)
        places = closers.get(CLOSES.get(one.folded, ""), []) if opens and not tokens[at + 1].apart else []
        index = bisect_right(places, at + 1)
        if index < len(places):
            inner = tokens[at + 1 : places[index]]
            _add(found.keys, inner)
            if any(each.folded == "{" for each in inner):
                found.templates.append(_joined(inner))
            if not any(each.denied for each in inner):
                found.quoted.add(_bare(tuple(each.folded for each in inner)))
            tokens[at + 1 : places[index]] = [replace(each, quoted=True) for each in inner]
            at = places[index]
        at += 1


def _times(tokens: Sequence[Token], found: Designation) -> set[int]:
    """Find dates and times of the day. Returns the places of the words of dates."""
    taken: set[int] = set()
    for day, clock, places in dates_in(tokens):
        taken.update(places)
        if not tokens[places[0]].denied:
            sentence = tokens[places[0]].sentence
            found.dates.setdefault(day, set()).add(sentence)
            if clock is not None:
                found.clocks.setdefault(sentence, set()).add(clock)
    for one in tokens:
        if not one.denied and (clocks := clocks_in(one)):
            found.clocks.setdefault(one.sentence, set()).update(clocks)
    return taken


def _particulars(tokens: Sequence[Token], taken: Collection[int], found: Designation) -> None:
    """Find numbers, addresses, and words with a digit or an underscore in them, or with # or @ before them."""
    money, last_sum = of_money(tokens), -1  # the last sentence in which a sum was found
    for at, one in enumerate(tokens):
        after = tokens[at + 1].folded if at + 1 < len(tokens) else ""
        value = number(one.folded)
        if value is not None:
            # A percentage, the number of an item (``2.``) and a part of a date or address are no numbers of their own.
            own = after != "%" and not (one.first and after in (".", ")")) and at not in taken and is_own(tokens, at)
            if own and not one.denied:
                found.numbers.setdefault(value, set()).add(_span([one]))
                found.numerals.setdefault(numeral(one.folded) or "", set()).add(_span([one]))
                if is_amount(tokens, at, money, again=last_sum == one.sentence):
                    last_sum = one.sentence
                    found.amounts.add(value)
            if at and tokens[at - 1].folded in MONEY and not one.apart:
                _add(found.keys, tokens[at - 1 : at + 1])
        elif one.is_word and (one.has_digit or _is_path(one.folded) or is_address(one.folded)):
            _add(found.keys, [one])
        elif one.folded in "#@" and one.apart and at + 1 < len(tokens) and not tokens[at + 1].apart:
            _add(found.keys, tokens[at : at + 2])
            _add(found.keys, tokens[at + 1 : at + 2])


def _is_path(word: str) -> bool:
    return "_" in word or "." in word[1:-1] or word.count("/") > 1


def _names(tokens: Sequence[Token], found: Designation) -> None:
    """Find runs of capitalized words, and postal addresses: several such runs with commas between and a digit."""
    loud = _shouted(tokens)
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
            if not any(one.denied or (len(name) == 1 and one.has_digit) for one in name):  # an identifier has its case
                found.names.setdefault(tuple(one.folded for one in name), set()).add(_span(name))
        runs.append((at, end))
        _postal(tokens, runs, found)
        at = end


def _run(tokens: Sequence[Token], at: int) -> tuple[int, int]:
    """The end of the run of names that begins at ``at`` (``at`` if there is none), and the last place looked at."""
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


def _postal(tokens: Sequence[Token], runs: Sequence[tuple[int, int]], found: Designation) -> None:
    """Add postal addresses: runs of names separated only by commas, if there is a digit in them."""
    end = runs[-1][1]
    for index in range(len(runs) - 2, max(-1, len(runs) - 1 - _CHUNKS_MAX), -1):
        if tokens[runs[index][1]].folded != "," or runs[index][1] + 1 != runs[index + 1][0]:
            return
        whole = tokens[runs[index][0] : end]
        if any(one.has_digit for one in whole):
            _add(found.keys, whole)


def _shouted(tokens: Sequence[Token]) -> set[int]:
    """The sentences in which capitals prove nothing, because nearly every word has one."""
    count = tokens[-1].sentence + 1 if tokens else 0
    words, capitals = [0] * count, [0] * count
    for one in tokens:
        words[one.sentence] += one.is_word and not one.has_digit
        capitals[one.sentence] += one.is_capital and not one.has_digit
    return {at for at in range(count) if words[at] >= _SHOUTED_MIN and capitals[at] * 4 > words[at] * 3}
