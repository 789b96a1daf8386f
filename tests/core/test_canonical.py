"""The canonical bytes of both writers: the fast one is used only where both agree (RFC 8785)."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from core.canonical import DEPTH_MAX, TEXT_CHARACTERS_MAX, canonical_bytes, check_text, clean, unfit
from core.errors import InputError

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(value=values)
@example(value={"\U0001f600": 1, "\uffff": 2})
def test_the_bytes_are_those_of_the_standard(value: Any) -> None:
    try:
        wanted = rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError):
        with pytest.raises(InputError):
            canonical_bytes(value)
    else:
        assert canonical_bytes(value) == wanted


@pytest.mark.parametrize("value", [2**53, -(2**53), [2**53], {"a": 2**70}, {"a": [1.5, 2**53]}, {1: 2}, b"x", object()])
def test_what_json_readers_would_read_differently_is_refused(value: Any) -> None:
    with pytest.raises(InputError):
        canonical_bytes(value)


def test_depth_ends_before_a_reader_does() -> None:
    value: Any = "x"
    for _ in range(DEPTH_MAX):
        value = [value]
    assert canonical_bytes(value) == b"[" * DEPTH_MAX + b'"x"' + b"]" * DEPTH_MAX
    for deeper in ([value], {"a": value}, [1.5, value]):
        with pytest.raises(InputError, match="deeper"):
            canonical_bytes(deeper)


def test_what_is_as_long_as_it_may_be_is_kept_and_more_is_cut_with_a_sign() -> None:
    whole = "x" * TEXT_CHARACTERS_MAX
    assert clean(whole) == check_text(whole, "reason") == whole
    assert clean(f"{whole}y") == f"{whole[:-1]}…"
    assert clean("abcd", 4) == "abcd"
    assert clean("abcde", 4) == "abc…"
    with pytest.raises(InputError, match="4001 characters"):
        check_text(f"{whole}y", "reason")
    assert unfit("x" * 8, "It", bytes_max=10) is None
    assert unfit("x" * 9, "It", bytes_max=10) == "It is 11 bytes long; at most 10 are kept."
