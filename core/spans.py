"""Reads and writes ISO 8601 durations with the standard library only, because the verifier uses it as well."""

from __future__ import annotations

import re
from datetime import timedelta

from core.errors import InputError

PATTERN = (
    r"^P(?=[0-9T])(?:([0-9]+)W)?(?:([0-9]+)D)?(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?$"
)
LONGEST = timedelta(days=3660)
_DURATION = re.compile(PATTERN.replace("$", r"\Z"))


def parse_duration(text: str) -> timedelta:
    """Parse weeks, days, hours, minutes and seconds; more than zero, at most ten years.

    Months and years have no fixed length, so they are refused. ``InputError`` names the remedy.
    """
    match = _DURATION.match(text) if len(text) <= 64 else None
    if match is None:
        raise InputError(f"{text[:64]!r} is not an ISO 8601 duration.", remedy="Write PT30M, PT8H or P14D.")
    weeks, days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    if weeks * 7 + days + (hours + (minutes + seconds / 60) / 60) / 24 > LONGEST.days:
        raise InputError(f"{text!r} is longer than ten years.")
    duration = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    if duration <= timedelta(0):
        raise InputError(f"{text!r} is a duration of zero.", remedy="Write PT30M, PT8H or P14D.")
    return duration


def format_duration(duration: timedelta) -> str:
    """The shortest ISO 8601 form in days, hours, minutes and seconds: ``P1DT12H``."""
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{duration.microseconds:06}".rstrip("0") if duration.microseconds else ""
    time = "".join(
        f"{number}{unit}"
        for number, unit in ((hours, "H"), (minutes, "M"), (f"{seconds}{fraction}", "S"))
        if number != 0
    )
    time = time.removesuffix("0S") if not seconds and not fraction else time
    days = f"{duration.days}D" if duration.days else ""
    return f"P{days}{'T' + time if time else ''}" if days or time else "PT0S"
