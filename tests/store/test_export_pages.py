"""An export reads the log from its cursor on: pages of any size tell what one export of everything tells."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.requests.exporting import export
from tests.support.runtime_stage import ACTOR

SIMPLE = "workflow: simple\nversion: 1\nreference: r\nsteps: [{id: a, do: probe.effect.apply, with: {name: a}}]\n"


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_pages_of_any_size_tell_each_line_once_from_their_cursor_on(runtime: Any, size: int) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(SIMPLE)
    for number in range(3):
        await runtime.start("simple", ref=str(number))
        await runtime.sweep()
    await runtime.worker().work_off()
    for _ in range(2):
        await runtime.sweep()

    async def page(first: int, leaves_max: int) -> Any:
        async with runtime.faces.transaction("acme") as connection:
            return await export(connection, "acme", ACTOR, "1.0", first, leaves_max)

    whole = await page(0, 1000)
    told, at = list[Any](), 0
    while at < whole.next:
        found = await page(at, min(size, whole.next - at))
        assert found.next - at <= size
        told, at = [*told, *found.events], found.next
    assert [one["metadata"]["uid"] for one in told] == [one["metadata"]["uid"] for one in whole.events]
    assert len({one["metadata"]["uid"] for one in told}) == len(told) > 20
