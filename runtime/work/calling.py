"""Calling connectors: bounded, and honest where one is missing, overruns, raises, or returns what no row can hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from math import isfinite
from typing import TypeVar

import structlog

from connectors.operation import Operation
from connectors.port import (
    Before,
    Connector,
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
from connectors.registry import Connectors
from core.canonical import INTEGER_MAX
from core.errors import CountersealError
from runtime.engine.doubt import GRACE
from runtime.engine.fitness import UNUSABLE, clean, unfit
from runtime.engine.moves import Inquire, Perform, ReadBefore, Unfit
from runtime.engine.settling import PROBE_AFTER

log = structlog.get_logger(__name__)

DELAY_SECONDS_MAX = 24 * 3600.0
CODE_CHARACTERS_MAX = 200
EXTERNAL_ID_CHARACTERS_MAX = 1000

Result = TypeVar("Result")


@dataclass(frozen=True)
class Calls:
    """Performs what governance has let out, on the connectors that ``app`` has made."""

    connectors: Connectors

    async def read_before(self, work: ReadBefore) -> Before | Refused | NotSent | InDoubt:
        """Read the target for the diff."""
        connector = self._connector(work.operation)
        if isinstance(connector, Refused):
            return connector
        read = await _bounded(connector.read_before(work.call), work.call.timeout_seconds)
        if not isinstance(read, Before):
            return _said(read)
        problem = unfit([read.values, read.version, read.facts], "What was read from the target")
        return read if problem is None else Refused(UNUSABLE, problem)

    async def perform(self, work: Perform) -> Outcome | Unfit:
        """Perform the call whose intent is recorded."""
        connector = self._connector(work.operation)
        if isinstance(connector, Refused):
            return connector
        outcome = await _bounded(connector.perform(work.call), work.call.timeout_seconds)
        match outcome:
            case Done():
                return _kept(outcome)
            case Parked():
                return _begun(outcome)
            case _:
                return _said(outcome)

    async def inquire(self, work: Inquire) -> Probe:
        """Ask the target what became of an earlier intent; what cannot be asked now is asked later."""
        connector = self._connector(work.operation)
        if isinstance(connector, Refused):
            return _cannot_tell(connector.message)
        asking = connector.probe(work.call, seconds_since_intent=work.seconds_since_intent)
        asked = await _bounded(asking, work.call.timeout_seconds)
        if isinstance(asked, InDoubt):
            return _cannot_tell(clean(asked.message))
        delay = _delay(asked.retry_after_seconds)
        probe = replace(asked, evidence=clean(asked.evidence), retry_after_seconds=delay)
        kept = _kept(asked.done) if asked.done is not None else None
        if not isinstance(kept, Unfit):
            return replace(probe, done=kept)
        return replace(probe, done=kept.done, evidence=clean(f"{probe.evidence} {kept.problem}"))

    def _connector(self, operation: Operation) -> Connector | Refused:
        try:
            return self.connectors.for_operation(operation.name)
        except CountersealError as error:
            return Refused("not_configured", str(error))


def _kept(done: Done) -> Done | Unfit:
    """What came back, as far as it can be recorded. What names the effect is kept in any case."""
    usage = done.usage
    if usage is not None and not _countable(usage):
        log.error("usage that no audit line can hold is left out", usage=clean(usage))
        usage = None
    external_id = None if done.external_id is None else clean(done.external_id, EXTERNAL_ID_CHARACTERS_MAX)
    kept = replace(done, external_id=external_id, usage=usage)
    problem = unfit(done.output, "The output") or (None if type(done.output) is dict else "The output is no object.")
    return kept if problem is None else Unfit(replace(kept, output={}), problem)


def _begun(parked: Parked) -> Parked:
    """Something began outside, whatever it said of itself: what cannot be recorded of that is left out."""
    kept = _kept(Done(parked.output, parked.external_id))
    done = kept.done if isinstance(kept, Unfit) else kept
    return Parked(done.external_id, done.output)


def _countable(usage: Usage) -> bool:
    counts = all(type(n) is int and 0 <= n <= INTEGER_MAX for n in (usage.input_tokens, usage.output_tokens))
    texts = [usage.provider, usage.model, usage.cost_usd or ""]
    return counts and all(type(text) is str and clean(text, CODE_CHARACTERS_MAX) == text for text in texts)


def _said(outcome: Refused | NotSent | InDoubt) -> Refused | NotSent | InDoubt:
    """An outcome's words as they can be recorded; the code of a refusal goes into the audit."""
    match outcome:
        case Refused():
            return replace(outcome, code=clean(outcome.code, CODE_CHARACTERS_MAX), message=clean(outcome.message))
        case NotSent():
            seconds = _delay(outcome.retry_after_seconds)
            return replace(outcome, message=clean(outcome.message), retry_after_seconds=seconds)
        case InDoubt():
            return InDoubt(clean(outcome.message))
    log.error("a connector answered with what is no outcome", kind=type(outcome).__name__)
    return InDoubt(f"The connector answered with {type(outcome).__name__}, which is no outcome.")


def _delay(seconds: float | None) -> float | None:
    """A delay that somebody outside named, as one that a wait can have."""
    if seconds is None or not isfinite(seconds):
        return None
    return min(max(seconds, 0.0), DELAY_SECONDS_MAX)


def _cannot_tell(message: str) -> Probe:
    return Probe(ProbeVerdict.CANNOT_TELL, message, retry_after_seconds=PROBE_AFTER.total_seconds())


async def _bounded(call: Awaitable[Result], seconds: float) -> Result | InDoubt:
    """Await a connector, which should neither overrun nor raise; if it does, nobody knows what came of the call."""
    try:
        async with asyncio.timeout(seconds + GRACE.total_seconds()):
            return await call
    except TimeoutError:
        return InDoubt(f"No answer within {seconds:g} seconds.")
    except Exception as error:
        log.exception("connector raised")
        return InDoubt(f"The connector failed: {type(error).__name__}: {error}")
