"""Batches that a scheduler sends to a queue, and beats that are slow to be answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from runtime.keep.scheduler import BATCH, Scheduler

ONE = """
workflow: one
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""


class Line:
    """A queue that takes whatever it is given."""

    needs_dispatch = True

    def __init__(self) -> None:
        self.batches: list[int] = []

    async def sent(self, messages: Sequence[tuple[str, str, str]]) -> list[str]:
        self.batches.append(len(messages))
        return [key for key, _, _ in messages]


@pytest.mark.req("Q-11")
async def test_a_batch_is_no_larger_however_many_tenants_have_steps(runtime: Any) -> None:
    for tenant in ("acme", "beta", "gamma"):
        await runtime.tenant(tenant)
        await runtime.policy(tenant=tenant)
        await runtime.publish(ONE, tenant)
        for number in range(6):
            await runtime.start("one", ref=str(number), tenant=tenant)
    line = Line()
    scheduler = Scheduler(runtime.database, line, "s")
    assert [await scheduler.admit() for _ in range(3)] == [BATCH, 18 - BATCH, 0]
    assert line.batches == [BATCH, 18 - BATCH]


@pytest.mark.req("Q-11")
async def test_steps_that_were_admitted_are_sent_though_the_next_tenant_is_held(runtime: Any) -> None:
    for tenant in ("acme", "beta"):
        await runtime.tenant(tenant)
        await runtime.policy(tenant=tenant)
        await runtime.publish(ONE, tenant)
        await runtime.start("one", ref="1", tenant=tenant)
    line = Line()
    async with runtime.database.transaction() as connection:
        await connection.execute("SELECT FROM tenants WHERE tenant_id = 'beta' FOR UPDATE")
        assert await Scheduler(runtime.database, line, "s").admit() == 1
    assert line.batches == [1]
