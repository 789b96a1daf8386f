"""Calls connectors with a deadline, and records what is known about a call even if its lease is lost meanwhile.

A missing connector, a timeout, an exception or an unstorable result becomes an ``Outcome``, never an exception. If the
lease is lost, the call is cut off, because the worker that has the step now may be sending the same. The known facts
about the call are then recorded without a lease (``action.late``), and decide nothing.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any, TypeVar

import structlog
from msgspec.structs import replace

from connectors.canonical import unsendable
from connectors.masking import NO_SECRETS, Secrets
from connectors.port import (
    NOT_CONFIGURED,
    Before,
    Connectors,
    Done,
    InDoubt,
    NotSent,
    Outcome,
    Parked,
    Probe,
    ProbeVerdict,
    Refused,
    Usage,
)
from connectors.readback import ASKED, FOUND, shown
from core import tracing
from core.canonical import INTEGER_MAX, JsonObject, clean, unfit
from core.clock import Patience
from core.errors import CountersealError
from core.ids import new_nonce
from core.outage import is_away, report
from core.unkept import storable
from evidence.chain import Actor
from evidence.events import EventType
from runtime.engine.book.instructions import Inquire, Next, Over, Perform, ReadBefore, Unfit
from runtime.engine.book.recorded import parts
from runtime.engine.life import late
from runtime.engine.life.doubt import GRACE, PROBE_AFTER
from runtime.engine.life.proposal import Leased
from runtime.engine.life.step import settle
from runtime.engine.life.transition import Transition
from runtime.engine.model.errors import UNUSABLE
from runtime.engine.model.events import ActionLate
from runtime.engine.model.graph import NO_GRAPH
from runtime.store import audit
from runtime.store.commits import apply
from runtime.store.views import Purged, load
from runtime.work.holding import Tools, note_busy
from runtime.work.lease import HeldStep, Holder, LostLease

log = structlog.get_logger(__name__)

# The code of a refusal because an input differs from the canonical one, which policy judges.
NOT_CANONICAL = "not_canonical"
DELAY_SECONDS_MAX = 24 * 3600.0
CODE_CHARACTERS_MAX = 200
EXTERNAL_ID_CHARACTERS_MAX = 1000

Result = TypeVar("Result")


async def read_before(connectors: Connectors, work: ReadBefore) -> Before | Refused | NotSent | InDoubt:
    """Read the target for the diff."""
    name = work.operation.connector
    if (connector := connectors.get(name)) is None:
        return Refused(NOT_CONFIGURED, str(connectors.missing(name)))
    read = await _bounded(connector.read_before(work.call), work.call.timeout_seconds)
    if not isinstance(read, Before):
        return _storable_texts(read)
    problem = unfit([read.values, read.version, read.facts, [*read.writers]], "What was read from the target")
    return read if problem is None else Refused(UNUSABLE, problem)


async def inquire(connectors: Connectors, work: Inquire) -> Probe:
    """Ask the target what became of an earlier intent. If it cannot be asked now, it is asked again later."""
    name = work.operation.connector
    if (connector := connectors.get(name)) is None:
        return _cannot_tell(str(connectors.missing(name)))
    asking = connector.probe(work.call, seconds_since_intent=work.seconds_since_intent)
    asked = await _bounded(asking, work.call.timeout_seconds)
    if isinstance(asked, InDoubt):
        return _cannot_tell(clean(asked.message))
    delay = _delay(asked.retry_after_seconds)
    probe = replace(asked, evidence=clean(asked.evidence), retry_after_seconds=delay)
    probe = replace(probe, busy_seconds=_delay(asked.busy_seconds))
    done = _kept(asked.done, happened=True) if asked.done is not None else None
    assert not isinstance(done, Unfit), "an effect that happened is done"
    return replace(probe, done=done)


def _kept(done: Done, *, happened: bool) -> Done | Unfit:
    """The part of the result that can be stored. The external id is always kept.

    An effect that ``happened`` is done, whatever its answer holds: markers replace the parts that cannot be stored. A
    mere read can be repeated, so its step fails if the result cannot be stored.
    """
    usage = done.usage
    if usage is not None and not _countable(usage):
        log.error("usage dropped: an audit line cannot hold it", usage=clean(usage))
        usage = None
    external_id = None if done.external_id is None else clean(done.external_id, EXTERNAL_ID_CHARACTERS_MAX)
    altered: JsonObject = {clean(name, CODE_CHARACTERS_MAX): _both(each) for name, each in done.altered.items()}
    cleaned = replace(done, external_id=external_id, usage=usage, altered=altered)
    problem = unfit(done.output, "The output") or (None if type(done.output) is dict else "The output is no object.")
    if problem is None:
        return cleaned
    log.warning("a part of an answer cannot be kept", problem=problem)
    return replace(cleaned, output=storable(done.output)) if happened else Unfit(replace(cleaned, output={}), problem)


def _both(value: Any) -> JsonObject:
    """The asked and the found value, in storable form."""
    both = value if isinstance(value, dict) else {}
    return {name: shown(both.get(name)) for name in (ASKED, FOUND)}


def _begun(parked: Parked) -> Parked:
    """The storable part of a durable operation's report of its start. The rest is dropped, because it has begun."""
    cleaned = _kept(Done(parked.output, parked.external_id), happened=True)
    assert isinstance(cleaned, Done), "an effect that happened is done"
    return Parked(cleaned.external_id, cleaned.output, parked.secrets)


