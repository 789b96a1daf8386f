"""A run as a transition finds it: the folded run, with the facts about it that no event changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.canonical import JsonObject
from evidence.chain import ChainHead
from runtime.engine.commit import StepRow
from runtime.engine.run import Run
from runtime.engine.state import State
from runtime.engine.states import RunState


@dataclass(frozen=True, slots=True)
class Definition:
    """The workflow version that a run started with, and how often its graph was extended since."""

    run_id: UUID
    tenant_id: str
    workflow: str
    workflow_version: int
    workflow_digest: str
    extensions: int
    run_key: bytes


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, and where its book stands: ``version`` is the number of the last append, ``head`` the end of the chain.

    ``gate`` counts those appends that do not commute with others (a barrier, a cancel, an extension).

    ``run`` is changed by nobody: a transition works on a copy. ``kept_at`` is the version whose state is kept beside
    the run, 0 if there is none. ``parent`` is the run that waits for this one, ``depth`` how many runs are above it.
    ``constants`` are the variables that never change during a run (``trigger``, ``run.id``, ...). ``now`` is the
    database's time. ``blind`` says that the run cannot be read, and only its lines say what of it is open.
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
    policy_digest: str | None
    writes_max: int | None
    parent: UUID | None = None
    depth: int = 0
    kept_at: int = 0
    blind: bool = False

    @property
    def status(self) -> RunState:
        return self.run.status

    @property
    def reference(self) -> str:
        return self.run.reference

    @property
    def requested_by(self) -> str:
        return self.run.requested_by

    @property
    def run_key(self) -> bytes:
        return self.run.run_key

    @property
    def state(self) -> State:
        return self.run.state

    @property
    def canceling(self) -> JsonObject | None:
        return self.run.canceling

    @property
    def extensions(self) -> int:
        return self.run.extensions

    @property
    def definition(self) -> Definition:
        """The definition of its graph as that is now."""
        version = (self.workflow, self.workflow_version, self.workflow_digest)
        return Definition(self.run_id, self.tenant_id, *version, self.extensions, self.run_key)

    @property
    def steps(self) -> Mapping[str, StepRow]:
        return self.run.steps
