"""The kinds of arguments, and the values that can be of a kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from core.origins.leaves import Leaf
from core.origins.words import is_address

_CUE_MIN = 4


class ArgumentKind(StrEnum):
    """The kind of an argument: a value, free text (only its addresses are traced), or a flag (never traced).

    The kinds after these are values that only a particular of this kind can be. An ``account`` is a number or the name
    of who holds it. A ``named`` value must stand in a sentence that also has the argument's name.
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


class How(StrEnum):
    """The way in which a source holds a value."""

    NUMBER = "number"
    DATE = "date"
    ACCOUNT = "account"
    WORDS = "words"


@dataclass(frozen=True)
class Wanted:
    """A value to be found, with the kind and the name of its argument."""

    leaf: Leaf
    kind: ArgumentKind = ArgumentKind.VALUE
    cue: frozenset[str] = frozenset()


def named(cue: frozenset[str], words: frozenset[str]) -> bool:
    """True if each word of an argument's name is among the words, or one that begins like it: ``file``, ``titled``."""
    return bool(cue) and all(
        one in words or any(len(word) >= _CUE_MIN and (one.startswith(word) or word.startswith(one)) for word in words)
        for one in cue
    )


def fits(wanted: Wanted, how: How) -> bool:
    """True if the value is of the kind of its argument."""
    leaf = wanted.leaf
    address, account = is_address(leaf.words.folded), leaf.words.squeezed in leaf.words.accounts
    name = how is How.WORDS and not address and any(map(str.isalpha, leaf.text))
    match wanted.kind:
        case ArgumentKind.EMAIL:
            return address and "@" in leaf.text
        case ArgumentKind.LINK:
            return address and "@" not in leaf.text
        case ArgumentKind.ACCOUNT:
            return account or name
        case ArgumentKind.AMOUNT:
            return leaf.number is not None
        case ArgumentKind.DATE:
            return leaf.moment is not None
        case ArgumentKind.NAME:
            return name and not account
    return True
