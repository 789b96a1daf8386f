"""Claims and what they take and cost: turns by weight, and starts that a tenant or a workflow may make."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from runtime.store import claims
from tests.support.rows import ago, change, put, put_run, read, uid

# The rows are of no book.
pytestmark = [pytest.mark.tampers, pytest.mark.req("Q-13")]

LEASE = timedelta(seconds=30)
LATER = timedelta(minutes=10)


async def tenant(runtime: Any, name: str, **columns: Any) -> None:
    """A tenant with these values in its row."""
    await runtime.tenant(name)
    for column, value in columns.items():
        await change(runtime.database, f"UPDATE tenants SET {column} = $2 WHERE tenant_id = $1", name, value)


async def workspace(runtime: Any, tenant: str, name: str, **columns: Any) -> None:
    await put(runtime.database, "workspaces", tenant, workspace_id=name, **columns)


async def in_line(runtime: Any, tenant: str, *numbers: int, **columns: Any) -> None:
    """Steps with these numbers stand in line, each of a run of its own."""
    for number in numbers:
        await put_run(runtime.database, tenant, number)
        row = {"run_id": number, "step_id": number, "step_key": f"s{number}"}
        await put(runtime.database, "queue", tenant, **row, **columns)


async def claimed(runtime: Any, most: int) -> list[str]:
    """The keys of the steps that one claim gets."""
    async with runtime.database.connection() as connection:
        found = await claims.claim_next(connection, "w", LEASE, most)
    return sorted(row["step"]["step_key"] for row in found)


async def turns(runtime: Any, table: str, *names: str) -> list[Any]:
    """The place at which the last turn of each began, and that of its next one."""
    column = f"{table[:-1]}_id"
    rows = await read(runtime.database, f"SELECT {column}, virtual_start, virtual_time FROM {table}")
    found = {name: (start, time) for name, start, time in rows}
    return [found[name] for name in names]


@pytest.mark.parametrize(
    ("others", "beside", "of_tenant", "of_workspace"),
    [
        (0.0, 0.0, (3.0, 4.5), (5.0, 5.75)),
        (10.0, 0.0, (10.0, 11.5), (5.0, 5.75)),
        (0.0, 7.0, (3.0, 4.5), (7.0, 7.75)),
    ],
)
async def test_a_turn_costs_its_steps_by_the_weights_of_the_tenant_and_of_the_workspace(
    runtime: Any, others: float, beside: float, of_tenant: Any, of_workspace: Any
) -> None:
    """Charge a turn. The last one of another tenant began at ``others``, that of another workspace at ``beside``."""
    await tenant(runtime, "acme", weight=2.0, virtual_time=3.0)
    await tenant(runtime, "beta", virtual_start=others, virtual_time=others)
    await workspace(runtime, "acme", "main", weight=4.0, virtual_time=5.0)
    await workspace(runtime, "acme", "next", virtual_start=beside)
    # A workspace of another tenant does not count.
    await workspace(runtime, "beta", "main", virtual_start=99.0)
    await in_line(runtime, "acme", 1, 2, 3)
    assert await claimed(runtime, 9) == ["s1", "s2", "s3"]
    assert await turns(runtime, "tenants", "acme", "beta") == [of_tenant, (others, others)]
    rows = "SELECT virtual_start, virtual_time FROM workspaces WHERE tenant_id = 'acme' AND workspace_id = 'main'"
    assert await read(runtime.database, rows) == [of_workspace]


@pytest.mark.parametrize(
    ("times", "first"),
    [
        ({"beta": 2.0, "next": 1.0}, "next"),
        ({"beta": 2.0, "main": 2.0, "next": 3.0}, "main"),
        ({"acme": 1.0, "main": 9.0, "next": 9.0}, "beta"),
        ({"acme": 1.0, "beta": 2.0, "main": 2.0, "next": 1.0}, "next"),
    ],
)
async def test_next_is_the_tenant_and_then_the_workspace_that_has_had_the_least(
    runtime: Any, times: dict[str, float], first: str
) -> None:
    """A workspace counts within its tenant alone; what is not named has had nothing."""
    for name in ("acme", "beta"):
        await tenant(runtime, name, virtual_time=times.get(name, 0.0))
    await workspace(runtime, "beta", "main", virtual_time=5.0)
    for number, name in enumerate(("main", "next"), start=1):
        default = 0.0 if first == "beta" else 4.0
        await workspace(runtime, "acme", name, virtual_time=times.get(name, default))
        await in_line(runtime, "acme", number, workspace_id=name)
    await in_line(runtime, "beta", 3)
    assert await claimed(runtime, 1) == [{"main": "s1", "next": "s2", "beta": "s3"}[first]]


async def starts(runtime: Any, table: str) -> Any:
    """The number of starts that are left in a bucket, and true if its time lies ahead."""
    ahead = "starts_left_at > now() + interval '5 minutes'"
    (row,) = await read(runtime.database, f"SELECT starts_left, {ahead} FROM {table}")
    return row


@pytest.mark.req("Q-12")
@pytest.mark.parametrize(("when", "ahead"), [(timedelta(0), False), (LATER, True)])
async def test_the_starts_of_a_tenant_are_counted_and_those_that_resume_are_none(
    runtime: Any, when: timedelta, ahead: bool
) -> None:
    """A clock that is behind the bucket's time fills nothing, takes nothing, and does not set that time back."""
    at = ago(seconds=-when.total_seconds())
    await tenant(runtime, "acme", max_runs_per_min=1, starts_left=0.5, starts_left_at=at)
    await workspace(runtime, "acme", "main")
    await in_line(runtime, "acme", 1, 2, 3, starts_run=True)
    await in_line(runtime, "acme", 8, 9)
    assert await claimed(runtime, 9) == ["s8", "s9"]
    assert await starts(runtime, "tenants") == (0.5, ahead)
    await change(runtime.database, "UPDATE tenants SET max_runs_per_min = 60, starts_left = 2.5")
    if not ahead:
        await change(runtime.database, "UPDATE tenants SET starts_left_at = now()")
    assert await claimed(runtime, 9) == ["s1", "s2"]
    assert await starts(runtime, "tenants") == (pytest.approx(0.5, abs=0.4), ahead)


