"""Runs by the hundred thousand: PostgreSQL writes copies of a few runs that the product itself made.

A copy has its own ids, keys and times in every row, also inside texts, so each index becomes as large as with real
runs. A copy only fills the tables; it cannot go on: its audit lines and other long texts are empty, and ids that the
engine derives by hashes are not derived here. Tables and columns come from the catalogue, so new ones are copied too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from benchmarks.indexes import put_aside

CHUNK = 2000
WRITERS = 2

_TABLES = """
SELECT c.table_name::text AS name, array_agg(c.column_name::text ORDER BY c.ordinal_position) AS columns,
  array_agg(c.data_type::text ORDER BY c.ordinal_position) AS types
FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'
GROUP BY c.table_name ORDER BY c.table_name"""

# The time in the id is moved like the row's times. The rest of the id is the model's, which is unique to the model.
_FUNCTION = """
CREATE FUNCTION pg_temp.copied(id uuid, milliseconds bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex(milliseconds), 12, '0') || right(replace(id::text, '-', ''), 20))::uuid $$"""

# Unique or secret texts without an id in them. A copy gets a random text of the same length.
_OWN_TEXT = frozenset({"idempotency_key", "key", "nonce", "token"})
_NUMBERED = frozenset({"trigger_ref", "reference"})
_DUE = frozenset({"due_at", "expires_at", "deadline_at", "purge_at"})
_TEXTS = ("text", "jsonb", "json")

# Long values that are in no index are emptied in copies, so that a million copies fit on a disk. A copied leaf of the
# log is in no tree: its place is below all others.
_NEXT = "nextval(pg_get_serial_sequence('public.log_leaves', 'leaf_id'))"
_CUT = {
    ("journal", "lines"): "''::bytea",
    ("journal", "vals"): "NULL::bytea",
    ("log_leaves", "leaf_id"): _NEXT,
    ("log_leaves", "place"): f"- {_NEXT}",
}


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies ``first`` up to ``last`` of a run; each is ``apart`` milliseconds older than the copy before it.

    Due times are not moved: a parked copy waits as long as its model.
    """

    model: UUID
    first: int
    last: int
    apart: int = 1000

    def chunks(self) -> Iterable[tuple[int, int]]:
        for start in range(self.first, self.last + 1, CHUNK):
            yield start, min(start + CHUNK - 1, self.last)


async def load(url: str, copies: Sequence[Copies]) -> None:
    """Write all copies, then vacuum, analyze and checkpoint, so that this work is not measured later."""
    turns = [(one, chunk) for one in copies for chunk in one.chunks()]
    turns.sort(key=lambda turn: turn[1])
    async with put_aside(url), asyncio.TaskGroup() as group:
        for number in range(WRITERS):
            group.create_task(_write(url, turns[number::WRITERS]))
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET maintenance_work_mem = '256MB'")
        await connection.execute("VACUUM (ANALYZE)", timeout=600)
        await connection.execute("CHECKPOINT", timeout=600)
    finally:
        await connection.close()


async def _write(url: str, turns: Sequence[tuple[Copies, tuple[int, int]]]) -> None:
    connection = await asyncpg.connect(url)
    try:
        # The models' foreign keys were checked once; skip the checks for their copies.
        await connection.execute("SET session_replication_role = replica; SET synchronous_commit = off")
        await connection.execute(_FUNCTION)
        models: dict[UUID, list[str]] = {}
        for copies, (first, last) in turns:
            if copies.model not in models:
                models[copies.model] = await _statements(connection, copies, f"m{len(models)}")
            async with connection.transaction():
                for statement in models[copies.model]:
                    await connection.execute(statement, first, last, timeout=600)
    finally:
        await connection.close()


async def _statements(connection: asyncpg.Connection[asyncpg.Record], copies: Copies, prefix: str) -> list[str]:
    """One INSERT per table with rows of the model; $1 and $2 are the first and the last number of a copy."""
    tables = await connection.fetch(_TABLES)
    kept = [await _keep_model(connection, table, copies.model, prefix) for table in tables]
    found = [(table, rows) for table, rows in zip(tables, kept, strict=True) if rows]
    ids = {value for _, rows in found for row in rows for value in row.values() if isinstance(value, UUID)}
    base = await connection.fetchval(
        "SELECT (extract(epoch FROM created_at) * 1000)::bigint FROM runs WHERE run_id = $1", copies.model
    )
    return [_insert(table, rows, sorted(map(str, ids)), base, copies, prefix) for table, rows in found]


async def _keep_model(
    connection: asyncpg.Connection[asyncpg.Record], table: asyncpg.Record, model: UUID, prefix: str
) -> list[asyncpg.Record]:
    """Save the model's rows of one table in a temporary table, from which copies are made."""
    owners = {"run_id": "= $1", "stream_id": "= $1", "approval_id": "IN (SELECT approval_id FROM approvals a "}
    owners["approval_id"] += "WHERE a.run_id = $1)"
    column = next((name for name in owners if name in table["columns"]), None)
    if column is None or table["name"] == "tenants":
        return []
    where = f"{column} {owners[column]}".replace("$1", f"'{model}'")
    name = table["name"]
    await connection.execute(f"CREATE TEMP TABLE {prefix}_{name} AS SELECT * FROM public.{name} WHERE {where}")
    return await connection.fetch(f"SELECT * FROM {prefix}_{name}")


def _insert(
    table: asyncpg.Record, rows: list[asyncpg.Record], ids: list[str], base: int, copies: Copies, prefix: str
) -> str:
    name, columns = table["name"], dict(zip(table["columns"], table["types"], strict=True))
    values = [
        _CUT.get((name, column)) or _value(column, kind, _ids_in(rows, column, kind, ids), base, copies)
        for column, kind in columns.items()
    ]
    names = ", ".join(f'"{column}"' for column in columns)
    return (
        f"INSERT INTO public.{name} ({names}) SELECT {', '.join(values)} "
        f"FROM generate_series($1::bigint, $2::bigint) AS g (n) CROSS JOIN {prefix}_{name} t"
    )


def _ids_in(rows: list[asyncpg.Record], column: str, kind: str, ids: list[str]) -> list[str]:
    """List the model's ids that occur inside the texts of this column."""
    return [id_ for id_ in ids if any(id_ in str(row[column]) for row in rows)] if kind in _TEXTS else []


def _value(column: str, kind: str, ids: list[str], base: int, copies: Copies) -> str:
    """The SQL for the value of copy ``g.n`` in this column."""
    cell, moved = f't."{column}"', f"({base}::bigint - {copies.apart} * g.n)"
    if kind == "uuid":
        return f"pg_temp.copied({cell}, {moved})"
    if kind.startswith("timestamp"):
        return cell if column in _DUE else f"{cell} - {copies.apart} * g.n * interval '1 millisecond'"
    if column in _OWN_TEXT:
        return f"left(md5({cell} || g.n) || md5(g.n || {cell}), length({cell}))"
    text = f"{cell}::text"
    for id_ in ids:
        text = f"replace({text}, '{id_}', pg_temp.copied('{id_}'::uuid, {moved})::text)"
    if ids:
        return f"({text})::{kind}"
    return f"{cell} || '-' || g.n" if column in _NUMBERED else cell
