"""Promise 1 checked from events alone: what is unauthorised, what is irregular, and what a history adds up to."""

from __future__ import annotations

from typing import Any

import pytest

from core.canonical import sha256_hex
from core.errors import InputError
from evidence import container
from evidence.commitments import path_of, reason_path
from evidence.container import Container, HeldFiles
from evidence.events import EventType
from evidence.files import FileBlobStore
from evidence.history import History
from evidence.origins import Event
from evidence.receipts import LateAnswer, contradiction

E = EventType
P = {"name": "p", "version": 1, "digest": "0" * 64}
DECIDED: dict[str, Any] = {"decision": "d1", "action": "A", "operation": "x.y.z", "outcome": "allow", "policies": [P]}
INTENT: dict[str, Any] = {
    "receipt": "r1", "action": "A", "operation": "x.y.z", "attempt": 1, "decision": "d1", "approval": None,
}  # fmt: skip
ASKED: dict[str, Any] = {"approval": "a1", "action": "A", "card": "c"}
ASKS = {**DECIDED, "outcome": "needs_approval"}
BY_PEOPLE = {**INTENT, "approval": "a1"}
VOTE = {"approval": "a1", "choice": "approve"}
FACTS = {"voter": "a", "choice": "x", "at": "t", "channel": "http"}
YES = [
    (E.APPROVAL_REQUESTED, ASKED),
    (E.APPROVAL_VOTED, VOTE),
    (E.APPROVAL_DECIDED, {"approval": "a1", "outcome": "approved"}),
]


def history(*told: tuple[EventType, dict[str, Any]]) -> History:
    found = History()
    for seq, (kind, data) in enumerate(told):
        actor = {"kind": "person", "id": "ana"}
        found.observe({"seq": seq, "type": str(kind), "actor": actor, "ts": "t", "step": "s", "data": data})
    return found


@pytest.mark.req("U-4")
@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([(E.DECISION_MADE, DECIDED), (E.ACTION_INTENDED, INTENT)], None),
        ([(E.ACTION_INTENDED, INTENT)], "without a decision"),
        ([(E.DECISION_MADE, {**DECIDED, "action": "B"}), (E.ACTION_INTENDED, INTENT)], "about another action"),
        ([(E.DECISION_MADE, {**DECIDED, "operation": "o"}), (E.ACTION_INTENDED, INTENT)], "about another action"),
        ([(E.DECISION_MADE, {**DECIDED, "outcome": "deny"}), (E.ACTION_INTENDED, INTENT)], "the decision was deny"),
        ([(E.DECISION_MADE, ASKS), (E.ACTION_INTENDED, INTENT)], "without the approval that policy asked for"),
        ([(E.DECISION_MADE, ASKS), (E.ACTION_INTENDED, BY_PEOPLE)], "without the approval that policy asked for"),
        ([(E.DECISION_MADE, ASKS), *YES, (E.ACTION_INTENDED, BY_PEOPLE)], None),
        ([(E.DECISION_MADE, ASKS), *YES[:2], (E.ACTION_INTENDED, BY_PEOPLE)], "an approval that was requested"),
        ([(E.DECISION_MADE, ASKS), YES[0], YES[2], (E.ACTION_INTENDED, BY_PEOPLE)], "nobody voted for"),
        (
            [
                (E.DECISION_MADE, ASKS),
                YES[0],
                (E.APPROVAL_VOTED, {**VOTE, "choice": "reject"}),
                YES[2],
                (E.ACTION_INTENDED, BY_PEOPLE),
            ],
            "nobody voted for",
        ),
        (
            [
                (E.DECISION_MADE, ASKS),
                (E.APPROVAL_REQUESTED, {**ASKED, "action": "B"}),
                *YES[1:],
                (E.ACTION_INTENDED, BY_PEOPLE),
            ],
            "an approval of another action",
        ),
        (
            [
                (E.DECISION_MADE, ASKS),
                (E.APPROVAL_REQUESTED, {**ASKED, "action": None}),
                *YES[1:],
                (E.ACTION_INTENDED, BY_PEOPLE),
            ],
            "an approval of another action",
        ),
        (
            [(E.DECISION_MADE, ASKS), *YES, (E.APPROVAL_EXPIRED, {"approval": "a1"}), (E.ACTION_INTENDED, BY_PEOPLE)],
            "an approval that was expired",
        ),
        (
            [
                (E.DECISION_MADE, ASKS),
                *YES,
                (E.APPROVAL_SUPERSEDED, {"approval": "a1"}),
                (E.ACTION_INTENDED, BY_PEOPLE),
            ],
            "an approval that was superseded",
        ),
        (
            [
                (E.DECISION_MADE, ASKS),
                *YES,
                (E.ACTION_INTENDED, BY_PEOPLE),
                (E.ACTION_INTENDED, {**BY_PEOPLE, "receipt": "r2"}),
            ],
            "that another action had consumed",
        ),
        ([(E.ACTION_SUCCEEDED, {"receipt": "r9"})], "an action that was never intended"),
    ],
)
def test_nothing_was_let_out_without_authority(told: Any, why: str | None) -> None:
    found = history(*told)
    assert found.irregular == []
    assert len(found.unauthorised) == (why is not None)
    assert why is None or (
        why in found.unauthorised[0] and found.unauthorised[0].startswith(f"event {len(told) - 1}: ")
    )


