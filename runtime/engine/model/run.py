"""A run as folded from its events, the state in its checkpoints, and the view that a transition begins with.

Only ``fold`` changes a run. Its state grows with what is active, not with what is done: outputs and statuses of a
loop's iteration are dropped when the iteration is over, and a checkpoint holds only the items that are under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct, ValidationError, convert, field, to_builtins
from msgspec.structs import replace

from approvals.model import ApprovalStatus
from core.canonical import Json, JsonObject
from core.errors import ConsistencyError
from core.identity import NOBODY, Directory
from evidence.chain import ChainHead
from runtime.engine.model.agent_state import Agent, AgentValues
from runtime.engine.model.graph import Window
from runtime.engine.model.rows import (
    ApprovalMove,
    ApprovalRow,
    CheckpointRow,
    LedgerRow,
    MutationRow,
    ReceiptRow,
    SaidRow,
    StepRow,
    VoteRow,
    WaitRow,
)
from runtime.engine.model.states import RunState, StepState

SUCCEEDED = str(StepState.SUCCEEDED)
SKIPPED = "skipped"
FAILED = "failed"


class Loop(Struct):
    """One active loop: item name, number of items (None for ``while``), next index to start, active items."""

    name: str
    total: int | None
    next: int
    active: dict[int, Json]


class Failed(Struct, frozen=True):
    """A failed leaf whose branch is under way: the branch, and the error as expressions see it."""

    branch: str
    error: JsonObject


class State(Struct):
    """The state of one run. Mutable only inside the engine, on a copy of its own.

    ``channels`` is the author's business state. ``reference`` is the run's business reference, once a step has set a
    new one. ``outputs`` and ``status`` are keyed by step key, for scopes that are still active. ``branches`` holds each
    condition's outcome, ``failures`` the leaves whose branch is under way. ``open`` are the leaves of the current
    super-step; ``parked`` maps the waiting ones to ``<kind>:<wait id>``. ``shaped`` says who shaped what, besides the
    requester (``book.contributors``). ``origins`` says where the results of child runs came from. ``agents`` are the
    agents that have begun, by their keys.
    """

    channels: JsonObject
    outputs: JsonObject = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)
    branches: dict[str, bool] = field(default_factory=dict)
    loops: dict[str, Loop] = field(default_factory=dict)
    failures: dict[str, Failed] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    parked: dict[str, str] = field(default_factory=dict)
    reference: str | None = None
    shaped: dict[str, list[str]] = field(default_factory=dict)
    origins: dict[str, list[Json]] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """The checkpoint's content; empty parts are left out."""
        loops: JsonObject = {key: _loop_json(loop) for key, loop in self.loops.items()}
        failures: JsonObject = {
            key: {"branch": failure.branch, "error": failure.error} for key, failure in self.failures.items()
        }
        whole: JsonObject = {
            "channels": self.channels,
            "outputs": dict(self.outputs),
            "status": dict(self.status),
            "branches": dict(self.branches),
            "loops": loops,
            "failures": failures,
            "open": list(self.open),
            "parked": dict(self.parked),
            "reference": self.reference,
            "shaped": {name: [*marks] for name, marks in self.shaped.items()},
            "origins": {key: [*origins] for key, origins in self.origins.items()},
            "agents": to_builtins(self.agents, str_keys=True) if self.agents else None,
        }
        return {name: value for name, value in whole.items() if value or name == "channels"}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> State:
        """Read what ``to_json`` wrote. The result shares nothing with ``value`` that the engine changes in place."""
        try:
            return convert(value, cls, str_keys=True)
        except ValidationError as error:
            raise ConsistencyError(f"a stored state cannot be read: {error}") from None

    def copy(self) -> State:
        """An independent copy, as deep as the engine's changes go."""
        loops = {key: replace(loop, active=loop.active.copy()) for key, loop in self.loops.items()}
        agents = {key: agent.copy() for key, agent in self.agents.items()}
        return State(
            self.channels.copy(), self.outputs.copy(), self.status.copy(), self.branches.copy(), loops,
            self.failures.copy(), self.open.copy(), self.parked.copy(), self.reference, self.shaped.copy(),
            self.origins.copy(), agents,
        )  # fmt: skip


