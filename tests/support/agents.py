"""A world with a model that plays a script, and agents in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from sandbox.model import Model

ALLOW = """
policy: allow-all
version: 1
rules:
  - {id: probe, match: {connector: probe}, outcome: allow, because: It is a test.}
  - {id: model, match: {connector: model}, outcome: allow, because: It is a test.}
"""

WORKFLOW = """
workflow: agents
version: 1
channels: {found: {}}
steps:
  - id: triage
    agent:
      model: %(model)s
      instructions: You triage. Say what you changed.
      input: ${{ trigger.text }}
      tools:
        - probe.value.read
        - probe.effect.apply
        - probe.mail.send
        - ask: {name: ask_desk, title: A question, form: %(form)s, assign: {group: desk}}
%(more)s
    set: {found: "${{ output }}"}
%(beside)s
"""
FORM = "{type: object, required: [answer], properties: {answer: {type: string}}}"


def agent(model: str = "script-given", more: str = "", beside: str = "") -> str:
    """A workflow of one agent."""
    indented = "\n".join(f"      {line}" for line in more.strip().splitlines())
    outer = "\n".join(f"    {line}" for line in beside.strip().splitlines())
    return WORKFLOW % {"model": model, "form": FORM, "more": indented, "beside": outer}


def call(tool: str, given: Any = None, name: str | None = None) -> dict[str, Any]:
    """One call of a tool, as a model writes it."""
    text = given if isinstance(given, str) else json.dumps(given or {})
    return {"id": name or f"{tool}-{text[:60]}", "type": "function", "function": {"name": tool, "arguments": text}}


def calls(*made: dict[str, Any]) -> dict[str, Any]:
    """One turn of a model."""
    return {"content": None, "tool_calls": [*made]}


def says(text: str) -> dict[str, Any]:
    """The last answer of a model."""
    return {"content": text}


@dataclass
class Agents:
    """The runtime, and the model that its agents ask."""

    runtime: Any
    model: Model

    async def go(
        self, *turns: dict[str, Any], text: str = "help", policy: str = ALLOW, workflow: str | None = None
    ) -> UUID:
        """Start the agent, whose model says these turns, and let a worker do what there is."""
        self.model.turns = [*turns]
        run: UUID = await self.runtime.go(workflow or agent(), {"text": text}, policy)
        return run

    @property
    def asked(self) -> list[list[dict[str, Any]]]:
        """The messages of each call of the model."""
        return [list(cast(Any, request)["messages"]) for request in self.model.completions]

    def results(self) -> dict[str, Any]:
        """By the id of each call, the one result that the model was last told."""
        found: dict[str, Any] = {}
        for message in self.asked[-1]:
            if message["role"] == "tool":
                assert message["tool_call_id"] not in found, "a call has one result"
                found[message["tool_call_id"]] = message["content"]
        return found

    async def found(self, run_id: UUID) -> Any:
        """The agent's output."""
        return (await self.runtime.state(run_id))["channels"]["found"]
