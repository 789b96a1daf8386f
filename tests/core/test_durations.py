"""Durations as documents write them, up to the longest that is taken."""

from __future__ import annotations

from datetime import timedelta

import pytest

from core.errors import InputError
from core.spans import LONGEST, parse_duration


@pytest.mark.parametrize("text", ["P3660D", "PT87840H", "P522W6D", "P3659DT23H59M60S"])
def test_ten_years_are_taken(text: str) -> None:
    assert parse_duration(text) == LONGEST


@pytest.mark.parametrize("text", ["P3660DT1S", "P3661D", "P523W", "PT87841H"])
def test_more_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="ten years"):
        parse_duration(text)


def test_a_text_is_as_exact_as_a_microsecond_and_never_nothing() -> None:
    assert parse_duration("PT0.000001S") == timedelta(microseconds=1)
    for nothing in ("PT0S", "P0D"):
        with pytest.raises(InputError):
            parse_duration(nothing)
