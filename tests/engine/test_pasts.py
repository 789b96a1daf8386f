"""The past of a run, line by line: when each thing was, in which order it is shown, and what retention leaves of it.

``whole_pasts.json`` has the place of a line in the book instead of each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from runtime.engine.events import ApprovalRequested, ApprovalVoted, DecisionMade, RunExtended
from runtime.engine.past import REMOVED, Past, emptied, past_of, questions, receipt_rows, step_rows
from runtime.engine.replaying import unopened
from runtime.engine.told import Told
from tests.engine.conftest import KEY, NOW, RUN_ID
from tests.engine.governing import Governed
from tests.engine.test_copies import full_run, step
from tests.engine.test_further_books import SCENES as SELDOM
from tests.engine.test_lives import receipt, run_of
from tests.engine.test_whole_books import SCENES, away, book_of, canceled
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("X-15")

SHOWN = {
    **{name: SCENES[name] for name in (
        "sides", "sides-canceled", "reopened-effect-b", "loop-of-many", "extended-while-it-waits", "agent-limited",
        "failure-handled", "write-approved",
    )},
    "away": away,
    "away-and-due": lambda: away().due(),
    "away-and-canceled": lambda: canceled(away()),
    **{name: SELDOM[name] for name in ("sent-in-vain-twice", "agent-anew", "case-anew")},
}  # fmt: skip


def later_and_later(run: Governed) -> list[Told]:
    """The book in which each line is a second later than the one before."""
    return [replace(told, at=NOW + timedelta(seconds=at)) for at, told in enumerate(book_of(run))]


def past(run: Governed, wanted: Sequence[int] = range(9)) -> Past:
    graph = run.workflow.graph
    return past_of(unopened(RUN_ID, KEY, graph), later_and_later(run), [*run.before, graph], wanted)


def when(time: datetime | None) -> float | None:
    return None if time is None else (time - NOW).total_seconds()


OF_STEPS, OF_RECEIPTS = ("created_at", "finished_at", "next_eligible_at"), ("intended_at", "settled_at")


def described(run: Governed) -> dict[str, Any]:
    found = past(run)
    return {
        "steps": [
            [row["step_key"], row["superstep"], *(when(row[name]) for name in OF_STEPS)] for row in step_rows(found)
        ],
        "receipts": [[row["step_key"], *(when(row[name]) for name in OF_RECEIPTS)] for row in receipt_rows(found)],
        "checkpoints": [
            [row["superstep"], row["source"], row["writes"], row["versions_seen"], when(row["created_at"])]
            for row in found.checkpoints
        ],
        "extensions": [[row["number"], row["actor"], when(row["created_at"])] for row in found.extensions],
        "votes": [[told.step, told.actor.id, when(told.at)] for told in found.votes],
        "limits": found.limits,
        "versions": found.versions,
    }


def test_what_is_shown_of_a_run_has_the_times_and_the_order_of_its_book() -> None:
    as_it_was(Path(__file__).with_name("whole_pasts.json"), {name: described(made()) for name, made in SHOWN.items()})


def test_only_the_checkpoints_that_are_wanted_are_kept() -> None:
    run = SCENES["loop-of-many"]()
    every = [row["superstep"] for row in past(run).checkpoints]
    assert every == [*range(len(every))]
    assert [row["superstep"] for row in past(run, (0, 2)).checkpoints] == [0, 2]
    assert past(run, ()).checkpoints == []


def test_all_policies_that_judged_and_all_votes_are_known() -> None:
    run = SCENES["write-asked-under-another-policy"]()
    made = [told.event for told in book_of(run) if isinstance(told.event, DecisionMade)]
    digests = {str(policy["digest"]) for event in made for policy in event.policies}
    assert (past(run).policies, len(digests)) == (digests, 2)
    book = later_and_later(SCENES["write-asked"]())
    (question,) = [told for told in book if isinstance(told.event, ApprovalRequested)]
    votes = [
        Told(ApprovalVoted(question.event.approval, choice, "cli", False), replace(question.actor, id=person), NOW, "a")
        for choice, person in (("approve", "ana"), ("reject", "ben"), ("reject", "ana"))
    ]
    votes = [replace(vote, at=book[-1].at + timedelta(seconds=at)) for at, vote in enumerate(votes, 1)]
    graph = SCENES["write-asked"]().workflow.graph
    found = past_of(unopened(RUN_ID, KEY, graph), [*book, *votes], [graph])
    assert found.votes == votes


def test_steps_are_in_the_order_of_supersteps_and_of_the_definition() -> None:
    rows = [
        step("c", superstep=1, index=1, step_id=UUID(int=1)),
        step("a", superstep=0, index=2, step_id=UUID(int=2)),
        step("b", superstep=0, index=2, step_id=UUID(int=3)),
        step("d", superstep=0, index=3, step_id=UUID(int=0)),
        step("e", superstep=2, index=0, step_id=UUID(int=0)),
    ]
    run = full_run()
    run.steps, run.past = {row.key: row for row in rows[:2]}, {row.key: row for row in rows[2:]}
    assert [row.key for row in Past(run).steps()] == ["a", "b", "d", "c", "e"]


def test_receipts_are_in_the_order_of_their_last_intents() -> None:
    early = receipt(3, intended_at=NOW)
    rows = receipt(2, settled_at=NOW), receipt(1, settled_at=NOW + timedelta(days=1)), early
    run = run_of(*rows, receipt(4, intended_at=NOW))
    assert [row.receipt_id.int for row in Past(run).receipts()] == [3, 4, 1, 2]


ERROR = {"class": "timeout", "code": "c", "step": "a", "by": "person:p", "message": "secret", "sent": True, "more": 1}
FACTS = {"class": "timeout", "code": "c", "step": "a", "by": "person:p"}
GONE = {
    "class": "consistency", "code": "output_removed",
    "message": "This effect was done before; retention has removed its result.",
}  # fmt: skip


@pytest.mark.req("X-20")
@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"status": "succeeded", "output": {"n": 1}}, GONE),
        ({"status": "succeeded", "output": 0}, GONE),
        ({"status": "succeeded", "output": {}}, None),
        ({"status": "succeeded", "output": None}, None),
        ({"status": "succeeded", "output": {"n": 1}, "error": ERROR}, {**FACTS, "message": REMOVED}),
        ({"status": "failed", "output": {"n": 1}}, None),
        ({"status": "failed", "error": {"message": "secret"}}, None),
        ({"status": "failed", "error": ERROR}, {**FACTS, "message": REMOVED}),
        ({"status": "in_doubt", "output": {"n": 1}}, None),
    ],
)
@pytest.mark.parametrize(("resolution", "left"), [(None, None), ("", None), ("by ana: secret", REMOVED)])
def test_retention_leaves_the_facts_of_a_receipt(more: Any, error: Any, resolution: Any, left: Any) -> None:
    action = {"input": {"n": 1}, "before": {"values": {}}, "summary": "secret", "target": "t", "approval": "5"}
    late = {"attempt": 1, "epoch": 2, "known": "failed", "sent": "s", "answered": "s", "code": "x"}
    row = receipt(
        1, action=action, reverse={"operation": "o"}, usage={"cost": "1"}, resolution=resolution, external_id="e1",
        late=({**late, "output": "secret", "detail": {"message": "secret"}},), settled_at=NOW, **more,
    )  # fmt: skip
    found = Past(run_of(row))
    (whole,) = receipt_rows(found)
    _, (emptied_row,), _ = emptied(found)
    says = whole["late"][0]["says"]
    assert emptied_row == {
        **whole,
        "action": {"input": {}, "before": None, "summary": REMOVED, "target": "t", "approval": "5"},
        "reverse": None,
        "output": None,
        "late": [{**late, "output": None, "detail": None, "says": says}],
        "resolution": left,
        "error": error,
    }
    assert "secret" not in str(emptied_row)


@pytest.mark.req("X-20")
@pytest.mark.parametrize(
    ("error", "left"),
    [(None, None), ({}, None), ({"message": "secret"}, None), (ERROR, FACTS), ({"class": "x", "code": None}, None)],
)
def test_retention_leaves_the_facts_of_a_step(error: Any, left: Any) -> None:
    run = run_of()
    run.steps = {"a": step("a", "failed_terminal", output={"secret": 1}, last_error=error, usage={"cost": "1"})}
    found = Past(run, begun={"a": NOW}, ended={"a": NOW})
    (whole,) = step_rows(found)
    (row,), _, _ = emptied(found)
    if error == {"class": "x", "code": None}:
        left = {"class": "x", "code": None}
    assert row == {**whole, "output": None, "last_error": left}


@pytest.mark.req("X-20")
def test_retention_leaves_of_a_question_what_binds_it_and_none_of_its_words() -> None:
    run = full_run()
    (asked,) = run.approvals.values()
    words = ("title", "summary", "target", "reverse", "reference", "evidence", "changes", "inputs", "sensitive")
    card = {name: ["secret"] for name in words} | {"operation": "o", "risk": "high"}
    run.approvals = {asked.approval_id: replace(asked, card=card)}
    assert questions(Past(run)) == {
        str(asked.approval_id): {
            "nonce": "n",
            "terms": {"t": 1},
            "requester": "someone",
            "digest": "d",
            "shown": {
                "operation": "o", "risk": "high", "title": REMOVED, "summary": REMOVED, "target": "", "reverse": "",
                "reference": "", "evidence": "", "changes": (), "inputs": (), "sensitive": (),
            },
        }
    }  # fmt: skip


@pytest.mark.req("X-20")
def test_retention_leaves_who_extended_a_run_and_when() -> None:
    run = SCENES["extended-while-it-works"]()
    found = past(run)
    (whole,) = found.extensions
    (at,) = [n for n, told in enumerate(book_of(run)) if isinstance(told.event, RunExtended)]
    assert whole == {"number": 1, "actor": "ann", "source": {"steps": [1]}, "created_at": NOW + timedelta(seconds=at)}
    assert emptied(found)[2] == [{**whole, "source": {}}]