BEGUN = [(E.DECISION_MADE, DECIDED), (E.ACTION_INTENDED, INTENT)]
DOUBT = [*BEGUN, (E.ACTION_IN_DOUBT, {"receipt": "r1"})]


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ([*BEGUN, (E.ACTION_HELD, {"receipt": "r1"})], "held that is not in doubt"),
        ([*DOUBT, (E.ACTION_HELD, {"receipt": "r1"})], ""),
        ([*DOUBT, (E.ACTION_DOUBT_RESOLVED, {"receipt": "r1", "resolution": "not_applied"})], ""),
        (
            [*BEGUN, (E.ACTION_DOUBT_RESOLVED, {"receipt": "r1", "resolution": "not_applied"})],
            "'not_applied' resolves nothing",
        ),
        ([*DOUBT, (E.ACTION_DOUBT_RESOLVED, {"receipt": "r1", "resolution": "perhaps"})], "'perhaps' resolves nothing"),
        ([*DOUBT, (E.ACTION_DOUBT_RESOLVED, {"receipt": "r1", "resolution": "applied"})], ""),
        ([*BEGUN, (E.ACTION_DOUBT_RESOLVED, {"receipt": "r1", "resolution": "applied"})], "event 2"),
        ([*BEGUN, (E.ACTION_SUCCEEDED, {"receipt": "r1"}), (E.ACTION_FAILED, {"receipt": "r1"})], "event 3"),
        ([*BEGUN, (E.ACTION_FAILED, {"receipt": "r1"}), (E.ACTION_INTENDED, {**INTENT, "attempt": 2})], ""),
        ([*BEGUN, (E.ACTION_SUCCEEDED, {"receipt": "r1"}), (E.ACTION_INTENDED, {**INTENT, "attempt": 2})], "event 3"),
        ([(E.DECISION_MADE, DECIDED), (E.DECISION_MADE, DECIDED)], "the decision d1 was made before"),
        ([(E.DECISION_MADE, {**DECIDED, "policies": []})], "names no policy and is not a denial"),
        ([(E.DECISION_MADE, {**DECIDED, "policies": [], "outcome": "deny"})], ""),
        ([(E.DECISION_MADE, {**DECIDED, "policies": [P, {"digest": 7}]})], "no list of what has a digest"),
        ([(E.DECISION_MADE, {**DECIDED, "policies": "all"})], "no list of what has a digest"),
        ([YES[0], YES[0]], "the approval a1 was requested before"),
        ([YES[1]], "the approval a1 was never requested"),
        ([*YES, YES[2]], "the approval was approved already"),
        (
            [*YES[:2], (E.APPROVAL_DECIDED, {"approval": "a1", "outcome": "rejected"}), YES[2]],
            "the approval was rejected already",
        ),
        ([*YES[:2], (E.APPROVAL_EXPIRED, {"approval": "a1"}), YES[2]], "the approval was expired already"),
        ([*YES[:2], (E.APPROVAL_SUPERSEDED, {"approval": "a1"}), YES[2]], "the approval was superseded already"),
        ([(E.DECISION_MADE, {**DECIDED, "decision": 7})], "its decision is not an id"),
        ([(E.APPROVAL_REQUESTED, {**ASKED, "approval": ["a1"]})], "its approval is not an id"),
        ([(E.ACTION_INTENDED, {**INTENT, "receipt": None})], "its receipt is not an id"),
    ],
)
def test_what_does_not_follow_is_irregular(told: Any, what: str) -> None:
    found = history(*told)
    assert [what in line for line in found.irregular] == ([True] if what else []), found.irregular


