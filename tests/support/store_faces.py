"""Helpers of tests/store that several test files share: from test_faces."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.support.runtime_stage import ALLOW_ALL

ASKS = """
policy: asks
version: 1
rules:
  - id: all
    match: {connector: probe}
    outcome: needs_approval
    approvers: [{group: owners, of: 2}]
"""


ONE = "workflow: one\nversion: 1\nreference: r\nsteps: [{id: a, do: probe.effect.apply, with: {name: a}}]\n"


async def asked(runtime: Any, text: str = ONE, tenant: str = "acme") -> UUID:
    """A run that waits for two owners."""
    await runtime.tenant(tenant)
    await runtime.policy(ASKS if text is ONE else ALLOW_ALL, tenant)
    await runtime.publish(text, tenant)
    for person in ("olga", "otto"):
        await runtime.person(person, ("owners",), tenant)
    run_id: UUID = (await runtime.start("one", tenant=tenant)).run_id
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "waiting_approval"
    return run_id
