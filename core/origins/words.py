"""Prepares texts for comparison: folded, cut into whole words, with their numbers, dates and addresses.

Everything takes linear time and gives the same result on every Python: case and character classes are those of Unicode
3.2, which Python ships unchanged. A character unknown to that version is part of a word and is not folded. Nothing is
normalized: texts that look the same but are written differently are different.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from unicodedata import ucd_3_2_0

from core.origins.disguises import UNSEEN, Forms

UNICODE = ucd_3_2_0.unidata_version
_DIGITS_MAX = 40
_WORD_KINDS = "LMN"  # letters, marks, numbers
_KEPT = ("Cn", "Co", "Cs")  # unassigned, private use, surrogates
_BLANKS = re.compile(r"\s+", re.ASCII)
_NUMBER = re.compile(r"([-+]?)(\d{1,3}(?:,\d{3}){1,9}|\d+)(\.\d+)?", re.ASCII)
_ISO = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})(?:[ t](\d{2}:\d{2})(?::00(?:\.0{1,9})?)?)?", re.ASCII
)  # a time with seconds or a zone is compared as text only
_ISO_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:\D.*)?", re.ASCII | re.DOTALL)
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?", re.ASCII)
_YEAR = re.compile(r"\d{4}", re.ASCII)
_MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
MONTHS = {cut: at for at, name in enumerate(_MONTH_NAMES, 1) for cut in (name, name[:3])} | {"sept": 9}
_HOST = re.compile(r"[^/@?#:]*\.[a-z\x80-\U0010ffff]{2,63}(?:[/?#:].*)?", re.DOTALL)
_IP = re.compile(
    r"(?:\d{1,3}\.){3}\d{1,3}(?:[/?#:].*)?|(?=.*\d)(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{1,4}|0x[0-9a-f]{8}", re.DOTALL
)
_GROUP = re.compile(r"(?=[a-z]{0,4}\d)[a-z0-9]{2,34}", re.ASCII)
_ACCOUNT_DIGITS_MIN = 8
_OF_LINKS = ("@", "://", "www.")
_SIGNS = frozenset("!$'*,;()|{}^`.:/@+&=%#?~\\-")  # punctuation that addresses and links may contain
_LISTING = ([","], [";"])

Date = tuple[str | None, int, int]


def _folded(character: str) -> str:
    kind = ucd_3_2_0.category(character)
    if kind[0] == "Z" and character not in UNSEEN:
        return " "
    # Fold only if the capital of the small letter is this character: ß is not ss, and the Kelvin sign is not k.
    small = character.lower()
    return small if kind[0] in _WORD_KINDS and small.upper() == character else character


def _space(character: str) -> str:
    return " " if ucd_3_2_0.category(character)[0] == "Z" and character not in UNSEEN else character


_SPACING = Forms(_space)
# The folded form of each character beyond ASCII.
_FOLDING = Forms(_folded)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The pattern that cuts a folded text, and the pattern for all but letters and digits. Built once, lazily.

    Groups are possessive and adjacent groups share no character, so there is no backtracking: linear time.
    """
    unknown = "".join(
        re.escape(chr(code))
        for code in range(0x80, 0x10000)
        if ucd_3_2_0.category(chr(code))[0] not in _WORD_KINDS and ucd_3_2_0.category(chr(code)) not in _KEPT
    )
    inside = rf"[^\x00-/:-@\[-^`{{-\x7f{unknown}]"
    word = rf"{inside}++(?:[.:/@+&=%#?~\\-]++{inside}++)*+"
    thousands = rf"\d{{1,3}}+(?:,\d{{3}}){{1,9}}+(?:\.\d{{1,20}}+)?+(?![,.:/@-]?{inside})"
    lexemes = rf"(?:(?<!{inside})[-+](?=\d))?+(?:{thousands}|{word})| +|."
    beyond = rf"[\x00-/:-@\[-`{{-\x7f{unknown}]+"
    return re.compile(lexemes, re.ASCII | re.DOTALL), re.compile(beyond)


def fold(text: str) -> str:
    """The text with its case and its blanks folded."""
    folded = text.lower() if text.isascii() else text.translate(_FOLDING)
    return _BLANKS.sub(" ", folded).strip(" ")


def spaced(text: str) -> str:
    """The text with folded blanks and its letters as written; each place corresponds to that of the folded text."""
    return _BLANKS.sub(" ", text if text.isascii() else text.translate(_SPACING)).strip(" ")


@dataclass(frozen=True)
class Words:
    """One text, folded and cut. ``lexemes`` are its words, its blanks and each other character."""

    folded: str

    @classmethod
    def of(cls, text: str) -> Words:
        """Cut a text."""
        return cls(fold(text))

    @cached_property
    def lexemes(self) -> tuple[str, ...]:
        """The words, blanks and other characters, in order."""
        found = _patterns()[0].findall(self.folded)
        return tuple(_glued(found) if any(sign in self.folded for sign in _OF_LINKS) else found)

    @cached_property
    def set(self) -> frozenset[str]:
        """The set of the lexemes."""
        return frozenset(self.lexemes)

    @cached_property
    def squeezed(self) -> str:
        """The letters and digits alone."""
        return squeeze(self.folded)

    @cached_property
    def numbers(self) -> frozenset[Decimal]:
        """The numbers that are separate words, as exact values."""
        return frozenset(found for word in self.set if (found := number(word)) is not None)

    @cached_property
    def numerals(self) -> frozenset[str]:
        """The numbers that are separate words, as written, without the commas between thousands."""
        return frozenset(found for word in self.set if (found := numeral(word)) is not None)

    @cached_property
    def dates(self) -> frozenset[Date]:
        """The dates as (year, or None if there is none; month; day)."""
        return frozenset(_dates([lexeme for lexeme in self.lexemes if lexeme != " "]))

    @cached_property
    def accounts(self) -> frozenset[str]:
        """The account numbers, without the blanks in them."""
        return frozenset(_accounts(self.lexemes))

    def addresses(self) -> list[str]:
        """The addresses, links and host names, in order. In doubt a word is included: each is then traced by itself."""
        found = [word for word in self.lexemes if is_address(word)]
        return [*dict.fromkeys(found), *sorted(self.accounts)]


