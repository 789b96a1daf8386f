"""Workflows as people write them: pydantic models of the YAML, one field per key."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from core.durations import Duration
from core.expressions import is_variable_name
from core.identity import Role
from core.terms import Tier
from policy.model import EXPIRES_DEFAULT, Approver, Channel, Escalate
from runtime.engine.model.graph import Reducer
from runtime.engine.model.workflow import Missed, Overrun

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[a-z][a-z0-9-]*$")]
Identifier = Annotated[str, Field(min_length=1, max_length=64)]
Expression = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"\S")]
PersonName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]
ToolName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z][a-zA-Z0-9_-]*$")]
WorkflowRef = Annotated[str, Field(max_length=110, pattern=r"^[a-z][a-z0-9-]{0,99}(@[1-9][0-9]{0,5})?$")]
KINDS = ("do", "if", "foreach", "while", "approve", "wait", "task", "run", "continue_with", "agent")
# The kind of a step that only writes to channels or names the run.
SET = "set"


class DocumentPart(BaseModel):
    """The base of every part of a document: unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ChannelDocument(DocumentPart):
    """One channel: how writes are folded in, how many items are kept, and its initial value.

    With ``ledger`` every write is kept in a row of its own, even if the channel drops it.
    """

    reduce: Reducer = Reducer.REPLACE
    keep: Annotated[int, Field(ge=1, le=1000)] | None = None
    initial: Any = None
    ledger: bool = False


DEBOUNCE_MAX = timedelta(days=1)


class ServiceNowTrigger(DocumentPart):
    """The records that start this workflow. ``dedupe`` names one change: the same text starts one run only.

    With ``own_events``, changes that our own integration user has made, or may have made, start it as well. ``overrun``
    says what an event does while this trigger's earlier run for the same reference is open. With ``debounce``, the
    events of one reference within this time become one run.
    """

    table: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    events: Annotated[tuple[Literal["insert", "update"], ...], Field(min_length=1)] = ("insert",)
    when: Expression | None = None
    dedupe: Expression = "${{ trigger.sys_id }}:${{ trigger.sys_mod_count }}"
    own_events: bool = False
    overrun: Overrun = Overrun.ALL
    debounce: Duration | None = None

    @field_validator("debounce")
    @classmethod
    def _short(cls, span: timedelta | None) -> timedelta | None:
        if span is not None and not timedelta(seconds=1) <= span <= DEBOUNCE_MAX:
            raise ValueError("wait at least a second and at most a day, such as PT30S")
        return span


class ScheduleTrigger(DocumentPart):
    """The moments at which this workflow starts: `cron` in `timezone`, with the values of `with` as its trigger.

    Each moment starts one run at most. After an outage `missed` says if the newest of the moments that were missed
    starts a run late; each other one is named as missed. ``overrun`` is as for ServiceNow.
    """

    cron: Annotated[str, Field(min_length=1, max_length=200)]
    timezone: Annotated[str, Field(min_length=1, max_length=64)]
    missed: Missed = Missed.RUN_ONCE
    overrun: Overrun = Overrun.ALL
    workspace: Name = "main"
    with_: Annotated[dict[Identifier, Any], Field(alias="with", max_length=50, default_factory=dict)]


class WebhookTrigger(DocumentPart):
    """The signed deliveries to an endpoint of the tenant's settings that start this workflow.

    Expressions see `event.id`, `event.type` and `event.body`. ``map`` makes the trigger of them; without it, the body
    is the trigger. ``dedupe`` names what happened: the same text starts one run only; the delivery's id if left out.
    """

    endpoint: Name
    when: Expression | None = None
    map_: Annotated[dict[Identifier, Any] | None, Field(alias="map", min_length=1, max_length=100)] = None
    dedupe: Expression | None = None
    requested_by: Expression | None = None
    overrun: Overrun = Overrun.ALL


class Triggers(DocumentPart):
    """The events that start this workflow, besides people."""

    servicenow: ServiceNowTrigger | None = None
    schedule: ScheduleTrigger | None = None
    webhook: WebhookTrigger | None = None


