"""Workflows and directories as people write them: pydantic models of the YAML, one field per key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from core.documents import Path, load_document
from core.durations import Duration
from core.errors import DefinitionError
from core.expressions import is_variable_name
from core.validation import validate
from runtime.engine.graph import Reducer

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[a-z][a-z0-9-]*$")]
Identifier = Annotated[str, Field(min_length=1, max_length=64)]
Expression = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"\S")]
PersonName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]
WorkflowRef = Annotated[str, Field(max_length=110, pattern=r"^[a-z][a-z0-9-]{0,99}(@[1-9][0-9]{0,5})?$")]
KINDS = ("do", "if", "foreach", "while", "approve", "wait", "task", "run", "continue_with")


class DocumentPart(BaseModel):
    """A part of a document: with no other keys than these."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ChannelDocument(DocumentPart):
    """One channel: how writes are folded in, how many items are kept, what it holds at first.

    With ``ledger`` every write is kept in a row of its own, however few the channel keeps.
    """

    reduce: Reducer = Reducer.REPLACE
    keep: Annotated[int, Field(ge=1, le=1000)] | None = None
    initial: Any = None
    ledger: bool = False


class ServiceNowTrigger(DocumentPart):
    """The records that start this workflow. ``dedupe`` names one change: the same text starts one run only."""

    table: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    events: Annotated[tuple[Literal["insert", "update"], ...], Field(min_length=1)] = ("insert",)
    when: Expression | None = None
    dedupe: Expression = "${{ trigger.sys_id }}:${{ trigger.sys_mod_count }}"


class Triggers(DocumentPart):
    """The events that start this workflow, besides people."""

    servicenow: ServiceNowTrigger | None = None


class ApproverDocument(DocumentPart):
    """A group whose members may answer a gate."""

    group: Annotated[str, Field(min_length=1, max_length=100)]


class GateDocument(DocumentPart):
    """A question to people that belongs to the workflow itself, not to an action."""

    summary: Annotated[str, Field(min_length=1, max_length=2000)]
    approvers: ApproverDocument
    quorum: Annotated[int, Field(ge=1, le=20)] = 1
    tier: Literal["low", "medium", "high"] = "medium"
    two_person: bool = False
    expires: Duration | None = None
    remind: tuple[Duration, ...] = ()


class WaitDocument(DocumentPart):
    """The end of a step's wait: a time (``for``), a moment (``until``), or a ``signal`` with its correlation."""

    for_: Annotated[Duration | None, Field(alias="for")] = None
    until: Expression | None = None
    signal: Name | None = None
    correlate: Expression | None = None


class AssignDocument(DocumentPart):
    """Whose members may complete a task."""

    group: Annotated[str, Field(min_length=1, max_length=100)]


class TaskDocument(DocumentPart):
    """A task for a person: what is to be done, and the form (a JSON Schema) that its completion fills in."""

    title: Annotated[str, Field(min_length=1, max_length=300)]
    description: Annotated[str, Field(max_length=2000)] = ""
    form: dict[str, Any]
    assign: AssignDocument


class ContinueDocument(DocumentPart):
    """Another run that is started and not waited for."""

    workflow: WorkflowRef
    with_: Annotated[dict[str, Any], Field(alias="with")] = {}


class EscalationDocument(DocumentPart):
    """The answer to a wait that takes too long: a group is asked whether to go on; ``start`` begins a run first."""

    escalate: Annotated[str, Field(min_length=1, max_length=100)]
    expires: Duration | None = None
    start: ContinueDocument | None = None


def _steps_or_escalation(value: object) -> str:
    return "steps" if isinstance(value, list | tuple) else "escalation"


OnTimeout = Annotated[
    Annotated[tuple["StepDocument", ...], Field(min_length=1), Tag("steps")]
    | Annotated[EscalationDocument, Tag("escalation")],
    Discriminator(_steps_or_escalation),
]


