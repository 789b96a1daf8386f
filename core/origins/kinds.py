"""The kinds of arguments, and the values that can be of a kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from core.origins.designation import folded_key, key_of
from core.origins.leaves import Leaf
from core.origins.words import is_address

_CUE_MIN = 4
_ENDINGS = frozenset({"s", "d", "ed", "es", "ing", "name", "names"})


class ArgumentKind(StrEnum):
    """The kind of an argument: a value, free text (only its addresses are traced), or a flag (never traced).

    The other kinds are values that must be a particular of this kind. An ``account`` is a number or the name of its
    holder. A ``named`` value must be next to the argument's name, with no other particular between them.
    """

    VALUE = "value"
    TEXT = "text"
    FLAG = "flag"
    EMAIL = "email"
    LINK = "link"
    ACCOUNT = "account"
    AMOUNT = "amount"
    DATE = "date"
    NAME = "name"
    NAMED = "named"


class MatchKind(StrEnum):
    """The way in which a source holds a value."""

    NUMBER = "number"
    DATE = "date"
    ACCOUNT = "account"
    WORDS = "words"


@dataclass(frozen=True)
class Sought:
    """A value to look for, with the kind and the name of its argument."""

    leaf: Leaf
    kind: ArgumentKind = ArgumentKind.VALUE
    cue: frozenset[str] = frozenset()


def named(cue: frozenset[str], words: frozenset[str]) -> bool:
    """True if each word of an argument's name is among the words, perhaps in another form: ``title``, ``titled``."""
    return bool(cue) and all(any(_alike(one, word) for word in words) for one in cue)


def _alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return short == long or (len(short) >= _CUE_MIN and long.startswith(short) and long[len(short) :] in _ENDINGS)


def fits(wanted: Sought, how: MatchKind) -> bool:
    """True if the value can be of its argument's kind."""
    leaf, text = wanted.leaf, wanted.leaf.text
    address = is_address(leaf.words.folded)
    account = (
        how in (MatchKind.ACCOUNT, MatchKind.NUMBER, MatchKind.WORDS) and leaf.words.squeezed in leaf.words.accounts
    )
    name = how is MatchKind.WORDS and not address and any(map(str.isalpha, text))
    match wanted.kind:
        case ArgumentKind.EMAIL:
            return address and "@" in text and not set("/:") & {*text}
        case ArgumentKind.LINK:  # a bare host may be the name of a file: report.zip
            host = text.partition("://")[2] or text
            return address and "@" not in host.partition("/")[0] and ("/" in text or text.lower().startswith("www."))
        case ArgumentKind.ACCOUNT:
            return leaf.moment is None and (account or name)
        case ArgumentKind.AMOUNT:
            return leaf.number is not None and how in (MatchKind.NUMBER, MatchKind.WORDS)
        case ArgumentKind.DATE:
            return leaf.moment is not None and how in (MatchKind.DATE, MatchKind.WORDS)
        case ArgumentKind.NAME:
            return name and leaf.words.squeezed not in leaf.words.accounts
    return True


def designates(leaf: Leaf, how: MatchKind, wanted: Sought, recorded: Callable[[], bool], *, whole: bool) -> bool:
    """True if a text by one of our own people designates a value that occurs in it, for an argument of this kind.

    ``whole``: the value is the whole text. ``recorded`` tells if a record has the value as a name.
    """
    designation, value = leaf.designation, wanted.leaf
    if wanted.kind is ArgumentKind.TEXT:
        return whole or designation.says(value.text)
    if not fits(wanted, how):
        return False
    key = key_of(value.text)
    places = set(designation.keys.get(key, ()))
    if how is MatchKind.NUMBER and (wanted.kind is not ArgumentKind.AMOUNT or value.number in designation.amounts):
        is_text = isinstance(value.value, str)
        places |= designation.numerals.get(value.numeral or "", set()) if is_text else set()
        places |= designation.numbers.get(value.number or Decimal(0), set()) if not is_text else set()
    if key in designation.initial and recorded():
        places |= designation.initial[key]
    if wanted.kind is ArgumentKind.NAMED:
        names = frozenset(leaf.name.lower().replace("/", "_").split("_"))
        return (whole and named(wanted.cue, names)) or any(
            named(wanted.cue, designation.context_of(place)) for place in places
        )
    places |= designation.names.get(folded_key(value.text), set())
    if how is MatchKind.DATE and value.moment is not None and designation.has_date(*value.moment):
        return True
    return whole or bool(places) or (how is MatchKind.ACCOUNT and value.words.squeezed in designation.accounts)
