"""What a worker holds, and the commits that settle it: on the view at hand first, then on a fresh one (V-7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TypeAlias

import asyncpg
import structlog

from connectors.registry import Connectors
from core.clock import DatabaseClock
from core.db import Database
from core.errors import CountersealError
from core.ids import new_nonce
from runtime.definition.active_policy import ActivePolicy
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import Workflow
from runtime.governance.moves import Known, Next, Over
from runtime.governance.proposing import begin
from runtime.kernel.commit import StepRow
from runtime.kernel.transition import NeedsWholeView, Transition
from runtime.setbacks import is_passing
from runtime.store.commits import apply
from runtime.store.views import load
from runtime.work.calling import Calls
from runtime.work.committing import Committer
from runtime.work.leasing import Hold, Lease, LostLease

log = structlog.get_logger(__name__)

CONFLICTS_MAX = 20

Build: TypeAlias = Callable[[Transition, StepRow, ActivePolicy], Next]


@dataclass(frozen=True)
class Tools:
    """What driving needs; constructed by ``app``. ``owner`` is this worker's name in leases."""

    database: Database
    definitions: Definitions
    connectors: Connectors
    owner: str
    lease: timedelta

    @cached_property
    def calls(self) -> Calls:
        """The connectors, as they may be called."""
        return Calls(self.connectors)

    @cached_property
    def committer(self) -> Committer:
        """Writes what the steps of this worker commit."""
        return Committer(self.database)


class Holding:
    """One leased step at a time, None between steps, and its lease."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.lease = Lease(tools.lease)
        self.hold: Hold | None = None

    @property
    def step(self) -> StepRow | None:
        """The leased step."""
        return self.hold.step if self.hold else None

    def now(self) -> Hold:
        """What is held; ``LostLease`` if nothing is."""
        if self.hold is None:
            raise LostLease
        return self.hold

    def go_on(self, transition: Transition, work: Next, workflow: Workflow, policy: ActivePolicy) -> Next:
        """While a step is over without touching the outside, take the next one in the same transaction."""
        while isinstance(work, Over):
            following = transition.take(self._tools.owner)
            if following is None:
                return work
            work = begin(transition, following, workflow, policy, Known(), new_nonce)
        return work

    def keep(
        self, to: Transition, workflow: Workflow, policy: ActivePolicy, work: Next, clock: DatabaseClock, began: float
    ) -> None:
        """Remember what is held after a commit that began then; only a step that is new has a new lease."""
        before = self.step
        self.hold = None if isinstance(work, Over) else Hold(to.after(), work.step, workflow, policy, clock)
        if self.step is not None and (before is None or before.step_id != self.step.step_id):
            self.lease.taken(began)

    async def commit(self, build: Build) -> Next:
        """Apply a transition to the held step and begin the next with it; a fault of that one costs this nothing."""
        try:
            return await self._commit_until(build, goes_on=True)
        except LostLease:
            raise
        except Exception as error:
            if is_passing(error):
                raise
            log.warning("a step is settled without going on to the next", reason=str(error))
            return await self._commit_until(build, goes_on=False)

    async def _commit_until(self, build: Build, *, goes_on: bool) -> Next:
        """On the view at hand first, then on a fresh one (V-7). Whom PostgreSQL chose to end a deadlock tries again."""
        hold, began = self.now(), Lease.now()
        try:
            transition = Transition(hold.view_now(), hold.workflow.graph, lease=self._tools.lease)
            work = build(transition, hold.step, hold.policy)
            work = self.go_on(transition, work, hold.workflow, hold.policy) if goes_on else work
            if await self._tools.committer.apply(transition.commit()):
                self.keep(transition, hold.workflow, hold.policy, work, hold.clock, began)
                return work
        except (NeedsWholeView, asyncpg.TransactionRollbackError):
            pass
        for attempt in range(CONFLICTS_MAX):
            try:
                done = await self._commit_fresh(build, lock=attempt > 0, goes_on=goes_on)
            except asyncpg.TransactionRollbackError:
                continue
            if done is not None:
                return done
        raise CountersealError(f"Run {hold.view.run_id} moves too fast to commit to.")

    async def _commit_fresh(self, build: Build, *, lock: bool, goes_on: bool) -> Next | None:
        hold, tools, began = self.now(), self._tools, Lease.now()
        async with tools.database.transaction() as connection:
            view, _ = await load(connection, hold.view.run_id, [hold.step.key], lock=lock)
            step = view.steps.get(hold.step.key)
            if step is None or step.lease_owner != tools.owner or step.lease_epoch != hold.step.lease_epoch:
                raise LostLease
            policy = await tools.definitions.policy(connection, view.tenant_id, view.policy_digest)
            # The graph may have been extended since.
            workflow = await tools.definitions.of_run(connection, view)
            transition = Transition(view, workflow.graph, lease=tools.lease)
            work = build(transition, step, policy)
            work = self.go_on(transition, work, workflow, policy) if goes_on else work
            if not await apply(connection, transition.commit()):
                return None
        self.keep(transition, workflow, policy, work, DatabaseClock(view.now), began)
        return work
