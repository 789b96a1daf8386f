"""Helpers of tests/runtime that several test files share: from test_agent_origins."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from runtime.definition.workflow import load_workflow
from runtime.requests.starting import StartRequest, start_named
from tests.support.agents import Agents, agent, call

OWN = """
policy: own
version: 1
rules:
  - {id: model, match: {connector: model}, outcome: allow}
  - {id: read, match: {operation: probe.value.read}, outcome: allow}
  - id: own
    match: {operation: probe.effect.apply}
    when: origin.name.all(o, 'requester' in o)
    outcome: allow
    otherwise: needs_approval
    approvers: [{group: leads}]
"""


async def go(
    agents: Agents, *turns: Any, text: Any = "Set 'alpha'.", policy: str = OWN, workflow: str | None = None
) -> UUID:
    """Start the agent as a person does over HTTP."""
    runtime, source = agents.runtime, workflow or agent()
    agents.model.turns = [*turns]
    await runtime.tenant()
    await runtime.policy(policy)
    await runtime.publish(source)
    request = StartRequest("acme", "main", "http", "1", {"text": text}, "ada", runtime.actor)
    name = load_workflow(source, "test.yaml", runtime.catalog).name
    run = (await start_named(runtime.faces, runtime.definitions, name, None, request)).run_id
    await runtime.go_on()
    return run


def apply(name: str, **more: str) -> dict[str, Any]:
    return call("probe_effect_apply", {"name": name, **more})


def read(name: str, **more: Any) -> dict[str, Any]:
    return call("probe_value_read", {"name": name, **more})