class ApproverDocument(DocumentPart):
    """A group whose members may answer a gate; ``quorum`` beside it says how many."""

    group: Annotated[str, Field(min_length=1, max_length=100)]


def _one_or_several(value: object) -> str:
    return "several" if isinstance(value, list | tuple) else "one"


Approvers = Annotated[
    Annotated[ApproverDocument, Tag("one")]
    | Annotated[tuple[Approver, ...], Field(min_length=1, max_length=20), Tag("several")],
    Discriminator(_one_or_several),
]


class GateDocument(DocumentPart):
    """A question to people that belongs to the workflow itself, not to an action. Its terms are those of a rule."""

    summary: Annotated[str, Field(min_length=1, max_length=2000)]
    approvers: Approvers
    quorum: Annotated[int, Field(ge=1, le=20)] | None = None
    tier: Tier = Tier.MEDIUM
    two_person: bool = False
    allow: tuple[Role, ...] = ()
    expires: Duration = EXPIRES_DEFAULT
    remind: tuple[Duration, ...] = ()
    escalate: Escalate | None = None
    channel: Channel | None = None

    @model_validator(mode="after")
    def _one_quorum(self) -> GateDocument:
        if self.quorum is not None and not isinstance(self.approvers, ApproverDocument):
            raise ValueError("say how many of each group by `of`; `quorum` belongs to a single group")
        return self


class WaitDocument(DocumentPart):
    """The end of a wait: after a time (``for``), at a moment (``until``), or by a ``signal`` with a correlation."""

    for_: Annotated[Duration | None, Field(alias="for")] = None
    until: Expression | None = None
    signal: Name | None = None
    correlate: Expression | None = None


class AssignDocument(DocumentPart):
    """The group whose members may complete a task."""

    group: Annotated[str, Field(min_length=1, max_length=100)]


class TaskDocument(DocumentPart):
    """A task for a person: what is to be done, and the form (a JSON Schema) that its completion fills in."""

    title: Annotated[str, Field(min_length=1, max_length=300)]
    description: Annotated[str, Field(max_length=2000)] = ""
    form: dict[str, Any]
    assign: AssignDocument


class AskDocument(DocumentPart):
    """A question that an agent may put to people: the model words it, the form's answer is the result."""

    name: ToolName
    title: Annotated[str, Field(min_length=1, max_length=300)]
    form: dict[str, Any]
    assign: AssignDocument


class ToolDocument(DocumentPart):
    """One tool of an agent: an operation, a question to people, or a workflow. ``with`` holds what is fixed.

    ``raw`` names inputs that the model writes in their own language: nothing in them is escaped.
    """

    do: Annotated[str, Field(max_length=200)] | None = None
    ask: AskDocument | None = None
    run: WorkflowRef | None = None
    with_: Annotated[dict[str, Any], Field(alias="with")] = {}
    name: ToolName | None = None
    raw: tuple[Annotated[str, Field(max_length=200)], ...] = ()

    @model_validator(mode="after")
    def _one_kind(self) -> ToolDocument:
        if self.raw and self.do is None:
            raise ValueError("`raw` belongs to a tool with `do`: only inputs of an operation have languages")
        if sum(kind is not None for kind in (self.do, self.ask, self.run)) != 1:
            raise ValueError("a tool is exactly one of do, ask, run")
        if self.ask is not None and (self.with_ or self.name is not None):
            raise ValueError("`with` and `name` belong to a tool with `do` or `run`; `ask` has its name inside")
        return self


Tool = Annotated[
    Annotated[str, Field(min_length=1, max_length=200), Tag("name")] | Annotated[ToolDocument, Tag("tool")],
    Discriminator(lambda value: "name" if isinstance(value, str) else "tool"),
]


class LimitsDocument(DocumentPart):
    """The bounds of one agent. ``cost`` is in US dollars."""

    turns: Annotated[int, Field(ge=1, le=500)] = 12
    calls: Annotated[int, Field(ge=1, le=5000)] = 40
    asks: Annotated[int, Field(ge=0, le=100)] = 5
    refusals: Annotated[int, Field(ge=1, le=100)] = 3
    tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] = 100_000
    cost: Annotated[str, Field(pattern=r"^[0-9]{1,6}([.][0-9]{1,6})?$")] | None = None


