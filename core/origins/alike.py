"""Recognizes other spellings of one value: a prefix before an address, another form of an amount or of a date.

Loose on purpose: a match only means that a value which a person repeats in another spelling does not count as theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from core.origins.disguises import disguises, plain
from core.origins.leaves import Leaf
from core.origins.model_words import SHORT

_AMOUNT = re.compile(r"\d[\d.,'\u2019]*", re.ASCII)
_ZEROS = re.compile(r"[.,]0{1,2}\Z", re.ASCII)
_DAY = re.compile(r"(\d{1,4})[./-](\d{1,2})[./-](\d{1,4})", re.ASCII)


def alike(there: Leaf, wanted: Leaf) -> bool:
    """True if one value may be the other in another spelling."""
    one, other = plain(there.text), [plain(form) for form in (wanted.text, *disguises(wanted.text))]
    if any(len(form) >= SHORT and form in one for form in other):
        return True
    if len(one) >= SHORT and any(one in form for form in other):
        return True
    return bool(_forms(wanted) & _forms(there))


def _forms(leaf: Leaf) -> frozenset[object]:
    text = leaf.words.folded
    return frozenset((*_amounts(text), *_days(leaf, text)))


def _amounts(text: str) -> Iterator[str]:
    for found in _AMOUNT.findall(text):
        whole = _ZEROS.sub("", found.rstrip(".,'\u2019"))
        digits = "".join(filter(str.isdecimal, whole)).lstrip("0")
        if len(digits) > 1:
            yield digits


def _days(leaf: Leaf, text: str) -> Iterator[tuple[int, ...]]:
    for year, month, day in leaf.words.dates:
        yield tuple(sorted((month, day)))
        if year is not None:
            yield tuple(sorted((int(year), month, day)))
    for found in _DAY.findall(text):
        numbers = sorted(map(int, found))
        yield tuple(numbers)
        yield tuple(numbers[:2])
