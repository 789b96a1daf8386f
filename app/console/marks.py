"""Small parts of the console's pages as safe HTML: states, times, cells. All text that is given is escaped.

The parts that the report has too, such as quotations and seals, are in ``evidence.report.marks``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from markupsafe import Markup, escape

from core.legible import visible
from evidence.report.marks import block as block
from evidence.report.marks import icon as icon
from evidence.report.marks import line as line
from evidence.report.marks import plain as plain
from evidence.report.marks import q as q
from evidence.report.marks import seal as seal
from evidence.report.marks import short as short
from evidence.report.marks import soft as soft
from evidence.report.marks import value as value
from evidence.report.marks import withheld as withheld

SOON = timedelta(hours=1)


def labeled(label: str, item: Any, field: str) -> Markup:
    """A value with its label from the target: the label first, the raw value below."""
    if not label:
        return value(item)
    raw = visible(f"{field} = {json.dumps(item, ensure_ascii=False)}", edges=False)
    return Markup('{}<span class="raw">{}</span>').format(q(label), raw)


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


def ident(text: object) -> Markup:
    """An id of ours."""
    return Markup('<span class="id">{}</span>').format(text)


def spoken(text: str) -> Markup:
    """A sentence of ours, with commands between backticks; with an odd number of backticks, it has no commands."""
    parts = text.split("`")
    every = [ident(plain(part)) if at % 2 else plain(part) for at, part in enumerate(parts)]
    return Markup("").join(every) if len(parts) % 2 else Markup("{}").format(plain(text))


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
    """A past time: `today 09:00`, `Mon 16:40`, `30 Oct 11:48`."""
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


def listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    every = [plain(name) for name in names]
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}" if every else "nobody"


def cell(text: object, label: str = "", more: str = "") -> Markup:
    """A cell of a list. Small screens change its `display`, and then only the role says that it is a table."""
    named = Markup(' data-l="{}"').format(label) if label else Markup()
    kind = Markup(' class="{}"').format(more) if more else Markup()
    return Markup('<td role="cell"{}{}>{}</td>').format(kind, named, escape(text))
