"""The step that a worker holds, one at a time: its lease, and the appends under it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from uuid import UUID
from weakref import WeakValueDictionary

import structlog
from msgspec import Struct

from connectors.port import Connectors
from core.clock import rest
from core.db import Database
from core.outage import is_away, is_passing
from runtime.definition.catalog import Definitions
from runtime.engine.commit import Claim, StepRow
from runtime.engine.doubt import SEND_WITHIN
from runtime.engine.instructions import Next, Over
from runtime.engine.run import RunView
from runtime.work.committing import committer
from runtime.work.lease import Build, Lease, LostLease, Met, Move, Recent, Sent
from runtime.work.pump import Means, Pump

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.1
# Short, because whoever tries first after PostgreSQL is back should not be a sweeper.
PAUSE_SECONDS_MAX = 0.5


class Patience:
    """Pauses between tries, on the clock of the event loop, until ``stop`` is set: then one more try, and no other."""

    def __init__(self, stop: asyncio.Event | None = None) -> None:
        self._stop = stop or asyncio.Event()
        self._untold: set[object] = set()
        self._calm = asyncio.Event()
        self._calm.set()

    async def calm(self) -> None:
        """Wait until nobody keeps anything: what is begun before that is told may be that very step."""
        await self._calm.wait()

    def told(self, who: object) -> None:
        """Note that ``who`` has told what it kept, or has given it up."""
        self._untold.discard(who)
        if not self._untold:
            self._calm.set()

    async def pause(self, who: object, tries: int, error: Exception, step: StepRow | None) -> None:
        """Wait before the next try after ``tries`` others; raises ``error`` where there is none."""
        self._untold.add(who)
        self._calm.clear()
        facts = {"step": str(step.step_id) if step else "", "reason": f"{type(error).__name__}: {error}"}
        if self._stop.is_set():
            log.error("stopping while PostgreSQL is away; an outcome is not recorded", **facts)
            raise error
        log.warning("PostgreSQL is away; retrying to record an outcome", tries=tries + 1, **facts)
        longest: float = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2 ** min(tries, 10))
        # Everybody lost PostgreSQL at the same moment: they should not all come back at the same one.
        await rest(self._stop, longest * (0.5 + random.random() / 2))


@dataclass(frozen=True)
class Tools:
    """The dependencies of driving; constructed by ``app``. ``owner`` is this worker's name in leases."""

    database: Database
    definitions: Definitions
    connectors: Connectors
    owner: str
    lease: timedelta

    @cached_property
    def recent(self) -> Recent:
        """The runs that this worker met last."""
        return Recent()

    @cached_property
    def _means(self) -> Means:
        write = committer(self.database.connection)
        return Means(self.database, self.definitions, write, self.recent, self.owner, self.lease)

    @cached_property
    def _pumps(self) -> WeakValueDictionary[UUID, Pump]:
        return WeakValueDictionary()

    def pump(self, run_id: UUID) -> Pump:
        """The pump of a run, which is there as long as somebody holds a step of it."""
        pump = self._pumps.get(run_id)
        if pump is None:
            pump = self._pumps[run_id] = Pump(self._means, run_id)
        return pump


class HeldStep(Struct, frozen=True):
    """The step that is held right now; the worker's heartbeat reads it. ``began`` is when the commit of it did."""

    met: Met
    step: StepRow
    claim: Claim
    began: float
    pump: Pump

    @property
    def view(self) -> RunView:
        """The run as the last append from here has left it."""
        return self.met.view


class Holder:
    """One leased step at a time, None between steps, and its lease."""

    def __init__(self, tools: Tools, patience: Patience) -> None:
        self._tools = tools
        self._patience = patience
        self.lease = Lease(tools.lease)
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

    def may_send(self) -> bool:
        """True if what was intended may still go out: its lease is ours, and its intent is fresh."""
        now = Lease.now()
        return now < self.lease.until and now <= self.now().began + SEND_WITHIN.total_seconds()

    def begin(self, met: Met, step: StepRow, claim: Claim, began: float) -> None:
        """Hold what has just been claimed."""
        self.hold = HeldStep(met, step, claim, began, self._tools.pump(met.view.run_id))
        self.lease.taken(began)

    async def commit(self, build: Build, *, known: bool = False) -> Next:
        """Append what is built on the held step and begin the next with it; a fault of that one costs this nothing.

        While PostgreSQL is away it is tried again, until the process ends: what is known is not dropped. ``known`` says
        that an outcome is recorded, which also a lease that is over does, as long as nobody has a newer one. A crash
        meanwhile leaves the step to its lease, and the outcome in doubt.
        """
        hold, goes_on, tries = self.now(), True, 0
        unanswered: list[Sent] = []
        try:
            while True:
                try:
                    moved = await hold.pump.append(Move(hold.claim, build, goes_on, known, unanswered))
                    break
                except LostLease:
                    raise
                except Exception as error:
                    if is_away(error):
                        await self._patience.pause(self, tries, error, self.step)
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
        self.hold = HeldStep(moved.met, work.step, claim, moved.began, hold.pump)
        if hold.step.step_id != work.step.step_id:
            self.lease.taken(moved.began)
        return work
