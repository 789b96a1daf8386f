"""Driving one leased step, and the steps after it, until the run waits (run to wait).

Pure code decides everything, on a view of the run. This module only reads, commits and calls connectors, in that order.
No transaction is open during a call, and the outcome of one call is recorded before the next.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

import asyncpg
import structlog
from msgspec.structs import replace

from connectors.masking import Secrets
from connectors.port import Before, InDoubt, NotSent
from core.clock import Patience
from core.errors import CountersealError
from core.ids import new_nonce
from core.outage import is_passing, report
from runtime.engine.book.instructions import (
    Inquire,
    Known,
    LookUp,
    Next,
    Over,
    Perform,
    ReadBefore,
    ReadChat,
    Resolve,
    StartRun,
    TakeTurn,
    known_of,
)
from runtime.engine.life import records, waits
from runtime.engine.life.doubt import SEND_WITHIN, inquired
from runtime.engine.life.outcome import unsent
from runtime.engine.life.preflight import await_turn, put_off
from runtime.engine.life.proposal import Leased
from runtime.engine.life.step import begin, settle
from runtime.engine.model.graph import OperationNode
from runtime.engine.model.rows import Claim, StepRow
from runtime.engine.model.states import EffectState, StepState
from runtime.store import claims, effects, turns
from runtime.store.records import RecordRefused
from runtime.work.calling import Calling, inquire, read_before
from runtime.work.holding import Tools, claim_of, note_busy, read_claimed
from runtime.work.lease import Build, HeldStep, Holder, Lease, LostLease
from runtime.work.other_runs import look, start_other
from runtime.work.pump import CONFLICTS_MAX
from runtime.work.setbacks import is_suspect, set_back

log = structlog.get_logger(__name__)


class Drive:
    """Drives a claimed step, and the steps that follow under its lease. ``held`` is None between steps."""

    def __init__(self, tools: Tools, patience: Patience | None = None) -> None:
        self._tools = tools
        self._patience = patience or Patience()
        self._within: Drive | None = None
        self._holding = Holder(tools.lease, self._patience)

    @property
    def held(self) -> StepRow | None:
        """The leased step."""
        return self._holding.step

    @property
    def leased(self) -> list[tuple[UUID, Claim]]:
        """Every lease that is held here, with its run; also those of a child that is driven within this run."""
        hold = self._holding.hold
        own = [(hold.view.run_id, hold.claim)] if hold is not None else []
        return own + (self._within.leased if self._within is not None else [])

    def beaten(self, claim: Claim, began: float, *, ours: bool) -> bool:
        """Take in the answer of a heartbeat, sent at ``began``, about a lease. True if a call under it is given up.

        A lease that is not ours any more while nothing is called was most often just ended by our own append.
        """
        within = self._within is not None and self._within.beaten(claim, began, ours=ours)
        hold, lease = self._holding.hold, self._holding.lease
        if hold is None or hold.claim != claim:
            return within
        if ours:
            lease.renewed(began)
        return not ours and lease.lost()

    async def run(self, record: asyncpg.Record, began: float, answered: float | None = None) -> None:
        """Begin the claimed step, and go on until the run waits or ends.

        The claim was sent at ``began``. Its answer arrived at ``answered``, or just now.
        """
        run_id, (claim, owner) = UUID(record["run"]["run_id"]), claim_of(record)
        structlog.contextvars.bind_contextvars(tenant=record["run"]["tenant_id"])  # for all lines about it
        pump = self._tools.pump(run_id)
        pump.drives += 1
        try:
            going: Awaitable[Next] = self._begin(record, claim, began, answered)
            while True:
                try:
                    work = await going
                except RecordRefused:  # this step fails, and nothing else does
                    work = await self._holding.commit(refused)
                if isinstance(work, Over):
                    break
                going = self._CARRY_OUT[type(work)](self, work)
        except LostLease:
            log.warning("lease lost", run=str(run_id), step=self.held.key if self.held else claim.key)
        except Exception as error:
            if is_passing(error):
                raise
            hold = self._holding.hold
            if hold is not None:
                claim = hold.claim
            async with self._tools.database.transaction() as connection:
                await set_back(connection, self._tools.definitions, run_id, claim, owner, error)
        finally:
            self._holding.hold = None
            pump.drives -= 1

    async def _begin(self, record: asyncpg.Record, claim: Claim, began: float, answered: float | None) -> Next:
        """Propose, decide and intend. A crash before the append leaves only a lease, which runs out."""
        tools = self._tools
        claimed = (tools.database, record, tools.definitions, tools.connectors, tools.recent, began, answered)
        met, step, known = await read_claimed(*claimed)
        if step.status is not StepState.READY:
            raise LostLease
        self._holding.begin(HeldStep(met, step, claim, began, tools.pump(met.view.run_id).append))
        if tools.rehearse is not None and is_suspect(step):
            rehearse = partial(tools.rehearse, met.view.tenant_id, met.view.run_id, claim, tools.owner)
            await self._holding.lease.call(rehearse)

        def begun(leased: Leased) -> Next:
            return begin(leased.knowing(known))

        return await self._holding.commit(begun)

    async def _read_before(self, work: ReadBefore) -> Next:
        found = await self._holding.lease.call(lambda: read_before(self._holding.now().met.connectors, work))
        if isinstance(found, NotSent | InDoubt):
            delay = found.retry_after_seconds
            await note_busy(self._tools, self._holding.now().met, work.operation, work.call, delay)
        # What was read stays as it is, because a reversal writes it back; the words of a failure are shown.
        read = found if isinstance(found, Before) else Secrets.of(work.operation, work.call.input).failure(found)
        chance = random.random()

        def proceed(leased: Leased) -> Next:
            if isinstance(read, Before):
                return begin(leased.knowing(replace(work.known, before=read)))
            perform = Perform(leased.step, work.operation, work.call, None)
            settle(leased.transition, perform, read, nonce=new_nonce, chance=chance)
            return Over()

        return await self._or_anew(proceed)

    async def _resolve(self, work: Resolve) -> Next:
        """Ask Slack who is in its groups. If Slack is away, put the step off."""
        found_in = self._tools.slack
        slack = None if found_in is None else found_in(self._holding.now().view.tenant_id)
        found = {} if slack is None else await self._holding.lease.call(lambda: slack.members(work.groups))

        def proceed(leased: Leased) -> Next:
            if found is not None:
                return begin(leased.knowing(replace(work.known, slack=found)))
            put_off(leased.transition, leased.step)
            return Over()

        return await self._or_anew(proceed)

    async def _or_anew(self, proceed: Build) -> Next:
        """Commit ``proceed``. If another run has moved the shared effect meanwhile, begin the step anew instead."""

        def anew(leased: Leased) -> Next:
            return begin(leased.knowing(known_of(leased.transition.run, leased.step.key)))

        try:
            return await self._holding.commit(proceed)
        except asyncpg.UniqueViolationError:
            return await self._holding.commit(anew)

    async def _take_turn(self, work: TakeTurn) -> Next:
        """Take the step's turn at a target with a rate.

        A crash before the intent loses at most this turn: it counts for a minute, and the step's next lease takes one
        of its own, or finds the one that is kept for it. Nothing was sent.
        """
        hold = self._holding.now()
        async with self._tools.database.connection() as connection:
            delay = await turns.take(connection, hold.view.tenant_id, *work.pace, hold.step.step_id)

        def proceed(leased: Leased) -> Next:
            if delay <= 0:
                return begin(leased.knowing(replace(work.known, turn=True)))
            await_turn(leased.transition, leased.step, work.pace, delay)
            return Over()

        return await self._or_anew(proceed)

    async def _look_up(self, work: LookUp) -> Next:
        hold, graphs = self._holding.now(), self._tools.definitions.graphs
        for _ in range(CONFLICTS_MAX):
            async with self._tools.database.connection() as connection:
                place = (connection, graphs, hold.view.tenant_id)
                shared = await effects.by_key(*place, work.idempotency_key)
                if work.earlier is not None and (shared is None or shared.life is EffectState.FAILED):
                    before = await effects.by_key(*place, work.earlier)
                    shared = shared if before is None or (shared and before.life is EffectState.FAILED) else before
            receipt = None if shared is None else shared.receipt
            known = replace(work.known, receipt=receipt, receipt_checked=True, shared=shared)

            def proceed(leased: Leased, known: Known = known) -> Next:
                return begin(leased.knowing(known))

            try:
                return await self._holding.commit(proceed)
            except asyncpg.UniqueViolationError:
                continue  # another run has just intended this effect: look it up again
        raise CountersealError(f"The effect {work.idempotency_key} changed during every attempt to look it up.")

    async def _perform(self, work: Perform) -> Next:
        hold, lease, now = self._holding.hold, self._holding.lease, Lease.now()
        assert hold is not None, "what is to be performed is held"
        # Send what was intended only if the lease is still ours, and the intent fresh.
        fresh = now < lease.until and now <= hold.began + SEND_WITHIN.total_seconds()
        if work.receipt is not None and not fresh:

            def kept_back(leased: Leased) -> Next:
                unsent(leased.transition, replace(work, step=leased.step))
                return Over()

            return await self._holding.commit(kept_back, known=True)
        return await Calling(self._tools, self._patience, self._holding, hold, work).perform()

    async def _read_chat(self, work: ReadChat) -> Next:
        """Read what the model has said and was told so far."""
        hold = self._holding.now()
        async with self._tools.database.connection() as connection:
            place = (hold.view.run_id, hold.view.run.run_key, work.agent)
            known = replace(work.known, chat=await self._tools.chats.read(connection, *place))

        def proceed(leased: Leased) -> Next:
            return begin(leased.knowing(known))

        return await self._or_anew(proceed)

    async def _start_run(self, work: StartRun) -> Next:
        """Start the other run. If the step waits for it, drive it here at once, until it waits or ends."""
        hold, tools = self._holding.now(), self._tools
        other = await self._holding.lease.call(lambda: start_other(tools.database, tools.definitions, hold.view, work))
        if work.waits and other.problem is None:
            await self._drive_within(work.run_id)
            async with tools.database.connection() as connection:
                other = await look(connection, work, tools.definitions)

        def settled(leased: Leased) -> Next:
            return waits.started(leased.transition, replace(work, step=leased.step), other, new_nonce)

        return await self._holding.commit(settled)

    async def _drive_within(self, run_id: UUID) -> None:
        """Drive the steps of a child. An error in it does not fail this step: the child is left to its leases.

        The child's steps have leases of their own, so they go on even if this step's lease is lost.
        """
        tools = self._tools
        self._within = Drive(tools, self._patience)
        try:
            while True:
                began = Lease.now()
                async with tools.database.connection() as connection:
                    records = await claims.claim_of_run(connection, tools.owner, tools.lease, run_id)
                if not records:
                    return
                await self._within.run(records[0], began)
        except Exception as error:
            report("child run abandoned until its lease runs out", error, run=str(run_id))
        finally:
            self._within = None

    async def _inquire(self, work: Inquire) -> Next:
        asked = await self._holding.lease.call(lambda: inquire(self._holding.now().met.connectors, work))
        await note_busy(self._tools, self._holding.now().met, work.operation, work.call, asked.busy_seconds)
        probe = Secrets.of(work.operation, work.call.input).probe(asked)

        def answered(leased: Leased) -> Next:
            leaf = leased.performs()
            assert isinstance(leaf, OperationNode)
            return inquired(leased.knowing(work.known).proposal(leaf), work.receipt, probe)

        return await self._holding.commit(answered)

    _CARRY_OUT: ClassVar[Mapping[type[Next], Callable[[Drive, Any], Awaitable[Next]]]] = {
        TakeTurn: _take_turn,
        ReadBefore: _read_before,
        LookUp: _look_up,
        ReadChat: _read_chat,
        Resolve: _resolve,
        Perform: _perform,
        Inquire: _inquire,
        StartRun: _start_run,
    }


def refused(leased: Leased) -> Next:
    """Fail a step whose record is not as it expects."""
    records.refused(leased.transition, leased.step)
    return Over()
