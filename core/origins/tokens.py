"""Cuts a text by one of our own people into words and signs, as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from unicodedata import ucd_3_2_0

from core.origins.words import MONTHS, Words, is_address, number, spaced

ENDS = frozenset(".!?:;\n")
CLOSES = {"'": "'", '"': '"', "`": "`", "\u201c": "\u201d", "\u201e": "\u201c", "\u2018": "\u2019", "\u00ab": "\u00bb"}
QUOTES = frozenset(CLOSES) | frozenset(CLOSES.values())
_DAYS = {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
_COMMON = frozenset({"i", *MONTHS, *_DAYS})


@dataclass(frozen=True)
class Token:
    """A word or sign: folded, as written, and a flag if nothing or a blank precedes it. ``sentence`` counts from 0.

    ``quoted``: it is inside quotes, which designate only as a whole. ``denied``: the text negates it.
    """

    folded: str
    raw: str
    apart: bool
    first: bool
    sentence: int
    place: int
    quoted: bool = False
    denied: bool = False

    @property
    def form(self) -> str:
        """The form in which values are compared: with its case, except for numbers and addresses without a path."""
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
        """True for a word with a capital, also inside (``iPhone``), except the pronoun I, months and days."""
        capitals = any(ucd_3_2_0.category(one) in ("Lu", "Lt") for one in self.raw)
        return self.is_word and capitals and not is_address(self.folded) and self.folded not in _COMMON


def tokens_of(text: str) -> list[Token]:
    """The words and signs of a text, in order; each line ends with a newline."""
    return [*_tokens(text)]


def _tokens(text: str) -> Iterator[Token]:
    sentence, first, place = 0, True, 0
    for line in text.splitlines():
        shaped, at, apart = spaced(line), 0, True
        for lexeme in Words.of(line).lexemes:
            raw, at = shaped[at : at + len(lexeme)], at + len(lexeme)
            if lexeme == " ":
                apart = True
                continue
            ends = lexeme in ENDS
            yield Token(lexeme, raw, apart, first and not ends, sentence, place)
            first, apart, place = ends or (first and lexeme in QUOTES | {"(", "-", "*"}), False, place + 1
            sentence += ends and lexeme != ":"  # a colon does not end a sentence
        yield Token("\n", "\n", False, False, sentence, place)
        sentence, first, place = sentence + 1, True, place + 1
