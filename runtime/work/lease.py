"""A lease: what is known of its run, whether it can still be ours, and what its holder appends under it (Q-9, Q-10).

A worker that was stopped for a while (suspended, swapped out, starved) may have lost its lease without knowing, and
another may have found out meanwhile that nothing was sent, and have sent it. So nothing goes out under a lease that may
be over, and a call is given up when a heartbeat says that it is. The row decides all the same: a settle checks it.
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

from core.clock import Patience
from core.db import Connection, DatabaseClock
from core.outage import is_away, is_passing
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.engine.commit import Claim, Commit, StepRow
from runtime.engine.instructions import Next, Over
from runtime.engine.run import RunView
from runtime.engine.transition import Transition
from runtime.engine.workflow import Workflow

log = structlog.get_logger(__name__)

Result = TypeVar("Result")


class LostLease(Exception):
    """The lease is lost: another has the step, or it is over. ``Calling`` tells what is known."""


class Lease:
    """The time for which a step stays ours unless a heartbeat says otherwise, on this process's monotonic clock.

    ``until`` is the moment from which it can be somebody else's: ``seconds`` after that began which took the lease.
    """

    def __init__(self, span: timedelta) -> None:
        self.seconds = span.total_seconds()
        self.until = 0.0
        self._call: asyncio.Timeout | None = None

    now = staticmethod(time.monotonic)
    """The monotonic time. Read it before what renews the lease, because the database counts from then."""

    def renewed(self, began: float) -> None:
        """The lease was extended by what began then."""
        self.until = max(self.until, began + self.seconds)

    def lost(self) -> bool:
        """The lease is somebody else's, or its step is over; true if a call under it is given up."""
        self.until, call, self._call = 0.0, self._call, None
        if call is not None:
            call.reschedule(0.0)
        return call is not None

    async def call(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Call the outside under the lease. ``LostLease`` if it may be over, or is lost meanwhile."""
        if self.now() >= self.until:
            raise LostLease
        try:
            async with asyncio.timeout(None) as self._call:
                return await call()
        except TimeoutError:
            raise LostLease from None
        finally:
            self._call = None


# A run that a worker goes on with is most often one that it has just left.
RECENT_MAX = 256


class Met(Struct, frozen=True):
    """A run as a worker knows it.

    ``exact`` is what its book said when it was read, ``view`` has what was appended from here since. It has ``drifted``
    if there are appends of others in between: then what commutes with those is decided on ``view``, and all else on the
    book. ``seen`` is the highest version that is known to exist. Where the book was read during an append from here,
    ``view`` is ``behind`` what was read: nothing is decided on it.
    """

    exact: RunView
    view: RunView
    seen: int
    workflow: Workflow
    policy: PolicySet
    clock: DatabaseClock
    drifted: bool = False
    behind: bool = False


class Recent(OrderedDict[UUID, Met]):
    """The runs that a worker met last, as it left them: what they are now is folded on from there."""

    def put(self, met: Met) -> Met:
        """Remember what is newest of a run, and return it. What was read before the last append is no news.

        One that is over is of no use to anybody.
        """
        run_id = met.view.run_id
        known = self.pop(run_id, None)
        if known is not None:
            if known.seen > met.seen or (known.seen == met.seen and met.drifted):
                met = known
            elif met.drifted and known.exact.version > met.exact.version:
                met = replace(met, exact=known.exact, behind=True)
        if not met.view.run.finished:
            self[run_id] = met
            if len(self) > RECENT_MAX:
                self.popitem(last=False)
        return met


async def meet(connection: Connection, definitions: Definitions, view: RunView, asked: float) -> Met:
    """A run as its book has given it, which was asked for at that monotonic time, with what it is decided by."""
    workflow = await definitions.of_run(connection, view.definition)
    policy = await definitions.policies(connection, view.tenant_id, view.policies)
    people = await definitions.directory(connection, view.tenant_id, view.directory_digest)
    if people is not view.directory:
        view = replace(view, directory=people)
    return Met(view, view, view.version, workflow, policy, DatabaseClock(view.now, asked))


Build: TypeAlias = Callable[[Transition, StepRow, Workflow, PolicySet], Next]


class Moved(Struct, frozen=True):
    """The result of a move: the run as it is now, what is to be done next, and when its append began."""

    met: Met
    work: Next
    began: float


@dataclass(slots=True, eq=False)
class Move:
    """An append that the holder of a lease asks for. ``goes_on`` says that it takes the next step under the same lease.

    ``known`` says that the move records an outcome, which also a lease that is over does, as long as nobody has a newer
    one. ``unanswered`` are appends of it whose answers were lost.
    """

    claim: Claim
    build: Build
    goes_on: bool
    known: bool
    unanswered: list[Sent]
    done: asyncio.Future[Moved] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def fail(self, error: BaseException) -> None:
        """Tell whoever waits that nothing was appended, and why."""
        if not self.done.done():
            self.done.set_exception(error)


class Sent(Struct, frozen=True, eq=False):
    """An append that was sent to PostgreSQL, and what each of its moves does next if it was applied."""

    met: Met
    transition: Transition
    commit: Commit
    works: dict[Claim, Next]
    began: float

    def settle(self, moves: Sequence[Move], met: Met) -> None:
        """Tell those of the moves that are in it what they have led to.

        Who was canceled meanwhile does not listen, and leaves the step to its lease.
        """
        for move in moves:
            if move.claim in self.works and not move.done.done():
                move.done.set_result(Moved(met, self.works[move.claim], self.began))

    def unanswered(self, moves: Sequence[Move]) -> None:
        """Note for those of the moves that are in it that its answer was lost."""
        for move in moves:
            if move.claim in self.works:
                move.unanswered.append(self)


Append: TypeAlias = Callable[[Move], Awaitable[Moved]]


class HeldStep(Struct, frozen=True):
    """The step that is held right now; the worker's heartbeat reads it. ``began`` is when the commit of it did."""

    met: Met
    step: StepRow
    claim: Claim
    began: float
    append: Append

    @property
    def view(self) -> RunView:
        """The run as the last append from here has left it."""
        return self.met.view


class Holder:
    """One leased step at a time, None between steps, and its lease."""

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
        """Hold what has just been claimed."""
        self.hold = hold
        self.lease.until = hold.began + self.lease.seconds

    async def commit(self, build: Build, *, known: bool = False) -> Next:
        """Append what is built on the held step and begin the next with it; a fault of that one costs this nothing.

        While PostgreSQL is away it is tried again, until the process ends: what is known is not dropped. ``known`` says
        that an outcome is recorded, which also a lease that is over does, as long as nobody has a newer one. A crash
        meanwhile leaves the step to its lease, and the outcome in doubt.
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
                self._patience.told(self)
        work = moved.work
        if isinstance(work, Over):
            self.hold = None
            return work
        # The lease goes on with its worker, and is new for a step that is.
        claim = Claim(work.step.key, hold.claim.id, work.step.lease_epoch)
        self.hold = HeldStep(moved.met, work.step, claim, moved.began, hold.append)
        if hold.step.step_id != work.step.step_id:
            self.lease.until = moved.began + self.lease.seconds
        return work
