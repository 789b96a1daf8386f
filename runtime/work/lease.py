"""A lease: its run, the time until which it is surely ours, and the appends under it.

A worker that was stopped for a while (suspended, swapped out, starved) may have lost its lease without knowing it.
Meanwhile another worker may have found that nothing was sent, and have sent the call. So nothing goes out under a lease
that may be over, and a call is given up when a heartbeat finds that the lease is gone. The step's row has the last
word: a settle checks it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias, TypeVar
from uuid import UUID

import structlog
from msgspec import Struct
from msgspec.structs import replace

from connectors.of_tenants import TenantConnectors
from connectors.port import Connectors
from core.clock import Patience
from core.db import Connection, DatabaseClock
from core.outage import is_away, is_passing
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.engine.book.instructions import Next, Over
from runtime.engine.life.proposal import Leased
from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import Claim, Commit, StepRow
from runtime.engine.model.run import RunView
from runtime.engine.model.workflow import Workflow
from runtime.store.offload import work_units

log = structlog.get_logger(__name__)

Result = TypeVar("Result")


class LostLease(Exception):
    """The lease is lost: another worker has the step, or the step is over. ``Calling`` records what is known."""


class Lease:
    """The time for which a step stays ours unless a heartbeat says otherwise, on this process's monotonic clock.

    From ``until`` on, ``seconds`` after this process sent the claim or the last extension, another worker may have the
    step.
    """

    def __init__(self, span: timedelta) -> None:
        self.seconds = span.total_seconds()
        self.until = 0.0
        self._call: asyncio.Timeout | None = None

    now = staticmethod(time.monotonic)
    """The monotonic time. Read it before sending what renews the lease, so that ``until`` is never too late."""

    def renewed(self, began: float) -> None:
        """Note that a statement sent at ``began`` has extended the lease."""
        self.until = max(self.until, began + self.seconds)

    def lost(self) -> bool:
        """Note that another worker has the lease, or its step is over. True if this gives up a call under it."""
        self.until, call, self._call = 0.0, self._call, None
        if call is not None:
            call.reschedule(0.0)
        return call is not None

    async def call(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Call an outside system under the lease. ``LostLease`` if it may be over, or is lost during the call."""
        if self.now() >= self.until:
            raise LostLease
        try:
            async with asyncio.timeout(None) as self._call:
                return await call()
        except TimeoutError:
            if self._call is not None:
                raise  # the lease is good: it was a deadline of the call itself
            raise LostLease from None
        finally:
            self._call = None


# The number of cached runs, and of lines of their values: a worker most often goes on with a run that it has just left.
# The values have 16 MiB as stored. In memory they may take ten times as much.
RECENT_MAX, RECENT_LINES_MAX = 256, 256 * 1024


class CachedRun(Struct, frozen=True):
    """A cached run: the last state that was read, plus the appends of this process.

    ``exact`` is the run as of the last read of its book; ``view`` adds what this process appended since. The view has
    ``drifted`` if others have appended in between: then only moves that commute with their appends are decided on
    ``view``, and all others on the book. ``seen`` is the highest version that is known to exist. ``behind`` says that
    the book was read during an append of this process, so that ``exact`` has events that ``view`` lacks: then nothing
    is decided on ``view``. ``lines`` is the size of the values in ``view``, in lines of a book.
    """

    exact: RunView
    view: RunView
    seen: int
    workflow: Workflow
    policy: PolicySet
    connectors: Connectors
    clock: DatabaseClock
    drifted: bool = False
    behind: bool = False
    lines: int = 0


class Recent(OrderedDict[UUID, CachedRun]):
    """A cache of the runs that a worker read last. Reading one again folds only what was appended since."""

    lines = 0

    def put(self, met: CachedRun) -> CachedRun:
        """Cache the newest state of a run, and return it. A state that was read before the last append is ignored.

        A run that is over is not cached.
        """
        run_id, run = met.view.run_id, met.view.run
        known = self.pop(run_id, None)
        if known is not None:
            self.lines -= known.lines
            if known.seen > met.seen or (known.seen == met.seen and met.drifted):
                met = known
            elif met.drifted and known.exact.version > met.exact.version:
                met = replace(met, exact=known.exact, behind=True)
        if met is not known:  # of a run that is over, too: a late outcome may be heavy work
            met = replace(met, lines=work_units(run.trigger, run.state.channels, run.state.outputs, heavy=False))
        if not met.view.run.finished:
            self[run_id] = met
            self.lines += met.lines
            while len(self) > RECENT_MAX or (self.lines > RECENT_LINES_MAX and len(self) > 1):
                self.lines -= self.popitem(last=False)[1].lines
        return met


