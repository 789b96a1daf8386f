"""Cron expressions of five fields in a time zone: minute, hour, day of the month, month, day of the week. Pure.

Both changes of the clocks have one rule. If the hour is fixed (`30 2 * * *`), each day has the moment once: a local
time that is skipped is read with the offset before the change, and one that comes twice is taken the first time. If
the hour is free (`*`, `*/2`), moments follow the clock: what is skipped is left out, and what comes twice counts twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import product
from zoneinfo import ZoneInfo

from core.errors import InputError
from core.local_times import exists, last_of_month, moment_at, zone_of

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_PART = re.compile(
    r"(?:(?P<all>\*)|(?P<first>[0-9]{1,2}|[A-Za-z]{3})(?:-(?P<last>[0-9]{1,2}|[A-Za-z]{3}))?)(?:/(?P<step>[0-9]{1,2}))?\Z"
)
LAST = "L"
# The days to search for a moment: the 29th of February comes after eight years at the latest.
SPAN = timedelta(days=366 * 9)
# A change of the clocks moves a moment by less than this.
_BESIDE = timedelta(days=2)


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of the month", 1, 31, {}),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field("day of the week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)


@dataclass(frozen=True)
class Cron:
    """A cron expression in a time zone. ``last`` is true if the last day of the month counts."""

    text: str
    zone: ZoneInfo
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    last: bool
    free: bool
    either: bool

    def after(self, moment: datetime) -> datetime:
        """The first moment after this one, in UTC."""
        found = next(self._moments(moment), None)
        assert found is not None, "an expression that never comes is refused when it is read"
        return found

    def between(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """At most ``most`` moments after ``after`` and up to ``until``, in order, in UTC."""
        found = list[datetime]()
        for moment in self._moments(after):
            if moment > until or len(found) == most:
                break
            found.append(moment)
        return found

    def _moments(self, after: datetime) -> Iterator[datetime]:
        """Yield the moments after this one. A day on which the clocks change is sorted together with the next one."""
        day = (after.astimezone(self.zone) - _BESIDE).date()
        last, end = after, day + SPAN
        while day < end:
            found, plain = self._of(day), self._plain(day)
            while not plain:
                day += timedelta(days=1)
                found, plain = sorted({*found, *self._of(day)}), self._plain(day)
            for moment in found:
                if moment > last:
                    yield moment
                    last, end = moment, day + SPAN
            day += timedelta(days=1)

    def _plain(self, day: date) -> bool:
        """True if the clocks do not change on this day."""
        following = datetime.combine(day + timedelta(days=1), time(), self.zone)
        return datetime.combine(day, time(), self.zone).utcoffset() == following.utcoffset()

    def _of(self, day: date) -> list[datetime]:
        """The moments of a local day; they are in order unless the clocks change on it."""
        if not self.falls_on(day):
            return []
        clocks = [(hour, minute) for hour, minute in product(self.hours, self.minutes)]
        if self._plain(day):
            midnight = moment_at(day, time(), self.zone)
            return [midnight + timedelta(hours=hour, minutes=minute) for hour, minute in clocks]
        found = list[datetime]()
        for clock in (time(*each) for each in clocks):
            if not self.free or exists(day, clock, self.zone):
                found.append(moment_at(day, clock, self.zone))
            if self.free and exists(day, clock, self.zone):
                found.append(moment_at(day, clock, self.zone, second=True))
        return found

    def falls_on(self, day: date) -> bool:
        """True if this local day has moments."""
        if day.month not in self.months:
            return False
        of_month = day.day in self.days or (self.last and day == last_of_month(day))
        of_week = day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either else of_month and of_week


def parse_cron(text: str, timezone: str) -> Cron:
    """Read a cron expression. ``InputError`` names the field that is wrong, and what to write."""
    zone, parts = zone_of(timezone), text.split()
    if len(parts) != len(_FIELDS) or len(text) > 200:
        words = f"{text[:80]!r} has {len(parts)} fields, not five"
        remedy = "Write minute, hour, day of the month, month, day of the week: 0 18 * * MON-FRI."
        raise InputError(words, remedy=remedy)
    last = LAST in parts[2].split(",")
    month_days = ",".join(part for part in parts[2].split(",") if part != LAST)
    minutes, hours, months, weekdays = (_values(_FIELDS[place], parts[place]) for place in (0, 1, 3, 4))
    days = _values(_FIELDS[2], month_days) if month_days else frozenset()
    limited = [not part.startswith("*") for part in (parts[2], parts[4])]
    found = Cron(
        text=" ".join(parts),
        zone=zone,
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        last=last,
        free=parts[1].startswith("*"),
        either=all(limited),
    )
    if not any(found.falls_on(date(2024, 1, 1) + timedelta(days=day)) for day in range(366 * 4)):
        raise InputError(f"{text!r} never comes: no such day is in these months", remedy="Name a day that there is.")
    return found


def _values(field: _Field, text: str) -> frozenset[int]:
    """The numbers of one field: `*`, `5`, `1-5`, `*/15`, `8-18/2`, `MON`, or a list of these."""
    found = set[int]()
    for part in text.split(","):
        match = _PART.match(part)
        if match is None:
            raise _misfit(field, part)
        step = int(match["step"] or 1)
        low, high = (field.low, min(field.high, 6) if field.names and field.low == 0 else field.high)
        if not match["all"]:
            low = _number(field, match["first"], part)
            high = low if match["last"] is None else _number(field, match["last"], part)
            if match["last"] is None and match["step"] is not None:
                raise _misfit(field, part)
        if low > high or step < 1:
            raise _misfit(field, part)
        found.update(range(low, high + 1, step))
    return frozenset(found)


def _number(field: _Field, text: str, part: str) -> int:
    number = field.names.get(text.upper(), -1) if text.isalpha() else int(text)
    if not field.low <= number <= field.high:
        raise _misfit(field, part)
    return number


def _misfit(field: _Field, part: str) -> InputError:
    names = f" or {', '.join(field.names)}" if field.names else ""
    example = "1-5" if field.low <= 1 else "5"
    remedy = f"Write numbers from {field.low} to {field.high}{names}: *, {example}, */2, or a list with commas."
    return InputError(f"{part[:40]!r} is no {field.name}", remedy=remedy)
