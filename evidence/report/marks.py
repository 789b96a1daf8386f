"""Small parts of pages as safe HTML: quotations, values, symbols, seals. All text that is given is escaped.

The outline says who spoke: round is people, square is rules, six-sided is the outside world. Filled is final.
"""

from __future__ import annotations

import json
from math import cos, radians, sin
from typing import Any

from markupsafe import Markup

from core.legible import isolated, visible

_ICON = Markup('<svg class="i {}" viewBox="0 0 16 16" aria-hidden="true"><use href="#i-{}"/></svg>')
_CHECK = Markup('<circle cx="32" cy="32" r="9" class="ok"/><path class="okk" d="M28 32.4l2.8 2.8 5.3-6"/>')
_SEAL = Markup(
    '<svg class="seal{}" viewBox="0 0 64 64" role="img" aria-label="{}"><circle class="rim" cx="32" cy="32" '
    'r="30.5"/><path class="a" d="{}" fill="none" stroke-width="2.2"/>{}{}</svg>'
)


def plain(text: object) -> str:
    """Text of ours that may hold a name or a title: nothing in it is invisible, disguised or reordered."""
    return isolated(visible(str(text), edges=False))


def line(text: str) -> str:
    """A line of a document, with its indentation."""
    return isolated(visible(text, edges=False))


def q(text: object) -> Markup:
    """A quotation: text that came from outside, on one line."""
    return Markup('<span class="q">{}</span>').format(isolated(visible(str(text)))) if text != "" else soft("empty")


def soft(text: str) -> Markup:
    """Words of ours in place of a value."""
    return Markup('<span class="soft">{}</span>').format(text)


def block(text: str) -> Markup:
    """A quotation of several lines."""
    lines = (isolated(visible(line, edges=False)) for line in text.split("\n"))
    return Markup("<blockquote>{}</blockquote>").format("\n".join(lines))


def value(item: Any) -> Markup:
    """A JSON value. A number or a boolean looks different from a text of the same characters."""
    match item:
        case None:
            return soft("not set")
        case bool():
            return Markup("{} {}").format(q("true" if item else "false"), soft("(yes or no)"))
        case int() | float():
            return Markup("{} {}").format(q(json.dumps(item)), soft("(a number)"))
        case str() if "\n" in item or len(item) > 200:
            return block(item)
        case str():
            return q(item)
        case _:
            text = json.dumps(item, ensure_ascii=False, sort_keys=True, indent=1)
            return block(text) if len(text) > 60 else q(json.dumps(item, ensure_ascii=False, sort_keys=True))


def icon(name: str, more: str = "") -> Markup:
    """A symbol of the sprite."""
    return _ICON.format(more, name)


def withheld(why: str) -> Markup:
    """A value that this viewer does not get; the box is the same whatever is behind it."""
    return Markup('<span class="withheld">{} Withheld: {}</span>').format(icon("lock"), why)


def short(digest: str) -> Markup:
    """The first twelve digits of a digest. The page that it belongs to shows the whole digest."""
    groups = " ".join(digest[start : start + 4] for start in (0, 4, 8))
    return Markup('<span class="id">{}</span>').format(groups)


def _ticks(digest: str, side: int) -> str:
    parts = []
    for number, digit in enumerate(digest[:12]):
        angle, reach = radians(7.5 + 15 * number), 14 + 4 + 0.72 * int(digit, 16)
        x, y = side * sin(angle), -cos(angle)
        parts.append(f"M{32 + 14 * x:.1f} {32 + 14 * y:.1f}L{32 + reach * x:.1f} {32 + reach * y:.1f}")
    return "".join(parts)


def seal(approved: str, done: str = "") -> Markup:
    """Two halves: the left drawn from what was approved, the right from what was done; a picture, never the proof."""
    if not done:
        label, right = "Half a seal: the other half is drawn when it is done", ""
    elif approved == done:
        label, right = "Both halves match", done
    else:
        label, right = "The halves differ", done
    half = (
        Markup('<path class="b" d="{}" fill="none" stroke-width="2.2"/>').format(_ticks(right, 1))
        if right
        else Markup('<path class="none" d="M32 10a22 22 0 0 1 0 44" fill="none" stroke-width="1.5"/>')
    )
    inner = _CHECK if done and approved == done else Markup('<path class="mid" d="M32 4v56"/>')
    off = " off" if done and approved != done else ""
    return _SEAL.format(off, label, _ticks(approved, -1), half, inner)
