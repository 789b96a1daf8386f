"""Estimates the lines that blocks take on a phone of 390 px, so that a card can be drawn that fits. Pure.

A person decides in ten seconds about what is on one screen. Slack does not document how it breaks lines, so we count as
a browser does with the same sizes of type, and rather too many lines than too few. ``tests/approvals`` compares the
count with a real browser.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from approvals.slack.blocks import Block

OPEN_LINES_MAX = 10
FOLDED_LINES_MAX = 2
_WIDTH = 306.0  # of 314 px beside the picture of the sender
_CODE_EDGE = 8.0
_DATE = "Nov 30, 2026 10:30 PM"
_TOKEN = re.compile(r"`[^`\n]*`|<!date\^[^>]*>|<[^>|]*\|[^>]*>|\*[^*\n]+\*|[^`<*\n]+|.")
_NARROW, _SLIM, _BROAD = frozenset("ilj|.,:;!'`\u2018\u2019"), frozenset('ftr()[]{}-/\\I "“”·'), frozenset("mwMW@%—…→")
_ESCAPES = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}


class _Type(NamedTuple):
    """A size of type, in pixels, with the share by which it is wider than the plain one."""

    size: float
    wider: float = 1.0


_BODY, _SMALL, _HEADER, _BUTTON = _Type(16), _Type(13), _Type(18, 1.08), _Type(15, 1.08)
_CODE_CHARACTER = 7.9


def lines_of(blocks: Iterable[Block]) -> int:
    """The number of lines that these blocks take; a row of buttons is one."""
    return sum(map(_block, blocks))


def _block(block: Block) -> int:
    match block["type"]:
        case "header":
            return _text(block["text"]["text"], _HEADER)
        case "section":
            return _text(block["text"]["text"], _BODY)
        case "context":
            return sum(_text(element["text"], _SMALL) for element in block["elements"])
        case "actions":
            return _buttons([element["text"]["text"] for element in block["elements"]])
        case _:
            return 1


def _buttons(words: Sequence[str]) -> int:
    rows, used = 1, 0.0
    for each in words:
        width = sum(map(_character, each)) * _BUTTON.size * _BUTTON.wider + 24
        if used and used + 8 + width > _WIDTH:
            rows, used = rows + 1, 0.0
        used += width + (8 if used else 0)
    return rows


def _text(text: str, kind: _Type) -> int:
    return sum(_wrapped(line, kind) for line in text.split("\n"))


def _wrapped(line: str, kind: _Type) -> int:
    rows, used = 1, 0.0
    for word, gap in _words(line, kind):
        while word > _WIDTH:  # a long word breaks anywhere
            rows, word = rows + (1 if used else 0) + int(word // _WIDTH), word % _WIDTH
            used = 0.0
        if used and used + word > _WIDTH:
            rows, used = rows + 1, 0.0
        used += word + gap
    return rows


def _words(line: str, kind: _Type) -> Iterator[tuple[float, float]]:
    """Yield the width of each word and of the space behind it. Text without a blank in between is one word."""
    width = 0.0
    for token in _TOKEN.findall(line):
        coded = token.startswith("`") and len(token) > 1
        shown, wider = _visible(token)
        parts = re.split(r"(\s+)", shown)
        edge = _CODE_EDGE / 2 if coded else 0.0
        for at, part in enumerate(parts):
            if at % 2:
                gap = len(part) * (_CODE_CHARACTER if coded else 0.278 * kind.size)
                yield width, gap
                width = 0.0
                continue
            first, last = at == 0, at == len(parts) - 1
            size = sum(map(_character, part)) * kind.size * kind.wider * wider
            size = sum(2.0 if _east(one) else 1.0 for one in part) * _CODE_CHARACTER if coded else size
            width += size + (edge if first else 0) + (edge if last else 0)
    if width:
        yield width, 0.0


def _visible(token: str) -> tuple[str, float]:
    """The visible text of a token, and the factor by which it is wider than plain text."""
    if token.startswith("<!date^"):
        return _DATE if "date_short" in token else "10:30 PM", 1.0
    if token.startswith("<") and "|" in token:
        return token[1:-1].partition("|")[2], 1.0
    for escape, character in _ESCAPES.items():
        token = token.replace(escape, character)
    if token.startswith("`") and len(token) > 1:
        return token[1:-1], 1.0
    if token.startswith("*") and len(token) > 2:
        return token[1:-1], 1.08
    return token, 1.0


def _character(one: str) -> float:
    """The width of a character, as a share of the size of type."""
    if one in _NARROW:
        return 0.25
    if one in _SLIM:
        return 0.34
    if one in _BROAD:
        return 0.9
    if _east(one):
        return 1.0
    return 0.69 if one.isupper() else 0.56


def _east(one: str) -> bool:
    return unicodedata.east_asian_width(one) in ("W", "F")
