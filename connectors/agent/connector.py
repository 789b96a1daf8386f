"""The connector of tools that an agent carries out itself: nothing is ever called from here."""

from __future__ import annotations

from connectors.port import Call, NothingBefore, Outcome, Probe, ProbeVerdict, Refused

# The name of the outside system on cards; approvals bind it.
CARRIED_OUT = "the process of the agent, which carries it out itself; its outcome is as the agent reports it"


class AgentConnector(NothingBefore):
    """Represents the agent, which gets a permit to call its tool, and reports the outcome."""

    @property
    def target(self) -> str:
        """The place where the tool runs, in words."""
        return CARRIED_OUT

    async def perform(self, call: Call) -> Outcome:
        """Refuse: only the agent that fetches the permit carries it out."""
        return Refused(
            "not_ours", f"{call.operation} is carried out by the agent that asked for it, and by nobody else"
        )

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Answer *cannot tell*: whether it ran is known only in another process."""
        return Probe(ProbeVerdict.CANNOT_TELL, f"{call.operation} runs in the process of an agent")

    async def check(self) -> tuple[bool, str]:
        """Report that there is nothing to reach."""
        return True, "tools run in the processes of agents"

    async def aclose(self) -> None:
        """Do nothing: no connection is held."""
