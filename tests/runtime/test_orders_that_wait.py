"""Orders of a run that cannot be carried out yet, or need not be any more: what is made of each (V-13, O-3)."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import ConsistencyError
from runtime.keep import errands
from runtime.requests.steering import cancel_run
from tests.support.runtime_children import WAITING, begun, child_of
from tests.support.runtime_voting import Office


@pytest.mark.req("V-13")
async def test_a_run_within_that_moves_on_just_now_is_canceled_a_little_later(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await begun(runtime, WAITING)
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "not needed")

    async def moved(*_: Any) -> Any:
        raise ConsistencyError("The run has just moved on.")

    with monkeypatch.context() as patched:
        patched.setattr(errands, "cancel_run", moved)
        await runtime.errands()
    assert (await runtime.books.command(kind="cancel")).status == "pending"
    assert (await child_of(runtime)).status == "waiting"
    await runtime.trouble.retry_messages_now()
    await runtime.errands()
    assert (await runtime.books.command(kind="cancel")).status == "dispatched"
    assert (await child_of(runtime)).status == "canceled"


@pytest.mark.req("V-13")
async def test_a_run_within_that_is_over_needs_no_cancel(runtime: Any) -> None:
    run_id = await begun(runtime, WAITING)
    for run in (run_id, (await child_of(runtime)).id):
        async with runtime.faces.transaction("acme") as connection:
            await cancel_run(connection, runtime.definitions, "acme", run, runtime.actor, "not needed")
    await runtime.errands()
    assert (await runtime.books.command(kind="cancel")).status == "dispatched"


@pytest.mark.req("O-3")
@pytest.mark.parametrize("hours", [1.01, 6.01])
async def test_nobody_is_reminded_of_what_was_decided_meanwhile(office: Office, hours: float) -> None:
    """The order of the reminder, or of the escalation, stands in line while somebody decides."""
    await office.open()
    for passed in (1.01, 5.0)[: 1 if hours < 2 else 2]:
        await office.later(hours=passed)
        assert await office.sweeper.sweep() == 1
    orders = [order.kind for order in await office.runtime.books.commands(status="pending")]
    assert ("remind" in orders, "escalate" in orders) == (True, hours > 2)
    assert (await office.vote("ana")).counted
    await office.finish()
    assert office.board.threads == []
    assert office.board.states() == ["applied"]
