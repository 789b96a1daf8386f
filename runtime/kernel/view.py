"""A run as the kernel sees it: what is stored, as frozen values, in which every transition begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from core.canonical import JsonObject
from evidence.chain import ChainHead
from runtime.kernel.commit import StepRow
from runtime.kernel.plan import Window
from runtime.kernel.state import State
from runtime.kernel.states import RunState, WaitKind


class NeedsWholeView(Exception):
    """This move touches steps that the view does not hold; read the whole view and start again."""


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """An approval that a closing run has to cancel."""

    approval_id: UUID
    action_digest: str


@dataclass(frozen=True, slots=True)
class OpenElsewhere:
    """A wait on another run, something outside or a task, which a closing run has to end there as well (V-13)."""

    wait_id: UUID
    step_key: str
    kind: WaitKind
    context: JsonObject


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as stored. ``whole`` says that it holds all that a barrier could need: ``steps``, what is open elsewhere.

    ``steps`` are the rows of the current super-step and those that joined the next one, ``windows`` the next items of
    active loops. ``parent`` is the run that waits for this one, ``depth`` how many runs are above it, ``extensions``
    how often its graph was extended (V-6). ``constants`` are the variables that never change during a run (``trigger``,
    ``run.id``, ...). ``now`` is the database's time.
    """

    run_id: UUID
    tenant_id: str
    workspace_id: str
    workflow: str
    workflow_version: int
    workflow_digest: str
    reference: str
    requested_by: str
    trigger_type: str
    status: RunState
    version: int
    superstep: int
    executing: int
    width: int
    writes: int
    head: ChainHead
    state: State
    constants: Mapping[str, object]
    run_key: bytes
    now: datetime
    deadline_at: datetime | None
    canceling: JsonObject | None
    policy_digest: str | None
    writes_max: int | None
    parent: UUID | None = None
    depth: int = 0
    extensions: int = 0
    whole: bool = False
    steps: Mapping[str, StepRow] = field(default_factory=dict)
    open_approvals: tuple[OpenApproval, ...] = ()
    open_elsewhere: tuple[OpenElsewhere, ...] = ()
    windows: Mapping[str, Window] = field(default_factory=dict)
