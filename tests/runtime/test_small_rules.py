"""Rules of requests that read nothing: who has shaped an event, how long a run stays open, an answer said twice."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from approvals.model import TaskState
from core.errors import InputError
from core.identity import Role
from runtime.engine.contributors import mark
from runtime.requests import starting, tasks, triggers

NOW = datetime(2026, 11, 1, 12, 3, 4, 567_890, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    ("changed_by", "requester", "marks"),
    [
        ("bob", "ann", (mark(Role.UPDATER, "bob"),)),
        ("ann", "ann", ()),
        ("ANN", "Ann", ()),
        (" ann", "ann", ()),
        ("ann", " Ann", ()),
        ("a\u200bnn", "ann", ()),
        ("ann", "\uff41nn", ()),
        ("Bob ", "servicenow:sn", (mark(Role.UPDATER, "Bob"),)),
        ("b" * 201, "ann", (mark(Role.UPDATER, "b" * 199 + "..."),)),
        ("", "ann", ()),
        ("  ", "ann", ()),
        (7, "ann", ()),
        (None, "ann", ()),
    ],
)
def test_who_changed_the_record_has_shaped_it_unless_it_is_who_requests(
    changed_by: Any, requester: str, marks: tuple[str, ...]
) -> None:
    assert triggers._changed_by({"sys_updated_by": changed_by}, requester) == marks


@pytest.mark.req("Q-1")
def test_a_reference_of_the_longest_length_is_itself_and_a_longer_one_is_told_apart() -> None:
    most = triggers.REFERENCE_CHARACTERS_MAX
    assert triggers._bounded("x" * most) == "x" * most
    longer = [triggers._bounded("x" * most + end) for end in "ab"]
    assert [len(one) for one in longer] == [most, most]
    assert longer[0] != longer[1]
    assert longer[0].startswith("x" * (most - 65) + ":")


@pytest.mark.req("V-6")
def test_a_run_stays_open_as_long_as_was_asked_and_no_longer_than_it_may() -> None:
    def span(*, sla: timedelta | None = None, is_open: bool = True, until: datetime | None = None) -> timedelta | None:
        workflow, request = SimpleNamespace(sla=sla), SimpleNamespace(open=is_open, until=until)
        rule: Any = starting._open_for
        found: timedelta | None = rule(workflow, request, NOW)
        return found

    assert span(is_open=False) is None
    assert (span(), span(sla=timedelta(hours=3))) == (timedelta(days=7), timedelta(hours=3))
    assert [span(sla=timedelta(days=days)) for days in (7, 8, 400)] == [timedelta(days=days) for days in (7, 8, 400)]
    assert span(sla=timedelta(hours=3), until=NOW + SECOND) == SECOND
    assert span(sla=SECOND, until=NOW + timedelta(days=9)) == timedelta(days=9)
    assert span(until=(NOW + SECOND).replace(tzinfo=None)) == SECOND
    longest = None
    with suppress(InputError):
        longest = span(until=NOW + timedelta(days=366))
    assert longest == timedelta(days=366)
    for until in (NOW, NOW - SECOND, NOW + timedelta(days=366) + SECOND):
        with pytest.raises(InputError) as refused:
            span(until=until)
        assert str(refused.value) == "until: is past, or more than 366 days away. Name a moment before that."
    with pytest.raises(InputError) as refused:
        span(is_open=False, until=NOW + SECOND)
    assert str(refused.value) == "until: is the deadline of an open run. Start the run with `open`."


@pytest.mark.req("X-9")
@pytest.mark.parametrize(
    ("state", "by", "value", "code", "sentence"),
    [
        (TaskState.COMPLETED, "person:ann", {"b": 2, "a": 1}, "completed", "Recorded. The run goes on."),
        (TaskState.COMPLETED, "person:ann", {"a": 2}, "completed", "Ann A. has completed this task already."),
        (TaskState.COMPLETED, "person:bob", {"a": 1, "b": 2}, "completed", "Ann A. has completed this task already."),
        (TaskState.COMPLETED, "person:joann", {"a": 1, "b": 2}, "completed", "Ann A. has completed this task already."),
        (TaskState.COMPLETED, "token:ann", {"a": 1, "b": 2}, "completed", "Ann A. has completed this task already."),
        (
            TaskState.COMPLETED,
            "person:ann",
            {"a": True, "b": 2},
            "completed",
            "Ann A. has completed this task already.",
        ),
        (TaskState.COMPLETED, "person:ann", {}, "completed", "Ann A. has completed this task already."),
        (TaskState.EXPIRED, "", {}, "expired", "The time for this task is over."),
        (TaskState.CANCELED, "", {}, "canceled", "This task is not needed any more."),
    ],
)
def test_the_same_answer_of_the_same_person_is_taken_as_the_first_one(
    state: TaskState, by: str, value: Any, code: str, sentence: str
) -> None:
    task: Any = SimpleNamespace(view=SimpleNamespace(state=state, completed_by="Ann A."), by=by, value={"a": 1, "b": 2})
    answer = tasks._over(task, "ann", value)
    assert (answer.code, answer.sentence, answer.accepted) == (code, sentence, sentence.startswith("Recorded"))
