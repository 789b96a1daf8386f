"""The step of a run within, which its parent's worker claims at once: under every cap, among literal rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runtime.store import claims
from tests.support.rows import ago, put, put_run, read, uid

# The rows are of no book.
pytestmark = [pytest.mark.tampers, pytest.mark.req("Q-12")]

LEASE = timedelta(seconds=30)
HELD = {"owner": "other", "lease_id": 90, "expires_at": ago(hours=-1)}


async def place(runtime: Any, number: int, tenant: str = "acme", **columns: Any) -> None:
    """A step of the run with this number stands in line."""
    await put_run(runtime.database, tenant, number)
    row = {"run_id": number, "step_id": number, "step_key": f"s{number}", "epoch": 4}
    await put(runtime.database, "queue", tenant, **{**row, **columns})


async def claimed(runtime: Any, run: int = 1) -> list[str]:
    async with runtime.database.connection() as connection:
        found = await claims.claim_of_run(connection, "w", LEASE, uid(run))
    return [row["step"]["step_key"] for row in found]


@pytest.mark.parametrize(
    ("tenant", "cap", "own", "other", "wanted"),
    [
        ({}, None, {"starts_run": True}, None, True),
        ({"max_runs_per_min": 60}, None, {"starts_run": True}, None, False),
        ({"max_runs_per_min": 60}, None, {"starts_run": False}, None, True),
        ({}, {"max_runs_per_min": 60}, {"starts_run": True, "cap": "w"}, None, False),
        ({}, {"max_runs_per_min": 60}, {"starts_run": False, "cap": "w"}, None, True),
        ({}, {"max_runs_per_min": 60}, {"starts_run": True}, None, True),
        ({}, {"slots": 1}, {"cap": "w"}, None, True),
        ({}, {"slots": 1}, {"cap": "w"}, {"cap": "w", "status": "leased", **HELD}, False),
        ({}, {"slots": 1}, {"cap": "w"}, {"cap": "w", "status": "sent", **HELD}, False),
        ({}, {"slots": 1}, {"cap": "w"}, {"cap": "w"}, True),
        ({}, {"slots": 1}, {"cap": "w"}, {"cap": "v", "status": "leased", **HELD}, True),
        ({}, {"slots": 2}, {"cap": "w"}, {"cap": "w", "status": "leased", **HELD}, True),
        ({"concurrency": 1}, None, {}, None, True),
        ({"concurrency": 1}, None, {}, {"status": "leased", **HELD}, False),
        ({"concurrency": 2}, None, {}, {"status": "leased", **HELD}, True),
        ({}, None, {"status": "sent", **HELD}, {}, False),
        ({}, None, {"status": "leased", **HELD}, {}, False),
    ],
)
async def test_it_is_claimed_if_it_can_begin_at_once(
    runtime: Any, tenant: dict[str, Any], cap: dict[str, Any] | None, own: Any, other: Any, wanted: bool
) -> None:
    await runtime.tenant("acme", **tenant)
    await runtime.tenant("beta")
    if cap is not None:
        await put(runtime.database, "caps", "acme", cap="w", **cap)
    await place(runtime, 1, **own)
    await place(runtime, 3, "beta", cap="w", status="leased", **HELD)
    if other is not None:
        await place(runtime, 2, **other)
    assert await claimed(runtime) == (["s1"] if wanted else [])


async def test_one_step_of_this_run_is_leased_and_nobody_else_s(runtime: Any) -> None:
    await runtime.tenant("acme")
    await place(runtime, 1, step_key="b")
    row = {"run_id": 1, "step_id": 7, "step_key": "a", "epoch": 8}
    await put(runtime.database, "queue", "acme", **row)
    await place(runtime, 2)
    assert await claimed(runtime) == ["a"]
    rows = "SELECT run_id, step_key, status, owner, epoch, lease_id IS NULL, expires_at FROM queue ORDER BY 1, 2"
    (first, *others) = await read(runtime.database, rows)
    assert first[:6] == (uid(1), "a", "leased", "w", 9, False)
    assert first[6] - datetime.now(UTC) == pytest.approx(LEASE, abs=timedelta(seconds=20))
    assert [row[:6] for row in others] == [
        (uid(1), "b", "claimable", None, 4, True), (uid(2), "s2", "claimable", None, 4, True),
    ]  # fmt: skip
    assert (await claimed(runtime), await claimed(runtime), await claimed(runtime, 9)) == (["b"], [], [])
