"""JSON from outside: bounded before it is read, and never ambiguous."""

from __future__ import annotations

import json

import pytest

from core import bounded_json
from core.errors import InputError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"' + "[" * 40 + '"', None),
        ('"\\\\" ', None),
        ('["\\"' + "[" * 40 + '"]', None),
        ("[" * 32 + "]" * 32, None),
        ("[" * 33 + "]" * 33, "deeper than 32"),
        ('["\\\\",' + "[" * 32 + "]" * 32 + "]", "deeper than 32"),
        ('{"a": "\\\\", "b": ' + "[" * 32 + "]" * 32 + "}", "deeper than 32"),
        ('{"a": 1, "a": 1}', "twice"),
        ('{"a": {"b": 1, "b": 2}}', "twice"),
        ("NaN", "not JSON"),
        ('"\\u0000"', "cannot be stored"),
        ('{"\\ud800": 1}', "cannot be stored"),
        ('"' + "x" * 98 + '"', None),
        ('"' + "x" * 99 + '"', "at most 100"),
    ],
)
def test_what_is_read_and_what_is_refused(text: str, said: str | None) -> None:
    if said is None:
        assert bounded_json.parse(text.encode(), bytes_max=100) == json.loads(text)
    else:
        with pytest.raises(InputError, match=said):
            bounded_json.parse(text.encode(), bytes_max=100)