class StepDocument(DocumentPart):
    """One entry of ``steps``. Exactly one of do, if, foreach, while, approve, wait, task, run, continue_with."""

    id: Identifier | None = None
    needs: tuple[Identifier, ...] | None = None
    do: Annotated[str, Field(max_length=200)] | None = None
    with_: Annotated[dict[str, Any], Field(alias="with")] = {}
    set: dict[str, Any] = {}
    reference: Expression | None = None
    timeout: Duration | None = None
    on_failure: Annotated[tuple[StepDocument, ...] | None, Field(min_length=1)] = None
    on_timeout: OnTimeout | None = None
    on_rejected: Annotated[tuple[StepDocument, ...] | None, Field(min_length=1)] = None
    if_: Annotated[Expression | None, Field(alias="if")] = None
    then: tuple[StepDocument, ...] | None = None
    else_: Annotated[tuple[StepDocument, ...] | None, Field(alias="else")] = None
    foreach: Expression | None = None
    as_: Annotated[Identifier | None, Field(alias="as")] = None
    max_parallel: Annotated[int, Field(ge=1, le=1000)] | None = None
    while_: Annotated[Expression | None, Field(alias="while")] = None
    max: Annotated[int, Field(ge=1, le=10_000)] | None = None
    steps: tuple[StepDocument, ...] | None = None
    approve: GateDocument | None = None
    wait: WaitDocument | None = None
    task: TaskDocument | None = None
    run: WorkflowRef | None = None
    abandon: bool | None = None
    continue_with: ContinueDocument | None = None

    @field_validator("id", "as_")
    @classmethod
    def _usable_in_expressions(cls, value: str | None) -> str | None:
        if value is not None and ("." in value or not is_variable_name(value)):
            raise ValueError(
                "must be a name that expressions can use: letters, digits and _, not starting with a digit"
            )
        return value

    def kinds(self) -> list[str]:
        """The names of ``KINDS`` that this entry has; exactly one is right."""
        present = {"if": self.if_, "while": self.while_}
        return [kind for kind in KINDS if present.get(kind, getattr(self, kind, None)) is not None]


class Caps(DocumentPart):
    """Bounds of one workflow, tighter than the tenant's (Q-12)."""

    max_writes_per_run: Annotated[int, Field(ge=0)] | None = None
    max_concurrency: Annotated[int, Field(ge=1, le=256)] | None = None


class WorkflowDocument(DocumentPart):
    """A whole workflow file."""

    workflow: Name
    version: Annotated[int, Field(ge=1, le=1_000_000)]
    title: Annotated[str, Field(max_length=200)] = ""
    description: Annotated[str, Field(max_length=4000)] = ""
    reference: Expression = "${{ run.id }}"
    triggers: Triggers = Triggers()
    channels: dict[Identifier, ChannelDocument] = {}
    caps: Caps = Caps()
    sla: Duration | None = None
    retention: Duration | None = None
    result: Any = None
    steps: Annotated[tuple[StepDocument, ...], Field(min_length=1, max_length=500)]


class PersonDocument(DocumentPart):
    """One person; ``slack`` is their Slack account: the member id (U…), or with its workspace (T…/U…).

    A member id alone is one of the workspace in which the app is installed.
    """

    id: PersonName
    name: Annotated[str, Field(min_length=1, max_length=200)]
    slack: Annotated[str, Field(pattern=r"^([TE][A-Z0-9]{2,20}/)?[UW][A-Z0-9]{2,20}$")] | None = None


class DirectoryDocument(DocumentPart):
    """People and groups of one tenant; publishing it replaces what was there."""

    directory: PersonName
    version: Annotated[int, Field(ge=1)] = 1
    people: Annotated[tuple[PersonDocument, ...], Field(max_length=10_000)]
    groups: dict[PersonName, tuple[PersonName, ...]] = {}


def load_directory(text: str, file: str) -> DirectoryDocument:
    """Read and check a directory. ``DefinitionError`` lists every problem with its place."""
    document = load_document(text, file)
    content = validate(document, DirectoryDocument)
    if problems := tuple(document.problem(*fault) for fault in _faults(content)):
        raise DefinitionError(problems)
    return content


def _faults(content: DirectoryDocument) -> Iterator[tuple[Path, str, str]]:
    """Find what the types do not see: the place of each fault, what it is, and the remedy."""
    ids: set[str] = set()
    accounts: set[str | None] = set()
    for number, person in enumerate(content.people):
        if person.id in ids:
            yield ("people", number, "id"), f"The person {person.id!r} is here twice.", ""
        if person.slack is not None and person.slack in accounts:
            yield ("people", number, "slack"), f"The Slack account {person.slack} belongs to two people.", ""
        ids.add(person.id)
        accounts.add(person.slack)
    for group, persons in content.groups.items():
        for number, name in enumerate(persons):
            if name not in ids:
                message = f"The group {group!r} names {name!r}, who is not among the people."
                yield ("groups", group, number), message, "Add the person, or take it out."
            elif name in persons[:number]:
                yield ("groups", group, number), f"{name!r} is in {group!r} twice.", ""
