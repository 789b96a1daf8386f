"""The pump of a run: puts all moves that are ready in this process into one append, in step order.

Steps of one super-step commute: no step changes what another reads before the barrier. So a decision on the cached view
stays valid while the run's gate has not moved, whatever others append meanwhile. A barrier must be based on all
appends. If this process holds all open steps, the barrier goes into their append. Otherwise the process whose append
leaves no step executing reads the book, and appends the barrier.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

import asyncpg
import structlog
from msgspec.structs import replace

from core.db import CLOCK_ERROR_MAX, Connection
from core.errors import ConsistencyError, CountersealError
from core.ids import new_nonce
from core.outage import is_away, report
from runtime.engine.book.barrier import step_order
from runtime.engine.book.instructions import Next, Over
from runtime.engine.life.proposal import Leased
from runtime.engine.life.step import begin
from runtime.engine.life.transition import Transition
from runtime.engine.model.graph import NeedsItems
from runtime.engine.model.rows import HELD, AskRow, Claim, StepRow
from runtime.engine.model.run import RunView
from runtime.engine.model.states import StepState
from runtime.store import approvals, claims
from runtime.store.commits import Applied, apply, landed
from runtime.store.offload import LONG, offload
from runtime.store.views import load
from runtime.work.committer import WorkerDeps
from runtime.work.lease import CachedRun, Lease, LostLease, Move, Moved, Sent, meet

log = structlog.get_logger(__name__)

TOGETHER_MAX, CONFLICTS_MAX = 64, 20
# The time to wait before an append: the steps of a run end at almost the same moment, and can then share one append.
LINGER_SECONDS = 0.005


class _Refused(ConsistencyError):
    """The run has moved on, so the whole transaction is rolled back."""


class _Fault(ConsistencyError):
    """One of several moves cannot be built."""

    def __init__(self, move: Move, error: Exception) -> None:
        super().__init__(str(error))
        self.move, self.error = move, error


def _fault(move: Move, error: Exception, moves: Sequence[Move]) -> Exception:
    """Note which move an error belongs to, if there are several."""
    return error if len(moves) == 1 or isinstance(error, NeedsItems) else _Fault(move, error)


class Pump:
    """Makes this process's appends to one run, one by one. ``drives`` counts the run's steps in this process."""

    def __init__(self, deps: WorkerDeps, run_id: UUID) -> None:
        self._deps = deps
        self._run_id = run_id
        self.drives = 0
        self._ready: list[Move] = []
        self._all_ready = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._busy = False
        self._asks: list[AskRow] = []

    async def append(self, move: Move) -> Moved:
        """Append a move with all others that are ready. If the run executes one step, append at once, in this task."""
        met = self._deps.recent.get(self._run_id)
        if not self._busy and (met is None or met.view.run.executing <= 1):
            self._busy = True
            try:
                await self._append([move])
            finally:
                self._busy = False
                if self._ready:
                    self._go_on()
        else:
            self._ready.append(move)
            if len(self._ready) >= self.drives:
                self._all_ready.set()
            if not self._busy:
                self._go_on()
        return await move.done

    def _go_on(self) -> None:
        self._busy = bool(self._ready)
        if self._busy:
            self._writing = asyncio.get_running_loop().create_task(self._take())

    async def _take(self) -> None:
        met = self._deps.recent.get(self._run_id)
        if met is not None and met.view.run.executing > len(self._ready):
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    await self._all_ready.wait()
        self._all_ready.clear()
        moves, self._ready = self._ready[:TOGETHER_MAX], self._ready[TOGETHER_MAX:]
        try:
            await self._write(moves)
        finally:
            for move in moves:
                move.done.cancel()
            self._go_on()

    async def _write(self, moves: Sequence[Move]) -> None:
        """Append the moves. If one of them fails, the others are appended without it."""
        try:
            await self._append(moves)
        except _Fault as fault:
            fault.move.fail(fault.error)
            await self._write([move for move in moves if move is not fault.move])
        except Exception as error:
            left = [move for move in moves if not move.done.done()]
            if len(left) > 1 and not is_away(error):
                for move in left:
                    await self._write([move])
            for move in left:
                move.fail(error)

    async def _append(self, moves: Sequence[Move]) -> None:
        """Append on the cached view, or else on the book. Retries if PostgreSQL aborts this as a deadlock victim."""
        met, afresh = self._deps.recent.get(self._run_id), False
        if met is not None and not met.behind and not any(move.unanswered for move in moves):
            try:
                if await self._at_hand(met, moves):
                    return
            except NeedsItems:
                afresh = True
            except asyncpg.TransactionRollbackError:
                pass
        for _ in range(CONFLICTS_MAX):
            with suppress(_Refused, asyncpg.TransactionRollbackError):
                await self._on_the_book(moves, afresh=afresh)
                return
        raise CountersealError(f"Run {self._run_id} changed during every attempt to append to it.")

    async def _at_hand(self, met: CachedRun, moves: Sequence[Move]) -> bool:
        clock = met.clock
        if clock.error > CLOCK_ERROR_MAX:
            return False
        now = replace(met, view=replace(met.view, now=clock.now(), error=clock.error))
        sent = await offload(_weight(met), lambda: self._built(now, moves))
        if sent is None or (sent.commit.strict and met.drifted):
            return False
        try:
            applied = await self._deps.committer.apply(sent.commit)
        except Exception:
            sent.unanswered(moves)
            raise
        if applied is None:
            self._asks = sent.commit.asks
            return False
        met = self._done(sent, applied)
        if applied.executing == 0 and sent.commit.executing < 0 and not sent.commit.moves_gate:
            await self._barrier(sent.commit.gate)
        sent.settle(moves, met)
        return True

    def _built(self, met: CachedRun, moves: Sequence[Move]) -> Sent | None:
        """Build the append of these moves. None if the view shows that the lease of one of their steps is lost."""
        began = Lease.now()
        deps = self._deps
        place = (met.view, met.workflow.graph)
        ours, lease = met.connectors, deps.lease
        rates = ours.pace if ours.rates else None
        transition = Transition(
            *place, lease=lease, systems=ours.targets, ready=ours.ready, pace=rates, place=ours.place
        )
        works, held = dict[Claim, Next](), list[tuple[Move, StepRow]]()
        for move in moves:
            step = met.view.run.steps.get(move.claim.key)
            if step is None or step.status not in (StepState.READY, StepState.RUNNING):
                return None
            held.append((move, replace(step, lease_owner=self._deps.owner, lease_epoch=move.claim.epoch)))
        ordered = held if len(held) == 1 else sorted(held, key=lambda each: step_order(each[1]))
        for move, step in ordered:
            try:
                # READY: the step was just claimed; or its lease ran out, and is taken again to record a known outcome.
                begun = transition.started(step) if step.status is StepState.READY else step
                works[move.claim] = move.build(Leased(transition, begun, met.workflow, met.policy, new_nonce))
            except Exception as error:
                raise _fault(move, error, moves) from error
        for move, step in held:
            # As long as a step ends without calling an outside system, take the next one in the same append.
            try:
                while move.goes_on and isinstance(works[move.claim], Over):
                    following = transition.take(self._deps.owner, step.key)
                    if following is None:
                        break
                    step = following
                    works[move.claim] = begin(Leased(transition, following, met.workflow, met.policy, new_nonce))
            except Exception as error:
                raise _fault(move, error, moves) from error
        commit = transition.commit()
        commit.held, commit.strict = [move.claim for move in moves], commit.moves_gate or commit.recounted
        return Sent(met, transition, commit, works, began)

    async def _on_the_book(self, moves: Sequence[Move], *, afresh: bool) -> None:
        """Lock the run, read its book and append to that. Used after a lost race; with the lock, the next one is won.

        This finds an append that was applied although its answer was lost, and does not repeat it. A lease that ran out
        can still record a known outcome, and nothing else, if there is no newer lease.
        """
        deps, run_id, sent, left = self._deps, self._run_id, None, [*moves]
        try:
            async with deps.database.transaction() as connection:
                status = await claims.hold(connection, run_id, [move.claim for move in moves])
                met = await self._read(connection, lock=True, afresh=afresh)
                left = await self._settle_applied(connection, met, moves)
                for move in [*left]:
                    found, step = status.get(move.claim.id), met.view.run.steps.get(move.claim.key)
                    ours = found == HELD or (move.known and found is not None)
                    over = step is None or step.status not in (StepState.READY, StepState.RUNNING)
                    if over or not ours:
                        move.fail(LostLease())
                        left.remove(move)
                    move.goes_on &= found == HELD
                now = replace(met, view=await self._heeding(connection, met.view))
                sent = await offload(_weight(met), lambda: self._built(now, left), connection) if left else None
                if sent is not None:
                    sent.commit.held = []  # checked under lock above; the guard would refuse a lease that ran out
                    if (applied := await apply(connection, sent.commit)) is None:
                        self._asks = sent.commit.asks
                        raise _Refused(f"Run {run_id} has moved on.")
        except (_Fault, _Refused, asyncpg.TransactionRollbackError):
            raise
        except Exception:
            if sent is not None:
                sent.unanswered(left)
            raise
        if sent is not None and applied is not None:
            sent.settle(left, self._done(sent, applied))
        elif _is_due(met):  # the last settle landed, and its answer was lost
            await self._barrier(met.view.gate)

    async def _heeding(self, connection: Connection, view: RunView) -> RunView:
        """The view with the refusals and open questions that the questions of the refused attempt depend on."""
        asks, self._asks = self._asks, []
        if not asks:
            return view
        keys, who = [one.key for one in asks], [one.asker for one in asks]
        found, opened = await approvals.refusals_and_counts(connection, view.tenant_id, keys, who)
        return replace(view, refusals=found, open_by=opened)

    async def _settle_applied(self, connection: Connection, met: CachedRun, moves: Sequence[Move]) -> list[Move]:
        """Settle the moves whose append was applied although its answer was lost; return the others."""
        for sent in {id(sent): sent for move in moves for sent in move.unanswered}.values():
            if await landed(connection, sent.commit):
                sent.settle(moves, met)
        return [move for move in moves if not move.done.done()]

    def _done(self, sent: Sent, applied: Applied) -> CachedRun:
        after, before = sent.transition.after(), sent.met
        drifted = applied.version != after.version  # and it stays so: versions only grow
        exact = before.exact if drifted else after
        return self._deps.recent.put(replace(before, exact=exact, view=after, seen=applied.version, drifted=drifted))

    async def _barrier(self, gate: int) -> None:
        """Append the barrier, unless somebody has. Needed if other processes had some of the super-step's steps.

        A crash before it leaves the barrier's row in ``queue``. When its lease runs out, the sweeper appends the
        barrier.
        """
        deps, afresh = self._deps, False
        try:
            for _ in range(CONFLICTS_MAX):
                async with deps.database.connection() as connection:
                    met = await self._read(connection, lock=False, afresh=afresh)
                if met.view.gate != gate or not _is_due(met):
                    return
                transition = Transition(met.view, met.workflow.graph, lease=deps.lease)
                try:
                    transition.left()
                except NeedsItems:
                    afresh = True
                    continue
                if (applied := await deps.committer.apply(transition.commit())) is not None:
                    after = transition.after()
                    deps.recent.put(replace(met, exact=after, view=after, seen=applied.version))
                    return
        except Exception as error:
            report("barrier not appended; the sweeper will append it", error, run=str(self._run_id))

    async def _read(self, connection: Connection, *, lock: bool, afresh: bool) -> CachedRun:
        """Read the run from its book."""
        deps, known = self._deps, self._deps.recent.get(self._run_id)
        before, graphs = None if known is None else known.exact, deps.definitions.graphs
        asked = time.monotonic()
        view = await load(connection, self._run_id, graphs, lock=lock, afresh=afresh, before=before)
        return deps.recent.put(await meet(connection, deps.definitions, deps.connectors, view, asked))


def _weight(met: CachedRun) -> int:
    """The weight of deciding a run's next moves, in lines. Heavy work is done in a thread, so the loop goes on."""
    return LONG + 1 if met.workflow.is_heavy or met.policy.is_heavy else met.lines


def _is_due(met: CachedRun) -> bool:
    """True if all steps of the super-step have left, but its barrier is not crossed yet."""
    run = met.view.run
    return run.width > 0 and run.executing == 0 and not run.finished
