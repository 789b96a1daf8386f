"""Retention as the database itself guards it: nobody brings it forward, and only what is due is emptied (X-20)."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from runtime.store import retention
from tests.support.asking import owning
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


async def test_the_words_of_one_run_are_removed_and_who_did_what_stays(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")
    error = {"class": "transport", "code": "404", "step": "a", "message": "a secret"}
    told = {"error": error, "canceling": {"by": "ann", "reason": "a secret"}, "result": {"n": "a secret"}}
    for number, tenant in ((1, "acme"), (2, "acme"), (3, "beta")):
        await put_run(runtime.database, tenant, number, version=5, **OVER, **told)
    await put_run(runtime.database, "acme", 4, parent_run_id=1)
    await put_run(runtime.database, "beta", 5, parent_run_id=1)
    task = {"kind": "task", "context": {"title": "a secret", "description": "a secret", "group": "g"}}
    signal = {"context": {"signal": "s", "correlate": "a secret", "error": "a secret"}, "correlation_key": "s:k"}
    answer = {"result": {"output": "a secret", "by": "person:ann"}}
    waits: dict[int, tuple[int, dict[str, Any]]] = {
        1: (1, {**task, **answer}), 2: (1, {**signal, **answer}), 3: (2, signal), 4: (1, {"correlation_key": None}),
    }  # fmt: skip
    for number, (run, row) in waits.items():
        await put(runtime.database, "waits", "acme", wait_id=number, run_id=run, **row)
    for number, run, reason in ((1, 1, "a secret"), (2, 2, "a secret"), (3, 1, "")):
        await put(runtime.database, "approvals", "acme", approval_id=number, run_id=run, reason=reason)
        await put(runtime.database, "votes", "acme", approval_id=number, person_id="ann", reason=reason)
    notices: list[tuple[str, str, str, str | None, int | None]] = [
        ("acme", "signal", "its own", "s:k", 1), ("acme", "signal", "of another run", "s:k", 2),
        ("acme", "signal", "of another key", "s:j", 1), ("beta", "signal", "theirs", "s:k", 1),
        ("acme", "signal", "of none", "s:k", None), ("acme", "run", str(uid(4)), None, None),
        ("acme", "run", str(uid(2)), None, None), ("beta", "run", str(uid(4)), None, None),
    ]  # fmt: skip
    for tenant, source, notice, key, run in notices:
        result = None if run is None else {"run": str(uid(run))}
        row = {"source": source, "notification_id": notice, "correlation_key": key, "result": result}
        await put(runtime.database, "inbox", tenant, **row)
    async with owning(runtime.database) as connection:
        for statement in (
            retention._SIGNALS, retention._CHILDREN, retention._WAITS, retention._APPROVALS, retention._VOTES,
            retention._RUN,
        ):  # fmt: skip
            await connection.execute(statement, uid(1))
    gone = "Removed by retention."
    facts = {name: error[name] for name in ("class", "code", "step")}
    runs = await read(runtime.database, "SELECT run_id, error, canceling, result, version FROM runs ORDER BY 1 LIMIT 3")
    assert runs == [
        (uid(1), facts, {"by": "ann"}, None, 6), *((uid(n), *told.values(), 5) for n in (2, 3)),
    ]  # fmt: skip
    assert await read(runtime.database, "SELECT wait_id, context, result FROM waits ORDER BY 1") == [
        (uid(1), {"title": gone, "description": "", "group": "g"}, None), (uid(2), {"signal": "s"}, None),
        (uid(3), signal["context"], None), (uid(4), None, None),
    ]  # fmt: skip
    reasons = [(uid(1), gone), (uid(2), "a secret"), (uid(3), "")]
    for table in ("approvals", "votes"):
        assert await read(runtime.database, f"SELECT approval_id, reason FROM {table} ORDER BY 1") == reasons
    emptied = await read(runtime.database, "SELECT tenant_id, notification_id FROM inbox WHERE payload = '{}'")
    assert sorted(emptied) == [("acme", str(uid(4))), ("acme", "its own")]
