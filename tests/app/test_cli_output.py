"""Answers of the command line as people and pipes read them: each kind of value in its one form."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.cli import runs
from app.cli.evidence import public_key
from app.cli.outcome import Exit, explained, print_fields, print_rows
from app.cli.queues import age
from evidence.signing import FileSigner
from runtime.engine.states import StepState

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
    ("a\nb\tc\r'\"\\", "a\\nb\\tc\\r'\"\\", "a\nb\tc\r'\"\\"),
    ([1, "é"], '[1, "é"]', [1, "é"]),
    (["a\u202e\x1b"], '["a\\u202e\\u001b"]', ["a\u202e\x1b"]),
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


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, None),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m 0s"),
        (125, "2m 5s"),
        (3600, "1h 0m"),
        (3605, "1h 0m"),
        (86400 + 59, "1d 0h"),
        (3 * 86400 + 4 * 3600 + 5, "3d 4h"),
    ],
)
def test_an_age_is_told_in_its_two_largest_units(seconds: float | None, shown: str | None) -> None:
    assert age(seconds) == shown


def test_of_the_database_s_words_only_the_first_line_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    error = asyncpg.UniqueViolationError("duplicate key\nDETAIL: Key (secret)=(hunter2) exists")
    with pytest.raises(SystemExit) as ended, explained():
        raise error
    assert ended.value.code == Exit.UNAVAILABLE
    assert capsys.readouterr().err == "counterseal: the database failed: duplicate key\n"


@pytest.mark.req("Q-21")
def test_evidence_is_written_for_its_owner_alone(
    tmp_path: Path, clean_environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clean_environment.setenv("COUNTERSEAL_HOME", str(tmp_path / "home"))
    FileSigner.load_or_create(tmp_path / "home" / "keys" / "evidence.pem")
    written = tmp_path / "key.pem"
    public_key(written)
    assert capsys.readouterr().out == f"{written}\n"
    public_key(None)
    assert capsys.readouterr().out.encode() == written.read_bytes()
    assert written.stat().st_mode & 0o777 == 0o600
    assert written.read_bytes().startswith(b"-----BEGIN PUBLIC KEY-----")
    assert {path.name for path in tmp_path.iterdir()} == {"home", "key.pem"}, "no draft is left"


@pytest.mark.parametrize("error", [None, {"class": "transport", "code": "c", "message": "m"}])
@pytest.mark.parametrize("status", StepState)
def test_only_a_step_that_is_tried_again_has_a_next_try(status: StepState, error: object) -> None:
    shown = runs._step({"status": status, "next_eligible_at": "then", "last_error": error})
    assert shown["next_try"] == ("then" if status is StepState.FAILED_RETRYABLE else None)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, None),
        ({}, "error: "),
        ({"code": "timeout", "message": "Too late."}, "timeout: Too late."),
        ({"code": "timeout", "step": "s", "message": "Too late."}, "timeout at s: Too late."),
        ({"code": "canceled", "by": "ann", "message": "No."}, "canceled by ann: No."),
        ({"code": "canceled", "by": "ann", "step": "s", "message": "No."}, "canceled at s by ann: No."),
        ({"code": "canceled", "by": "", "step": None, "message": "No."}, "canceled: No."),
    ],
)
def test_an_error_names_its_step_and_its_actor_as_far_as_it_has_them(error: Any, words: str | None) -> None:
    assert runs._error(error) == words
    shown = runs._step({"status": StepState.FAILED_RETRYABLE, "next_eligible_at": None, "last_error": error})
    assert shown["last_error"] == words


@pytest.mark.parametrize("step", [None, "b/1"])
def test_a_line_of_the_book_is_told_with_its_actor_and_step(step: str | None) -> None:
    line = {"ts": "t", "type": "step.started", "actor": {"kind": "worker", "id": "Host:7"}, "step": step, "run": "r"}
    told = {"seq": 7, "at": "t", "type": "step.started", "actor": "worker:Host:7", "step": step}
    assert runs._event(7, json.dumps(line).encode()) == told


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        (["a", {"b": 1}], {"0": "a", "1": {"b": 1}}),
        ([], {}),
        ({"c": 1, "d": None}, {"c": 1, "d": None}),
        ({}, {"": None}),
        ("R-1", {"": "R-1"}),
        (None, {"": None}),
    ],
)
def test_a_part_of_a_state_is_shown_as_fields(part: Any, fields: dict[str, Any]) -> None:
    assert runs._part(part) == fields
