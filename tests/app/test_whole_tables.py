"""Tables and sentences of the faces, whole: statuses, exit codes, what became of a signal, the bounds of a file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from app.cli import context
from app.cli.outcome import CODES, Exit
from app.http import approvals, problems, tasks
from app.shown import ENDED, exported, signal_sentence
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from runtime.requests.signaling import SignalAnswer, SignalCode
from runtime.store import audit

RUN = UUID(int=7)
NOBODY = "Nobody waits for 'k' now. The signal is kept for 30 days, and goes to "
COMPARE = " If that is not what you meant, compare the key with those that `counterseal run waits RUN` shows."
FIRST = (
    "the first wait for this key; if a run that is over has waited for it, only to one of a run that was there already."
)
SAID = {
    SignalCode.DELIVERED: f"It ended the wait at step s of run {RUN}.",
    SignalCode.KEPT: f"{NOBODY}run {RUN} alone, once it waits for this key.{COMPARE}",
    SignalCode.ENDED: "What this signal is for has ended already. It was recorded, and changes nothing.",
    SignalCode.STALE: "No wait for 'k' has this token, or was opened at this version. It was recorded, and changes "
    "nothing. `counterseal run waits RUN` shows them.",
    SignalCode.DUPLICATE: "The same was said before, without an `id`: it is taken for a repetition, and ends no wait. "
    "Another wait is open; to end that one, say it with an `id` of its own.",
    SignalCode.EXPIRED: "It was kept for 30 days, and nothing has waited for it. To say it anew, give it another `id`.",
}


def test_each_code_has_its_status() -> None:
    assert {str(code): status for code, status in approvals.REFUSED.items()} == {
        **dict.fromkeys(("separation_of_duties", "group_unresolvable", "not_eligible"), 403),
        **dict.fromkeys(("not_in_directory", "deactivated", "service_account"), 403),
        **dict.fromkeys(("already_decided", "expired", "stale", "changed"), 409),
        **dict.fromkeys(("wrong_choice", "reason_missing", "reason_too_long"), 422),
        "already_counted": 200,
    }
    assert {str(code): status for code, status in tasks.REFUSED.items()} == {
        "not_assigned": 403,
        "invalid": 422,
        **dict.fromkeys(("changed", "completed", "expired", "canceled"), 409),
    }
    assert problems.STATUS == {
        "input": 400,
        "definition": 422,
        "expression": 422,
        "authentication": 401,
        "authorization": 403,
        "not_found": 404,
        "consistency": 409,
        "transport": 503,
        "timeout": 504,
        "configuration": 503,
    }
    assert {code: int(ended) for code, ended in CODES.items()} == {
        **dict.fromkeys(("input", "definition", "expression"), 2),
        **dict.fromkeys(("authentication", "authorization", "not_found", "consistency"), 4),
        "configuration": 3,
        "transport": 5,
        "timeout": 5,
    }
    assert [(one.name, int(one)) for one in Exit] == [
        *(
            ("OK", 0),
            ("FAILED", 1),
            ("INPUT", 2),
            ("CONFIGURATION", 3),
            ("CONFLICT", 4),
            ("UNAVAILABLE", 5),
            ("KEPT", 6),
        ),
    ]
    assert sorted(map(str, ENDED)) == ["canceled", "failed_terminal", "succeeded"]


@pytest.mark.parametrize("code", SignalCode)
def test_what_became_of_a_signal_is_a_sentence(code: SignalCode) -> None:
    assert signal_sentence(SignalAnswer(code, "i", run_id=RUN, step="s"), "k") == SAID[code]
    if code is SignalCode.KEPT:
        for step in (None, "s"):
            assert signal_sentence(SignalAnswer(code, "i", step=step), "k") == f"{NOBODY}{FIRST}{COMPARE}"
        assert signal_sentence(SignalAnswer(code, "i", run_id=RUN), "k") == SAID[code]


@pytest.mark.parametrize(("size", "whole"), [(2, False), (3, True), (4, False)])
async def test_a_bundle_of_another_length_is_not_exported(
    monkeypatch: pytest.MonkeyPatch, size: int, whole: bool
) -> None:
    told: list[Any] = []

    async def get(stored: Any) -> bytes:
        assert (stored.uri, stored.version_id, stored.sha256) == ("file:x", "v", "d")
        return b"abc"

    async def ask(*said: Any) -> None:
        told.append(said)

    faces: Any = SimpleNamespace(blobs=SimpleNamespace(get=get), ask=ask)
    row: Any = {"uri": "file:x", "version_id": "v", "sha256": "d", "bytes": size, "run_id": RUN}
    actor = Actor("token", "ann")
    if whole:
        assert await exported(faces, "acme", actor, row) == b"abc"
        assert told == [("acme", audit.record, "evidence.exported", actor, {"run": str(RUN), "sha256": "d"})]
    else:
        with pytest.raises(ConsistencyError, match="file:x does not have the length that was recorded"):
            await exported(faces, "acme", actor, row)
        assert told == [], "nothing was handed out"


@pytest.mark.parametrize(("size", "taken"), [(7, True), (8, True), (9, False)])
def test_a_file_is_read_up_to_its_limit(tmp_path: Path, size: int, taken: bool) -> None:
    (tmp_path / "a").write_bytes(b"x" * size)
    if taken:
        assert context.read_input(tmp_path / "a", 8) == b"x" * size
    else:
        with pytest.raises(InputError) as refused:
            context.read_input(tmp_path / "a", 8)
        assert (refused.value.message, refused.value.where) == ("is larger than 8 bytes", str(tmp_path / "a"))


def test_what_is_typed_is_a_text_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff")
    assert context.typed(f"@{tmp_path}/a") == b"\xff"
    assert context.typed("a@b \udcff") == b"a@b \xff"
    with pytest.raises(InputError, match="is not UTF-8"):
        context.read_text(tmp_path / "a")
    with pytest.raises(InputError, match="cannot be read: No such file or directory"):
        context.read_text(tmp_path / "b")
    (tmp_path / "big").write_bytes(b"x" * (1024 * 1024 + 1))
    with pytest.raises(InputError, match="is larger than 1048576 bytes"):
        context.read_input(tmp_path / "big")
    (tmp_path / "big").write_bytes(b"x" * 1024 * 1024)
    assert len(context.read_input(tmp_path / "big")) == 1024 * 1024
