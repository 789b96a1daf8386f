"""A lease: what is known of its run, whether it can still be ours, and what its holder appends under it (Q-9, Q-10).

A worker that was stopped for a while (suspended, swapped out, starved) may have lost its lease without knowing, and
another may have found out meanwhile that nothing was sent, and have sent it. So nothing goes out under a lease that may
be over, and a call is given up when a heartbeat says that it is. The row decides all the same: a settle checks it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias, TypeVar
from uuid import UUID

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from core.db import Connection, Database, DatabaseClock
from runtime.definition.catalog import Definitions
from runtime.engine.commit import Claim, Commit, StepRow
from runtime.engine.instructions import Known, Next, known_of, leased
from runtime.engine.judge import ActivePolicy
from runtime.engine.run import RunView
from runtime.engine.states import StepState
from runtime.engine.transition import Transition
from runtime.engine.workflow import Workflow
from runtime.store.views import Unfinished, load, view_of

Result = TypeVar("Result")


class LostLease(Exception):
    """The lease is lost: another has the step, or it is over. ``Calling`` tells what is known."""


class Lease:
    """The time for which a step stays ours unless a heartbeat says otherwise, on this process's monotonic clock.

    ``until`` is the moment from which it can be somebody else's.
    """

    def __init__(self, span: timedelta) -> None:
        self._seconds = span.total_seconds()
        self.until = 0.0
        self._call: asyncio.Timeout | None = None

    @staticmethod
    def now() -> float:
        """The monotonic time. Read it before what renews the lease, because the database counts from then."""
        return asyncio.get_running_loop().time()

    def taken(self, began: float) -> None:
        """A new lease was taken by what began then."""
        self.until = began + self._seconds

    def renewed(self, began: float) -> None:
        """The lease was extended by what began then."""
        self.until = max(self.until, began + self._seconds)

    def lost(self) -> bool:
        """The lease is somebody else's, or its step is over; true if a call under it is given up."""
        self.until, call, self._call = 0.0, self._call, None
        if call is not None:
            call.reschedule(self.now())
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
    book. ``seen`` is the highest version that is known to exist.
    """

    exact: RunView
    view: RunView
    seen: int
    workflow: Workflow
    policy: ActivePolicy
    clock: DatabaseClock
    drifted: bool = False


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
                met = replace(met, exact=known.exact)
        if not met.view.run.finished:
            self[run_id] = met
            if len(self) > RECENT_MAX:
                self.popitem(last=False)
        return met


def claim_of(record: asyncpg.Record) -> tuple[Claim, str]:
    """The lease that a claim took, and its owner."""
    row = record["step"]
    return Claim(row["step_key"], UUID(row["lease_id"]), row["lease_epoch"]), row["lease_owner"]


async def read_claimed(
    database: Database, record: asyncpg.Record, definitions: Definitions, recent: Recent, began: float
) -> tuple[Met, StepRow, Known]:
    """The run, the leased step, and what is known of it from earlier leases. The claim ``began`` at that time."""
    (claim, owner), met = claim_of(record), recent.get(UUID(record["run"]["run_id"]))
    if met is None or not _is_first(met, record, claim):
        async with database.connection() as connection:
            view = await _read(connection, record, definitions, met)
            met = recent.put(await meet(connection, definitions, view, began))
            if not _is_ready(met, claim):  # an append from here came in between, of which the claim tells nothing
                view = await load(connection, met.view.run_id, definitions.graphs, before=met.exact)
                met = recent.put(await meet(connection, definitions, view, began))
    return met, leased(met.view, claim, owner), known_of(met.view.run, claim.key)


def _is_first(met: Met, record: asyncpg.Record, claim: Claim) -> bool:
    """True if nothing can have happened to this step but this claim, so that what is known of the run is enough."""
    same = met.view.gate == record["run"]["gate"] and met.view.policy_digest == record["policy_digest"]
    return same and claim.epoch == 1 and _is_ready(met, claim)


def _is_ready(met: Met, claim: Claim) -> bool:
    step = met.view.run.steps.get(claim.key)
    return step is not None and step.status is StepState.READY


async def _read(connection: Connection, record: asyncpg.Record, definitions: Definitions, met: Met | None) -> RunView:
    before = None if met is None else met.exact
    if record["lines"] is not None:
        with suppress(Unfinished):  # the claim did not see the last append of this run yet
            return await view_of(connection, record, definitions.graphs, before=before)
    return await load(connection, UUID(record["run"]["run_id"]), definitions.graphs, before=before)


async def meet(connection: Connection, definitions: Definitions, view: RunView, asked: float) -> Met:
    """A run as its book has given it, which was asked for at that monotonic time, with what it is decided by."""
    workflow = await definitions.of_run(connection, view.definition)
    policy = await definitions.policy(connection, view.tenant_id, view.policy_digest)
    return Met(view, view, view.version, workflow, policy, DatabaseClock(view.now, asked))


Build: TypeAlias = Callable[[Transition, StepRow, Workflow, ActivePolicy], Next]


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


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
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
