"""Completes tasks, for every face. The right to complete one is read when the completion arrives."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from approvals.forms import check_value
from approvals.model import TaskAnswer, TaskState, TaskView, VoteChannel
from core.canonical import JsonObject, canonical_bytes
from core.db import Connection, Database
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.requests.signaling import end_wait, persistently
from runtime.store import audit, tasks
from runtime.store.tasks import StoredTask

_RECORDED = TaskAnswer(True, "completed", "Recorded. The run goes on.")
_ASKED_ANEW = TaskAnswer(
    False, "changed", "What this task asks has changed, so nothing was recorded. A new task asks it as it is now."
)


class Tasks(Struct, frozen=True):
    """Tasks of any tenant, under the faces' role. A face calls it after it has identified the person."""

    database: Database
    definitions: Definitions

    async def view(self, tenant: str, task_id: UUID) -> TaskView:
        """The task's present state; ``NotFoundError`` if this tenant has no task with this id."""
        async with self.database.transaction(tenant) as connection:
            return (await tasks.read(connection, task_id)).view

    async def complete(
        self, tenant: str, task_id: UUID, person_id: str, value: JsonObject, channel: VoteChannel
    ) -> TaskAnswer:
        """Check the right, the state, then the value; record the completion, and wake the run. Refusals are recorded.

        The same value from the same person gets the same answer again, because a chat may send a submission twice.
        """

        async def attempt(lock: bool) -> TaskAnswer:
            async with self.database.transaction(tenant) as connection:
                task = await tasks.read(connection, task_id, person_id)
                if task.groups is None or task.view.group not in task.groups:
                    return await _refused(connection, task, person_id, channel)
                if task.view.state is not TaskState.OPEN:
                    return _ended_answer(task, person_id, value)
                if problems := tuple(check_value(task.view.form, value)):
                    return TaskAnswer(False, "invalid", "The form is not filled in as it has to be.", problems)
                place, actor = (task.run_id, task.view.step, task.view.task_id), Actor("person", person_id)
                said_to = (self.definitions, task.tenant_id, place)
                taken = await end_wait(connection, *said_to, {"output": value}, actor, lock=lock)
                return _RECORDED if taken else _ASKED_ANEW

        return await persistently(attempt)


async def _refused(connection: Connection, task: StoredTask, person_id: str, channel: VoteChannel) -> TaskAnswer:
    facts: JsonObject = {"task": str(task.view.task_id), "run": str(task.run_id), "code": "not_assigned"}
    facts["channel"] = str(channel)
    await audit.record(connection, task.tenant_id, EventType.TASK_REFUSED, Actor("person", person_id), facts)
    who = "You are not in the directory" if task.groups is None else f"You are not in the group {task.view.group}"
    return TaskAnswer(False, "not_assigned", f"{who}, whose members may complete this task.")


def _ended_answer(task: StoredTask, person_id: str, value: JsonObject) -> TaskAnswer:
    """The answer for a task that is over. A repeated submission gets the same answer as the first."""
    if task.view.state is TaskState.COMPLETED:
        same = task.by == f"person:{person_id}" and canonical_bytes(task.value) == canonical_bytes(value)
        completed = TaskAnswer(False, "completed", f"{task.view.completed_by} has completed this task already.")
        return _RECORDED if same else completed
    words = {
        TaskState.EXPIRED: "The time for this task is over.",
        TaskState.CANCELED: "This task is not needed any more.",
    }
    return TaskAnswer(False, str(task.view.state), words[task.view.state])
