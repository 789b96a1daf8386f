"""A loop over ten thousand items: what a step's commit touches does not depend on how many came before (X-12)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from core.db import ENGINE_ROLE, Connection, Database

ITEMS = 10_000
TEXT = """
workflow: long
version: 1
reference: r
channels: {sum: {reduce: sum, initial: 0}}
steps:
  - foreach: ${{ trigger.items }}
    steps: [{id: read, do: probe.value.read, with: {value: "${{ item }}"}, set: {sum: "${{ item }}"}}]
"""


@dataclass
class Sent:
    """Statements as they went over the wire."""

    statements: list[str] = field(default_factory=list)

    def note(self, query: str) -> None:
        if not query.startswith(("BEGIN", "COMMIT", "ROLLBACK", "SELECT set_config")):
            self.statements.append(re.sub(r"\\s+", " ", query)[:400])


class Watched(Database):
    """A database whose statements are noted."""

    def __init__(self, url: str, role: str, sent: Sent) -> None:
        super().__init__(url, role, connections=4)
        self._sent = sent

    async def connect(self) -> Connection:
        connection = await super().connect()
        connection.add_query_logger(lambda record: self._sent.note(record.query))
        return connection


@pytest.fixture
async def watched(runtime: Any, database_url: str) -> AsyncIterator[tuple[Any, Sent]]:
    sent = Sent()
    async with Watched(database_url, ENGINE_ROLE, sent) as engine:
        yield replace(runtime, database=engine), sent


async def written_with(world: Any, run_id: Any, item: int) -> dict[str, int]:
    """Count the rows of each table that the commit that began this item wrote."""
    step = await world.books.step(f"foreach_0[{item}].read")
    found: dict[str, int] = await world.books.rows_written_with_barrier(run_id, step.superstep)
    return found


@pytest.mark.timeout(300)
@pytest.mark.req("X-12")
async def test_a_step_costs_the_same_at_item_10_and_at_item_9990(watched: tuple[Any, Sent]) -> None:
    world, sent = watched
    await world.tenant()
    await world.policy()
    await world.publish(TEXT)
    run_id = (await world.start("long", {"items": list(range(ITEMS))})).run_id
    marks: dict[int, int] = {}

    def perform(call: Any) -> None:
        marks[call.input["value"]] = len(sent.statements)

    world.outside.on_perform = perform
    await world.worker().work_off()
    assert await world.status(run_id) == "succeeded"
    assert (await world.state(run_id))["channels"]["sum"] == sum(range(ITEMS))
    assert len(marks) == ITEMS

    def between(first: int, last: int) -> list[str]:
        return sent.statements[marks[first] : marks[last]]

    early, late = between(10, 20), between(9_980, 9_990)
    assert early == late
    assert len(early) == 10, "one statement for each step"
    # Every hundred items the next ones are read: that costs the same early and late, too.
    assert between(100, 300) == between(9_700, 9_900)
    rows = await written_with(world, run_id, 10)
    assert rows == await written_with(world, run_id, 9_990)
    assert rows["journal"] == 1
    early_one, late_one = await world.books.checkpoints(superstep={11, 9991})
    assert abs(early_one.size - late_one.size) < 40, "a checkpoint holds what is under way, not what is done"
    assert len(await world.books.lines(run_id)) == 4 * ITEMS + 3
    await world.at_rest()
