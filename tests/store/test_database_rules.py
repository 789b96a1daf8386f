"""Refusals of the database itself: illegal moves and births, another tenant's rows, a changed record."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Mapping
from itertools import product
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from approvals.model import APPROVAL
from core.db import ENGINE_ROLE, FACES_ROLE, Database
from core.machine import Machine
from runtime.engine.model.states import COMMAND, EFFECT, RUN, WAIT
from tests.support.store_database_rules import ROWS

pytestmark = pytest.mark.tampers

Rights: TypeAlias = Mapping[str, str]
APPENDER_ROLE = "counterseal_appender"

MACHINES: dict[str, Machine[Any, Any]] = {
    "runs": RUN, "waits": WAIT, "commands": COMMAND, "approvals": APPROVAL, "effects": EFFECT,
}  # fmt: skip

FROZEN = importlib.import_module("migrations.versions.0006_one_book")
# With what later migrations grant.
FACES_OWN = {
    **FROZEN.FACES_OWN,
    "actions": "INSERT",
    "sessions": "INSERT, DELETE, UPDATE (ended_at)",
    "triggered": "INSERT, UPDATE (outcome)",
    **dict.fromkeys(("audit_events", "policies"), ""),
    "tenants": "INSERT (tenant_id, stream_id), UPDATE (max_concurrency, max_runs_per_min, max_writes_per_run, weight)",
}
APPENDS = {
    **FROZEN.APPENDS,
    "families": "SELECT, UPDATE",
    "refusals": "SELECT, INSERT, DELETE",
    "searched": "INSERT",
    **dict.fromkeys(("audit_events", "directories", "operations", "policies", "tenant_settings"), "SELECT, INSERT"),
}
APPEND_ONLY = ("audit_events", "journal", "ledger", "remains", "log_leaves", "log_counters")
# What runs are made of, and what follows from them.
OF_RUNS = {
    "runs", "journal", "queue", "waits", "approvals", "votes", "commands", "effects", "ledger", "remains", "bundles",
    "workspaces", "families", "refusals", "searched",
}  # fmt: skip
# Rows that nobody may delete.
LASTING = ("effects",)
# An append may begin a run or a step and move it on: the database sees the two moves as one.
BEGUN = {"runs": ("queued", "running")}


@pytest.fixture
async def peopled(runtime: Any) -> Any:
    """Two tenants with one row in every table."""
    for tenant in ("alpha", "beta"):
        run_id = uuid4()
        for statement in ROWS.values():
            await runtime.execute(statement, tenant, run_id)
    return runtime


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[Any]:
    """A connection of the tables' owner, for what the engine may not do: to arrange a state behind the triggers."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


def moves_of(table: str) -> set[tuple[str, str]]:
    """The moves that an append can make."""
    moves = MACHINES[table].moves()
    first, second = BEGUN.get(table, (None, None))
    return set(moves) | {(first, after) for before, after in moves if first and before == second and after != first}


async def test_every_table_names_its_tenant_and_is_tried_here(runtime: Any) -> None:
    ours = "relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'"
    named = "EXISTS (SELECT FROM pg_attribute WHERE attrelid = oid AND attname = 'tenant_id' AND attnotnull)"
    found = await runtime.all(
        f"SELECT relname, relrowsecurity AND relforcerowsecurity AND {named} AS guarded FROM pg_class WHERE {ours}"
    )
    assert {row["relname"]: row["guarded"] for row in found} == dict.fromkeys(ROWS, True)


# -- moves -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-5")
@pytest.mark.req("Q-6")
@pytest.mark.req("O-3")
@pytest.mark.req("O-4")
async def test_the_database_allows_exactly_the_moves_of_the_tables(runtime: Any, owner: Any) -> None:
    run_id, wrong = uuid4(), []
    for statement in ROWS.values():
        await runtime.execute(statement, "acme", run_id)
    for table, machine in MACHINES.items():
        states = [str(state) for state in type(next(iter(machine.table))[0])]
        for before, after in product(states, states):
            legal = before == after or (before, after) in moves_of(table)
            if await _moves(owner, table, before, after) != legal:
                wrong.append((table, before, after))
    assert wrong == []