def _countable(usage: Usage) -> bool:
    counts = all(type(n) is int and 0 <= n <= INTEGER_MAX for n in (usage.input_tokens, usage.output_tokens))
    texts = [usage.provider, usage.model, usage.cost_usd or ""]
    return counts and all(type(text) is str and clean(text, CODE_CHARACTERS_MAX) == text for text in texts)


def _storable_texts(outcome: Refused | NotSent | InDoubt) -> Refused | NotSent | InDoubt:
    """Make an outcome's texts storable. A refusal's code goes into the audit, so it must be short."""
    match outcome:
        case Refused():
            return replace(outcome, code=clean(outcome.code, CODE_CHARACTERS_MAX), message=clean(outcome.message))
        case NotSent():
            seconds = _delay(outcome.retry_after_seconds)
            return replace(outcome, message=clean(outcome.message), retry_after_seconds=seconds)
        case InDoubt():
            seconds = _delay(outcome.retry_after_seconds)
            return replace(outcome, message=clean(outcome.message), retry_after_seconds=seconds)
    log.error("connector returned no Outcome; the call is in doubt", kind=type(outcome).__name__)
    return InDoubt(f"The connector answered with {type(outcome).__name__}, which is no outcome.")


def _delay(seconds: float | None) -> float | None:
    """Bound a delay that an outside system asks for. None if there is none, or if it is not finite."""
    if seconds is None or not isfinite(seconds):
        return None
    return min(max(seconds, 0.0), DELAY_SECONDS_MAX)


def _cannot_tell(message: str) -> Probe:
    return Probe(ProbeVerdict.CANNOT_TELL, message, retry_after_seconds=PROBE_AFTER.total_seconds())


async def _bounded(call: Awaitable[Result], seconds: float, secrets: Secrets = NO_SECRETS) -> Result | InDoubt:
    """Await a connector with a deadline. If it overruns or raises, the call is in doubt.

    The log names the place of the error, and not its message, which may repeat what was sent.
    """
    try:
        async with asyncio.timeout(seconds + GRACE.total_seconds()):
            return await call
    except TimeoutError:
        return InDoubt(f"No answer within {seconds:g} seconds.")
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("connector raised", kind=type(error).__name__, where=secrets.text(where))
        return InDoubt(f"The connector failed: {type(error).__name__}: {error}")


