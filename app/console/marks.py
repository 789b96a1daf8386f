"""Small parts of pages as safe HTML: states, quotations, times, seals. All text that is given is escaped.

The outline says who spoke: round is people, square is rules, six-sided is the outside world. Filled is final.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import cos, radians, sin
from typing import Any

from markupsafe import Markup, escape

from core.legible import isolated, visible

SOON = timedelta(hours=1)
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
    """A JSON value. What is no text is told from a text that looks the same."""
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


def labeled(label: str, item: Any, field: str) -> Markup:
    """A value with its label from the target: the label first, the raw value below."""
    if not label:
        return value(item)
    raw = visible(f"{field} = {json.dumps(item, ensure_ascii=False)}", edges=False)
    return Markup('{}<span class="raw">{}</span>').format(q(label), raw)


def icon(name: str, more: str = "") -> Markup:
    """A symbol of the sprite."""
    return _ICON.format(more, name)


class Sign(StrEnum):
    """A symbol with its colour. Several statuses share one."""

    WAITING = "waiting"
    NEEDS_YOU = "needs-you"
    ALLOWED = "allowed"
    APPROVED = "approved"
    EXECUTING = "executing"
    APPLIED = "applied"
    DENIED = "denied"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    IN_DOUBT = "in-doubt"
    FAILED = "failed"
    PAUSED = "paused"
    CANCELED = "canceled"


# The word of each sign, if no other is given.
STATES = {
    Sign.WAITING: "Waiting",
    Sign.NEEDS_YOU: "Needs you",
    Sign.ALLOWED: "Allowed",
    Sign.APPROVED: "Approved",
    Sign.EXECUTING: "Executing",
    Sign.APPLIED: "Applied",
    Sign.DENIED: "Denied",
    Sign.REJECTED: "Rejected",
    Sign.EXPIRED: "Expired",
    Sign.SUPERSEDED: "Superseded",
    Sign.IN_DOUBT: "In doubt",
    Sign.FAILED: "Failed",
    Sign.PAUSED: "Paused",
    Sign.CANCELED: "Canceled",
}


def st(state: str, word: str = "") -> Markup:
    """A state: symbol, colour and word, each of which is enough alone."""
    return Markup('<span class="st st-{}">{}{}</span>').format(state, icon(state), word or STATES[Sign(state)])


def withheld(why: str) -> Markup:
    """A value that this viewer does not get; the box is the same whatever is behind it."""
    return Markup('<span class="withheld">{} Withheld: {}</span>').format(icon("lock"), why)


def short(digest: str) -> Markup:
    """The first twelve digits of a digest; the whole one is its title, and stands on the page it belongs to."""
    groups = " ".join(digest[start : start + 4] for start in (0, 4, 8))
    return Markup('<span class="id">{}</span>').format(groups)


def ident(text: object) -> Markup:
    """An id of ours."""
    return Markup('<span class="id">{}</span>').format(text)


def _clock(at: datetime, now: datetime) -> str:
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    if at.date() == now.date():
        return f"{at:%H:%M}"
    if abs(at - now) < timedelta(days=6):
        return f"{at:%a %H:%M}"
    return f"{at.day} {at:%b %H:%M}" if at.year == now.year else f"{at.day} {at:%b %Y %H:%M}"


def _timed(at: datetime, words: str) -> Markup:
    return Markup('<time datetime="{}">{}</time>').format(at.astimezone(UTC).isoformat(timespec="seconds"), words)


def when(at: datetime | None, now: datetime) -> Markup:
    """A time that is over: `today 09:00`, `Mon 16:40`, `30 Oct 11:48`."""
    if at is None:
        return Markup('<span class="mute">not yet</span>')
    words = _clock(at, now)
    return _timed(at, f"today {words}" if at.astimezone(UTC).date() == now.astimezone(UTC).date() else words)


def length(span: timedelta) -> str:
    """A span: minutes below an hour, hours below two days, then days."""
    minutes = max(0, int(span.total_seconds() // 60))
    if minutes < 1:
        return f"{max(0, int(span.total_seconds()))} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days"


def due(at: datetime | None, now: datetime) -> Markup:
    """A deadline: `in 2 h (16:00)`, ochre in its last hour."""
    if at is None:
        return Markup('<span class="due mute">no deadline</span>')
    left = at - now
    if left <= timedelta():
        return Markup('<span class="due mute">ran out {}</span>').format(when(at, now))
    soon = " soon" if left < SOON else ""
    words = _timed(at, f"in {length(left)} ({_clock(at, now)})")
    return Markup('<span class="due{}">{}</span>').format(soon, words)


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


def listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    every = [plain(name) for name in names]
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}" if every else "nobody"


def cell(text: object, label: str = "", more: str = "") -> Markup:
    """A cell of a list. Lists change `display` on small screens, which costs tables their meaning without the role."""
    named = Markup(' data-l="{}"').format(label) if label else Markup()
    kind = Markup(' class="{}"').format(more) if more else Markup()
    return Markup('<td role="cell"{}{}>{}</td>').format(kind, named, escape(text))
