"""What is known of a call whose lease was lost is told: that it may have been sent, or its late answer.

A call whose lease is lost is cut off, not let finish: what it has not sent yet must not go out any more, because
whoever has the step now may be sending it. What it knows is told without a lease and decides nothing.
"""

from __future__ import annotations

from datetime import datetime

import structlog

from connectors.port import Outcome
from core.errors import CountersealError
from evidence.chain import Actor
from evidence.events import EventType
from runtime.engine import late
from runtime.engine.events import ActionLate, parts
from runtime.engine.graph import NO_GRAPH
from runtime.engine.moves import Next, Perform, Unfit
from runtime.engine.transition import Transition
from runtime.store import audit
from runtime.store.commits import apply
from runtime.store.views import Purged, load
from runtime.work.holding import Holding, Tools
from runtime.work.leasing import LostLease
from runtime.work.move import Build
from runtime.work.patience import Patience
from runtime.work.setbacks import is_away, report

log = structlog.get_logger(__name__)


class Calling:
    """One call of a connector, from its sending to the commit that settles it; a lost lease drops nothing of it.

    Of a call without a receipt, which has no side effect, nothing is told.
    """

    def __init__(self, tools: Tools, patience: Patience, holding: Holding, work: Perform) -> None:
        self._tools = tools
        self._patience = patience
        self._holding = holding
        self._hold = holding.now()
        self._work = work
        self._sent: datetime | None = None
        self._answered: datetime | None = None

    async def perform(self) -> Outcome | Unfit:
        """Perform the call under the lease. ``LostLease`` if it is lost meanwhile: then it may have been sent."""
        try:
            return await self._holding.lease.call(self._send)
        except LostLease:
            await self._tell(None)
            raise

    async def _send(self) -> Outcome | Unfit:
        self._sent = self._hold.met.clock.now()
        outcome = await self._tools.calls.perform(self._work)
        self._answered = self._hold.met.clock.now()
        return outcome

    async def settle(self, build: Build, outcome: Outcome | Unfit) -> Next:
        """Commit what came of it. ``LostLease`` if that is not for us to decide any more: then it is told."""
        try:
            return await self._holding.commit(build, known=True)
        except (LostLease, Purged) as over:
            await self._tell(outcome)
            raise LostLease from over

    async def _tell(self, outcome: Outcome | Unfit | None) -> None:
        """Tell it, as often as PostgreSQL is away.

        A crash before that loses this report alone: the step is in doubt by its intent, and whoever has it now sees
        to that.
        """
        receipt, hold, sent = self._work.receipt, self._hold, self._sent
        if receipt is None or sent is None:
            return
        event = late.known_of(receipt, hold.claim.epoch, sent, self._answered, outcome)
        if event is None:
            return
        self._holding.hold = None  # its lease is beaten no more
        facts = {"run": str(hold.view.run_id), "step": hold.step.key, "receipt": str(receipt.receipt_id)}
        log.warning("a lease was lost during a call; what is known of it is told", known=str(event.known), **facts)
        tries = 0
        try:
            while True:
                try:
                    await self._append(event)
                    return
                except Exception as error:
                    if not is_away(error):
                        report("what is known of a call could not be told", error, **facts)
                        return
                    await self._patience.pause(self, tries, error, hold.step)
                    tries += 1
        finally:
            self._patience.told(self)

    async def _append(self, event: ActionLate) -> None:
        """On the run as it is now, which is locked, so its version is the one that is read. The queue is not touched.

        The run is folded whole, because the receipt's step may be long over: this is rare.
        """
        tools, view = self._tools, self._hold.view
        async with tools.database.transaction() as connection:
            try:
                whole = await load(connection, view.run_id, tools.definitions.graphs, lock=True, whole=True)
            except Purged:
                facts = {"run": str(view.run_id), **parts(event)[0]}  # no value: nothing could commit to it any more
                await audit.record(connection, view.tenant_id, EventType.ACTION_LATE, self._actor, facts)
                return
            transition = Transition(late.without_rows(whole), NO_GRAPH)
            if late.is_told(transition, event):
                return
            late.tell(transition, event, self._actor)
            if not await apply(connection, transition.commit()):
                raise CountersealError(f"Run {view.run_id} moved on although it was locked.")

    @property
    def _actor(self) -> Actor:
        return Actor("worker", self._tools.owner)