async def _moves(connection: Any, table: str, before: str, after: str) -> bool:
    """True if the engine may move a row, which is put into its state behind the trigger's back, and put back."""
    await connection.execute("BEGIN")
    try:
        await connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER legal_move")
        await connection.execute(f"UPDATE {table} SET status = $1", before)
        await connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER legal_move")
        await connection.execute(f"SET LOCAL ROLE {ENGINE_ROLE}")
        changed = await connection.execute(f"UPDATE {table} SET status = $1", after)
        assert changed == "UPDATE 1"
    except asyncpg.IntegrityConstraintViolationError as error:
        return "illegal move" not in str(error)
    finally:
        await connection.execute("ROLLBACK")
    return True


async def test_the_database_allows_exactly_the_births_of_the_tables(runtime: Any) -> None:
    wrong = []
    for table, machine in MACHINES.items():
        run_id = uuid4()
        for name, statement in ROWS.items():
            if name == table:
                break
            await runtime.execute(statement + " ON CONFLICT DO NOTHING", "acme", run_id)
        born = ROWS[table].split("VALUES")[1]
        default = next(str(s) for s in type(next(iter(machine.table))[0]) if f"'{s}'" in born)
        for state in type(next(iter(machine.table))[0]):
            async with runtime.database.connection() as connection:
                await connection.execute("BEGIN; SET LOCAL ROLE NONE")
                try:
                    await connection.execute(ROWS[table].replace(f"'{default}'", f"'{state}'"), "acme", run_id)
                    legal = True
                except asyncpg.IntegrityConstraintViolationError as error:
                    legal = "illegal move" not in str(error)
                await connection.execute("ROLLBACK")
            if legal != (state in machine.initial):
                wrong.append((table, str(state)))
    assert wrong == []


@pytest.mark.parametrize("table", MACHINES)
def test_the_frozen_moves_of_the_migration_are_those_of_the_tables(table: str) -> None:
    moves = {(before, after) for before, every in FROZEN.MOVES[table].items() for after in every.split()}
    assert moves == moves_of(table)
    assert set(FROZEN.BORN[table].split()) == {str(state) for state in MACHINES[table].initial}


