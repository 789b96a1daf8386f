"""Quiet hours: the hours in which a person gets no private messages.

Messages wait until these hours end; no deadline moves because of them.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct


class Quiet(Struct, frozen=True):
    """The hours of every day, in a time zone of the IANA database. An end before the beginning is on the next day."""

    zone: str
    begins: time
    ends: time

    def left(self, now: datetime) -> timedelta:
        """The time from ``now`` to the end of the hours; zero outside of them, or if the zone is unknown here."""
        zone = zone_of(self.zone)
        if zone is None:
            return timedelta(0)
        here = now.astimezone(zone)
        clock, over_night = here.time(), self.ends <= self.begins
        inside = clock >= self.begins or clock < self.ends if over_night else self.begins <= clock < self.ends
        if not inside:
            return timedelta(0)
        day = here.date() + timedelta(days=over_night and clock >= self.begins)
        return max(datetime.combine(day, self.ends, zone) - now, timedelta(0))


def zone_of(name: str) -> ZoneInfo | None:
    """The time zone of this name; None if this machine does not know it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
