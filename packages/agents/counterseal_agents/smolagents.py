"""smolagents: an agent whose tools ask before they run.

    agent = governed(agent)

It has no hook, so each tool is replaced by a copy whose body spends the permit, also when the agent's code calls it.
It cannot pause: the call fails with words for the model, and the same call later finds the same question.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import TypeVar

from smolagents import FinalAnswerTool, MultiStepAgent, Tool

from counterseal_agents.errors import Ungoverned
from counterseal_agents.gate import Gate, Raised
from counterseal_agents.govern import govern

A = TypeVar("A", bound=MultiStepAgent)


def governed(agent: A, gate: Gate | None = None, *, ungoverned: Collection[str] = (), harmless: Raised = ()) -> A:
    """The agent, and those that it manages, with their tools replaced by ones that ask.

    ``Ungoverned`` for an executor that rebuilds tools elsewhere from their code, and for a tool that runs in a way of
    its own, unless they are named ``ungoverned``.
    """
    asking, where = gate or Gate(), getattr(agent, "executor_type", None) or "local"
    if where != "local" and where not in ungoverned:
        raise _refused(f"The executor {where} rebuilds tools from their code and runs them there", where)
    for name, tool in agent.tools.items():
        if name not in ungoverned and type(tool) is not FinalAnswerTool:
            agent.tools[name] = governed_tool(tool, asking, harmless)
    for inner in agent.managed_agents.values():
        governed(inner, asking, ungoverned=ungoverned, harmless=harmless)
    return agent


def governed_tool(tool: Tool, gate: Gate, harmless: Raised = ()) -> Tool:
    """A copy of the tool whose body asks before it runs."""
    if not isinstance(tool, Tool) or type(tool).__call__ is not Tool.__call__:
        raise _refused(f"The tool {tool.name} runs in a way of its own, not by forward()", tool.name)
    made = copy.copy(tool)
    made.forward = govern(tool.forward, gate=gate, tool=tool.name, harmless=harmless)
    return made


def _refused(why: str, name: str) -> Ungoverned:
    return Ungoverned(f"{why}, where nothing asks. Leave it out, or name it: governed(..., ungoverned=[{name!r}]).")
