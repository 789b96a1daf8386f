"""Helpers of tests/engine that several test files share: from test_agent_sources."""

from __future__ import annotations

from typing import Any

from tests.support.agents import call

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
    approvers: [{group: owners}]
"""


EVIL = "evil@x.example"


MEMORY = """
workflow: agents
version: 1
channels: {messages: {reduce: union, ledger: true}, found: {}}
steps:
"""


ONE = """
  - id: %(id)s
    agent:
      {model: script-given, instructions: "I am %(id)s.", input: "Do %(id)s.", tools: [%(tools)s],
       remember: {channel: messages, turns: %(turns)s}}
"""


def one(name: str, tools: str = "probe.effect.apply", turns: int = 20) -> str:
    return ONE % {"id": name, "tools": tools, "turns": turns}


def apply(name: str, **more: str) -> dict[str, Any]:
    return call("probe_effect_apply", {"name": name, **more})


def read(name: str, **more: Any) -> dict[str, Any]:
    return call("probe_value_read", {"name": name, **more})