async def meet(
    connection: Connection,
    definitions: Definitions,
    connectors: TenantConnectors,
    view: RunView,
    asked: float,
    answered: float | None = None,
) -> CachedRun:
    """Combine a run with its workflow, policies and its tenant's connectors, to which its intents are bound.

    The book was asked for, and arrived, at these monotonic times.
    """
    workflow = await definitions.of_run(connection, view.definition)
    policy = await definitions.policies(connection, view.tenant_id, view.policies, workflow)
    people = await definitions.directory(connection, view.tenant_id, view.directory_digest)
    own = await connectors.of(connection, view.tenant_id, view.stop)
    if people is not view.directory:
        view = replace(view, directory=people)
    return CachedRun(view, view, view.version, workflow, policy, own, DatabaseClock(view.now, asked, answered))


Build: TypeAlias = Callable[[Leased], Next]


class Moved(Struct, frozen=True):
    """The result of a move: the run after it, the next instruction, and the time when its append began."""

    met: CachedRun
    work: Next
    began: float


@dataclass(slots=True, eq=False)
class Move:
    """An append that the holder of a lease asks for. ``goes_on``: the holder takes the next step under this lease.

    ``known`` says that the move records an outcome, which it may do even after its lease ran out, if there is no newer
    lease. ``unanswered`` are earlier appends of this move whose answers were lost.
    """

    claim: Claim
    build: Build
    goes_on: bool
    known: bool
    unanswered: list[Sent]
    done: asyncio.Future[Moved] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def fail(self, error: BaseException) -> None:
        """Tell the waiting caller that nothing was appended, and why."""
        if not self.done.done():
            self.done.set_exception(error)


class Sent(Struct, frozen=True, eq=False):
    """An append that was sent to PostgreSQL, with the next instruction of each of its moves if it was applied."""

    met: CachedRun
    transition: Transition
    commit: Commit
    works: dict[Claim, Next]
    began: float

    def settle(self, moves: Sequence[Move], met: CachedRun) -> None:
        """Give the results to the moves that are in this append.

        A caller that was canceled meanwhile gets no result, and leaves the step to its lease.
        """
        for move in moves:
            if move.claim in self.works and not move.done.done():
                move.done.set_result(Moved(met, self.works[move.claim], self.began))

    def unanswered(self, moves: Sequence[Move]) -> None:
        """Note on each move in this append that the append's answer was lost."""
        for move in moves:
            if move.claim in self.works:
                move.unanswered.append(self)


Append: TypeAlias = Callable[[Move], Awaitable[Moved]]


class HeldStep(Struct, frozen=True):
    """The step held now, for the worker's heartbeat. ``began`` is the time when its claim or last commit was sent."""

    met: CachedRun
    step: StepRow
    claim: Claim
    began: float
    append: Append

    @property
    def view(self) -> RunView:
        """The run after the last append of this process."""
        return self.met.view


class Holder:
    """Holds one leased step at a time, and its lease. ``hold`` is None between steps."""

    def __init__(self, span: timedelta, patience: Patience) -> None:
        self._patience = patience
        self.lease = Lease(span)
        self.hold: HeldStep | None = None

    @property
    def step(self) -> StepRow | None:
        """The leased step."""
        return self.hold.step if self.hold else None

    def now(self) -> HeldStep:
        """The step that is held; ``LostLease`` if there is none."""
        if self.hold is None:
            raise LostLease
        return self.hold

    def begin(self, hold: HeldStep) -> None:
        """Hold the step that has just been claimed."""
        self.hold = hold
        self.lease.until = hold.began + self.lease.seconds

    async def commit(self, build: Build, *, known: bool = False) -> Next:
        """Append the move of the held step that ``build`` makes, and begin the next step with it if possible.

        Retries while PostgreSQL is away, until the process ends, so that no known outcome is dropped. ``known`` as in
        ``Move``. After a crash meanwhile, the lease runs out and the outcome is in doubt.
        """
        hold, goes_on, tries = self.hold, True, 0
        if hold is None:
            raise LostLease
        unanswered: list[Sent] = []
        try:
            while True:
                try:
                    moved = await hold.append(Move(hold.claim, build, goes_on, known, unanswered))
                    break
                except LostLease:
                    raise
                except Exception as error:
                    if is_away(error):
                        await self._patience.pause(self, tries, error, step=str(hold.step.step_id))
                        tries += 1
                    elif is_passing(error) or not goes_on:
                        raise
                    else:
                        log.warning("step settled alone; its next step could not be begun", reason=str(error))
                        goes_on = False
        finally:
            if tries:
                self._patience.settled(self)
        work = moved.work
        if isinstance(work, Over):
            self.hold = None
            return work
        # The next step is held under the same lease id, but its lease time begins anew.
        claim = Claim(work.step.key, hold.claim.id, work.step.lease_epoch)
        self.hold = HeldStep(moved.met, work.step, claim, moved.began, hold.append)
        if hold.step.step_id != work.step.step_id:
            self.lease.until = moved.began + self.lease.seconds
        return work
