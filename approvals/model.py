"""Approvals, votes and human tasks as frozen values. The runtime stores them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from approvals.content import CardContent, CardState
from approvals.fields import FormProblem
from core.action import Change
from core.canonical import JsonObject, digest
from core.identity import Contributor, Delegation, Standing
from core.machine import Machine
from core.terms import Grant, GroupQuorum, Terms


class ApprovalStatus(StrEnum):
    """The state of a question. Votes are accepted only in state ``requested``.

    Rejected and expired are different outcomes for the run: a person said no, or nobody answered.
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


# No timeout ever approves anything. Even a given approval becomes void if the action drifts before it is performed
# (promise 3).
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
    """The kind of question: may this action be performed, may the workflow go on, what happened to one in doubt."""

    ACTION = "action"
    GATE = "gate"
    IN_DOUBT = "in_doubt"


class Choice(StrEnum):
    """One person's answer. The last three are only for actions in doubt, the first two for all other questions."""

    APPROVE = "approve"
    REJECT = "reject"
    HAPPENED = "happened"
    AGAIN = "again"
    FAIL = "fail"


# The connector of operations that agents carry out themselves.
AGENT = "agent"


def choices_of(kind: ApprovalKind, connector: str = "") -> tuple[Choice, ...]:
    """The possible answers to a question of this kind, in the order in which faces offer them.

    What agents carry out themselves (by their own ``connector``) is never done again: there is no second permit.
    """
    if kind is ApprovalKind.IN_DOUBT:
        return (Choice.HAPPENED, Choice.FAIL) if connector == AGENT else (Choice.HAPPENED, Choice.AGAIN, Choice.FAIL)
    return (Choice.APPROVE, Choice.REJECT)


class VoteChannel(StrEnum):
    """The face through which a vote came."""

    SLACK = "slack"
    HTTP = "http"
    CLI = "cli"
    CONSOLE = "console"


class Voter(Struct, frozen=True):
    """A person at the moment of voting. Groups are ``GroupQuorum.key`` values, resolved now.

    ``unresolvable`` holds the groups whose members could not be looked up: they allow nobody. Only a voter whose
    ``standing`` is PERSON may vote. For a service account, ``person_id`` is its owner's. ``decides_for`` are the
    people who have delegated to them.
    """

    person_id: str
    name: str
    groups: frozenset[str]
    unresolvable: frozenset[str] = frozenset()
    standing: Standing = Standing.PERSON
    decides_for: tuple[Principal, ...] = ()


class Principal(Struct, frozen=True):
    """A person for whom somebody else may decide, when that holds, and for which of the person's groups."""

    person_id: str
    name: str
    groups: frozenset[str]
    delegation: Delegation


class Vote(Struct, frozen=True):
    """One recorded answer. ``groups`` are the voter's groups at that moment, ``digest`` is the action's digest then.

    ``at`` is the database's time, ISO 8601. Of several votes by one person only the last counts.
    ``on_behalf`` is the person whom the voter stood in for, and then ``groups`` are that person's; "" if the voter
    voted for themselves. ``glass``: the voter has broken the glass, so that this vote alone lets the action out; then
    ``groups`` are the groups that may do so.
    """

    voter: str
    name: str
    choice: Choice
    reason: str
    groups: frozenset[str]
    channel: VoteChannel
    at: str
    digest: str
    grant: Grant | None = None
    on_behalf: str = ""
    glass: bool = False

    @property
    def people(self) -> frozenset[str]:
        """The people for whom this vote speaks: its voter, and the person for whom they voted."""
        return frozenset({self.voter, self.on_behalf} - {""})


