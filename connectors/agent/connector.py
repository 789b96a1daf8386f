"""The connector of tools that an agent carries out itself: nothing is ever called from here."""

from __future__ import annotations

from connectors.port import Call, NothingBefore, Outcome, Probe, ProbeVerdict, Refused

# People read this as the system, and approvals bind it.
CARRIED_OUT = "the process of the agent, which carries it out itself; its outcome is as the agent reports it"


class AgentConnector(NothingBefore):
    """Stands for the agent: it is told that it may call its tool, and it says what came of that."""

    @property
    def target(self) -> str:
        """The words for where the tool runs."""
        return CARRIED_OUT

    async def perform(self, call: Call) -> Outcome:
        """Refuse: only the agent that fetches the permit carries it out."""
        return Refused(
            "not_ours", f"{call.operation} is carried out by the agent that asked for it, and by nobody else"
        )

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Answer that nobody can tell: it ran, or not, in another process."""
        return Probe(ProbeVerdict.CANNOT_TELL, f"{call.operation} runs in the process of an agent")

    async def check(self) -> tuple[bool, str]:
        """Report that there is nothing to reach."""
        return True, "tools run in the processes of agents"

    async def aclose(self) -> None:
        """Do nothing: no connection is held."""
