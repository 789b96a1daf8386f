"""What a worker holds, and the commits that settle it: on the view at hand first, then on a fresh one (V-7)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TypeAlias

import asyncpg
import structlog

from connectors.registry import Connectors
from core.clock import DatabaseClock
from core.db import Connection, Database
from core.errors import CountersealError
from core.ids import new_nonce
from runtime.definition.catalog import Definitions
from runtime.engine.active_policy import ActivePolicy
from runtime.engine.commit import Commit, StepRow
from runtime.engine.doubt import SEND_WITHIN
from runtime.engine.moves import Known, Next, Over
from runtime.engine.plan import NeedsItems
from runtime.engine.proposing import begin
from runtime.engine.states import StepState
from runtime.engine.transition import RunView, Transition
from runtime.engine.workflow import Workflow
from runtime.store import claims
from runtime.store.commits import apply, landed
from runtime.store.views import load
from runtime.work.calling import Calls
from runtime.work.claiming import Recent
from runtime.work.committing import Committer
from runtime.work.leasing import Hold, Lease, LostLease
from runtime.work.patience import Patience
from runtime.work.setbacks import is_away, is_passing

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

    @cached_property
    def recent(self) -> Recent:
        """The runs that this worker met last."""
        return Recent()


@dataclass(frozen=True, slots=True)
class _Sent:
    """A commit that was sent to PostgreSQL, and what is done next if it was applied."""

    transition: Transition
    commit: Commit
    hold: Hold
    work: Next


class _Refused(Exception):
    """The run has moved on under a transaction that is to be undone whole."""


class Holding:
    """One leased step at a time, None between steps, and its lease."""

    def __init__(self, tools: Tools, patience: Patience) -> None:
        self._tools = tools
        self._patience = patience
        self._unanswered: list[_Sent] = []
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

    def may_send(self) -> bool:
        """Whether what was intended may still go out: its lease is ours, and its intent is of just now."""
        return self.lease.is_ours() and Lease.now() <= self.now().began + SEND_WITHIN.total_seconds()

    def go_on(self, transition: Transition, work: Next, workflow: Workflow, policy: ActivePolicy) -> Next:
        """While a step is over without touching the outside, take the next one in the same transaction."""
        while isinstance(work, Over):
            following = transition.take(self._tools.owner)
            if following is None:
                return work
            work = begin(transition, following, workflow, policy, Known(), new_nonce)
        return work

    def begin(self, hold: Hold) -> None:
        """Hold what has just been claimed."""
        self.hold = hold
        self.lease.taken(hold.began)

    async def commit(self, build: Build, *, known: bool = False) -> Next:
        """Apply a transition to the held step and begin the next with it; a fault of that one costs this nothing.

        While PostgreSQL is away it is tried again, until the process ends: what is known is not dropped. ``known`` says
        that the transition records an outcome, which also a lease that is over does, as long as nobody has a newer one.
        A crash meanwhile leaves the step to its lease, and the outcome in doubt.
        """
        self._unanswered.clear()
        try:
            return await self._commit_in_the_end(build, known=known)
        finally:
            self._patience.told(self)

    async def _commit_in_the_end(self, build: Build, *, known: bool) -> Next:
        goes_on, tries = True, 0
        while True:
            try:
                return await self._commit_until(build, goes_on=goes_on, known=known)
            except LostLease:
                raise
            except Exception as error:
                if is_away(error):
                    await self._patience.pause(self, tries, error, self.step)
                    tries += 1
                elif is_passing(error) or not goes_on:
                    raise
                else:
                    log.warning("a step is settled without going on to the next", reason=str(error))
                    goes_on = False

    async def _commit_until(self, build: Build, *, goes_on: bool, known: bool) -> Next:
        """On the view at hand first, then on a fresh one (V-7). Whom PostgreSQL chose to end a deadlock tries again."""
        hold = self.now()
        if not self._unanswered:
            with suppress(NeedsItems, asyncpg.TransactionRollbackError):
                work = await self._commit_at_hand(hold, build, goes_on=goes_on)
                if work is not None:
                    return work
        for _ in range(CONFLICTS_MAX):
            with suppress(_Refused, asyncpg.TransactionRollbackError):
                return await self._commit_fresh(hold, build, goes_on=goes_on, known=known)
        raise CountersealError(f"Run {hold.view.run_id} moves too fast to commit to.")

    async def _commit_at_hand(self, hold: Hold, build: Build, *, goes_on: bool) -> Next | None:
        began = Lease.now()
        sent = self._built(replace(hold, view=hold.view_now(), began=began), build, goes_on=goes_on)
        try:
            applied = await self._tools.committer.apply(sent.commit)
        except Exception:
            self._unanswered.append(sent)
            raise
        return self._done(sent) if applied else None

    async def _commit_fresh(self, hold: Hold, build: Build, *, goes_on: bool, known: bool) -> Next:
        """On the run as it is now, which is locked: whoever is here has lost a race, and is to win the next one.

        What was applied although its answer was lost is found here, and not done again.
        """
        sent: _Sent | None = None
        try:
            async with self._tools.database.transaction() as connection:
                status = await claims.hold(connection, hold.view.run_id, hold.claim)
                view = await load(
                    connection,
                    hold.view.run_id,
                    self._tools.definitions.graphs,
                    lock=True,
                    before=self._tools.recent.get(hold.view.run_id),
                )
                for before in self._unanswered:
                    if await landed(connection, before.commit):
                        return self._done(before)
                # A lease that ran out, and of which nobody has a newer one, is good for what is known, nothing else.
                if status != "leased" and not (known and status):
                    raise LostLease
                fresh = await self._fresh(connection, view, hold)
                sent = self._built(fresh, build, goes_on=goes_on and status == "leased")
                if not await apply(connection, sent.commit):
                    raise _Refused
        except (LostLease, _Refused, asyncpg.TransactionRollbackError):
            raise
        except Exception:
            if sent is not None:
                self._unanswered.append(sent)
            raise
        return self._done(sent)

    async def _fresh(self, connection: Connection, view: RunView, hold: Hold) -> Hold:
        """The held step, on the run as it is now. ``LostLease`` if the step is over, or waits."""
        tools, began, step = self._tools, Lease.now(), view.steps.get(hold.step.key)
        if step is None or step.status not in (StepState.READY, StepState.RUNNING):
            raise LostLease
        step = replace(step, lease_owner=tools.owner, lease_epoch=hold.claim.epoch)
        policy = await tools.definitions.policy(connection, view.tenant_id, view.policy_digest)
        # The graph may have been extended since.
        workflow = await tools.definitions.of_run(connection, view)
        return Hold(view, step, hold.claim, workflow, policy, DatabaseClock(view.now), began)

    def _built(self, hold: Hold, build: Build, *, goes_on: bool) -> _Sent:
        transition, step = Transition(hold.view, hold.workflow.graph, lease=self._tools.lease), hold.step
        if step.status is StepState.READY:
            # It was claimed just now; or its lease ran out, and is taken back for what is known.
            step = transition.started(step)
        work = build(transition, step, hold.policy)
        work = self.go_on(transition, work, hold.workflow, hold.policy) if goes_on else work
        commit = transition.commit()
        commit.held = hold.claim
        return _Sent(transition, commit, hold, work)

    def _done(self, sent: _Sent) -> Next:
        """Remember what is held after a commit; the lease goes on with its worker, and is new for a step that is."""
        hold, work = sent.hold, sent.work
        before, after = self.step, self._tools.recent.put(sent.transition.after())
        if isinstance(work, Over):
            self.hold = None
            return work
        claim = replace(hold.claim, key=work.step.key, epoch=work.step.lease_epoch)
        self.hold = replace(hold, view=after, step=work.step, claim=claim)
        if before is None or before.step_id != work.step.step_id:
            self.lease.taken(hold.began)
        return work
