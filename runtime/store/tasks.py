"""Reads tasks: a task is a wait, and is stored only as the row of that wait."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from approvals.model import TaskState, TaskView
from approvals.ports import MessageRef, Posted
from core.db import Connection
from core.errors import NotFoundError
from runtime.engine.model.states import WaitState
from runtime.store.statements import statements

_SQL = statements("tasks")
_READ = _SQL["read"]
_PAGE = _SQL["page"]
_SHOWN = _SQL["shown"]

_STATES: dict[str, TaskState] = {
    WaitState.WAITING: TaskState.OPEN,
    WaitState.COMPLETED: TaskState.COMPLETED,
    WaitState.TIMED_OUT: TaskState.EXPIRED,
    WaitState.CANCELED: TaskState.CANCELED,
}


class StoredTask(Struct, frozen=True):
    """A task with what its completion needs.

    ``value`` and ``by`` say how it was completed. ``groups`` are the groups of the person in question; None if the
    directory does not know them.
    """

    view: TaskView
    tenant_id: str
    workspace_id: str
    run_id: UUID
    value: Any
    by: str
    groups: frozenset[str] | None
    message: MessageRef | None
    created_at: datetime


async def read(connection: Connection, task_id: UUID, person_id: str = "") -> StoredTask:
    """One task; ``NotFoundError`` if there is none that this connection may see."""
    row = await connection.fetchrow(_READ, task_id, person_id)
    if row is None:
        raise NotFoundError(f"There is no task {task_id}.")
    return _task(row)


async def page(
    connection: Connection, tenant: str, limit: int, after: UUID, *, state: TaskState | None, group: str | None
) -> list[StoredTask]:
    """Tasks in the order of their ids; in this state and of this group, if they are given."""
    status = next((status for status, known in _STATES.items() if known is state), None)
    return [_task(row) for row in await connection.fetch(_PAGE, tenant, after, status, group, limit)]


async def shown(connection: Connection, task_id: UUID, posted: Posted) -> None:
    """Store the place of the task's message."""
    await connection.execute(_SHOWN, task_id, posted.ref.channel, posted.ref.ts)


def _task(row: Any) -> StoredTask:
    wait, person = row["wait"], row["person"]
    context, result = wait["context"], wait["result"] or {}
    by, properties = str(result.get("by") or ""), context["form"]["properties"]
    view = TaskView(
        task_id=UUID(wait["wait_id"]),
        title=context["title"],
        description=context["description"],
        # JSON in the database does not keep the order of properties; ``fields`` lists them as the author did.
        form={**context["form"], "properties": {name: properties[name] for name in context["fields"]}},
        group=context["group"],
        state=_STATES[wait["status"]],
        workflow=row["workflow"],
        workflow_version=row["workflow_version"],
        run_id=wait["run_id"],
        reference=row["reference"],
        step=wait["step_key"],
        due_at=row["due_at"].isoformat(timespec="seconds") if row["due_at"] else "",
        completed_by=row["by"] or by.removeprefix("person:"),
        link="",
    )
    return StoredTask(
        view=view,
        tenant_id=wait["tenant_id"],
        workspace_id=row["workspace_id"],
        run_id=UUID(wait["run_id"]),
        value=result.get("output"),
        by=by,
        groups=frozenset(person["groups"] or ()) if person else None,
        message=MessageRef(wait["channel"], wait["message_ts"]) if wait["message_ts"] else None,
        created_at=row["created_at"],
    )
