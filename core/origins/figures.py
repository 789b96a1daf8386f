"""Finds the numbers, dates and times in a text of one of our own people, and the words that it negates.

A number that is part of something else (a date, a telephone number, an account, a number with other separators) does
not count by itself. An amount has a currency, or is in a place where a sentence states an amount. These rules know
English; a number that they do not recognize is no amount, so people are asked. Everything takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from core.origins.tokens import Token
from core.origins.words import MONTHS, Date, moment, number

MONEY = frozenset("$\u20ac\u00a3\u00a5")
_CURRENCIES = frozenset({
    "dollar", "dollars", "euro", "euros", "pound", "pounds", "franc", "francs", "yen", "usd", "eur", "gbp",
    "chf", "jpy", "cad", "aud", "nzd", "sek", "nok", "dkk", "pln", "czk", "inr", "cny", "brl", "zar", "sgd",
    "hkd", "mxn", "krw", "try", "ils", "thb",
})  # fmt: skip
_PAYING = frozenset({
    "pay", "send", "transfer", "wire", "give", "refund", "return", "lend", "donate", "deposit", "withdraw", "charge",
    "spent", "paid", "owe", "invest",
})  # fmt: skip
_SUMS = frozenset({
    "rent", "price", "fee", "amount", "total", "sum", "bill", "cost", "share", "salary", "rate", "payment", "tip",
    "loan", "debt", "wage", "fine", "invoice",
})  # fmt: skip
_IS = frozenset({"is", "are", "was", "be", "of"})
_AND = frozenset({"and", "or", "then", "than", "plus"})
_LINKS = frozenset({"exactly", "additional", "another", "with", "only"})
_LINKS_OF_CENTS = (
    _LINKS | _AND | frozenset({"the", "that", "this", "my", "their", "his", "her", "our", "your", "got", "for", "to"})
)
_BEHIND = frozenset({
    "to", "from", "for", "in", "on", "and", "or", "as", "at", "by", "of", "back", "please", "now", "today",
    "that", "which", "who", "i", "we", "you", "they", "he", "she", "it", "then", "than", "if", "when", "once",
    "instead",
})  # fmt: skip
_AMBIGUOUS = frozenset({"may", "march", "mar"})
_DAY = re.compile(r"(\d{1,2})(st|nd|rd|th)?", re.ASCII)
_YEAR = re.compile(r"\d{4}", re.ASCII)
_CENTS = re.compile(r"[\d,]+\.\d\d", re.ASCII)
_THOUSANDTHS = re.compile(r"[\d,]+\.\d{3}", re.ASCII)
_CLOCK = re.compile(r"(?<!\d)\d{1,2}:\d{2}(?!\d)", re.ASCII)
_MARKS = frozenset(",'\u2019")
_GROUP_MAX = 5
_DAYS_MAX, _MONTHS_MAX = 31, 12
_NOT = frozenset({"not", "never", "ignore", "except", "without", "avoid", "skip", "excluding", "exclude"})
_NOT_OF_TWO = frozenset({("of", "instead"), ("than", "rather"), ("than", "other"), ("from", "apart")})
_EVERYBODY = frozenset({"all", "any", "everyone", "everybody", "anyone", "anybody", "everything", "anything"})
_NOT_AFTER_ALL = frozenset({"forget", "only", "just", "hesitate", "fail", "miss"})
_CLAUSE_ENDS = frozenset({",", ".", ";", "!", "?", ":", "\n", "but"})


def denied_in(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield the places of negated words: ``not to Eve``, ``except Eve``, ``instead of Eve``."""
    within = False
    for at, one in enumerate(tokens):
        if _denies(tokens, at):
            within = within or _folded(tokens, at + 1) not in _NOT_AFTER_ALL
        elif one.folded in _CLAUSE_ENDS:
            within = False
        elif within:
            yield at


def _denies(tokens: Sequence[Token], at: int) -> bool:
    word, before = tokens[at].folded, _folded(tokens, at - 1)
    if word == "t":  # don't
        return before in ("'", "\u2019") and _folded(tokens, at - 2).endswith("n")
    return word in _NOT or (word, before) in _NOT_OF_TWO or (word == "but" and before in _EVERYBODY)


def _folded(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].folded if 0 <= at < len(tokens) else ""


