"""Approvals, votes and human tasks as frozen values. The runtime stores them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from approvals.content import CardContent, CardState
from approvals.fields import FormProblem
from core.canonical import JsonObject
from core.identity import Contributor, Standing
from core.machine import Machine
from core.terms import GroupQuorum, Terms


class ApprovalStatus(StrEnum):
    """The state of a question (Q-3). ``requested`` is the only one in which votes are taken.

    Rejected and expired are different outcomes to the run: a person said no, or nobody answered.
    """

    REQUESTED = "requested"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"


class ApprovalEvent(StrEnum):
    """The events of an approval: people decide, time passes, the run ends, the action drifts."""

    APPROVE = "approve"
    REJECT = "reject"
    EXPIRE = "expire"
    CANCEL = "cancel"
    SUPERSEDE = "supersede"


# Nothing is ever approved by time. An approval that was given is still void when the action drifted before it was
# performed (promise 3).
APPROVAL: Machine[ApprovalStatus, ApprovalEvent] = Machine(
    name="approval",
    initial=frozenset({ApprovalStatus.REQUESTED, ApprovalStatus.CANCELED}),
    table={
        (ApprovalStatus.REQUESTED, ApprovalEvent.APPROVE): ApprovalStatus.APPROVED,
        (ApprovalStatus.REQUESTED, ApprovalEvent.REJECT): ApprovalStatus.REJECTED,
        (ApprovalStatus.REQUESTED, ApprovalEvent.EXPIRE): ApprovalStatus.EXPIRED,
        (ApprovalStatus.REQUESTED, ApprovalEvent.CANCEL): ApprovalStatus.CANCELED,
        (ApprovalStatus.REQUESTED, ApprovalEvent.SUPERSEDE): ApprovalStatus.SUPERSEDED,
        (ApprovalStatus.APPROVED, ApprovalEvent.SUPERSEDE): ApprovalStatus.SUPERSEDED,
    },
)


class ApprovalKind(StrEnum):
    """The kind of question: may this action be done, may the workflow go on, what became of an action in doubt."""

    ACTION = "action"
    GATE = "gate"
    IN_DOUBT = "in_doubt"


class Choice(StrEnum):
    """One person's answer. The last three answer an in-doubt approval only, the first two everything else."""

    APPROVE = "approve"
    REJECT = "reject"
    HAPPENED = "happened"
    AGAIN = "again"
    FAIL = "fail"


def choices_of(kind: ApprovalKind) -> tuple[Choice, ...]:
    """The answers that a question of this kind takes, in the order in which they are offered."""
    if kind is ApprovalKind.IN_DOUBT:
        return (Choice.HAPPENED, Choice.AGAIN, Choice.FAIL)
    return (Choice.APPROVE, Choice.REJECT)


class VoteChannel(StrEnum):
    """The face through which a vote came."""

    SLACK = "slack"
    HTTP = "http"
    CLI = "cli"
    CONSOLE = "console"


class Voter(Struct, frozen=True):
    """A person at the moment of voting. Groups are ``GroupQuorum.key`` values, resolved now.

    ``unresolvable`` holds the groups whose members could not be looked up: they allow nobody. Whose ``standing`` is
    another than that of a person never votes; ``person_id`` of a service account is its owner's.
    """

    person_id: str
    name: str
    groups: frozenset[str]
    unresolvable: frozenset[str] = frozenset()
    standing: Standing = Standing.PERSON


class Vote(Struct, frozen=True):
    """One recorded answer. ``groups`` are the voter's, as resolved then; ``digest`` is what was voted on.

    ``at`` is ISO 8601, the database's time. Of several votes of one person the last counts.
    """

    voter: str
    name: str
    choice: Choice
    reason: str
    groups: frozenset[str]
    channel: VoteChannel
    at: str
    digest: str


class Approval(Struct, frozen=True):
    """One question. ``contributors`` are those who shaped it; by default none of them decides it.

    ``requester`` is only shown. ``escalated`` says that the escalation is in force, ``nonce`` is what buttons carry.
    """

    id: UUID
    tenant_id: str
    run_id: UUID
    step_key: str
    kind: ApprovalKind
    status: ApprovalStatus
    action_digest: str
    nonce: str
    terms: Terms
    requester: str
    contributors: tuple[Contributor, ...] = ()
    votes: tuple[Vote, ...] = ()
    expires_at: datetime | None = None
    escalated: bool = False


class GroupProgress(Struct, frozen=True):
    """The progress of one group: ``names`` of those who count for it, out of ``of``."""

    group: GroupQuorum
    names: tuple[str, ...]


class CardView(Struct, frozen=True):
    """All that a face needs to draw one approval. ``detail`` says what became of it (result, error, by whom).

    ``late`` says what a worker that had lost its lease told of it afterwards, ``paused`` what keeps it from going out.
    """

    approval_id: UUID
    nonce: str
    kind: ApprovalKind
    content: CardContent
    state: CardState
    votes: tuple[Vote, ...] = ()
    progress: tuple[GroupProgress, ...] = ()
    two_person: bool = False
    detail: str = ""
    link: str = ""
    late: str = ""
    paused: str = ""


class TaskState(StrEnum):
    """The state of a task. All but ``open`` are final."""

    OPEN = "open"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELED = "canceled"


class TaskView(Struct, frozen=True):
    """All that a face needs to draw one task: a wait that people end by filling in a form (X-9).

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


class TaskAnswer(Struct, frozen=True):
    """The answer to one attempt to complete a task.

    ``code`` is stable, ``sentence`` is for the person. ``problems`` are faults of the value, by field; there are none
    unless the person may complete the task and it is still open.
    """

    accepted: bool
    code: str
    sentence: str
    problems: tuple[FormProblem, ...] = ()
