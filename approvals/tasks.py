"""Human tasks as frozen values: a wait that people end by filling in a form (X-9). The runtime stores them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from approvals.forms import FormProblem
from core.canonical import JsonObject


class TaskState(StrEnum):
    """What became of a task. All but ``open`` are final."""

    OPEN = "open"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class TaskView:
    """All that a face needs to draw one task.

    ``form`` is a JSON Schema in which ``check_form`` finds nothing. ``group`` is whose members may complete it.
    ``due_at`` is ISO 8601 UTC, "" if it waits for ever; ``completed_by`` is a person's name, "" if nobody did;
    ``link`` is where the task can be seen without the messenger, "" for nowhere.
    """

    task_id: UUID
    title: str
    description: str
    form: JsonObject
    group: str
    state: TaskState
    workflow: str
    workflow_version: int
    run_id: str
    reference: str
    step: str
    due_at: str
    completed_by: str
    link: str


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """What became of one attempt to complete a task.

    ``code`` is stable, ``sentence`` is for the person. ``problems`` are faults of the value, by field; there are none
    unless the person may complete the task and it is still open.
    """

    accepted: bool
    code: str
    sentence: str
    problems: tuple[FormProblem, ...] = ()
