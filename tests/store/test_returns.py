"""The end of a run goes back to the step that waits for it, however that was started: rows of children by hand."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from runtime.keep.dispatcher import Delivered, Later
from runtime.keep.errands import Errands
from runtime.store.outbox import Message
from tests.support.rows import ago, put_run, read, uid

# The rows of the children are of no book.
pytestmark = [pytest.mark.tampers, pytest.mark.req("X-12")]

PARENT = """
workflow: parent
version: 1
reference: ${{ run.id }}
steps:
  - {id: sub, do: probe.value.read, with: {name: sub}}
  - {id: paid, wait: {signal: paid, correlate: x}}
"""


@pytest.mark.parametrize("behind", ["", "#1"])
async def test_it_is_told_again_until_the_step_above_is_parked_or_over(runtime: Any, behind: str) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(PARENT)
    parent: UUID = (await runtime.start("parent")).run_id
    errands = Errands(runtime.database, runtime.definitions, runtime.connectors)

    async def told(number: int, step: str) -> Any:
        """The end of a child of this step comes."""
        over = {"status": "succeeded", "finished_at": ago(hours=1), "result": {"n": number}, "parent_run_id": parent}
        of = {"trigger_ref": f"{parent}:{step}{behind}", "workflow": f"w{number}"}
        await put_run(runtime.database, "acme", number, **over, **of)
        message = Message(uid(90 + number), "acme", uid(number), "return", {"run": str(uid(number))}, 1, 0.0)
        async with runtime.database.connection() as connection:
            deliver = await errands.handlers()["return"](connection, message)
        return await deliver()

    assert await told(1, "sub") == Later("The run that waits for it is not parked yet.")
    await runtime.worker().work_off()
    assert await told(2, "sub") == Delivered()
    assert await told(3, "paid") == Later("The run that waits for it is not parked yet.")
    kept = "SELECT notification_id, processed_at IS NOT NULL, result FROM inbox WHERE source = 'run' ORDER BY 1"
    ended = {"code": "already_ended", "run": str(parent), "step": "sub"}
    rows = {int(UUID(one)): (processed, result) for one, processed, result in await read(runtime.database, kept)}
    assert rows[2] == (True, ended)
    assert [rows[number][0] for number in (1, 3)] == [False, False]
