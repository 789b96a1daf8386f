"""Converts local times (a date, a time of the day, an IANA time zone) to moments. Pure.

Both changes of the clocks follow RFC 5545: a local time that is skipped is read with the offset before the change
(02:30 becomes 03:30), and a local time that comes twice means the first of the two moments.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from core.errors import InputError, nearest

_CLOCK = re.compile(r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9])(?::(?P<second>[0-5][0-9]))?\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_ZONED = re.compile(r"(Z|[+-][0-9]{2}:[0-9]{2})\Z")
YEARS = range(1900, 9000)


@lru_cache(256)
def zone_of(name: str) -> ZoneInfo:
    """The time zone of this name; ``InputError`` names the nearest one."""
    try:
        if name in available_timezones():
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        pass
    near = nearest(name, available_timezones())
    remedy = near if near.startswith("Did") else "Name one as the IANA does, such as Europe/Berlin."
    raise InputError(f"there is no time zone {name!r}", remedy=remedy)


def moment_at(day: date, clock: time, zone: ZoneInfo, *, second: bool = False) -> datetime:
    """The moment of a local time, in UTC; ``second``: the later moment of a time that comes twice."""
    return datetime.combine(day, clock, zone).replace(fold=int(second)).astimezone(UTC)


def exists(day: date, clock: time, zone: ZoneInfo) -> bool:
    """True if the clocks show this local time; False if they are moved over it."""
    back = moment_at(day, clock, zone).astimezone(zone)
    return (back.date(), back.time()) == (day, clock)


def clock_of(text: str) -> time:
    """A time of the day, such as 18:00 or 18:00:30. ``InputError`` for any other text."""
    match = _CLOCK.match(text)
    if match is None:
        raise InputError(f"{text[:40]!r} is no time of the day", remedy="Write '18:00'.")
    return time(int(match["hour"]), int(match["minute"]), int(match["second"] or 0))


def day_of(text: str, zone: ZoneInfo) -> date:
    """The date of a text: of a date itself, or of a moment with a time zone, as it is in ``zone``.

    ``InputError`` for a moment without a time zone: it may be of two days.
    """
    try:
        if _DATE.match(text):
            return _bounded(date.fromisoformat(text))
        moment = datetime.fromisoformat(text)
    except ValueError:
        words = f"{text[:40]!r} is neither a date nor a moment"
        raise InputError(words, remedy="Write 2026-10-25, or 2026-10-25T09:00:00Z.") from None
    if moment.tzinfo is None or not _ZONED.search(text):
        words = f"the moment {text[:40]!r} has no time zone"
        raise InputError(words, remedy=f"Write its offset, such as {text[:19]}Z or {text[:19]}+02:00.")
    return _bounded(moment.astimezone(zone).date())


def shifted(day: date, days: int, months: int) -> date:
    """The date ``months`` and ``days`` later. In a month that is too short it is the last day."""
    whole = day.year * 12 + day.month - 1 + months
    year, month = divmod(whole, 12)
    if year not in YEARS or abs(days) > 1_000_000:
        raise InputError("the date is too far away", remedy="Stay between the years 1900 and 9000.")
    return _bounded(date(year, month + 1, min(day.day, _length(year, month + 1))) + timedelta(days=days))


def last_of_month(day: date) -> date:
    """The last day of the date's month."""
    return day.replace(day=_length(day.year, day.month))


def _length(year: int, month: int) -> int:
    following = date(year + month // 12, month % 12 + 1, 1)
    return (following - timedelta(days=1)).day


def _bounded(day: date) -> date:
    if day.year not in YEARS:
        raise InputError("the date is too far away", remedy="Stay between the years 1900 and 9000.")
    return day
