"""Driving one leased step, and the steps after it, until the run waits (run to wait, X-6).

Everything that is decided is decided by pure code on a view; this module reads, commits and calls connectors, in that
order. No transaction is open during a call, and no outcome stays unrecorded across one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TypeAlias
from uuid import UUID

import asyncpg
import structlog

from connectors.port import Before
from connectors.registry import Connectors
from core.clock import DatabaseClock
from core.db import Database
from core.errors import CountersealError
from core.ids import new_nonce
from runtime.calling import Calls
from runtime.claiming import claimed
from runtime.definition.active_policy import ActivePolicy
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import Workflow
from runtime.governance import settling
from runtime.governance.moves import Inquire, Known, LookUp, Next, Over, Perform, ReadBefore
from runtime.governance.proposing import begin
from runtime.kernel.commit import StepRow
from runtime.kernel.transition import NeedsWholeView, RunView, Transition
from runtime.leasing import Hold, Lease, LostLease
from runtime.queue.port import Delivery
from runtime.setbacks import is_passing, set_aside, set_back
from runtime.store import receipts
from runtime.store.commits import apply
from runtime.store.views import load

log = structlog.get_logger(__name__)

CONFLICTS_MAX = 20

Build: TypeAlias = Callable[[Transition, StepRow, ActivePolicy], Next]


class LostRace(CountersealError):
    """A claim met a change of the policy at the same moment: the transaction is undone and tried again."""

    code = "consistency"


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


class Drive:
    """One delivery being worked off. ``held`` is the step whose lease must be kept alive, None between steps.

    ``claimed`` is called when there was something to claim: there may be more.
    """

    def __init__(self, tools: Tools, claimed: Callable[[], None] = lambda: None) -> None:
        self._tools = tools
        self._claimed = claimed
        self._tried: UUID | None = None
        self._lease = Lease(tools.lease)
        self._hold: Hold | None = None

    @property
    def held(self) -> StepRow | None:
        """The leased step."""
        return self._hold.step if self._hold else None

    def beaten(self, step_id: UUID, began: float, *, ours: bool) -> bool:
        """What a heartbeat that began then says about a step; whether that is the one that is held."""
        still_held = self.held is not None and self.held.step_id == step_id
        if still_held:
            self._lease.renewed(began) if ours else self._lease.lost()
        return still_held

    async def run(self, delivery: Delivery) -> bool:
        """Claim and go on until the run waits or ends; False if there was nothing to claim."""
        work = await self._claim_at_all(delivery)
        if work is None:
            return False
        self._claimed()
        try:
            while not isinstance(work, Over):
                work = await self._carry_out(work)
        except LostLease:
            log.warning("lease lost", step=str(self.held.step_id) if self.held else None)
        except Exception as error:
            hold = self._hold
            if hold is None or is_passing(error):
                raise
            async with self._tools.database.transaction() as connection:
                await set_back(connection, hold.view.run_id, hold.step, error, claimed=False)
        finally:
            self._hold = None
        return True

    async def _claim_at_all(self, delivery: Delivery) -> Next | None:
        """Claim, also a step that cannot be begun: undone, its claim would be the first of all to be made again."""
        for goes_on in (True, False):
            try:
                return await self._claim(delivery, goes_on=goes_on)
            except LostRace:
                raise
            except Exception as error:
                if is_passing(error) or self._tried is None:
                    raise
                failed = error
        async with self._tools.database.transaction() as connection:
            record = await delivery.claim(connection, self._tools.owner, self._tools.lease)
            return Over() if await set_aside(connection, record, self._tried, failed) else None

    async def _claim(self, delivery: Delivery, *, goes_on: bool) -> Next | None:
        """Claim, propose, decide and intend in one transaction. A crash inside it leaves the command pending."""
        tools, began = self._tools, Lease.now()
        async with tools.database.transaction() as connection:
            record = await delivery.claim(connection, tools.owner, tools.lease)
            if record is None:
                return None
            self._tried = UUID(record["step"]["step_id"])
            view, step, known = await claimed(connection, record)
            workflow = await tools.definitions.workflow(
                connection, view.tenant_id, view.workflow, view.workflow_version, view.workflow_digest
            )
            policy = await tools.definitions.policy(connection, view.tenant_id, view.policy_digest)
            try:
                transition, work = self._begin(view, step, workflow, policy, known, goes_on)
            except NeedsWholeView:
                view, _ = await load(connection, view.run_id, [step.key])
                transition, work = self._begin(view, view.steps[step.key], workflow, policy, known, goes_on)
            if not await apply(connection, transition.commit()):
                raise LostRace("The tenant's policy changed while a step was being claimed.")
        self._keep(transition, workflow, policy, work, DatabaseClock(view.now), began)
        return work

    def _begin(
        self, view: RunView, step: StepRow, workflow: Workflow, policy: ActivePolicy, known: Known, goes_on: bool
    ) -> tuple[Transition, Next]:
        transition = Transition(view, workflow.graph, lease=self._tools.lease)
        step = transition.started(step)
        work = begin(transition, step, workflow, policy, known, new_nonce)
        return transition, self._go_on(transition, work, workflow, policy) if goes_on else work

    def _go_on(self, transition: Transition, work: Next, workflow: Workflow, policy: ActivePolicy) -> Next:
        """While a step is over without touching the outside, take the next one in the same transaction."""
        while isinstance(work, Over):
            following = transition.take(self._tools.owner)
            if following is None:
                return work
            work = begin(transition, following, workflow, policy, Known(), new_nonce)
        return work

    def _keep(
        self, to: Transition, workflow: Workflow, policy: ActivePolicy, work: Next, clock: DatabaseClock, began: float
    ) -> None:
        """Remember what is held after a commit that began then; only a step that is new has a new lease."""
        before = self.held
        self._hold = None if isinstance(work, Over) else Hold(to.after(), work.step, workflow, policy, clock)
        if self.held is not None and (before is None or before.step_id != self.held.step_id):
            self._lease.taken(began)

    async def _carry_out(self, work: Next) -> Next:
        match work:
            case ReadBefore():
                return await self._read_before(work)
            case LookUp():
                return await self._look_up(work)
            case Perform():
                return await self._perform(work)
            case Inquire():
                return await self._inquire(work)
            case Over():
                return work

    async def _commit(self, build: Build) -> Next:
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
        hold, began = self._holding(), Lease.now()
        try:
            transition = Transition(hold.view_now(), hold.workflow.graph, lease=self._tools.lease)
            work = build(transition, hold.step, hold.policy)
            work = self._go_on(transition, work, hold.workflow, hold.policy) if goes_on else work
            async with self._tools.database.connection() as connection:
                if await apply(connection, transition.commit()):
                    self._keep(transition, hold.workflow, hold.policy, work, hold.clock, began)
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
        hold, tools, began = self._holding(), self._tools, Lease.now()
        async with tools.database.transaction() as connection:
            view, _ = await load(connection, hold.view.run_id, [hold.step.key], lock=lock)
            step = view.steps.get(hold.step.key)
            if step is None or step.lease_owner != tools.owner or step.lease_epoch != hold.step.lease_epoch:
                raise LostLease
            policy = await tools.definitions.policy(connection, view.tenant_id, view.policy_digest)
            transition = Transition(view, hold.workflow.graph, lease=tools.lease)
            work = build(transition, step, policy)
            work = self._go_on(transition, work, hold.workflow, policy) if goes_on else work
            if not await apply(connection, transition.commit()):
                return None
        self._keep(transition, hold.workflow, policy, work, DatabaseClock(view.now), began)
        return work

    def _holding(self) -> Hold:
        if self._hold is None:
            raise LostLease
        return self._hold

    async def _read_before(self, work: ReadBefore) -> Next:
        hold = self._holding()
        read = await self._lease.call(lambda: self._tools.calls.read_before(work))
        chance = random.random()

        def proceed(transition: Transition, step: StepRow, policy: ActivePolicy) -> Next:
            if isinstance(read, Before):
                return begin(transition, step, hold.workflow, policy, replace(work.known, before=read), new_nonce)
            perform = Perform(step, work.operation, work.call, None)
            settling.performed(transition, perform, read, nonce=new_nonce, chance=chance)
            return Over()

        return await self._commit(proceed)

    async def _look_up(self, work: LookUp) -> Next:
        hold = self._holding()
        for _ in range(CONFLICTS_MAX):
            async with self._tools.database.connection() as connection:
                receipt = await receipts.by_key(connection, hold.view.tenant_id, work.idempotency_key)
            known = replace(work.known, receipt=receipt, receipt_checked=True)

            def proceed(transition: Transition, step: StepRow, policy: ActivePolicy, known: Known = known) -> Next:
                return begin(transition, step, hold.workflow, policy, known, new_nonce)

            try:
                return await self._commit(proceed)
            except asyncpg.UniqueViolationError:
                continue  # another run has just written the receipt of this effect: it is to be seen now
        raise CountersealError(f"The receipt of {work.idempotency_key} is written and freed too fast.")

    async def _perform(self, work: Perform) -> Next:
        outcome = await self._lease.call(lambda: self._tools.calls.perform(work))
        chance = random.random()

        def settled(transition: Transition, step: StepRow, _: ActivePolicy) -> Next:
            settling.performed(transition, replace(work, step=step), outcome, nonce=new_nonce, chance=chance)
            return Over()

        return await self._commit(settled)

    async def _inquire(self, work: Inquire) -> Next:
        probe = await self._lease.call(lambda: self._tools.calls.inquire(work))

        def inquired(transition: Transition, step: StepRow, _: ActivePolicy) -> Next:
            return settling.inquired(transition, replace(work, step=step), probe, nonce=new_nonce)

        return await self._commit(inquired)
