"""Calling connectors: bounded, and honest where a connector is missing, overruns or raises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from connectors.operation import Operation
from connectors.port import Before, Connector, InDoubt, NotSent, Outcome, Probe, ProbeVerdict, Refused
from connectors.registry import Connectors
from core.errors import CountersealError
from runtime.governance.moves import Inquire, Perform, ReadBefore
from runtime.governance.settling import PROBE_AFTER

log = structlog.get_logger(__name__)

# A connector keeps its own deadline; this much later we stop waiting for one that does not.
GRACE_SECONDS = 5.0

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
        return await _bounded(connector.read_before(work.call), work.call.timeout_seconds)

    async def perform(self, work: Perform) -> Outcome:
        """Perform the call whose intent is recorded."""
        connector = self._connector(work.operation)
        if isinstance(connector, Refused):
            return connector
        return await _bounded(connector.perform(work.call), work.call.timeout_seconds)

    async def inquire(self, work: Inquire) -> Probe:
        """Ask the target what became of an earlier intent; what cannot be asked now is asked later."""
        connector = self._connector(work.operation)
        if isinstance(connector, Refused):
            return _cannot_tell(connector.message)
        asking = connector.probe(work.call, seconds_since_intent=work.seconds_since_intent)
        asked = await _bounded(asking, work.call.timeout_seconds)
        return _cannot_tell(asked.message) if isinstance(asked, InDoubt) else asked

    def _connector(self, operation: Operation) -> Connector | Refused:
        try:
            return self.connectors.for_operation(operation.name)
        except CountersealError as error:
            return Refused("not_configured", str(error))


def _cannot_tell(message: str) -> Probe:
    return Probe(ProbeVerdict.CANNOT_TELL, message, retry_after_seconds=PROBE_AFTER.total_seconds())


async def _bounded(call: Awaitable[Result], seconds: float) -> Result | InDoubt:
    """Await a connector, which should neither overrun nor raise; if it does, nobody knows what came of the call."""
    try:
        async with asyncio.timeout(seconds + GRACE_SECONDS):
            return await call
    except TimeoutError:
        return InDoubt(f"No answer within {seconds:g} seconds.")
    except Exception as error:
        log.exception("connector raised")
        return InDoubt(f"The connector failed: {type(error).__name__}: {error}")