@pytest.mark.parametrize("other", [{"action": "B"}, {"operation": "o"}])
def test_a_receipt_stays_that_of_its_action(other: dict[str, str]) -> None:
    again = {**DECIDED, "decision": "d2", **other}
    intent = {**INTENT, "decision": "d2", "attempt": 2, **other}
    told = [*BEGUN, (E.ACTION_FAILED, {"receipt": "r1"}), (E.DECISION_MADE, again), (E.ACTION_INTENDED, intent)]
    assert history(*told).irregular == ["event 4: the receipt r1 is of another action"]


def test_a_history_adds_up() -> None:
    place = path_of("approval", "a1", "asked")
    reason = reason_path("a1", "ana", "t")
    opened = {"workflow": {"name": "w"}, "committed": [["/trigger/a", "1"], ["/other", "2"], "x", []]}
    canceled = {"committed": [["/other", "0"], [path_of("cancel", "reason"), "c9"]]}
    late = {"receipt": "r1", "known": "succeeded", "attempt": 1, "values": "v", "stored": "s", "receipt_digest": "d"}
    found = history(
        (E.RUN_OPENED, opened),
        (E.STEP_STARTED, {"attempt": 0}),
        (E.DECISION_MADE, DECIDED),
        (E.APPROVAL_REQUESTED, {**ASKED, "committed": [[place, "c1"]]}),
        (E.APPROVAL_VOTED, {**VOTE, "committed": [[reason, "c2"]]}),
        (E.APPROVAL_VOTED, {**VOTE, "choice": "reject", "committed": [[reason, 7], [reason], "x"]}),
        (E.ACTION_INTENDED, {**INTENT, "values": "bound"}),
        (E.ACTION_LATE, late),
        (E.ACTION_SUCCEEDED, {"receipt": "r1", "receipt_digest": "d1"}),
        (E.RUN_CANCELED, canceled),
        (E.RUN_CANCELED, {}),
        (E.RUN_CLOSED, {"status": "succeeded"}),
        (E.ACTION_LATE, {**late, "known": "failed"}),
    )
    assert found.run["inputs"] == [["/trigger/a", "1"]]
    assert (found.workflow, found.canceled) == ({"name": "w"}, ("ana", "c9"))
    assert (found.run_status, found.performed, found.after_the_end) == ("succeeded", 1, 1)
    assert found.policies == {"0" * 64: P}
    approval, receipt = found.approvals["a1"], found.receipts["r1"]
    assert (approval.asked, approval.votes, approval.reasons) == (
        "c1",
        [{"voter": "ana", "choice": choice, "at": "t"} for choice in ("approve", "reject")],
        ["c2", None],
    )
    assert (receipt.status, receipt.attempt, receipt.late[0]) == ("succeeded", 1, {"known": "succeeded", "attempt": 1})
    facts = {**INTENT, "seq": 6, "step": "s", "ts": "t"}
    assert found.attempts == [(facts, "bound")]
    assert [words for words, _ in found.late_answers()] == [
        "attempt 1 of x.y.z: succeeded",
        "attempt 1 of x.y.z: failed",
    ]
    assert [bool(why) for _, why in found.late_answers()] == [False, True]
    assert history((E.RUN_CLOSED, {"status": "x"}), (E.RUN_REOPENED, {})).run_status is None


