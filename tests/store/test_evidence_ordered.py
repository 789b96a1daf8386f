"""Evidence is ordered once more only where nobody stores it any more, and of one run one at a time (Q-21)."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from connectors.port import NotSent
from core.errors import ConsistencyError, NotFoundError
from runtime.keep.bundling import write_again
from tests.support.rows import put, read
from tests.support.trouble import Forger

# Rows are changed by hand.
pytestmark = [pytest.mark.tampers, pytest.mark.req("Q-21")]

EFFECT = """
workflow: effect
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""


async def order(runtime: Any, run_id: UUID) -> None:
    async with runtime.faces.transaction("acme") as connection:
        await write_again(connection, "acme", run_id)


async def test_it_is_ordered_where_its_writing_was_given_up_and_nowhere_else(runtime: Any, database_url: str) -> None:
    runtime.outside.script["a"] = [NotSent("not now")]
    run_id = await runtime.go(EFFECT)
    with pytest.raises(NotFoundError):
        await order(runtime, uuid4())
    with pytest.raises(ConsistencyError, match="has not ended"):
        await order(runtime, run_id)
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "succeeded"
    with pytest.raises(ConsistencyError, match="is being written"):
        await order(runtime, run_id)
    await Forger(database_url).failed_message("bundle")
    await order(runtime, run_id)
    with pytest.raises(ConsistencyError, match="is being written"):
        await order(runtime, run_id)
    keys = "SELECT status, ordering_key FROM commands WHERE kind = 'bundle' ORDER BY command_id"
    found = await read(runtime.database, keys)
    assert sorted(found) == [("failed", found[0][1]), ("pending", f"bundle:{run_id}")]
    await Forger(database_url).failed_message("bundle")
    lines = (await runtime.books.run(run_id)).audit_count
    await put(runtime.database, "bundles", "acme", run_id=run_id, lines=lines)
    with pytest.raises(ConsistencyError, match="is stored"):
        await order(runtime, run_id)