def _loop_json(loop: Loop) -> JsonObject:
    active: JsonObject = {str(index): item for index, item in loop.active.items()}
    return {"name": loop.name, "total": loop.total, "next": loop.next, "active": active}


class GrantRow(Struct, frozen=True):
    """A grant as recorded (``events.GrantGiven``), with its uses so far; ``ended`` says why it is over.

    ``ended_by`` is the actor who has taken it back, ``ended_at`` the time of that.
    """

    grant_id: UUID
    approval: UUID
    digest: str
    uses: int
    until: str
    agent: str
    of: JsonObject
    terms: JsonObject
    contributors: list[JsonObject]
    votes: list[Any]
    escalated: bool
    at: datetime
    used: int = 0
    ended: str = ""
    ended_by: str = ""
    ended_at: datetime | None = None

    @property
    def left(self) -> bool:
        """True if by the book it may still let actions out. The time is checked at each use."""
        return not self.ended and self.used < self.uses


class Run(Struct):
    """One run as folded from its book. Only ``fold`` changes it.

    ``executing`` counts the steps of the current super-step that have not left it; ``width`` is the number it had at
    first. ``steps`` are those that are open or belong to the current super-step, ``past`` those behind the last
    barrier. ``times`` holds the time of each step's last line. ``answers`` are the last moves of approvals, ``windows``
    the items of loops that planning may ask for. ``reopened`` counts how often a person retried the failed run.
    ``retried_by`` is the principal who did so last, ``adders`` are those who have added steps since, by step. ``tried``
    counts how often people tried a held step again, ``tried_by`` are those who did so last, by step. ``failures`` are
    those of calls that people had approved, by call (``runtime.engine.life.attention``). ``held_open`` says that the
    run waits for more steps when its own are done. ``anew`` holds the steps that begin again after a retry, until they
    are planned. ``origins`` are those of the input and of ``copied`` channels, as the parent reported them. ``refused``
    counts denials and rejections, ``asked`` counts questions. ``same`` maps the digest of a call to the steps whose
    equal call was let out, if a rule reads that. ``opened_at`` is the time of the book's first line. ``requester`` and
    ``started_by`` are the person and the account that were identified when the run started, None if none was. ``edits``
    are the values that people have edited, by step. ``spoken`` holds values of agents (``model.agent_state``). The
    lists only grow. A worker calls ``rest`` after each append, so that the run grows with its open steps and not with
    its finished ones; readers keep everything.
    """

    run_id: UUID
    run_key: bytes
    status: RunState
    superstep: int
    executing: int
    width: int
    writes: int
    reference: str
    requested_by: str
    state: State
    canceling: JsonObject | None = None
    paused: bool = False
    error: JsonObject | None = None
    result: Json = None
    finished: bool = False
    checkpointed: bool = False
    extensions: int = 0
    reopened: int = 0
    held_open: bool = False
    retried_by: str = ""
    adders: dict[str, str] = field(default_factory=dict)
    tried: int = 0
    tried_by: dict[str, str] = field(default_factory=dict)
    failures: dict[str, list[JsonObject]] = field(default_factory=dict)
    anew: dict[str, int] = field(default_factory=dict)
    trigger: JsonObject = field(default_factory=dict)
    origins: JsonObject | None = None
    copied: list[str] = field(default_factory=list)
    refused: int = 0
    asked: int = 0
    same: dict[str, list[str]] = field(default_factory=dict)
    opened_at: datetime | None = None
    requester: str | None = None
    started_by: str | None = None
    steps: dict[str, StepRow] = field(default_factory=dict)
    past: dict[str, StepRow] = field(default_factory=dict)
    waits: dict[UUID, WaitRow] = field(default_factory=dict)
    approvals: dict[UUID, ApprovalRow] = field(default_factory=dict)
    answers: dict[UUID, ApprovalMove] = field(default_factory=dict)
    receipts: dict[UUID, ReceiptRow] = field(default_factory=dict)
    windows: dict[str, Window] = field(default_factory=dict)
    grants: dict[UUID, GrantRow] = field(default_factory=dict)
    votes: list[VoteRow] = field(default_factory=list)
    said: list[SaidRow] = field(default_factory=list)
    edits: dict[str, dict[str, Any]] = field(default_factory=dict)
    checkpoints: list[CheckpointRow] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    mutations: list[MutationRow] = field(default_factory=list)
    times: dict[str, datetime] = field(default_factory=dict)
    spoken: dict[str, AgentValues] = field(default_factory=dict)

    @property
    def begun_anew(self) -> int:
        """The number of times that people had the run, or a held step of it, begin anew."""
        return self.reopened + self.tried

    @property
    def waits_for_more(self) -> bool:
        """True if the run is held open and all its steps are done."""
        return self.held_open and self.status is RunState.WAITING and not self.executing and not self.state.parked

    def copy(self) -> Run:
        """An independent copy, as deep as the fold's changes go."""
        return replace(self, state=self.state.copy(), **{name: getattr(self, name).copy() for name in _OF_RUN})

    def rest(self) -> Run:
        """Drop the rows that no later append needs: those of steps behind the barrier, and the contents of cards.

        Spans such as ``due_in`` count from their own append, which has stored them. Returns the run, for chaining.
        """
        steps = self.steps
        self.past = {}
        self.times = {key: at for key, at in self.times.items() if key in steps}
        waits = ((key, row) for key, row in self.waits.items() if row.step_key in steps)
        self.waits = {key: row if row.due_in is None else replace(row, due_in=None) for key, row in waits}
        self.receipts = {key: row for key, row in self.receipts.items() if row.step_key in steps}
        rows = ((key, row) for key, row in self.approvals.items() if row.step_key in steps)
        self.approvals = {key: self._rested(row) for key, row in rows}
        self.answers = {key: row for key, row in self.answers.items() if key in self.approvals}
        for key, row in steps.items():
            if row.eligible_in is not None:
                steps[key] = replace(row, eligible_in=None)
        self.votes = [vote for vote in self.votes if vote.approval_id in self.approvals]
        self.said = [one for one in self.said if one.approval_id in self.approvals]
        self.checkpoints, self.ledger, self.mutations = [], [], []
        return self

    def _rested(self, row: ApprovalRow) -> ApprovalRow:
        """The question without its card, and without its action once no answer can let the action out any more."""
        answer = self.answers.get(row.approval_id)
        open_ = (ApprovalStatus.REQUESTED, ApprovalStatus.APPROVED)
        binds = answer is not None and answer.status in open_ and not answer.consumed
        action = row.action if binds else None
        return row if not row.card and row.action is action else replace(row, card={}, action=action)


