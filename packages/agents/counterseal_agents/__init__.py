"""Governed tools of agents: a tool's body runs only on Counterseal's explicit yes to this very call.

``govern`` is for any callable. Modules of their own: ``langchain``, ``openai_agents``, ``crewai``, ``pydantic_ai``,
``smolagents``, ``strands``, ``llama_index``, ``google_adk``, ``agent_framework`` and ``claude_agent``. ``hook`` is for
Claude Code and Codex.
"""

from __future__ import annotations

from counterseal_agents.canonical import digest_of_call
from counterseal_agents.errors import Closed, NotRun, Pending, Refused, Ungoverned, Unreported
from counterseal_agents.gate import Gate
from counterseal_agents.govern import govern

__all__ = [
    "Closed",
    "Gate",
    "NotRun",
    "Pending",
    "Refused",
    "Ungoverned",
    "Unreported",
    "digest_of_call",
    "govern",
]