class Approval(Struct, frozen=True):
    """One question. ``contributors`` are the people who shaped the action; by default none of them may decide.

    ``requester`` is only for display. ``escalated``: the escalation is in force. ``nonce`` is carried by buttons.
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
    """The progress of one group: the ``names`` of voters who count for it so far, out of ``group.of``.

    ``may`` names the people in the directory who may still vote; members of a Slack group are not known.
    """

    group: GroupQuorum
    names: tuple[str, ...]
    may: tuple[str, ...] = ()


class Call(Struct, frozen=True):
    """A call to a question: the name of ``asker``, and those who may still vote.

    ``accounts`` are their accounts in the messenger. If there are too many, groups are called instead: ``groups`` by
    name, and ``slack_groups`` by their ids.
    """

    asker: str
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    slack_groups: tuple[str, ...] = ()


class Statement(Struct, frozen=True):
    """Something that a person has said about a question: ``asks``, ``answers``, ``comments``, ``hands_on``.

    ``name`` is that person's; ``at`` is ISO 8601. If the question was handed on, ``to`` is the id of a person or the
    key of a group, and ``to_name`` the name.
    """

    person: str
    name: str
    said: str
    text: str
    at: str
    to: str = ""
    to_name: str = ""


class Granted(Struct, frozen=True):
    """A grant by the voters of an approval: at most ``uses`` times, ``until`` a time (ISO 8601); ``used`` so far.

    ``open``: it can be taken back. ``by`` names who took it back, and ``at`` is when; "" for nobody.
    """

    uses: int
    used: int
    until: str
    open: bool
    by: str = ""
    at: str = ""


class CardView(Struct, frozen=True):
    """All that a face needs to draw one approval. ``detail`` describes the outcome (result, error, by whom).

    ``late`` is the outcome that a worker reported after losing its lease; ``paused`` names pauses that hold the action
    back. ``digest`` is the action's: windows that ask about it are bound to it. ``decided_at`` says when it was
    decided, ISO 8601. If a new question replaced this one, ``anew`` is its id and ``moved`` tells what differs in it;
    ``anew_place`` is its message's channel and time, ``anew_link`` leads there. ``again`` says that whoever asked may
    ask the same again. ``ended_by`` names who canceled it, and ``ended_why`` is their reason. Only a messenger gets
    ``call``. ``grants`` bounds what an approver may allow in advance, None if nothing; ``of_agent`` says that it may be
    for one agent. ``remarks`` is what people have said about it, ``offers`` what the viewer may say now. ``step_up`` is
    the number of seconds for which a fresh login counts, if approving needs one. ``granted`` is the grant that was
    given with it, while it can be taken back, or if it was taken back.
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
    digest: str = ""
    decided_at: str = ""
    moved: tuple[Change, ...] = ()
    anew: UUID | None = None
    anew_place: tuple[str, str] | None = None
    anew_link: str = ""
    again: bool = False
    ended_by: str = ""
    ended_why: str = ""
    call: Call | None = None
    grants: dict[str, int] | None = None
    of_agent: bool = False
    remarks: tuple[Statement, ...] = ()
    offers: tuple[str, ...] = ()
    step_up: int | None = None
    granted: Granted | None = None


class TaskState(StrEnum):
    """The state of a task. All states but ``open`` are final."""

    OPEN = "open"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELED = "canceled"


class TaskView(Struct, frozen=True):
    """All that a face needs to draw one task: a wait that people end by filling in a form.

    ``form`` is a JSON Schema that ``check_form`` accepts. Members of ``group`` may complete the task. ``due_at`` is
    ISO 8601 UTC, "" for no deadline. ``completed_by`` is the name of the person who did, "" for nobody. ``link`` is the
    task's web address outside the messenger, "" for none.
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

    @property
    def digest(self) -> str:
        """The digest of what is asked: the texts and the form that a person fills in."""
        asked: JsonObject = {"title": self.title, "description": self.description, "form": self.form}
        return digest({**asked, "task": str(self.task_id), "group": self.group})


class TaskAnswer(Struct, frozen=True):
    """The answer to one attempt to complete a task.

    ``code`` is stable, ``sentence`` is for the person. ``problems`` are faults of the value, by field. They are given
    only if the person may complete the task and it is still open.
    """

    accepted: bool
    code: str
    sentence: str
    problems: tuple[FormProblem, ...] = ()
