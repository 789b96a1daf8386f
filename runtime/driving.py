"""Driving one leased step, and the steps after it, until the run waits (run to wait, X-6).

Everything that is decided is decided by pure code on a view; this module reads, commits and calls connectors, in that
order. No transaction is open during a call, and no outcome stays unrecorded across one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import structlog

from approvals.model import ApprovalKind, Choice
from connectors.port import Before
from connectors.registry import Connectors
from core.clock import DatabaseClock
from core.db import Connection, Database
from core.errors import CountersealError
from core.ids import new_nonce
from runtime.calling import Calls
from runtime.definition.active_policy import ActivePolicy
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import Workflow
from runtime.governance import settling
from runtime.governance.moves import Given, Inquire, Known, LookUp, Next, Over, Perform, ReadBefore
from runtime.governance.proposing import begin
from runtime.kernel.commit import StepRow
from runtime.kernel.transition import NeedsWholeView, RunView, Transition
from runtime.queue.port import Delivery
from runtime.store import receipts
from runtime.store.commits import apply
from runtime.store.views import load, run_view, step_row

log = structlog.get_logger(__name__)

CONFLICTS_MAX = 20

Build: TypeAlias = Callable[[Transition, StepRow, ActivePolicy], Next]


class LostLease(Exception):
    """Somebody else has the step, or it is over: nothing that we know about it may be written."""


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


@dataclass
class _Hold:
    """The step that is held right now; the worker's heartbeat reads it."""

    view: RunView
    step: StepRow
    workflow: Workflow
    policy: ActivePolicy
    clock: DatabaseClock

    def view_now(self) -> RunView:
        """The view, at the time that it is by now."""
        return replace(self.view, now=self.clock.now())


