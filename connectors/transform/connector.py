"""Returns its input (``transform.data.apply``); the workflow's expressions have computed it."""

from __future__ import annotations

from connectors.port import Call, Done, NothingBefore, Outcome, Probe, ProbeVerdict


class TransformConnector(NothingBefore):
    """Returns its input. It calls nothing outside, so it cannot fail."""

    async def perform(self, call: Call) -> Outcome:
        """Return the ``value`` of the input as it is."""
        return Done({"value": call.input.get("value")})

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Answer *not applied*: it has no side effect and is safe to repeat."""
        return Probe(ProbeVerdict.NOT_APPLIED, f"{call.operation} changes nothing outside, so it can be repeated")

    async def check(self) -> tuple[bool, str]:
        """Report that it is always available."""
        return True, "works in process"

    async def aclose(self) -> None:
        """Do nothing: no connection is held."""
