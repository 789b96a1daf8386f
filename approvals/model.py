"""Approvals, votes and human tasks as frozen values. The runtime stores them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct, convert, json

from approvals.content import CardContent, CardState
from approvals.fields import FormProblem
from approvals.states import ApprovalStatus
from core.canonical import JsonObject


class Tier(StrEnum):
    """The weight of a decision, as policy says (Q-3)."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


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


class GroupSource(StrEnum):
    """The source of a group's members: our directory, or Slack (user groups)."""

    GROUP = "group"
    SLACK_GROUP = "slack_group"


class VoteChannel(StrEnum):
    """The face through which a vote came."""

    SLACK = "slack"
    HTTP = "http"
    CLI = "cli"
    CONSOLE = "console"


class GroupQuorum(Struct, frozen=True):
    """A quorum: ``of`` distinct members of ``group`` must agree; at least 1."""

    group: str
    of: int = 1
    source: GroupSource = GroupSource.GROUP

    def __post_init__(self) -> None:
        """Refuse a quorum without seats: it would be met without any vote."""
        if self.of < 1:
            raise ValueError(f"the quorum of {self.group!r} is {self.of}; it is at least 1")

    @property
    def key(self) -> str:
        """The group with its source, as ``group:leads`` or ``slack_group:S0ITLEADS``: the two never collide."""
        return f"{self.source}:{self.group}"


class Escalation(Struct, frozen=True):
    """An escalation: after so many seconds without a decision, ``to`` may decide in place of the groups that it covers.

    ``covers`` holds keys of ``Terms.approvers``; empty covers all of them. A group that is not covered stays required,
    so that one rule's escalation never waives another rule's approvers.
    """

    after_seconds: int
    to: GroupQuorum
    covers: frozenset[str] = frozenset()


class Terms(Struct, frozen=True):
    """The terms that policy sets for a question. No approvers means that nobody may approve.

    ``two_person`` asks for at least two people, each of whom fills one seat only. ``allow_requester`` lifts the
    separation of duties. ``expires_seconds`` None means that the question waits until it is decided or canceled.
    ``remind_seconds`` count from the request.
    """

    tier: Tier
    approvers: tuple[GroupQuorum, ...]
    two_person: bool = False
    allow_requester: bool = False
    expires_seconds: int | None = None
    remind_seconds: tuple[int, ...] = ()
    escalate: Escalation | None = None

    def to_json(self) -> JsonObject:
        """A JSON object that ``from_json`` reads back to an equal value: as it is stored with the approval."""
        stored: JsonObject = json.decode(json.encode(self, order="deterministic"))
        return stored

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Terms:
        """Read what ``to_json`` wrote; ``ValueError`` for anything else."""
        return convert(value, cls)


class Voter(Struct, frozen=True):
    """A person at the moment of voting. Groups are ``GroupQuorum.key`` values, resolved now.

    ``unresolvable`` holds the groups whose members could not be looked up: they allow nobody.
    """

    person_id: str
    name: str
    groups: frozenset[str]
    unresolvable: frozenset[str] = frozenset()


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
    """One question. ``excluded`` are people who never decide it (agent owner, editor), besides the requester.

    ``escalated`` says that the escalation is in force. ``nonce`` is what the buttons carry.
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
    requester: str | None
    card: CardContent
    excluded: frozenset[str] = frozenset()
    votes: tuple[Vote, ...] = ()
    expires_at: datetime | None = None
    escalated: bool = False


class GroupProgress(Struct, frozen=True):
    """The progress of one group: ``names`` of those who count for it, out of ``of``."""

    group: GroupQuorum
    names: tuple[str, ...]


class CardView(Struct, frozen=True):
    """All that a face needs to draw one approval. ``detail`` says what became of it (result, error, by whom).

    ``late`` says what a worker that had lost its lease told of it afterwards.
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
