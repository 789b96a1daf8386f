"""Runs by the hundred thousand: copies of a few that the product itself made, written by PostgreSQL.

A copy has ids, keys and times of its own in every row, also where they stand inside a text, so that each index gets as
large as it would be. It is there to be in the way, not to go on: its audit's lines and other long texts are empty, and
the engine derives some ids from others by hashes, which PostgreSQL does not do here. What the schema holds is asked of
the catalogue, so a new column or table is copied as well.
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

# The time in the id is moved, as that of the row is; what follows it is the model's, which no other model shares.
_FUNCTION = """
CREATE FUNCTION pg_temp.copied(id uuid, milliseconds bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex(milliseconds), 12, '0') || right(replace(id::text, '-', ''), 20))::uuid $$"""

# Texts that are unique, or secret, and name no id: a copy gets one as random and as long as its model's.
_OWN_TEXT = frozenset({"idempotency_key", "key", "nonce", "token"})
_NUMBERED = frozenset({"trigger_ref", "reference"})
_DUE = frozenset({"due_at", "expires_at", "deadline_at", "purge_at"})
_TEXTS = ("text", "jsonb", "json")

# What is long and stands in no index is cut in copies, so that a million of them fit on a disk.
_CUT = {
    ("journal", "lines"): "''::bytea",
    ("journal", "vals"): "NULL::bytea",
}


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies ``first`` up to ``last`` of a run: each was ``apart`` milliseconds earlier than the one before it.

    What is due stays due when it was: a parked copy waits as long as its model does.
    """

    model: UUID
    first: int
    last: int
    apart: int = 1000

    def chunks(self) -> Iterable[tuple[int, int]]:
        for start in range(self.first, self.last + 1, CHUNK):
            yield start, min(start + CHUNK - 1, self.last)


async def load(url: str, copies: Sequence[Copies]) -> None:
    """Write all copies, then let PostgreSQL settle: statistics, visibility and a checkpoint are not measured."""
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
        # Rows that the product made have been checked once; their copies need no look-up of their foreign keys.
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
    """One INSERT per table that knows the model; $1 and $2 are the first and the last number."""
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
    """Set the model's rows of one table aside, because a copy is made of them and nothing else."""
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
    """List the model's ids that stand inside the texts of this column."""
    return [id_ for id_ in ids if any(id_ in str(row[column]) for row in rows)] if kind in _TEXTS else []


def _value(column: str, kind: str, ids: list[str], base: int, copies: Copies) -> str:
    """The value of the copy ``g.n`` in this column."""
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
