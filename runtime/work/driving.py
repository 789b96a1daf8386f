"""Driving one leased step, and the steps after it, until the run waits (run to wait, X-6).

Everything that is decided is decided by pure code on a view; this module reads, commits and calls connectors, in that
order. No transaction is open during a call, and no outcome stays unrecorded across one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import asyncpg
import structlog

from connectors.port import Before
from core.clock import DatabaseClock
from core.errors import CountersealError
from core.ids import new_nonce
from runtime.definition.active_policy import ActivePolicy
from runtime.definition.workflow import Workflow
from runtime.governance import settling, waiting
from runtime.governance.intending import Proposal
from runtime.governance.moves import Inquire, Known, LookUp, Next, Over, Perform, ReadBefore, StartRun
from runtime.governance.proposing import begin
from runtime.governance.resolving import inquired
from runtime.kernel.commit import StepRow
from runtime.kernel.graph import OperationNode
from runtime.kernel.plan import NeedsItems
from runtime.kernel.transition import RunView, Transition
from runtime.queue.port import Delivery
from runtime.setbacks import is_passing, report, set_aside, set_back
from runtime.store import receipts
from runtime.store.commits import apply
from runtime.store.views import load
from runtime.work.claiming import claimed
from runtime.work.holding import CONFLICTS_MAX, Holding, Tools
from runtime.work.leasing import Lease, LostLease
from runtime.work.nesting import Within, look, start_other
from runtime.work.patience import Patience

log = structlog.get_logger(__name__)


class LostRace(CountersealError):
    """A claim met a change of the policy at the same moment: the transaction is undone and tried again."""

    code = "consistency"


class Drive:
    """One delivery being worked off. ``held`` is the step whose lease must be kept alive, None between steps.

    ``claimed`` is called when there was something to claim: there may be more.
    """

    def __init__(
        self, tools: Tools, claimed: Callable[[], None] = lambda: None, patience: Patience | None = None
    ) -> None:
        self._tools = tools
        self._patience = patience or Patience()
        self._claimed = claimed
        self._tried: UUID | None = None
        self._within: Drive | None = None
        self._holding = Holding(tools, self._patience)

    @property
    def held(self) -> StepRow | None:
        """The leased step."""
        return self._holding.step

    @property
    def leased(self) -> list[StepRow]:
        """Every step that is leased here: that of a run within another, too."""
        own = [self.held] if self.held is not None else []
        return own + (self._within.leased if self._within is not None else [])

    def beaten(self, step_id: UUID, began: float, *, ours: bool) -> bool:
        """What a heartbeat that began then says about a step; whether that is one that is held."""
        if self._within is not None and self._within.beaten(step_id, began, ours=ours):
            return True
        still_held = self.held is not None and self.held.step_id == step_id
        if still_held:
            self._holding.lease.renewed(began) if ours else self._holding.lease.lost()
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
            hold = self._holding.hold
            if hold is None or is_passing(error):
                raise
            async with self._tools.database.transaction() as connection:
                await set_back(connection, self._tools.definitions, hold.view.run_id, hold.step, error)
        finally:
            self._holding.hold = None
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
            return Over() if await set_aside(connection, self._tools.definitions, record, self._tried, failed) else None

    async def _claim(self, delivery: Delivery, *, goes_on: bool) -> Next | None:
        """Claim, propose, decide and intend in one transaction. A crash inside it leaves the command pending."""
        tools, began = self._tools, Lease.now()
        async with tools.database.transaction() as connection:
            record = await delivery.claim(connection, tools.owner, tools.lease)
            if record is None:
                return None
            self._tried = UUID(record["step"]["step_id"])
            view, step, known = await claimed(connection, record, tools.definitions)
            workflow = await tools.definitions.of_run(connection, view)
            policy = await tools.definitions.policy(connection, view.tenant_id, view.policy_digest)
            try:
                transition, work = self._begin(view, step, workflow, policy, known, goes_on)
            except NeedsItems:
                view = await load(connection, view.run_id, tools.definitions.graphs, whole=True)
                transition, work = self._begin(view, step, workflow, policy, known, goes_on)
            if not await apply(connection, transition.commit()):
                raise LostRace("The tenant's policy changed while a step was being claimed.")
        self._holding.keep(transition, workflow, policy, work, DatabaseClock(view.now), began)
        return work

    def _begin(
        self, view: RunView, step: StepRow, workflow: Workflow, policy: ActivePolicy, known: Known, goes_on: bool
    ) -> tuple[Transition, Next]:
        transition = Transition(view, workflow.graph, lease=self._tools.lease)
        step = transition.started(step)
        work = begin(transition, step, workflow, policy, known, new_nonce)
        return transition, self._holding.go_on(transition, work, workflow, policy) if goes_on else work

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
            case StartRun():
                return await self._start_run(work)
            case Over():
                return work

    async def _read_before(self, work: ReadBefore) -> Next:
        hold = self._holding.now()
        read = await self._holding.lease.call(lambda: self._tools.calls.read_before(work))
        chance = random.random()

        def proceed(transition: Transition, step: StepRow, policy: ActivePolicy) -> Next:
            if isinstance(read, Before):
                return begin(transition, step, hold.workflow, policy, replace(work.known, before=read), new_nonce)
            perform = Perform(step, work.operation, work.call, None)
            settling.performed(transition, perform, read, nonce=new_nonce, chance=chance)
            return Over()

        return await self._holding.commit(proceed)

    async def _look_up(self, work: LookUp) -> Next:
        hold = self._holding.now()
        for _ in range(CONFLICTS_MAX):
            async with self._tools.database.connection() as connection:
                receipt = await receipts.by_key(connection, hold.view.tenant_id, work.idempotency_key)
            known = replace(work.known, receipt=receipt, receipt_checked=True)

            def proceed(transition: Transition, step: StepRow, policy: ActivePolicy, known: Known = known) -> Next:
                return begin(transition, step, hold.workflow, policy, known, new_nonce)

            try:
                return await self._holding.commit(proceed)
            except asyncpg.UniqueViolationError:
                continue  # another run has just written the receipt of this effect: it is to be seen now
        raise CountersealError(f"The receipt of {work.idempotency_key} is written and freed too fast.")

    async def _perform(self, work: Perform) -> Next:
        if work.receipt is not None and not self._holding.may_send():

            def unsent(transition: Transition, step: StepRow, _: ActivePolicy) -> Next:
                settling.unsent(transition, replace(work, step=step))
                return Over()

            return await self._holding.commit(unsent, known=True)
        outcome = await self._holding.lease.call(lambda: self._tools.calls.perform(work))
        chance = random.random()

        def settled(transition: Transition, step: StepRow, _: ActivePolicy) -> Next:
            settling.performed(transition, replace(work, step=step), outcome, nonce=new_nonce, chance=chance)
            return Over()

        return await self._holding.commit(settled, known=True)

    async def _start_run(self, work: StartRun) -> Next:
        """Start the other run. One that is waited for is gone on with at once, as far as that needs no waiting."""
        hold, tools = self._holding.now(), self._tools
        other = await self._holding.lease.call(lambda: start_other(tools.database, tools.definitions, hold.view, work))
        if work.waits and other.problem is None:
            await self._drive_within(work.run_id)
            async with tools.database.connection() as connection:
                other = await look(connection, work.run_id)

        def settled(transition: Transition, step: StepRow, _: ActivePolicy) -> Next:
            return waiting.started(transition, replace(work, step=step), other, new_nonce)

        return await self._holding.commit(settled)

    async def _drive_within(self, run_id: UUID) -> None:
        """Whatever goes wrong in there is that run's own; its leases expire like all others.

        They are not those of this step, so nothing in there is given up because this step's lease is over.
        """
        self._within = Drive(self._tools, patience=self._patience)
        try:
            while await self._within.run(Within(run_id)):
                continue
        except LostLease:
            raise
        except Exception as error:
            report("a run within another is left to its lease", error, run=str(run_id))
        finally:
            self._within = None

    async def _inquire(self, work: Inquire) -> Next:
        hold = self._holding.now()
        probe = await self._holding.lease.call(lambda: self._tools.calls.inquire(work))

        def answered(transition: Transition, step: StepRow, policy: ActivePolicy) -> Next:
            leaf = transition.graph.leaf(step.key)
            assert isinstance(leaf, OperationNode)
            place = (transition, step, leaf, work.operation, hold.workflow, policy, work.known, new_nonce)
            return inquired(Proposal(*place), work.receipt, probe)

        return await self._holding.commit(answered)
