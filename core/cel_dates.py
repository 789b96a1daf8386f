"""Date functions for CEL: ``at(day, '18:00', 'Europe/Berlin')``, and arithmetic on recorded dates. Pure.

A date is a text such as ``2026-10-25``. Every function that takes a date also takes a moment with a time zone, if a
zone is given for its day. A moment without a zone is an error: its day is ambiguous. `core.local_times` has the rule
for daylight saving.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from cel_expr_python import cel

from core.local_times import clock_of, day_of, last_of_month, moment_at, shifted, zone_of

_T = cel.Type
_UTC = ZoneInfo("UTC")


def _day(value: str | datetime, zone: ZoneInfo) -> date:
    """The day of a text or of a moment; the engine's own moments are in UTC."""
    if isinstance(value, datetime):
        value = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).isoformat()
    return day_of(value, zone)


def _date(text: str) -> date:
    """The date of a text that is one; a moment is refused, because its day depends on a time zone."""
    if "T" in text or ":" in text:
        raise ValueError(f"{text[:40]!r} is a moment, not a date. Write day({text[:40]!r}, 'Europe/Berlin').")
    return day_of(text, _UTC)


def _at(value: str | datetime, clock: str, zone: str) -> datetime:
    found = zone_of(zone)
    return moment_at(_day(value, found), clock_of(clock), found)


def _of(value: str | datetime, zone: str) -> str:
    return _day(value, zone_of(zone)).isoformat()


_FUNCTIONS: tuple[tuple[str, list[Any], Any, Any], ...] = (
    ("at", [_T.STRING, _T.STRING, _T.STRING], _T.TIMESTAMP, _at),
    ("at", [_T.TIMESTAMP, _T.STRING, _T.STRING], _T.TIMESTAMP, _at),
    ("day", [_T.STRING, _T.STRING], _T.STRING, _of),
    ("day", [_T.TIMESTAMP, _T.STRING], _T.STRING, _of),
    ("addDays", [_T.STRING, _T.INT], _T.STRING, lambda text, days: shifted(_date(text), days, 0).isoformat()),
    ("addMonths", [_T.STRING, _T.INT], _T.STRING, lambda text, months: shifted(_date(text), 0, months).isoformat()),
    ("lastOfMonth", [_T.STRING], _T.STRING, lambda text: last_of_month(_date(text)).isoformat()),
)


def extension() -> Any:
    """The functions as an extension of the engine."""
    overloads: dict[str, list[Any]] = {}
    for number, (name, parameters, kind, call) in enumerate(_FUNCTIONS):
        given = cel.Overload(f"counterseal_date_{number}", kind, parameters, False, call)
        overloads.setdefault(name, []).append(given)
    return cel.CelExtension("counterseal.dates", [cel.FunctionDecl(name, found) for name, found in overloads.items()])