def test_late_answers_count_after_the_last_end_alone() -> None:
    late = (E.ACTION_LATE, {"receipt": "r1", "known": "failed", "attempt": 1})
    closed: Any = (E.RUN_CLOSED, {"status": "failed_terminal"})
    again: Any = (E.RUN_REOPENED, {})
    told = [*BEGUN, late, closed, late, late, again, late]
    assert (history(*told[:6]).after_the_end, history(*told).after_the_end) == (2, 0)
    assert history(*told, closed, late).after_the_end == 1
    assert len(history(*told, closed, late).receipts["r1"].late) == 5


@pytest.mark.parametrize(
    ("known", "attempt", "status", "last", "contradicts"),
    [
        ("succeeded", 1, "succeeded", 1, False),
        ("succeeded", 1, "failed", 1, True),
        ("failed", 1, "succeeded", 1, True),
        ("failed", 1, "succeeded", 2, False),
        ("failed", 1, "failed", 1, False),
    ],
)
def test_a_late_answer_contradicts_what_was_recorded_of_its_attempt(
    known: str, attempt: int, status: str, last: int, contradicts: bool
) -> None:
    assert LateAnswer(known)
    assert (contradiction(known, attempt, status, last) is not None) is contradicts


# -- what is read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../b", "a//b", "", "a\\b", "a\x00"])
def test_a_name_that_could_mean_two_things_is_no_file(name: str) -> None:
    with pytest.raises(InputError):
        HeldFiles({name: b"x"})


def test_a_bundle_has_so_many_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(container, "FILES_MAX", 3)
    assert len(HeldFiles({"a": b"", "b": b""}).sizes) == 2, "the envelope comes on top"
    with pytest.raises(InputError, match="more than 3 files"):
        HeldFiles({"a": b"", "b": b"", "c": b""})
    for name in "abc":
        (tmp_path / name).write_bytes(b"x")
    assert sorted(Container(tmp_path).sizes) == ["a", "b", "c"]
    (tmp_path / "d").mkdir()
    (tmp_path / "d/e").write_bytes(b"x")
    with pytest.raises(InputError, match="more than 3 files"):
        Container(tmp_path)


def test_a_file_that_grew_or_is_not_there_is_refused(tmp_path: Any) -> None:
    (tmp_path / "a").write_bytes(b"xy")
    found = Container(tmp_path)
    assert b"".join(found.chunks("a")) == b"xy"
    (tmp_path / "a").write_bytes(b"xyz")
    with pytest.raises(InputError, match="longer than its entry says"):
        list(found.chunks("a"))
    for files in (found, HeldFiles({})):
        with pytest.raises(InputError, match="is missing"):
            list(files.chunks("b"))


async def test_files_lie_in_folders_that_only_their_owner_enters(tmp_path: Any) -> None:
    store = FileBlobStore(tmp_path / "deep" / "er")
    blob = await store.put("some/where/x", b"1", sha256_hex(b"1"))
    again = await store.put("some/where/x", b"1", sha256_hex(b"1"))
    assert (await store.get(blob), again.uri) == (b"1", blob.uri)
    folders = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()}
    assert folders == {0o700}
    with pytest.raises(Exception, match="with other content"):
        await store.put("some/where/x", b"2", sha256_hex(b"2"))
    assert await store.get(blob) == b"1"


@pytest.mark.parametrize(
    ("values", "name", "wanted"),
    [
        ([("/event/a", "1")], "a", "whole"),
        ([("/event/a/x", "2"), ("/event/a/y~1z", "3"), ("/event/b", "4")], "a", {"x": "X", "y/z": "YZ"}),
        ([("/event/b", "4")], "a", None),
        (None, "a", None),
    ],
)
def test_a_listed_value_is_put_together_from_its_parts(values: Any, name: str, wanted: Any) -> None:
    known = {"1": "whole", "2": "X", "3": "YZ", "4": "other"}
    event = Event(0, "t", "s", values)
    assert event.opened(name, lambda path, commitment: (True, known[commitment])) == wanted