def is_address(word: str) -> bool:
    """True if a folded word is an address, a link, a host name or an IP address."""
    return _is_link(word) or _HOST.fullmatch(word) is not None or _IP.fullmatch(word) is not None


def borders(pattern: Sequence[str]) -> list[int]:
    """The length of the longest border for each beginning of a pattern (Knuth-Morris-Pratt)."""
    border, at = [0] * len(pattern), 0
    for place in range(1, len(pattern)):
        while at and pattern[at] != pattern[place]:
            at = border[at - 1]
        at += pattern[at] == pattern[place]
        border[place] = at
    return border


def squeeze(folded: str) -> str:
    """The letters and digits of a folded text."""
    return _patterns()[1].sub("", folded)


def number(word: str) -> Decimal | None:
    """The value of a word that is a number; None for other words, and for digits that look like a name (``007``)."""
    found = _NUMBER.fullmatch(word) if len(word) <= _DIGITS_MAX else None
    if found is None or (len(found[2]) > 1 and found[2][0] == "0"):
        return None
    return Decimal(word.replace(",", ""))


def numeral(word: str) -> str | None:
    """The text of a word that is a number, without commas: the version ``1.10`` must not equal ``1.1``."""
    return None if number(word) is None else word.replace(",", "")


def moment(text: str) -> tuple[Date, str | None] | None:
    """The date of an ISO text, and its time of day; None if it is no date, or has seconds or a zone."""
    found = _ISO.fullmatch(fold(text)) if len(text) <= _DIGITS_MAX else None
    if found is None:
        return None
    clock = None if found[4] in (None, "00:00") else found[4]
    return (found[1], int(found[2]), int(found[3])), clock


def at_clock(clock: str, words: Words) -> bool:
    """True if the text contains this time of the day, alone or after a date."""
    wanted = re.compile(rf"(?<!\d){clock}(?!\d)", re.ASCII)
    return any(len(word) <= _DIGITS_MAX and wanted.search(word) for word in words.set if ":" in word)


def _is_link(lexeme: str) -> bool:
    return "@" in lexeme[1:] or "://" in lexeme or lexeme.startswith("www.")


def _glued(lexemes: Sequence[str]) -> Iterator[str]:
    """Yield the words, with the parts of an address joined: ``o'brien@acme.example`` is one word."""
    at, end = 0, len(lexemes)
    while at < end:
        to, link = at + 1, _is_link(lexemes[at])
        while _is_word(lexemes[to - 1]):
            after = to
            while after < end and lexemes[after] in _SIGNS:
                after += 1
            if after in (to, end) or not _is_word(lexemes[after]):
                break
            signs, following = lexemes[to:after], _is_link(lexemes[after])
            listed = signs in _LISTING and "@" in lexemes[to - 1][1:] and "@" in lexemes[after][1:]
            if listed or not (link or following) or (link and "|" in signs):
                break
            to, link = after + 1, True
        yield "".join(lexemes[at:to])
        at = to


def _is_word(lexeme: str) -> bool:
    return len(lexeme) > 1 or lexeme.isalnum() or lexeme == "_"


def _dates(words: Sequence[str]) -> Iterator[Date]:
    for at, word in enumerate(words):
        iso = _ISO_DAY.fullmatch(word)
        if iso is not None:
            yield iso[1], int(iso[2]), int(iso[3])
        month = MONTHS.get(word)
        if month is None:
            continue
        before = [one for one in words[max(0, at - 2) : at] if one != "of"]
        after = [one for one in words[at + 1 : at + 4] if one not in (",", ".")]
        if before and (day := _DAY.fullmatch(before[-1])):
            yield _year(after[:1]), month, int(day[1])
        if after and (day := _DAY.fullmatch(after[0])):
            yield _year(after[1:2]), month, int(day[1])


def _year(words: Sequence[str]) -> str | None:
    return words[0] if words and _YEAR.fullmatch(words[0]) else None


def _accounts(lexemes: Sequence[str]) -> Iterator[str]:
    """Yield account numbers: runs of words of letters and digits, separated only by blanks and hyphens."""
    run = ""
    for lexeme in (*lexemes, ","):
        if lexeme == " ":
            continue
        plain = lexeme.replace("-", "")
        if _GROUP.fullmatch(plain) or (run and plain.isascii() and plain.isalnum() and len(plain) <= 4):
            run += plain
            continue
        if sum(map(str.isdigit, run)) >= _ACCOUNT_DIGITS_MIN:
            yield run
        run = ""