@dataclass(slots=True, eq=False)
class Calling:
    """One call of a connector, from its sending to the commit that settles it.

    If the lease is lost, the known facts are still recorded, unless the call has no receipt and so no side effect.
    """

    _tools: Tools
    _patience: Patience
    _holding: Holder
    _hold: HeldStep
    _work: Perform
    _sent: datetime | None = None
    _answered: datetime | None = None

    async def perform(self) -> Next:
        """Perform the call under the lease, and commit its outcome.

        If the lease is lost or the run purged, record what is known (at least that the call may have been sent) and
        raise ``LostLease``.
        """
        outcome: Outcome | Unfit | None = None
        chance = random.random()

        def settled(leased: Leased) -> Next:
            assert outcome is not None
            settle(leased.transition, replace(self._work, step=leased.step), outcome, nonce=new_nonce, chance=chance)
            return Over()

        try:
            outcome = await self._holding.lease.call(self._send)
            if isinstance(outcome, NotSent | InDoubt):
                delay = outcome.retry_after_seconds
                await note_busy(self._tools, self._hold.met, self._work.operation, self._work.call, delay)
            return await self._holding.commit(settled, known=True)
        except (LostLease, Purged) as over:
            await self._tell(outcome)
            raise LostLease from over

    async def _send(self) -> Outcome | Unfit:
        work, clock, connectors = self._work, self._hold.met.clock, self._hold.met.connectors
        name = work.operation.connector
        if (connector := connectors.get(name)) is None:
            return Refused(NOT_CONFIGURED, str(connectors.missing(name)))
        # The last check before the call leaves: an action stored by an earlier release may not be canonical.
        if (problem := unsendable(work.operation.handler, work.call.input)) is not None:
            return Refused(NOT_CANONICAL, problem)
        secrets = Secrets.of(work.operation, work.call.input) if work.operation.takes_secrets else NO_SECRETS
        self._sent = clock.now()
        call = _bounded(connector.perform(work.call), work.call.timeout_seconds, secrets)
        outcome = await (self._carried(call) if self._tools.propagates else call)
        self._answered = clock.now()
        self._watched(outcome, self._sent, self._answered)
        match secrets.outcome(outcome) if secrets.values else outcome:
            case Done() as done:
                return _kept(done, happened=work.operation.has_effect)
            case Parked() as parked:
                return _begun(parked)
            case other:
                return _storable_texts(other)

    async def _carried(self, call: Awaitable[Outcome]) -> Outcome:
        """Await a call that carries the run's trace."""
        hold = self._hold
        carried = tracing.OUTBOUND.set(tracing.traceparent(hold.view.run_id, hold.step.key, hold.claim.epoch))
        try:
            return await call
        finally:
            tracing.OUTBOUND.reset(carried)

    def _watched(self, outcome: Outcome, sent: datetime, answered: datetime) -> None:
        """Report the call to the watcher of this process, without values and without the other system's words."""
        if not tracing.watchers:
            return
        hold, operation = self._hold, self._work.operation
        kind = tracing.kind_of(outcome)
        code = clean(outcome.code, CODE_CHARACTERS_MAX) if isinstance(outcome, Refused) else ""
        about = (hold.view.tenant_id, hold.view.run_id, hold.step.key, hold.claim.epoch, operation.name)
        done = tracing.Called(*about, operation.connector, kind, code, sent, answered)
        for watcher in tracing.watchers:
            watcher.called(done)

    async def _tell(self, outcome: Outcome | Unfit | None) -> None:
        """Append what is known as ``action.late``; retry while PostgreSQL is away.

        A crash before the append loses only this event: the intent leaves the step in doubt, and its next lease
        resolves it.
        """
        receipt, hold, sent = self._work.receipt, self._hold, self._sent
        if receipt is None or sent is None:
            return
        event = late.known_of(receipt, hold.claim.epoch, sent, self._answered, outcome)
        if event is None:
            return
        self._holding.hold = None  # the heartbeat leaves its lease alone from now on
        facts = {"run": str(hold.view.run_id), "step": hold.step.key, "receipt": str(receipt.receipt_id)}
        log.warning("lease lost during a call; recording action.late", known=str(event.known), **facts)
        tries = 0
        try:
            while True:
                try:
                    await self._append(event)
                    return
                except Exception as error:
                    if not is_away(error):
                        report("action.late could not be recorded", error, **facts)
                        return
                    await self._patience.pause(self, tries, error, step=str(hold.step.step_id))
                    tries += 1
        finally:
            self._patience.settled(self)

    async def _append(self, event: ActionLate) -> None:
        """Lock the run, so that the append cannot lose a race, and append the event. The queue does not change.

        The whole book is folded, because the receipt's step may be long over. This is rare.
        """
        tools, view = self._tools, self._hold.view
        async with tools.database.transaction() as connection:
            try:
                whole = await load(connection, view.run_id, tools.definitions.graphs, lock=True, whole=True)
            except Purged:
                facts = {"run": str(view.run_id), **parts(event)[0]}  # facts only: the run is purged
                await audit.record(connection, view.tenant_id, EventType.ACTION_LATE, self._actor, facts)
                return
            transition = Transition(late.without_rows(whole), NO_GRAPH)
            if late.is_recorded(transition, event):
                return
            late.tell(transition, event, self._actor)
            if not await apply(connection, transition.commit()):
                raise CountersealError(f"Run {view.run_id} moved on although it was locked.")

    @property
    def _actor(self) -> Actor:
        return Actor("worker", self._tools.owner)