class Drive:
    """One delivery being worked off. ``held`` is the step whose lease must be kept alive, None between steps.

    ``claimed`` is called when there was something to claim: there may be more.
    """

    def __init__(self, tools: Tools, claimed: Callable[[], None] = lambda: None) -> None:
        self._tools = tools
        self._claimed = claimed
        self._hold: _Hold | None = None

    @property
    def held(self) -> StepRow | None:
        """The leased step."""
        return self._hold.step if self._hold else None

    async def run(self, delivery: Delivery) -> bool:
        """Claim and go on until the run waits or ends; False if there was nothing to claim."""
        work = await self._claim(delivery)
        if work is None:
            return False
        self._claimed()
        try:
            while not isinstance(work, Over):
                work = await self._carry_out(work)
        except LostLease:
            log.warning("lease lost", step=str(self.held.step_id) if self.held else None)
        finally:
            self._hold = None
        return True

    async def _claim(self, delivery: Delivery) -> Next | None:
        """Claim, propose, decide and intend in one transaction. A crash inside it leaves the command pending."""
        tools = self._tools
        async with tools.database.transaction() as connection:
            record = await delivery.claim(connection, tools.owner, tools.lease)
            if record is None:
                return None
            view, step, known = await _claimed(connection, record)
            workflow = await tools.definitions.workflow(
                connection, view.tenant_id, view.workflow, view.workflow_version, view.workflow_digest
            )
            policy = await tools.definitions.policy(connection, view.tenant_id, view.policy_digest)
            try:
                transition, work = self._begin(view, step, workflow, policy, known)
            except NeedsWholeView:
                view, _ = await load(connection, view.run_id, [step.key])
                transition, work = self._begin(view, view.steps[step.key], workflow, policy, known)
            if not await apply(connection, transition.commit()):
                raise LostRace("The tenant's policy changed while a step was being claimed.")
        self._keep(transition, workflow, policy, work, DatabaseClock(view.now))
        return work

    def _begin(
        self, view: RunView, step: StepRow, workflow: Workflow, policy: ActivePolicy, known: Known
    ) -> tuple[Transition, Next]:
        transition = Transition(view, workflow.graph, lease=self._tools.lease)
        step = transition.started(step)
        work = begin(transition, step, workflow, policy, known, new_nonce)
        return transition, self._go_on(transition, work, workflow, policy)

    def _go_on(self, transition: Transition, work: Next, workflow: Workflow, policy: ActivePolicy) -> Next:
        """While a step is over without touching the outside, take the next one in the same transaction."""
        while isinstance(work, Over):
            following = transition.take(self._tools.owner)
            if following is None:
                return work
            work = begin(transition, following, workflow, policy, Known(), new_nonce)
        return work

    def _keep(
        self, transition: Transition, workflow: Workflow, policy: ActivePolicy, work: Next, clock: DatabaseClock
    ) -> None:
        self._hold = None if isinstance(work, Over) else _Hold(transition.after(), work.step, workflow, policy, clock)

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
        """Apply a transition to the held step: on the view at hand first, then on a fresh one (V-7)."""
        hold = self._holding()
        try:
            transition = Transition(hold.view_now(), hold.workflow.graph, lease=self._tools.lease)
            work = self._go_on(transition, build(transition, hold.step, hold.policy), hold.workflow, hold.policy)
            async with self._tools.database.connection() as connection:
                if await apply(connection, transition.commit()):
                    self._keep(transition, hold.workflow, hold.policy, work, hold.clock)
                    return work
        except NeedsWholeView:
            pass
        for attempt in range(CONFLICTS_MAX):
            done = await self._commit_fresh(build, lock=attempt > 0)
            if done is not None:
                return done
        raise CountersealError(f"Run {hold.view.run_id} moves too fast to commit to.")

    async def _commit_fresh(self, build: Build, *, lock: bool) -> Next | None:
        hold, tools = self._holding(), self._tools
        async with tools.database.transaction() as connection:
            view, _ = await load(connection, hold.view.run_id, [hold.step.key], lock=lock)
            step = view.steps.get(hold.step.key)
            if step is None or step.lease_owner != tools.owner or step.lease_epoch != hold.step.lease_epoch:
                raise LostLease
            policy = await tools.definitions.policy(connection, view.tenant_id, view.policy_digest)
            transition = Transition(view, hold.workflow.graph, lease=tools.lease)
            work = self._go_on(transition, build(transition, step, policy), hold.workflow, policy)
            if not await apply(connection, transition.commit()):
                return None
        self._keep(transition, hold.workflow, policy, work, DatabaseClock(view.now))
        return work

    def _holding(self) -> _Hold:
        if self._hold is None:
            raise LostLease
        return self._hold

    async def _read_before(self, work: ReadBefore) -> Next:
        hold = self._holding()
        read = await self._tools.calls.read_before(work)
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
        outcome = await self._tools.calls.perform(work)
        chance = random.random()

        def settled(transition: Transition, step: StepRow, _: ActivePolicy) -> Next:
            settling.performed(transition, replace(work, step=step), outcome, nonce=new_nonce, chance=chance)
            return Over()

        return await self._commit(settled)

    async def _inquire(self, work: Inquire) -> Next:
        probe = await self._tools.calls.inquire(work)

        def inquired(transition: Transition, step: StepRow, _: ActivePolicy) -> Next:
            return settling.inquired(transition, replace(work, step=step), probe, nonce=new_nonce)

        return await self._commit(inquired)


async def _claimed(connection: Connection, record: asyncpg.Record) -> tuple[RunView, StepRow, Known]:
    """What a claim returned, as values."""
    step = step_row(record["step"])
    if record["state"] is None:
        # The claim waited for another commit of this run, whose checkpoint its snapshot did not see yet.
        view, _ = await load(connection, UUID(record["run"]["run_id"]), [step.key])
    else:
        view = run_view(record, whole=False, steps={step.key: step})
    receipt = receipts.receipt_row(record["receipt"]) if record["receipt"] else None
    given = _given(record["approval"]) if record["approval"] else None
    return view, step, Known(receipt=receipt, given=given)


def _given(item: Mapping[str, Any]) -> Given:
    """An approval that was given, from its row as JSON."""
    return Given(
        approval_id=UUID(item["approval_id"]),
        kind=ApprovalKind(item["kind"]),
        digest=item["action_digest"],
        choice=Choice(item["choice"]),
        reason=item["reason"] or "",
    )