class RememberDocument(DocumentPart):
    """The channel that carries an agent's turns over to the next agent, and how many of them one is shown."""

    channel: Identifier
    turns: Annotated[int, Field(ge=1, le=100)] = 20


class AgentDocument(DocumentPart):
    """A model with tools: it is asked again with their results, until it answers without calling any."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    instructions: Annotated[str, Field(min_length=1, max_length=50_000)]
    input: Annotated[str, Field(min_length=1, max_length=50_000)]
    tools: Annotated[tuple[Tool, ...], Field(max_length=128)] = ()
    result: dict[str, Any] | None = None
    limits: LimitsDocument = LimitsDocument()
    on_limit: Literal["conclude", "fail"] = "conclude"
    on_denied: Literal["tell", "fail"] = "tell"
    remember: RememberDocument | None = None


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


class HoldDocument(DocumentPart):
    """The group of the directory whose members decide how a failed step goes on. Other steps go on meanwhile."""

    hold: Annotated[str, Field(min_length=1, max_length=100)]


def _steps_or_hold(value: object) -> str:
    return "hold" if isinstance(value, dict | HoldDocument) else "steps"


OnFailure = Annotated[
    Annotated[tuple["StepDocument", ...], Field(min_length=1), Tag("steps")] | Annotated[HoldDocument, Tag("hold")],
    Discriminator(_steps_or_hold),
]


class StepDocument(DocumentPart):
    """One entry of ``steps``. Exactly one of do, if, foreach, while, approve, wait, task, run, continue_with, agent.

    With none of them, ``set`` and ``reference`` stand alone: a step that calls nothing.
    """

    id: Identifier | None = None
    title: Annotated[str, Field(min_length=1, max_length=150)] | None = None
    needs: tuple[Identifier, ...] | None = None
    do: Annotated[str, Field(max_length=200)] | None = None
    with_: Annotated[dict[str, Any], Field(alias="with")] = {}
    set: dict[str, Any] = {}
    reference: Expression | None = None
    timeout: Duration | None = None
    on_failure: OnFailure | None = None
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
    inherit: tuple[Identifier, ...] = ()
    continue_with: ContinueDocument | None = None
    agent: AgentDocument | None = None

    @field_validator("id", "as_")
    @classmethod
    def _usable_in_expressions(cls, value: str | None) -> str | None:
        if value is not None and ("." in value or not is_variable_name(value)):
            raise ValueError(
                "must be a name that expressions can use: letters, digits and _, not starting with a digit"
            )
        return value

    def kinds(self) -> list[str]:
        """The kinds (``KINDS``) whose key this entry has: exactly one is valid, or none for a step that only writes."""
        present = {"if": self.if_, "while": self.while_}
        found = [kind for kind in KINDS if present.get(kind, getattr(self, kind, None)) is not None]
        return found or ([SET] if self.set or self.reference is not None else [])


class Caps(DocumentPart):
    """Bounds of one workflow, tighter than the tenant's."""

    max_writes_per_run: Annotated[int, Field(ge=0)] | None = None
    max_concurrency: Annotated[int, Field(ge=1, le=256)] | None = None
    max_runs_per_min: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class WorkflowDocument(DocumentPart):
    """A whole workflow file."""

    workflow: Name
    version: Annotated[int, Field(ge=1, le=1_000_000)]
    title: Annotated[str, Field(max_length=200)] = ""
    description: Annotated[str, Field(max_length=4000)] = ""
    reference: Expression = "${{ run.id }}"
    subject: Expression | None = None
    search: Annotated[dict[Identifier, Expression], Field(max_length=8)] = {}
    triggers: Triggers = Triggers()
    trigger: dict[str, Any] | None = None
    channels: dict[Identifier, ChannelDocument] = {}
    caps: Caps = Caps()
    sla: Duration | None = None
    retention: Duration | None = None
    result: Any = None
    steps: Annotated[tuple[StepDocument, ...], Field(min_length=1, max_length=500)]