@pytest.mark.req("Q-12")
async def test_the_starts_of_a_workflow_are_counted_at_its_cap(runtime: Any) -> None:
    await tenant(runtime, "acme")
    await workspace(runtime, "acme", "main")
    bucket = {"max_runs_per_min": 60, "starts_left": 2.0, "starts_left_at": ago(seconds=-LATER.total_seconds())}
    await put(runtime.database, "caps", "acme", cap="w", **bucket)
    await in_line(runtime, "acme", 1, 2, 3, cap="w", starts_run=True)
    await in_line(runtime, "acme", 4, cap="w")
    await in_line(runtime, "acme", 5, starts_run=True)
    assert await claimed(runtime, 9) == ["s1", "s2", "s4", "s5"]
    assert await starts(runtime, "caps") == (0.0, True)
    assert await claimed(runtime, 9) == []


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("cap", [{}, {"slots": 2}])
async def test_a_cap_that_limits_no_starts_lets_every_run_start(runtime: Any, cap: dict[str, Any]) -> None:
    await tenant(runtime, "acme")
    await workspace(runtime, "acme", "main")
    await put(runtime.database, "caps", "acme", cap="w", **cap)
    await in_line(runtime, "acme", 1, 2, cap="w", starts_run=True)
    assert await claimed(runtime, 9) == ["s1", "s2"]


@pytest.mark.req("O-8")
async def test_the_queue_is_given_time_for_the_steps_that_it_has_and_for_no_others(runtime: Any) -> None:
    await tenant(runtime, "acme")
    was, held = ago(minutes=1), {"owner": "w", "lease_id": 9}
    for run, key, status in (
        (1, "a", "sent"),
        (1, "b", "sent"),
        (1, "c", "leased"),
        (2, "a", "sent"),
        (2, "b", "sent"),
    ):
        row = {"run_id": run, "step_id": run, "step_key": key, "status": status, "expires_at": was}
        await put(runtime.database, "queue", "acme", **row, **(held if status == "leased" else {"owner": "w"}))
    async with runtime.database.connection() as connection:
        await claims.expected(connection, [(uid(1), "a"), (uid(1), "c"), (uid(2), "b")], LATER)
    later = "SELECT run_id, step_key FROM queue WHERE expires_at > now() ORDER BY 1, 2"
    assert await read(runtime.database, later) == [(uid(1), "a"), (uid(2), "b")]
