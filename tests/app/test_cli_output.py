"""Answers of the command line as people and pipes read them: each kind of value in its one form."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from app.cli.outcome import print_fields, print_rows

EAST = datetime(2026, 11, 26, 8, 0, 5, tzinfo=timezone(timedelta(hours=9)))
ID = UUID("01890000-0000-7000-8000-000000000001")
VALUES: list[tuple[Any, str, Any]] = [
    (EAST, "2026-11-25 23:00:05Z", "2026-11-26T08:00:05+09:00"),
    (EAST.astimezone(UTC), "2026-11-25 23:00:05Z", "2026-11-25T23:00:05+00:00"),
    (None, "-", None),
    (True, "yes", True),
    (False, "no", False),
    (0, "0", 0),
    ("", "", ""),
    ("é\x1b[31m\u202e", "é\\x1b[31m\\u202e", "é\x1b[31m\u202e"),
    ([1, "é"], '[1, "é"]', [1, "é"]),
    ({"id": ID, "at": EAST.astimezone(UTC)},) + 2 * ({"id": str(ID), "at": "2026-11-25T23:00:05+00:00"},),
    (ID, str(ID), str(ID)),
]


@pytest.mark.parametrize(("value", "shown", "plain"), VALUES)
def test_a_value_has_one_form_for_people_and_one_for_programs(
    capsys: pytest.CaptureFixture[str], value: Any, shown: Any, plain: Any
) -> None:
    cell = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    print_rows([{"a": value, "b": "x"}], ("a", "b"), empty="")
    print_fields({"a": value})
    assert capsys.readouterr().out == f"{cell}\tx\na  {cell}\n"
    print_rows([{"a": value}], ("a",), empty="", as_json=True)
    print_fields({"a": value}, as_json=True)
    out, _ = json.JSONDecoder().raw_decode(text := capsys.readouterr().out)
    assert out == [{"a": plain}]
    assert json.loads(text[text.index("]\n{") + 2 :] if "]\n{" in text else text) == {"a": plain}