def dates_in(tokens: Sequence[Token]) -> Iterator[tuple[Date, str | None, list[int]]]:
    """Yield each date with the time of day in the same word, and the places of its words."""
    for at, one in enumerate(tokens):
        iso = moment(one.folded)
        if iso is not None and _is_day(iso[0]):
            yield iso[0], iso[1], [at]
        month = MONTHS.get(one.folded)
        if month is None:
            continue
        before = [place for place in range(max(0, at - 2), at) if tokens[place].folded != "of"]
        after = [place for place in range(at + 1, min(at + 4, len(tokens))) if tokens[place].folded not in (",", ".")]
        for day, years in ((before[-1:], after[:1]), (after[:1], after[1:2])):
            found = _written(tokens, at, month, day, years)
            if found is not None:
                yield found


def _written(
    tokens: Sequence[Token], at: int, month: int, day: Sequence[int], years: Sequence[int]
) -> tuple[Date, None, list[int]] | None:
    matched = _DAY.fullmatch(tokens[day[0]].folded) if day else None
    if matched is None:
        return None
    years = [place for place in years if _YEAR.fullmatch(tokens[place].folded)]
    if tokens[at].folded in _AMBIGUOUS and not (tokens[at].raw[0].isupper() or matched[2] or years):
        return None  # "may" as a verb, as in "it may 5 times"
    found = (tokens[years[0]].folded if years else None, month, int(matched[1]))
    return (found, None, [at, *day, *years]) if _is_day(found) else None


def _is_day(found: Date) -> bool:
    return 1 <= found[1] <= _MONTHS_MAX and 1 <= found[2] <= _DAYS_MAX


def clocks_in(one: Token) -> list[str]:
    """The times of the day in a word."""
    return _CLOCK.findall(one.folded) if ":" in one.folded else []


def is_own(tokens: Sequence[Token], at: int) -> bool:
    """True if a number is not part of a longer one, such as a telephone number, ``1 000`` or ``1,50``."""
    for step in (1, -1):
        near, far = at + step, at + 2 * step
        if _has_digit(tokens, near) and (len(tokens[near].folded) <= _GROUP_MAX or tokens[near].folded[0] == "+"):
            return False
        glued = _folded(tokens, near) in _MARKS and _has_digit(tokens, far)
        if glued and not tokens[max(near, at)].apart and not tokens[max(near, far)].apart:
            return False
    return True


def _has_digit(tokens: Sequence[Token], at: int) -> bool:
    return 0 <= at < len(tokens) and tokens[at].is_word and tokens[at].has_digit


def of_money(tokens: Sequence[Token]) -> set[int]:
    """The sentences that have a word for a sum or for paying."""
    return {one.sentence for one in tokens if one.folded in _SUMS or one.folded in _PAYING}


def is_amount(tokens: Sequence[Token], at: int, money: Collection[int], *, again: bool) -> bool:
    """True if a separate number is a sum, by the words around it.

    ``money`` are the sentences from ``of_money``. ``again``: a sum occurred earlier in its sentence.
    """
    one, before, behind = tokens[at], _folded(tokens, at - 1), tokens[at + 1] if at + 1 < len(tokens) else None
    if _THOUSANDTHS.fullmatch(one.folded):  # "a" or "one" before "thousand"
        return False
    if behind is not None and (behind.folded in _CURRENCIES or behind.folded in MONEY):
        return True
    if behind is not None and behind.is_word and behind.folded not in _BEHIND:
        return False
    if before in MONEY or before in _CURRENCIES or before in _PAYING or before in _SUMS:
        return True
    if (before in _IS or before == "to") and _folded(tokens, at - 2) in _SUMS:
        return True
    links = _LINKS_OF_CENTS if _CENTS.fullmatch(one.folded) else _LINKS
    return (before in _AND and again) or (before in links and one.sentence in money)


def accounts_in(tokens: Sequence[Token]) -> str:
    """The text in which to look for account numbers: without dates, telephone numbers and negated words."""
    parts, dialed = list[str](), False
    for one in tokens:
        dialed = one.folded[0] == "+" or (dialed and (one.has_digit or one.folded in "()-/"))
        cut = dialed or one.denied or (number(one.folded) is None and moment(one.folded) is not None)
        parts.append(" , " if cut else f"{' ' if one.apart else ''}{one.folded}")
    return "".join(parts)
