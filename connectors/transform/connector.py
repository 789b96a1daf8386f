"""``transform.data.apply``: the workflow's expressions do the work; this hands back what they made."""

from __future__ import annotations

from connectors.port import Before, Call, Done, NotSent, Outcome, Probe, ProbeVerdict, Refused


class TransformConnector:
    """Nothing outside is touched, so nothing can fail."""

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        """Not used: nothing is written."""
        return Refused("no_pre_read", f"{call.operation} writes nothing, so there is nothing to read first")

    async def perform(self, call: Call) -> Outcome:
        """``{value}`` in, ``{value}`` out."""
        return Done({"value": call.input.get("value")})

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Never applied anything: safe to repeat."""
        return Probe(ProbeVerdict.NOT_APPLIED, f"{call.operation} changes nothing outside, so it can be repeated")

    async def check(self) -> tuple[bool, str]:
        """Always well."""
        return True, "works in process"

    async def aclose(self) -> None:
        """Nothing is held."""
