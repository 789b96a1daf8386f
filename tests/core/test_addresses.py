"""Addresses of databases as asyncpg takes them, ids of tenants, and the database's time between two readings."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from core.db import DatabaseClock, address, check_tenant
from core.errors import InputError


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgres://h/d", "postgres://h/d"),
        ("postgresql+asyncpg://u:p@h:5432/d", "postgresql://u:p@h:5432/d"),
        ("postgres+psycopg2://h/d", "postgres://h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u:@h/d", "postgresql://u:@h/d"),
        ("postgresql://u:p/s?#s@h/d", "postgresql://u:p%2Fs%3F%23s@h/d"),
        ("postgresql://u:p%40s%2Fs@h/d", "postgresql://u:p%40s%2Fs@h/d"),
        ("postgresql://u:50%@h/d", "postgresql://u:50%25@h/d"),
        ("postgresql://u%40x:p@h/d", "postgresql://u%40x:p@h/d"),
        ("postgresql://h,i:5433/d?sslmode=require", "postgresql://h,i:5433/d?sslmode=require"),
        ("postgresql:///d?host=/tmp", "postgresql:///d?host=/tmp"),
    ],
)
def test_a_drivers_name_goes_and_a_password_is_quoted_once(given: str, made: str) -> None:
    assert address(given) == made
    assert address(made) == made


@pytest.mark.parametrize("given", ["", "h/d", "mysql://h/d", "postgresql://h", "postgresql://h/", "xpostgresql://h/d"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(InputError, match=r"^is no address of a PostgreSQL database$"):
        address(given)


@pytest.mark.parametrize("tenant", ["a", "0", "a-b_c", "a" * 63, "9--"])
def test_a_tenants_id_is_taken_as_it_is(tenant: str) -> None:
    assert check_tenant(tenant) == tenant


@pytest.mark.parametrize("tenant", ["", "a" * 64, "A", "-a", "_a", "a b", "a'", "a;b", "ä", "a\n", "a.b"])
def test_another_id_is_never_written_into_a_statement(tenant: str) -> None:
    with pytest.raises(InputError) as refused:
        check_tenant(tenant)
    remedy = "Use lower-case letters, digits, - and _, at most 63, starting with a letter or digit."
    assert str(refused.value) == f"{tenant!r} is not a tenant id. {remedy}"


def test_time_goes_on_from_its_reading_and_is_off_by_no_more_than_the_round_trip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = [100.5]
    monkeypatch.setattr(time, "monotonic", lambda: passed[0])
    read = datetime(2026, 8, 1, 12, tzinfo=UTC)
    clock = DatabaseClock(read, 100.25)
    assert (clock.now(), clock.age(), clock.error) == (read, 0, timedelta(seconds=0.25))
    passed[0] = 160.5
    assert (clock.now(), clock.age(), clock.error) == (read + timedelta(minutes=1), 60, timedelta(seconds=0.25))
    assert DatabaseClock(read, 200).error == timedelta(0)
