"""Runs, questions and tasks as faces show them, whole: each member from its own place, whatever stands beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from app import shown
from approvals.content import MASK, CardContent, CardState, InputField, RuleReason, Source
from approvals.fields import FormProblem
from approvals.model import (
    ApprovalKind,
    CardView,
    Choice,
    GroupProgress,
    TaskAnswer,
    TaskState,
    TaskView,
    Vote,
    VoteChannel,
)
from approvals.ports import MessageRef
from core.action import Change, Risk
from core.errors import NotFoundError
from core.terms import GroupQuorum, GroupSource
from runtime.engine.states import RunState, StepState
from runtime.requests.looking import Seen
from runtime.store import approvals, read_models
from runtime.store.tasks import StoredTask

ID, RUN = UUID(int=1), UUID(int=2)
AT = [datetime(2026, 1, day, 2, 3, 4, 567_890, tzinfo=UTC) for day in range(1, 5)]
FAILED: Any = {"status": StepState.FAILED_TERMINAL}
DONE: Any = {"status": StepState.SUCCEEDED}


@pytest.mark.req("Q-7")
@pytest.mark.parametrize("status", RunState)
@pytest.mark.parametrize(("steps", "handled"), [([], 0), ([DONE], 0), ([FAILED, DONE, FAILED], 2)])
def test_a_failure_is_handled_only_in_a_run_that_succeeded(status: RunState, steps: list[Any], handled: int) -> None:
    seen = Seen(steps, [], [], [], 7, channels={"a": 1})
    row: Any = {"status": str(status)}
    wanted = handled if status is RunState.SUCCEEDED else 0
    assert shown.run_state(row, seen) == {"channels": {"a": 1}, "checkpoint": 7, "failures_handled": wanted}


@pytest.mark.req("Q-4")
@pytest.mark.parametrize(
    ("action", "told"),
    [
        ({}, ("", [], None, None)),
        ({"summary": None, "input": None, "fields": {"x": 1}}, ("", [], None, None)),
        ({"summary": "Set b", "input": {"b": "v", "a": "w"}, "decision": "d", "approval": "p"},
         ("Set b", ["a", "b"], "d", "p")),
    ],
)  # fmt: skip
def test_what_was_attempted_is_told_without_its_values(action: Any, told: tuple[Any, ...]) -> None:
    members = ("summary", "inputs", "decision", "approval")
    assert shown.attempted({"action": action}) == dict(zip(members, told, strict=True))


CARD = CardContent(
    *("Title", "Summary", "thing/1", "probe.danger.apply", "probe", Risk.HIGH, True, "undo it", "tess", "w", 3),
    *(str(RUN), "R1", "s", (RuleReason("p/r", "Because."),), (Change("name", "old", "new"),)),
    *((InputField("pin", "4711"), InputField("plain", "x")), None, "p", 2, "abc"),
    sources=(Source("pin", "was typed", value="4711"),),
)
SECRET = structs.replace(CARD, sensitive=("pin",))
ROW: dict[str, Any] = {
    "approval_id": ID, "run_id": RUN, "step_key": "s", "kind": "action", "status": "approved", "tier": "high",
    "requester": "tess", "choice": "approve", "reason": "Fine.", "created_at": AT[0], "expires_at": AT[1],
    "decided_at": AT[2], "action_digest": "d" * 64, "nonce": "n", "tenant_id": "acme", "terms": {}, "message_ts": "1",
}  # fmt: skip
SUMMARY = {
    "approval_id": ID, "run_id": RUN, "step": "s", "kind": "action", "status": "approved", "tier": "high",
    "requester": "tess", "choice": "approve", "reason": "Fine.", "created_at": AT[0], "expires_at": AT[1],
    "decided_at": AT[2], "digest": "d" * 64,
}  # fmt: skip


@pytest.mark.req("Q-20")
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("card", [CARD, SECRET])
def test_a_question_is_masked_unless_it_is_shown_whole(card: CardContent, whole: bool) -> None:
    found = shown.approval_summary({**ROW, "card": card.to_json()}, whole=whole)
    masked = card is SECRET and not whole
    assert found == {**SUMMARY, "masked": masked, "card": (card.masked() if masked else card).to_json()}
    assert ("4711" in str(found["card"])) is not masked
    assert (MASK in str(found["card"])) is masked
    if not whole:
        assert shown.approval_summary({**ROW, "card": card.to_json()}) == found, "masked by default"


VOTES = (
    Vote("ann", "Ann", Choice.APPROVE, "Fine.", frozenset({"group:leads"}), VoteChannel.SLACK, "t1", "d1"),
    Vote("bob", "Bob", Choice.REJECT, "No.", frozenset({"group:chiefs"}), VoteChannel.HTTP, "t2", "d2"),
)
LEADS, CHIEFS = GroupQuorum("leads", 2), GroupQuorum("S0CHIEFS", 1, GroupSource.SLACK_GROUP)
VIEW = CardView(
    ID, "n", ApprovalKind.ACTION, SECRET, CardState.IN_DOUBT, VOTES,
    (GroupProgress(LEADS, ("Ann", "Bob")), GroupProgress(CHIEFS, ())),
    two_person=True, detail="It may have happened.", link="l", late="Late.", paused="Paused.",
)  # fmt: skip


class Doors:
    """Faces that know one question of one tenant, and who is in which of its groups."""

    def __init__(self, **members: set[str]) -> None:
        self.members = members
        self.asked: list[Any] = []
        self.voting = self

    async def ask(self, tenant: str, function: Any, which: UUID) -> Any:
        self.asked.append((tenant, function))
        return {**ROW, "card": SECRET.to_json()} if (tenant, which) == ("acme", ID) else None

    async def view(self, tenant: str, which: UUID) -> CardView:
        assert (tenant, which) == ("acme", ID)
        return VIEW

    def directory(self, tenant: str) -> Any:
        async def membership(person: str, wanted: Any) -> Any:
            self.asked.append((tenant, person))
            return SimpleNamespace(groups={one.group for one in wanted} & self.members.get(person, set()))

        return SimpleNamespace(membership=membership)


@pytest.mark.req("Q-20")
@pytest.mark.parametrize(
    ("person", "whole"), [(None, False), ("ann", True), ("bob", True), ("eve", False), ("tess", False)]
)
async def test_a_question_is_shown_with_its_votes_and_whole_only_to_whom_it_asks(
    person: str | None, whole: bool
) -> None:
    faces: Any = Doors(ann={"leads"}, bob={"S0CHIEFS"}, eve={"others"})
    found = await shown.approval_detail(faces, "acme", ID, person)
    assert found == {
        **shown.approval_summary({**ROW, "card": SECRET.to_json()}, whole=whole),
        "state": "in_doubt",
        "detail": "It may have happened.",
        "late": "Late.",
        "paused": "Paused.",
        "two_person": True,
        "votes": [
            {"person": "ann", "name": "Ann", "choice": "approve", "reason": "Fine.", "channel": "slack", "at": "t1"},
            {"person": "bob", "name": "Bob", "choice": "reject", "reason": "No.", "channel": "http", "at": "t2"},
        ],
        "progress": [
            {"group": "leads", "source": "group", "of": 2, "names": ["Ann", "Bob"]},
            {"group": "S0CHIEFS", "source": "slack_group", "of": 1, "names": []},
        ],
    }
    assert found["masked"] is not whole
    assert faces.asked == [("acme", approvals.approval), *([] if person is None else [("acme", person)])]


async def test_what_is_not_there_is_told_with_the_way_to_find_it() -> None:
    faces: Any = Doors()
    for tenant, which in (("acme", RUN), ("other", ID)):
        with pytest.raises(NotFoundError) as lacking:
            await shown.approval_detail(faces, tenant, which, "ann", "Look there.")
        assert (lacking.value.message, lacking.value.remedy) == (f"There is no approval {which}.", "Look there.")
        with pytest.raises(NotFoundError) as lacking:
            await shown.run_row(faces, tenant, which, "Look there.")
        assert (lacking.value.message, lacking.value.remedy) == (f"There is no run {which}.", "Look there.")
    assert (await shown.run_row(faces, "acme", ID))["run_id"] == RUN
    assert faces.asked[-1] == ("acme", read_models.run)


TASK = TaskView(
    ID, "Sign", "In ink.", {"type": "object"}, "leads", TaskState.OPEN, "form", 3, str(RUN), "R1", "sign",
    "2026-01-02T02:03:04.567890+00:00", "", "l",
)  # fmt: skip
OF_A_TASK = {
    "task_id": ID, "run_id": RUN, "step": "sign", "workflow": "form", "workflow_version": 3, "reference": "R1",
    "title": "Sign", "group": "leads", "created_at": AT[0], "due_at": AT[1],
}  # fmt: skip


@pytest.mark.req("X-9")
@pytest.mark.parametrize("state", TaskState)
@pytest.mark.parametrize("by", ["", "Ann"])
def test_what_was_entered_is_shown_only_of_a_completed_task(state: TaskState, by: str) -> None:
    view, value = structs.replace(TASK, state=state, completed_by=by), {"name": "Ann"}
    task = StoredTask(view, "acme", "main", RUN, value, "person:ann", frozenset(), MessageRef("C", "1"), AT[0])
    summary = {**OF_A_TASK, "state": state, "completed_by": by or None}
    assert shown.task_summary(task) == summary
    wanted = value if state is TaskState.COMPLETED else None
    assert shown.task_detail(task) == {
        **summary, "description": "In ink.", "form": {"type": "object"}, "value": wanted,
    }  # fmt: skip
    endless = structs.replace(task, view=structs.replace(view, due_at=""))
    assert shown.task_summary(endless) == {**summary, "due_at": None}


def test_faults_of_a_form_are_told_by_their_places() -> None:
    faults = (FormProblem(("a", 0), "is short.", "Write more."), FormProblem((), "is empty."))
    assert shown.task_faults(TaskAnswer(False, "invalid", "No.", faults)) == [
        {"where": "a[0]", "message": "is short.", "remedy": "Write more."},
        {"where": "", "message": "is empty.", "remedy": ""},
    ]
    assert shown.task_faults(TaskAnswer(True, "completed", "Done.")) == []
