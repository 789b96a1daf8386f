"""Retention as the database itself guards it: nobody brings it forward, and only what is due is emptied (X-20)."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.support.rows import ago, change, put, put_run, read, uid

# The rows are of no book.
pytestmark = [pytest.mark.tampers, pytest.mark.req("X-20")]

OVER = {"status": "succeeded", "finished_at": ago(hours=1)}


async def allowed(runtime: Any, sql: str) -> bool:
    """True if the engine's role may do this."""
    said = ""
    try:
        async with runtime.database.transaction() as connection:
            await connection.execute(sql)
    except asyncpg.InsufficientPrivilegeError as error:
        said = str(error)
    assert said in ("", "retention cannot be brought forward")
    return not said


@pytest.mark.parametrize(
    ("status", "before", "then", "may"),
    [
        ("succeeded", "now() + interval '2 days'", "purge_at - interval '1 s'", False),
        ("succeeded", "now() + interval '2 days'", "now()", False),
        ("succeeded", "now() + interval '2 days'", "purge_at + interval '1 s'", True),
        ("succeeded", "now() + interval '9 days'", "now() + interval '2 days'", False),
        ("succeeded", "now() + interval '9 days'", "now() + interval '3 days'", True),
        ("failed_terminal", "NULL", "now() + interval '2 days'", False),
        ("failed_terminal", "NULL", "now()", False),
        ("failed_terminal", "NULL", "now() + interval '3 days'", True),
        ("canceled", "NULL", "now() + interval '4 days'", True),
        ("waiting", "NULL", "now() + interval '4 days'", False),
        ("waiting", "now() + interval '2 days'", "now() + interval '1 day'", False),
        ("running", "now() + interval '2 days'", "NULL", True),
    ],
)
async def test_a_purge_is_put_off_and_never_brought_forward(
    runtime: Any, status: str, before: str, then: str, may: bool
) -> None:
    await runtime.tenant()
    await put_run(runtime.database, "acme", 1, status=status)
    await change(runtime.database, f"UPDATE runs SET retention = interval '3 days', purge_at = {before}")
    held = "SELECT purge_at FROM runs"
    was = await read(runtime.database, held)
    assert await allowed(runtime, f"UPDATE runs SET purge_at = {then}") is may
    assert (await read(runtime.database, held) != was) is may


async def test_only_what_is_due_is_emptied_and_its_lines_stay(runtime: Any) -> None:
    await runtime.tenant()
    runs: dict[int, dict[str, Any]] = {
        1: {**OVER, "purge_at": ago(minutes=1)},
        2: {**OVER, "purge_at": ago(minutes=-1)},
        3: {**OVER},
        4: {**OVER, "inherits": True, "parent_run_id": 9},
        5: {**OVER, "inherits": True, "parent_run_id": 10},
        6: {"inherits": True, "parent_run_id": 9},
        7: {**OVER, "parent_run_id": 9},
        8: {**OVER, "inherits": True},
        9: {**OVER, "purged_at": ago(hours=1)},
        10: {**OVER},
    }
    for number, row in runs.items():
        await put_run(runtime.database, "acme", number, run_key=b"k", **row)
        await put(runtime.database, "journal", "acme", run_id=number, n=1, vals=b"{}")
        entry = {"superstep": 0, "step_key": "a", "channel": "c", "value": 1}
        await put(runtime.database, "ledger", "acme", run_id=number, **entry)
    async with runtime.database.transaction() as connection:
        for number in range(1, 9):
            await connection.execute("SELECT purge_records($1)", uid(number))
    emptied = "SELECT run_id FROM runs WHERE run_key IS NULL AND purged_at > $1 AND purge_at IS NULL ORDER BY 1"
    assert await read(runtime.database, emptied, ago(minutes=1)) == [(uid(1),), (uid(4),)]
    kept = "SELECT run_id, vals IS NULL, lines FROM journal ORDER BY 1"
    assert await read(runtime.database, kept) == [(uid(n), n in (1, 4), b"{}") for n in runs]
    ledger = await read(runtime.database, "SELECT run_id FROM ledger ORDER BY 1")
    assert ledger == [(uid(number),) for number in runs if number not in (1, 4)]
