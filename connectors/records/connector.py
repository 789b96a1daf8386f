"""A tenant's records as a connector, which only reads. The engine itself writes records, in the step's append."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from connectors.port import SHAPED, Call, Done, NothingBefore, NotSent, Outcome, Probe, ProbeVerdict, Refused
from core.canonical import JsonObject
from core.errors import TransportError

# Reads records: (tenant, function of the handler, input) -> output, with the marks of those who shaped them.
Read: TypeAlias = Callable[[str, str, JsonObject], Awaitable[JsonObject]]


class RecordsConnector(NothingBefore):
    """The records in the runtime's database. ``read`` runs the query."""

    def __init__(self, read: Read) -> None:
        self._read = read

    async def perform(self, call: Call) -> Outcome:
        """Get or query."""
        function = call.declaration.function
        if function not in ("get", "query"):
            return Refused("unknown_handler", f"{call.operation} is no reading of records")
        try:
            found = await self._read(call.tenant, function, call.input)
        except TransportError as error:
            return NotSent(str(error))
        marks = found.pop(SHAPED, None)
        return Done(found, writers=tuple(map(str, marks)) if isinstance(marks, list) else ())

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Answer *not applied*: a read changes nothing, and a write of a record is never in doubt."""
        return Probe(ProbeVerdict.NOT_APPLIED, f"{call.operation} was not written, or its step would be over")

    async def check(self) -> tuple[bool, str]:
        """Report that the records are in the runtime's own database."""
        return True, "in Counterseal's own database"

    async def aclose(self) -> None:
        """Do nothing: no connection is held."""