_OF_RUN = (
    "steps", "past", "waits", "approvals", "answers", "receipts", "windows", "votes", "checkpoints", "ledger",
    "mutations", "times", "anew", "spoken", "same", "failures", "adders", "grants", "tried_by",
    "said", "edits",
)  # fmt: skip


class Family(Struct, frozen=True):
    """The counters of a family of runs: an outermost run, and all child runs and continuing runs it has led to.

    ``root`` is the outermost run. ``number`` counts the changes of these counters, ``writes_max`` is the cap of the
    root's workflow. ``same`` maps the digest of a call to the steps whose equal call was let out, each as
    ``<run>:<key>``. ``failed`` maps the key of a question to the approved calls that failed, and ``anew`` counts how
    often people had one of the runs begin anew; each failure holds that count as of its time.
    """

    root: UUID = field(name="root_run_id")
    writes: int
    refused: int
    asked: int
    number: int
    writes_max: int | None = None
    same: Mapping[str, list[str]] = field(default_factory=dict)
    failed: Mapping[str, list[JsonObject]] = field(default_factory=dict)
    anew: int = 0


class Definition(Struct, frozen=True):
    """The workflow version that a run started with, and the number of extensions of its graph since."""

    run_id: UUID
    tenant_id: str
    workflow: str
    workflow_version: int
    workflow_digest: str
    extensions: int
    run_key: bytes


