"""``transform.data.apply``: the workflow's expressions do the work; this hands back what they made."""

from __future__ import annotations

from connectors.port import Call, Done, NothingBefore, Outcome, Probe, ProbeVerdict


class TransformConnector(NothingBefore):
    """Nothing outside is touched, so nothing can fail."""

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
