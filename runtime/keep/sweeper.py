"""The sweeper: repairs what a crash or a lost wake-up has left, and does what the passing of time makes due.

It handles expired leases, due retries, the ladder of open questions (remind, escalate, expire), unfinished messages and
queue messages, runs whose retention is over, and leaves of logs that have no place yet. Each repair is a transaction of
its own, which decides again under the run's lock, so any number of sweepers do no harm. An idle sweep is one statement.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from approvals.model import ApprovalKind, ApprovalStatus
from core.clock import repeat
from core.db import Connection, Database
from core.outage import is_away, is_passing, report
from evidence.receipts import ReceiptStatus
from runtime.definition.catalog import Definitions
from runtime.definition.reserved import POLICY_CHANGE
from runtime.engine.book.draft import BARRIER, ENGINE
from runtime.engine.book.instructions import last_receipt, open_wait
from runtime.engine.life import doubt, waits
from runtime.engine.life.preflight import PROPOSAL
from runtime.engine.life.transition import Transition
from runtime.engine.model.errors import SENT, UNDELIVERED, ErrorClass, StepError
from runtime.engine.model.events import (
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    WaitPostponed,
    WaitTimedOut,
)
from runtime.engine.model.graph import NO_GRAPH
from runtime.engine.model.rows import Claim, StepRow, WaitRow
from runtime.engine.model.states import StepState, WaitKind
from runtime.keep.dispatcher import Lanes
from runtime.keep.erasing import Stores, purge
from runtime.keep.reviewing import follow, review_question
from runtime.requests.scheduling import fire
from runtime.requests.sharing import wake
from runtime.requests.signaling import Signaling
from runtime.requests.windows import end_window
from runtime.store import approvals, logs, sweeps
from runtime.store.commits import apply
from runtime.store.inbox import StoredSignal
from runtime.store.views import load, load_to_end
from runtime.work.setbacks import PAUSE, leased, release_expired, set_back_wait

log = structlog.get_logger(__name__)

# The time after an outage of PostgreSQL during which no lease is taken away: its worker may only have been unable to
# extend it, and have outcomes to record.
SPARED_SECONDS = 5.0


# The time that a repair waits for a lock as long as other repairs have not had their turn. A commit takes less.
FREE_SECONDS = 0.05

# The database's clock counts as gone back if since the last sweep it is behind ours by more than this.
BACK = timedelta(seconds=2)

# The overlap of looks for moved heads of books, because a line may have an earlier time than that of its append.
HEADS = timedelta(minutes=10)

# The interval at which all kept signals are checked, and not only the newest.
WHOLE_SECONDS = 60.0


class Repair(Struct, frozen=True):
    """One repair: its run, if any, and its function, whose database waits for locks as long as there is time."""

    run_id: UUID | None
    make: Callable[[Database], Awaitable[int]]


class Sweeper(Struct):
    """Sweeps every ``interval``. Stateless: everything it does is derived from the database.

    ``stores`` gives the store of a tenant's evidence; without it no evidence was ever written.

    ``lease`` is the duration of workers' leases: a lease that ends later was taken before the database's clock went
    back.
    """

    database: Database
    definitions: Definitions
    interval: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=30)
    stores: Stores | None = None
    _whole_at: float = 0.0
    _spared_until: float = 0.0
    _clock: tuple[datetime, float] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep until ``stop`` is set. A sweep with a full batch is followed by the next one at once.

        Long repairs go on in lanes of their own, so that nobody's timers wait for them (promise 9).
        """
        lanes = Lanes()

        async def turn() -> bool:
            try:
                return await self.turn(lanes) >= sweeps.BATCH
            except Exception as error:
                if is_away(error):
                    self._spared_until = asyncio.get_running_loop().time() + SPARED_SECONDS
                raise

        try:
            await repeat(stop, turn, self.interval.total_seconds(), "a sweep failed", woken=lanes.done)
        finally:
            await lanes.end()

    async def turn(self, lanes: Lanes) -> int:
        """Make the due repairs, and let ``lanes`` begin long ones. Return the number of due repairs."""
        due = await self._due()
        lanes.begin("consequences", partial(self._consequences, due.changed), due.changed)
        lanes.begin("purges", partial(self._purges, due.purges), due.purges)
        lanes.begin("log", partial(self._ordered, due.unordered), due.unordered)
        return await self._repaired(due)

    async def sweep(self) -> int:
        """Make all due repairs; return their number."""
        due = await self._due()
        count = await self._repaired(due)
        await self._ordered(due.unordered)
        return count + await self._consequences(due.changed) + await self._purges(due.purges)

    async def _due(self) -> sweeps.Due:
        now = asyncio.get_running_loop().time()
        whole = now >= self._whole_at
        async with self.database.connection() as connection:
            due = await sweeps.due(connection, self.lease, whole=whole)
            back = self._clock is not None and due.now + BACK < self._clock[0] + timedelta(seconds=now - self._clock[1])
            if whole or back:
                moved = await sweeps.begin_anew(connection, seen=back)
                if moved or back:
                    log.warning("the database's clock has gone back; what is timed begins anew", moved=moved)
            if whole:  # what moved while no keeper looked, too: at the start that may be long ago
                since = timedelta(seconds=now - self._whole_at) + HEADS if self._whole_at else None
                await logs.note_moved(connection, since)
        self._clock = due.now, now
        if whole:
            self._whole_at = now + WHOLE_SECONDS
        return due

    async def _repaired(self, due: sweeps.Due) -> int:
        """Make the short repairs that are due, in one turn: first those whose rows are free, then the others.

        A vanished client may hold a run's lock until PostgreSQL notices; other runs do not wait for that.
        """
        grace = asyncio.get_running_loop().time() < self._spared_until
        waiting: list[Repair] = []
        count = due.freed
        for repair in self._repairs(due, leases=not grace):
            count += await self._guarded(repair, self.database.patient(FREE_SECONDS), waiting)
        until = asyncio.get_running_loop().time() + self.database.limits.lock
        for place, repair in enumerate(waiting):
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                log.info("runs are locked by others; retrying on next sweep", runs=len(waiting) - place)
                break
            count += await self._guarded(repair, self.database.patient(left / (len(waiting) - place)))
        return count

    def _repairs(self, due: sweeps.Due, *, leases: bool) -> Iterator[Repair]:
        for run_id, claim in due.leases if leases else ():
            yield Repair(run_id, partial(self._expire_lease, run_id, claim))
        for run_id, step_key, wait_id, age in due.waits:
            yield Repair(run_id, partial(self._end_wait, run_id, step_key, wait_id, age))
        for run_id in due.long_open:
            yield Repair(run_id, partial(self._seal, run_id))
        for tenant, key in due.untold:
            yield Repair(None, partial(wake, definitions=self.definitions, tenant=tenant, key=key))
        for place in due.windows:
            yield Repair(None, partial(self._end_window, place))
        for schedule in due.schedules:
            yield Repair(None, partial(self._fire, schedule, due.now))
        for approval_id in due.ended:
            yield Repair(None, partial(self._review, approval_id))
        for signal in due.signals:
            yield Repair(signal.run_id, partial(self._deliver, signal))

    async def _end_window(self, place: tuple[str, str, str], database: Database) -> bool:
        return await end_window(database, self.definitions, *place)

    async def _review(self, approval_id: UUID, database: Database) -> bool:
        return (await review_question(database, self.definitions, approval_id)).voided

    async def _fire(self, schedule: tuple[str, str], now: datetime, database: Database) -> bool:
        return await fire(database, self.definitions, *schedule, now)

    async def _deliver(self, signal: StoredSignal, database: Database) -> bool:
        return await Signaling(database, self.definitions).deliver(signal)

    async def _consequences(self, tenants: Sequence[str]) -> int:
        """Follow the changes in these tenants, one turn for each, so that each has its share."""
        count = 0
        for tenant in tenants:
            count += await self._guarded(Repair(None, partial(self._follow, tenant, len(tenants))), self.database)
        return count

    async def _follow(self, tenant: str, tenants: int, database: Database) -> int:
        async def end_wait(step: tuple[UUID, str, UUID]) -> int:
            return await self._guarded(Repair(step[0], partial(self._end_wait, *step, 0.0)), database)

        async def guard(repair: Awaitable[int]) -> int:
            return await self._guarded(Repair(None, lambda _: repair), database)

        most = max(1, sweeps.BATCH // tenants)
        moved, more = await follow(database, self.definitions, tenant, most, end_wait, guard)
        return sweeps.BATCH if more else moved  # there are more, so the next sweep follows at once

    async def _purges(self, runs: Sequence[UUID]) -> int:
        count = 0
        for run_id in runs:
            repair = partial(purge, definitions=self.definitions, run_id=run_id, stores=self.stores)
            count += await self._guarded(Repair(run_id, repair), self.database)
        return count

    async def _ordered(self, tenants: Sequence[str]) -> int:
        """Give the leaves of these tenants' logs their places. That is no repair, so it does not count."""

        async def order(tenant: str, database: Database) -> int:
            async with database.connection() as connection:
                return await logs.order(connection, tenant)

        for tenant in tenants:
            await self._guarded(Repair(None, partial(order, tenant)), self.database)
        return 0

    async def _guarded(self, repair: Repair, database: Database, waiting: list[Repair] | None = None) -> int:
        """Make one repair. A failure is logged, and does not stop the others.

        A repair that met a lock is appended to ``waiting``, if that is given.
        """
        try:
            return int(await repair.make(database))
        except asyncpg.LockNotAvailableError:
            if waiting is None:
                log.info("run locked by another transaction; retrying on next sweep", run=str(repair.run_id))
            else:
                waiting.append(repair)
        except asyncpg.TransactionRollbackError:
            log.info("run locked by another transaction; retrying on next sweep", run=str(repair.run_id))
        except Exception as error:
            report("repair failed; retrying on next sweep", error, run=str(repair.run_id))
        return 0

    async def _expire_lease(self, run_id: UUID, claim: Claim, database: Database) -> bool:
        """Take a dead worker's lease away. The worker that claims the step next finds out what became of its action."""
        async with database.transaction() as connection:
            owner = await sweeps.take_away(connection, run_id, claim)
            if owner is None:
                return False
            if claim.key == BARRIER:
                return await self._barrier(connection, run_id)
            graphs = self.definitions.graphs
            view = await load_to_end(connection, run_id, graphs, lock=True, leased=claim.key)
            transition = Transition(view, NO_GRAPH)
            step = leased(transition, claim, owner)
            if step is None:
                await sweeps.forget(connection, run_id, claim.key)
                return True
            release_expired(transition, step)
            return await apply(connection, transition.commit()) is not None

    async def _barrier(self, connection: Connection, run_id: UUID) -> bool:
        """Append a due barrier: the last step of the super-step has left, and the process that owed it is gone.

        The next super-step may need more items of a loop than the stored run has, so the whole book is read.
        """
        transition = await self._open(connection, run_id, afresh=True)
        if transition.run.executing or transition.run.finished:
            await sweeps.forget(connection, run_id, BARRIER)
            return True
        transition.left()
        return await apply(connection, transition.commit()) is not None

    async def _end_wait(self, run_id: UUID, step_key: str, wait_id: UUID, age: float, database: Database) -> bool:
        try:
            return await self._complete(run_id, step_key, wait_id, age, database)
        except Exception as error:
            if is_passing(error):
                raise
            async with database.transaction() as connection:
                await set_back_wait(connection, self.definitions, run_id, step_key, wait_id, error)
            return False

    async def _complete(self, run_id: UUID, step_key: str, wait_id: UUID, age: float, database: Database) -> bool:
        async with database.transaction() as connection:
            transition = await self._open(connection, run_id)
            step, wait = transition.view.run.steps.get(step_key), open_wait(transition.run, step_key)
            if step is None or wait is None or wait.wait_id != wait_id:
                return False
            match wait.kind:
                case WaitKind.APPROVAL:
                    seen = await approvals.posted(connection, UUID(str((wait.context or {})["approval"])))
                    _climb(transition, step, wait, age, seen)
                case WaitKind.RETRY | WaitKind.PAUSE:
                    transition.resume(step, wait)
                case _ if step.status is not StepState.WAITING:
                    # The step is still beginning its work outside; its worker decides what follows.
                    due = int(PAUSE.total_seconds())
                    transition.tell(WaitPostponed(wait.wait_id, wait.kind, due), step=step_key)
                case WaitKind.TIMER:
                    waits.complete(transition, step, wait, {"output": {}}, ENGINE)
                case _:
                    waits.time_out(transition, step, wait)
            return await apply(connection, transition.commit()) is not None

    async def _seal(self, run_id: UUID, database: Database) -> bool:
        """Seal an open run whose time for further steps is over."""
        async with database.transaction() as connection:
            transition = await self._open(connection, run_id)
            transition.seal(ENGINE)
            return await apply(connection, transition.commit()) is not None

    async def _open(self, connection: Connection, run_id: UUID, *, afresh: bool = False) -> Transition:
        view = await load(connection, run_id, self.definitions.graphs, lock=True, afresh=afresh)
        workflow = await self.definitions.of_run(connection, view.definition)
        return Transition(view, workflow.graph)


def _climb(transition: Transition, step: StepRow, wait: WaitRow, age: float, seen: bool) -> None:
    """Take the next rung of an unanswered question: remind, escalate, or expire. Time alone approves nothing.

    The rungs are counted from the question's start, ``age`` seconds ago. So an outage of the keepers postpones none of
    them, and once the last one is due, nobody is reminded any more.
    """
    context: dict[str, Any] = dict(wait.context or {})
    approval_id, ladder, index = UUID(context["approval"]), context["ladder"], context["next"]
    stage, at = ladder[index]
    if stage == "expire" or age >= ladder[-1][1]:
        _expire(transition, step, wait, approval_id, seen)
        return
    event = ApprovalReminded if stage == "remind" else ApprovalEscalated
    due = math.ceil(max(ladder[index + 1][1] - max(at, age), 0))
    transition.tell(event(approval_id, wait.wait_id, index + 1, due), step=step.key)
    transition.message(stage, approval_id, str(index))
    if stage == "escalate":
        transition.message("card", approval_id, f"escalated:{index}")


def _expire(transition: Transition, step: StepRow, wait: WaitRow, approval_id: UUID, seen: bool) -> None:
    unseen = not seen and not transition.run.answers[approval_id].delivered
    transition.tell(ApprovalExpired(approval_id, undelivered=unseen), step=step.key)
    transition.message("card", approval_id, ApprovalStatus.EXPIRED)
    if transition.view.workflow == POLICY_CHANGE:
        transition.message(PROPOSAL, approval_id, ApprovalStatus.EXPIRED)
    receipt, kind = last_receipt(transition.run, step.key), transition.run.approvals[approval_id].kind
    sentence = f"{UNDELIVERED} It was not done." if unseen else "Nobody decided in time, so it was not done."
    error = StepError(ErrorClass.TIMEOUT, "expired", sentence)
    if kind == ApprovalKind.IN_DOUBT and receipt is not None and receipt.status == ReceiptStatus.IN_DOUBT:
        doubt.given_up(transition, receipt, doubt.Found("nobody said what became of it in time", doubt.NOBODY))
        error = StepError(ErrorClass.TIMEOUT, "expired", "Nobody said in time what became of it.", SENT)
    waits.end_badly(transition, step, wait, WaitTimedOut, error.to_json())
