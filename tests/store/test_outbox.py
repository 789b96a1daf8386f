"""Messages that a dispatcher gets, and how their ends are kept, among literal rows of two tenants."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from runtime.engine.model.states import CommandState
from runtime.keep.dispatcher import ATTEMPTS_MAX, Deliver, Dispatcher, Later, saying
from runtime.store import outbox
from tests.support.rows import ago, change, put, read, uid

# The rows are of no book.
pytestmark = pytest.mark.tampers

LEASE = timedelta(seconds=60)
NOW = timedelta(0)


async def two_tenants(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")


async def message(runtime: Any, number: int, tenant: str = "acme", hours: float = 1, **columns: Any) -> None:
    row = {"command_id": number, "run_id": 1, "created_at": ago(hours=hours), **columns}
    await put(runtime.database, "commands", tenant, **row)


async def leased(
    runtime: Any, after: outbox.Lane = ("", ""), full: list[str] | None = None, only: UUID | None = None
) -> Any:
    async with runtime.database.connection() as connection:
        return await outbox.lease_message(connection, "d", LEASE, after, full or [], only=only)


async def in_turn(runtime: Any, *full: str) -> list[int]:
    """Every message that can be leased, each behind the lane of the one before."""
    found: list[int] = []
    after = ("", "")
    while (one := await leased(runtime, after, list(full))) is not None:
        found.append(one.command_id.int)
        after = one.lane
    return found


@pytest.mark.req("O-7")
async def test_lanes_take_turns_and_in_each_the_one_due_longest_comes_first(runtime: Any) -> None:
    await two_tenants(runtime)
    await message(runtime, 1, hours=1)
    await message(runtime, 2, hours=3)
    await message(runtime, 3, hours=9, next_attempt_at=ago(hours=2))
    await message(runtime, 4, hours=9, next_attempt_at=ago(hours=-1))
    await message(runtime, 5, hours=1, kind="task")
    await message(runtime, 6, "beta", hours=5)
    await message(runtime, 7, "beta", hours=4)
    await message(runtime, 8, "beta", hours=8, status="failed")
    assert await in_turn(runtime) == [2, 5, 6, 3, 7, 1]
    assert await leased(runtime) is None


@pytest.mark.req("O-7")
async def test_nothing_is_taken_of_what_is_full(runtime: Any) -> None:
    await two_tenants(runtime)
    await message(runtime, 1)
    await message(runtime, 2, kind="task")
    await message(runtime, 3, "beta")
    await message(runtime, 4, "beta", kind="task")
    await message(runtime, 5, "beta", kind="bundle")
    assert await in_turn(runtime, "card", "beta:task") == [2, 5]
    assert await in_turn(runtime, "acme:card") == [3, 4]


@pytest.mark.req("O-4")
async def test_a_message_is_leased_with_all_that_is_said_of_it(runtime: Any) -> None:
    await two_tenants(runtime)
    key = {"ordering_key": "approval:1"}
    await message(runtime, 9, hours=4, payload={"approval": "a"}, attempts=2, **key)
    await message(runtime, 8, hours=2, **key)
    await message(runtime, 7, hours=3, **key)
    await message(runtime, 6, hours=2, status="dispatched", **key)
    await message(runtime, 5, hours=1, kind="remind", **key)
    await message(runtime, 4, hours=2, ordering_key="approval:2")
    one = await leased(runtime)
    assert (one.command_id, one.tenant_id, one.run_id, one.kind) == (uid(9), "acme", uid(1), "card")
    assert (one.payload, one.attempts, one.behind) == ({"approval": "a"}, 3, (uid(7), uid(8)))
    assert one.created_at == pytest.approx(ago(hours=4).timestamp(), abs=300)
    row = "SELECT status, lease_owner, lease_expires_at FROM commands WHERE command_id = $1"
    ((status, owner, ends),) = await read(runtime.database, row, uid(9))
    assert (status, owner) == ("leased", "d")
    assert ends - datetime.now(ends.tzinfo) == pytest.approx(LEASE, abs=timedelta(seconds=50))
    # Whatever has this key waits for it, and nothing else does.
    assert (await leased(runtime, only=uid(5)), await leased(runtime, only=uid(7))) == (None, None)
    following = await leased(runtime)
    assert following is not None
    assert following.command_id == uid(4)
    async with runtime.database.connection() as connection:
        await connection.execute("UPDATE commands SET status = 'dispatched' WHERE command_id = $1", uid(8))
        await outbox.end_shown(connection, one)
    shown = await read(runtime.database, "SELECT command_id, status FROM commands ORDER BY 1")
    statuses = ["leased", "pending", "dispatched", "dispatched", "dispatched", "leased"]
    assert shown == [(uid(number), status) for number, status in enumerate(statuses, 4)]


async def test_only_what_still_waits_ends_with_what_was_shown(runtime: Any) -> None:
    await two_tenants(runtime)
    await message(runtime, 1, ordering_key="k", hours=2)
    await message(runtime, 2, ordering_key="k")
    await message(runtime, 3, ordering_key="k")
    one = await leased(runtime)
    failed = "UPDATE commands SET status = 'failed', last_error = 'why' WHERE command_id = $1"
    await change(runtime.database, failed, uid(3))
    async with runtime.database.connection() as connection:
        await outbox.end_shown(connection, one)
    rows = await read(runtime.database, "SELECT status, last_error FROM commands ORDER BY command_id")
    assert rows == [("leased", None), ("dispatched", None), ("failed", "why")]


@pytest.mark.req("O-4")
async def test_the_end_of_a_delivery_is_told_by_whoever_holds_the_message(runtime: Any) -> None:
    await two_tenants(runtime)
    for number in (1, 2, 3):
        await message(runtime, number, hours=9 - number)
    first, second, third = [await leased(runtime) for _ in range(3)]
    async with runtime.database.connection() as connection:
        done, failed, again = CommandState.DISPATCHED, CommandState.FAILED, CommandState.PENDING
        assert await outbox.end_message(connection, first, done, None, NOW)
        assert not await outbox.end_message(connection, first, failed, "late", NOW)
        assert await outbox.end_message(connection, second, failed, "refused", NOW)
        assert await outbox.end_message(connection, third, again, "away", timedelta(hours=2))
    rows = await read(
        runtime.database,
        "SELECT status, last_error, attempts, lease_owner, lease_expires_at, next_attempt_at > now() + interval '1 h'"
        " FROM commands ORDER BY command_id",
    )
    ends = [("dispatched", None, False), ("failed", "refused", False), ("pending", "away", True)]
    assert rows == [(status, error, 1, None, None, later) for status, error, later in ends]


@pytest.mark.req("O-7")
async def test_what_failed_for_good_is_sent_again_as_if_it_were_new(runtime: Any) -> None:
    await two_tenants(runtime)
    failed = {"status": "failed", "attempts": 20, "next_attempt_at": ago(hours=-1)}
    rows = [("acme", "task"), ("acme", "card"), ("acme", "card"), ("beta", "card"), ("beta", "task")]
    for number, (tenant, kind) in enumerate(rows, 1):
        await message(runtime, number, tenant, kind=kind, **failed)
    await message(runtime, 6, attempts=7)
    await message(runtime, 7, status="dispatched", attempts=1)

    async def again(tenant: str | None, kind: str | None) -> list[tuple[Any, ...]]:
        async with runtime.database.connection() as connection:
            return [(*one.values(),) for one in await outbox.send_again(connection, tenant, kind)]

    assert await again("beta", "card") == [("beta", "card", 1)]
    assert await again(None, "task") == [("acme", "task", 1), ("beta", "task", 1)]
    await change(runtime.database, "UPDATE commands SET status = 'failed', attempts = 20 WHERE command_id = $1", uid(1))
    assert await again("acme", None) == [("acme", "card", 2), ("acme", "task", 1)]
    assert await again(None, None) == []
    left = await read(runtime.database, "SELECT status, attempts, next_attempt_at FROM commands ORDER BY command_id")
    assert left == [("pending", 0, None)] * 5 + [("pending", 7, None), ("dispatched", 1, None)]


@pytest.mark.req("O-4")
async def test_a_delivery_is_tried_again_ever_later_and_what_time_does_not_mend_so_often(runtime: Any) -> None:
    await two_tenants(runtime)
    away, counted, last = Later("away"), Later("ours", counted=True), ATTEMPTS_MAX
    rows: list[tuple[int, Any, str, float, str]] = [
        (1, away, "pending", 2, "away"), (4, away, "pending", 16, "away"), (9, away, "pending", 512, "away"),
        (10, away, "pending", 900, "away"), (last + 9, away, "pending", 900, "away"),
        (3, Later("slow", 100.0), "pending", 100, "slow"), (6, Later("fast", 3.0), "pending", 64, "fast"),
        (last - 1, counted, "pending", 900, "ours"), (last, counted, "failed", 0, "ours"),
        (1, ValueError("no"), "pending", 2, "ValueError: no"), (last, ValueError("no"), "failed", 0, "ValueError: no"),
        (1, None, "failed", 0, "Nobody here delivers messages of kind 'none'."),
    ]  # fmt: skip
    for number, (attempts, result, *_) in enumerate(rows, 1):
        kind = "none" if result is None else "card"
        await message(runtime, number, attempts=attempts - 1, kind=kind, payload={"number": number})

    async def card(_: Any, one: outbox.Message) -> Deliver:
        result = rows[one.payload["number"] - 1][1]
        if isinstance(result, Exception):
            raise result
        return partial(saying, result)

    assert await Dispatcher(runtime.database, {"card": card}, "d").work_off() == len(rows)
    sql = """SELECT status, last_error, attempts, extract(epoch FROM next_attempt_at - now())::float8
      FROM commands ORDER BY command_id"""
    found = await read(runtime.database, sql)
    assert [row[:3] for row in found] == [(status, said, attempts) for attempts, _, status, _, said in rows]
    spans = [row[3] for row in found if row[0] == "pending"]
    assert spans == [pytest.approx(span, abs=30, rel=0) for _, _, status, span, _ in rows if status == "pending"]
