"""Local times become moments by one rule, in expressions and in schedules, across both changes of the clocks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from core.cron import parse_cron
from core.errors import ExpressionError
from core.expressions import WORKFLOW_LIMITS, Environment

VALUES = {
    "trigger": {"day": "2027-03-27", "moment": "2027-03-27T23:30:00Z", "naive": "2027-03-27T23:30:00"},
    "now": "2027-10-30T22:30:00Z",
}


def value_of(source: str) -> Any:
    environment = Environment({"trigger": "dyn", "now": "timestamp"}, WORKFLOW_LIMITS)
    return environment.compile(source).value(environment.bind(VALUES))


@pytest.mark.parametrize(
    ("source", "is_"),
    [
        ("at(trigger.day, '18:00', 'Europe/Berlin')", "2027-03-27T17:00:00Z"),
        ("at(addDays(trigger.day, 1), '18:00', 'Europe/Berlin')", "2027-03-28T16:00:00Z"),
        ("at(addDays(trigger.day, 1), '02:30', 'Europe/Berlin')", "2027-03-28T01:30:00Z"),  # skipped: 03:30
        ("at('2027-10-31', '02:30', 'Europe/Berlin')", "2027-10-31T00:30:00Z"),  # twice: the first
        ("at('2027-10-31', '03:00', 'Europe/Berlin')", "2027-10-31T02:00:00Z"),
        ("at(trigger.moment, '18:00', 'Europe/Berlin')", "2027-03-28T16:00:00Z"),  # it is the 28th there
        ("at(now, '18:00', 'America/New_York')", "2027-10-30T22:00:00Z"),
        ("at(lastOfMonth(addMonths('2028-01-31', 1)), '18:00:30', 'UTC')", "2028-02-29T18:00:30Z"),
        ("at(trigger.day, '18:00', 'Europe/Berlin') + duration('24h')", "2027-03-28T17:00:00Z"),
        ("now < at(day(now, 'UTC'), '23:00', 'UTC')", True),
        ("day(now, 'Europe/Berlin')", "2027-10-31"),
        ("addMonths('2027-01-31', -11)", "2026-02-28"),
        ("[-1, 1].map(n, addDays('2027-01-01', n))", ["2026-12-31", "2027-01-02"]),
    ],
)
def test_dates_and_times_of_the_day(source: str, is_: Any) -> None:
    assert value_of(source) == is_


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("at(trigger.naive, '18:00', 'Europe/Berlin')", "has no time zone. Write its offset, such as"),
        ("day(trigger.naive, 'UTC')", "has no time zone"),
        ("addDays(trigger.moment, 1)", "is a moment, not a date. Write day"),
        ("at('31.3.2027', '18:00', 'UTC')", "neither a date nor a moment"),
        ("at('2027-02-30', '18:00', 'UTC')", "neither a date nor a moment"),
        ("at(trigger.day, '6 pm', 'UTC')", "is no time of the day. Write '18:00'"),
        ("at(trigger.day, '18:00', 'Europe/Berln')", "Did you mean 'Europe/Berlin'"),
        ("at(trigger.day, '18:00', '+02:00')", "there is no time zone"),
        ("at(trigger.day, '18:00')", "undeclared reference to 'at'"),
        ("addDays(trigger.day, 90000000)", "too far away"),
        ("addMonths('8999-12-01', 1)", "too far away"),
    ],
)
def test_what_names_no_moment_says_what_to_write(source: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        value_of(source)


@pytest.mark.parametrize(
    ("cron", "zone", "after", "moments"),
    [
        ("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00", ["28T01:30", "29T00:30"]),
        ("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00", ["31T00:30", "01T01:30"]),
        ("30 * * * *", "Europe/Berlin", "2027-03-28T00:00", ["28T00:30", "28T01:30", "28T02:30"]),
        ("30 */1 * * *", "Europe/Berlin", "2027-10-30T23:40", ["31T00:30", "31T01:30", "31T02:30"]),
        ("*/20 * * * *", "Australia/Lord_Howe", "2027-10-02T15:00", ["02T15:10", "02T15:40", "02T16:00"]),
        ("15,0 2 * * *", "Australia/Lord_Howe", "2027-10-02T15:00", ["02T15:30", "02T15:45", "03T15:00"]),
        ("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00", ["30T22:00", "29T22:00"]),
        ("0 18 L 2 *", "UTC", "2028-01-01T00:00", ["29T18:00", "28T18:00"]),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00", ["29T00:00", "29T00:00"]),
        ("0 9 13 * FRI", "UTC", "2027-08-12T00:00", ["13T09:00", "20T09:00"]),
        ("0 9 * * 7", "UTC", "2027-08-12T00:00", ["15T09:00", "22T09:00"]),
        ("0 9 * JAN-FEB/1 mon", "UTC", "2027-01-02T00:00", ["04T09:00", "11T09:00"]),
    ],
)
def test_moments_of_schedules(cron: str, zone: str, after: str, moments: list[str]) -> None:
    read, begin = parse_cron(cron, zone), datetime.fromisoformat(f"{after}+00:00")
    found = [read.after(begin)]
    while len(found) < len(moments):
        found.append(read.after(found[-1]))
    assert [f"{one:%dT%H:%M}" for one in found] == moments
    assert read.between(begin, found[-1], 10) == found