@pytest.mark.req("P-3")
@pytest.mark.parametrize("table", APPEND_ONLY)
async def test_a_record_is_never_changed(peopled: Any, table: str) -> None:
    for role in (peopled.database, peopled.faces):
        for statement in (f"UPDATE {table} SET tenant_id = tenant_id", f"DELETE FROM {table}"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with role.transaction("alpha") as connection:
                    await connection.execute(statement)


@pytest.mark.parametrize("table", LASTING)
async def test_a_shared_effect_is_never_forgotten(peopled: Any, table: str) -> None:
    for role in (peopled.database, peopled.faces):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with role.transaction("alpha") as connection:
                await connection.execute(f"DELETE FROM {table}")


# -- schema ----------------------------------------------------------------------------------------------------------


# -- tenants ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[FACES_ROLE, APPENDER_ROLE])
async def bound(peopled: Any, database_url: str, request: Any) -> AsyncIterator[tuple[Database, Rights]]:
    """A database under each role that row-level security binds, with what this role may write of each table."""
    written = FACES_OWN if request.param == FACES_ROLE else APPENDS
    async with Database(database_url, request.param) as database:
        yield database, written


async def test_who_names_no_tenant_sees_nothing_and_writes_nothing(bound: tuple[Database, Rights]) -> None:
    database, rights = bound
    async with database.transaction() as connection:
        seen = {name: await connection.fetchval(f"SELECT count(*) FROM {name}") for name in _readable(rights)}
        changed = {await connection.execute(statement) for statement in _updates(rights)}
        deleted = {await connection.execute(f"DELETE FROM {name}") for name in _those_with(rights, "DELETE")}
    assert seen == dict.fromkeys(_readable(rights), 0)
    assert (changed, deleted - {"DELETE 0"}) == ({"UPDATE 0"}, set())
    assert await _refused(database, rights, None, "alpha") == list(ROWS)


async def test_a_tenant_sees_its_own_and_touches_nothing_else(bound: tuple[Database, Rights]) -> None:
    database, rights = bound
    async with database.transaction("alpha") as connection:
        for name in _readable(rights):
            owners = await connection.fetch(f"SELECT tenant_id FROM {name}")
            assert {row["tenant_id"] for row in owners} == {"alpha"}, name
        for statement in _updates(rights):
            assert await connection.execute(f"{statement} WHERE tenant_id = 'beta'") == "UPDATE 0", statement
    for statement in _updates(rights):
        moved = statement.replace("tenant_id = tenant_id", "tenant_id = 'beta'")
        if moved != statement:
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                async with database.transaction("alpha") as connection:
                    await connection.execute(moved)
    assert await _refused(database, rights, "alpha", "beta") == list(ROWS)


@pytest.mark.parametrize("table", ROWS)
async def test_the_faces_write_no_table_but_their_own(peopled: Any, table: str) -> None:
    """Write a run by functions only; what a face writes itself, it writes in these columns only."""
    rights = "" if table in OF_RUNS else FACES_OWN.get(table, "")
    tried = {
        "INSERT": ROWS[table],
        "UPDATE": f"UPDATE {table} SET tenant_id = tenant_id",
        "DELETE": f"DELETE FROM {table}",
    }
    for right, statement in tried.items():
        if right == "UPDATE" or right not in rights:
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
                async with peopled.faces.transaction("alpha") as connection:
                    await connection.execute(statement, *(("alpha", uuid4()) if right == "INSERT" else ()))


async def test_the_tenant_of_one_transaction_is_gone_in_the_next(peopled: Any, database_url: str) -> None:
    async with Database(database_url, FACES_ROLE, connections=1) as faces:
        async with faces.transaction("alpha") as connection:
            assert await connection.fetchval("SELECT count(*) FROM runs") == 1
        async with faces.transaction() as connection:
            assert await connection.fetchval("SELECT count(*) FROM runs") == 0


def _readable(rights: Rights) -> list[str]:
    # Which notices operators have is for keepers alone.
    return (
        [name for name in ROWS if name not in ("notices", "turns")]
        if rights is FACES_OWN
        else _those_with(rights, "SELECT")
    )


def _those_with(rights: Rights, right: str) -> list[str]:
    return [name for name in ROWS if right in rights.get(name, "")]


def _updates(rights: Rights) -> list[str]:
    """An UPDATE that changes nothing, for each table that has one, of the first column that may be changed."""
    found = []
    for name in _those_with(rights, "UPDATE"):
        columns = rights[name].partition("UPDATE (")[2].partition(")")[0]
        column = columns.split(",")[0] or "tenant_id"
        found.append(f"UPDATE {name} SET {column} = {column}")
    return found


async def _refused(database: Database, rights: Rights, tenant: str | None, owner: str) -> list[str]:
    """The tables into which a row of ``owner`` cannot be put."""
    refused = []
    for name, statement in ROWS.items():
        try:
            async with database.transaction(tenant) as connection:
                await connection.execute(statement, owner, uuid4())
        except asyncpg.InsufficientPrivilegeError as error:
            why = "row-level security" if "INSERT" in rights.get(name, "") else "permission denied"
            refused += [name] * (why in str(error))
    return refused


@pytest.mark.parametrize("broken", ["status = 'leased'", "status = 'sent'", "owner = 'o'", "status = 'another'"])
async def test_a_place_in_line_is_held_by_somebody_or_by_nobody(peopled: Any, broken: str) -> None:
    async with peopled.database.connection() as connection:
        with pytest.raises(asyncpg.CheckViolationError, match="ck_queue_held_by_somebody"):
            await connection.execute(f"UPDATE queue SET {broken} WHERE status = 'claimable'")
        await connection.execute("UPDATE queue SET status = 'sent', owner = 'o', expires_at = now()")
        with pytest.raises(asyncpg.CheckViolationError, match="ck_queue_held_by_somebody"):
            await connection.execute("UPDATE queue SET status = 'leased', lease_id = NULL")
