"""A tenant's records as a connector: it reads. What changes a record is no call: the engine writes it with the step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from connectors.port import Call, Done, NothingBefore, NotSent, Outcome, Probe, ProbeVerdict, Refused
from core.canonical import JsonObject
from core.errors import TransportError

# Reads for a tenant, by the function of the handler and its input.
Read: TypeAlias = Callable[[str, str, JsonObject], Awaitable[JsonObject]]


class RecordsConnector(NothingBefore):
    """The records in the runtime's database, which ``read`` reads."""

    def __init__(self, read: Read) -> None:
        self._read = read

    async def perform(self, call: Call) -> Outcome:
        """Get or query."""
        function = call.operation.rpartition(".")[2]
        if function not in ("get", "query"):
            return Refused("unknown_handler", f"{call.operation} is no reading of records")
        try:
            return Done(await self._read(call.tenant, function, call.input))
        except TransportError as error:
            return NotSent(str(error))

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Answer that nothing was applied: reading changes nothing, and what changes a record is never in doubt."""
        return Probe(ProbeVerdict.NOT_APPLIED, f"{call.operation} was not written, or its step would be over")

    async def check(self) -> tuple[bool, str]:
        """Report that they are where the runtime is."""
        return True, "in Counterseal's own database"

    async def aclose(self) -> None:
        """Do nothing: no connection is held."""
