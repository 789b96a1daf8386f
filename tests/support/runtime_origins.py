"""Helpers of tests/runtime that several test files share: from test_origins."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from runtime.requests.starting import StartRequest, start_named

READS = """
policy: reads
version: 1
rules:
  - id: own
    match: {operation: probe.effect.apply}
    when: origin.name.all(o, 'requester' in o || 'workflow' in o)
    outcome: allow
    otherwise: deny
    because: The name is the requester's.
  - {id: rest, match: {connector: probe}, outcome: allow}
"""


HEAD = "workflow: %s\nversion: 1\nreference: ${{ trigger.name }}\n"


ACT = '  - {id: act, do: probe.effect.apply, with: {name: "%s"}}\n'


SENT = {"name": "ada", "other": "eve", "list": [{"to": "ada"}, {"to": "eve"}]}


async def started(runtime: Any, name: str, trigger: Any = None, how: str = "http", who: str = "ada") -> UUID:
    request = StartRequest("acme", "main", how, "1", SENT if trigger is None else trigger, who, runtime.actor)
    return (await start_named(runtime.faces, runtime.definitions, name, None, request)).run_id


async def world(runtime: Any, *texts: str, policy: str = READS) -> None:
    await runtime.tenant()
    await runtime.policy(policy)
    for text in texts:
        await runtime.publish(text)
