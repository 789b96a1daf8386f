"""Tasks: the same forms as in Slack, completed over HTTP by the same rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel

from app.http import models, problems
from app.http.dependencies import Approver, FacesDep, Paged, Reader
from app.shown import task_detail, task_faults, task_summary
from approvals.model import TaskState, VoteChannel
from runtime.store import tasks
from runtime.store.read_models import FIRST_ID

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])

REFUSED: Mapping[str, int] = {
    "not_assigned": 403,
    "invalid": 422,
    **dict.fromkeys(("changed", TaskState.COMPLETED, TaskState.EXPIRED, TaskState.CANCELED), 409),
}

Group = Annotated[str | None, Query(max_length=100, pattern=models.PRINTABLE, description="Only tasks of this group")]


class Task(BaseModel):
    """One task: a step that waits until a member of `group` has filled in a form."""

    task_id: UUID
    run_id: UUID
    step: str
    workflow: str
    workflow_version: int
    reference: str
    title: str
    group: str
    state: TaskState
    created_at: datetime
    due_at: datetime | None
    completed_by: str | None


class TaskDetail(Task):
    """One task with its form, a JSON Schema, and the entered values after its completion."""

    description: str
    form: dict[str, Any]
    value: Any


class FormValues(models.In):
    """The entered values, by field."""

    value: dict[str, Any]


class Completed(BaseModel):
    """The recorded completion, after which the run goes on; `sentence` is the message to the person."""

    accepted: bool
    code: str
    sentence: str


@router.get("", response_model=models.Page[Task], summary="List tasks")
async def listed(
    who: Reader, faces: FacesDep, paging: Paged, state: TaskState | None = None, group: Group = None
) -> dict[str, Any]:
    """Lists tasks; `state=open` lists those that wait for people."""
    (after,) = paging.after(UUID) or [FIRST_ID]
    found = await faces.ask(who.tenant, tasks.page, paging.limit + 1, after, state=state, group=group)
    return paging.page([task_summary(task) for task in found], "task_id")


@router.get("/{task_id}", response_model=TaskDetail, summary="Look at one task")
async def one(task_id: UUID, who: Reader, faces: FacesDep) -> dict[str, Any]:
    """The task: the question, the group that is asked, and the form."""
    async with faces.database.transaction(who.tenant) as connection:
        return task_detail(await tasks.read(connection, task_id))


@router.post(
    "/{task_id}/complete",
    response_model=Completed,
    summary="Complete a task",
    responses={
        403: {"description": "You are not in the group that it is assigned to"},
        409: {"description": "It is completed, expired or canceled, or asks something else by now"},
        422: {"description": "The form is not filled in as it has to be; `problems` has a fault per field"},
    },
)
async def complete(task_id: UUID, body: FormValues, who: Approver, faces: FacesDep) -> Any:
    """Completes a task as the token's subject, whose groups are checked now. If the same person sends the same value
    again, the answer is the same as the first time.
    """
    answer = await faces.tasks.complete(who.tenant, task_id, who.subject, body.value, VoteChannel.HTTP)
    if answer.accepted:
        return answer
    more: dict[str, Any] = {"problems": task_faults(answer)} if answer.problems else {}
    return problems.problem(REFUSED[answer.code], answer.code, answer.sentence, **more)