# The trigger of the runs that agents ask for over HTTP.
AGENT = "agent"
# The beginning of the names of Counterseal's own workflows: for undos, policy changes, and actions that agents ask for.
OWN = "counterseal-"
ACTIONS = f"{OWN}action-"
# The clock counts as gone back if it is behind the book by more than this. Several processes differ by less.
CLOCK_TOLERANCE = timedelta(seconds=1)


class RunView(Struct, frozen=True):
    """A run and the end of its book: ``version`` is the number of the last append, ``head`` the end of the chain.

    ``gate`` counts those appends that do not commute with others (a barrier, a cancel, an extension).

    Nobody changes ``run``: a transition works on a copy. ``kept_at`` is the last version whose folded run is stored
    beside the book, 0 if none. ``parent`` is the run that waits for this one, ``depth`` the number of runs above it.
    ``constants`` are the variables that never change during a run (``trigger``, ``run.id``, ...). ``now`` is an
    estimate of the database's time: it is never ahead of it, and behind by at most ``error``. ``blind`` says that the
    run could not be folded in full, so that only its lines say what is open. ``directory`` holds the tenant's people at
    the time of the read. ``last_at`` is the time of the latest line, None if it is not known. If the database's clock
    goes back, new lines keep this time until the clock has caught up. ``refusals`` are those of the tenant that concern
    the question, by their keys, and ``open_by`` counts open questions by their asker: both are read only after an
    append that asks was refused because of them. ``stop`` is the tenant's number: each change of its policy or of what
    is ``paused`` changes it, and so does a target that asks for no calls for a while: ``busy`` holds until when, by
    connector and system. ``family`` holds the counters that this run shares with others; None if no run has started
    it and it has started none. ``off`` says that the agent that has asked for the run no longer has a valid token.
    """

    run_id: UUID
    tenant_id: str
    workspace_id: str
    workflow: str
    workflow_version: int
    workflow_digest: str
    trigger_type: str
    version: int
    gate: int
    head: ChainHead
    run: Run
    constants: Mapping[str, object]
    now: datetime
    deadline_at: datetime | None
    policies: tuple[str, ...]
    writes_max: int | None
    last_at: datetime | None = None
    stop: int = 0
    paused: Mapping[str, Any] = field(default_factory=dict)
    busy: Mapping[str, datetime] = field(default_factory=dict)
    parent: UUID | None = None
    depth: int = 0
    kept_at: int = 0
    blind: bool = False
    error: timedelta = timedelta(0)
    directory_digest: str | None = None
    directory: Directory = NOBODY
    family: Family | None = None
    refusals: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    open_by: Mapping[str, int] = field(default_factory=dict)
    off: bool = False

    @property
    def agent(self) -> str:
        """The account of the agent that has asked for this run over HTTP; "" for any other run."""
        return self.run.requested_by if self.trigger_type == AGENT else ""

    def others(self, counter: str) -> int:
        """The part of a counter (``writes``, ``refused``, ``asked``) that comes from other runs of the family."""
        return 0 if self.family is None else getattr(self.family, counter) - getattr(self.run, counter)

    @property
    def behind(self) -> timedelta:
        """The time by which the database's clock is behind the book; 0 if it may be only an error of the reading."""
        behind = timedelta(0) if self.last_at is None else self.last_at - self.now
        return behind if behind > CLOCK_TOLERANCE else timedelta(0)

    @property
    def at(self) -> datetime:
        """The time of a line that is recorded now, unless it records an outcome."""
        return self.now + self.behind

    @property
    def definition(self) -> Definition:
        """The definition of the run's graph, with the extensions so far."""
        version = (self.workflow, self.workflow_version, self.workflow_digest)
        return Definition(self.run_id, self.tenant_id, *version, self.run.extensions, self.run.run_key)
