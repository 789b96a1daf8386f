"""The statements of the connector ``sql``, built from a declaration's names, which the catalogue has confirmed.

All values are one parameter, a JSON object, which PostgreSQL converts to the columns' types. Names are quoted, and the
search path is ``pg_catalog`` only, so no object of a user can shadow another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

IDENTITY = """
SELECT s.system_identifier::text || '/' || d.oid::text
FROM pg_catalog.pg_control_system() s, pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()"""

BOUNDS = """
SELECT pg_catalog.set_config('statement_timeout', $1, true), pg_catalog.set_config('lock_timeout', $1, true),
  pg_catalog.set_config('idle_in_transaction_session_timeout', $1, true)"""

# The table's columns, the generated ones, and the columns of each unique index that is immediate and unconditional.
CATALOGUE = """
SELECT c.oid::bigint AS oid, c.relkind::text AS kind,
  ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS columns,
  ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> '') AS generated,
  ARRAY(SELECT pg_catalog.array_to_string(ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])), '"')
    FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid
      AND i.indpred IS NULL AND i.indexprs IS NULL) AS uniques
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2"""

REMEMBER = """
INSERT INTO {table} AS t (key) VALUES ($1) ON CONFLICT (key) DO NOTHING RETURNING t.key"""
RECALL = """
SELECT pg_catalog.to_jsonb(t)::text FROM {table} t WHERE t.key = $1"""
KEEP = """
UPDATE {table} t SET result = $2::jsonb WHERE t.key = $1"""


def quoted(name: str) -> str:
    """The identifier, quoted; for a table ``schema.name``, each part."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _own(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list(names: Iterable[str], of: str = "") -> str:
    return ", ".join(f"{of}{_own(name)}" for name in names)


def _shown(names: Sequence[str], of: str) -> str:
    """The SQL for these columns of a row as one JSON text."""
    return f"(SELECT pg_catalog.to_jsonb(x)::text FROM (SELECT {_list(names, f'{of}.')}) x)"


def _input_row(table: str) -> str:
    return f"pg_catalog.jsonb_populate_record(NULL::{quoted(table)}, $1::jsonb)"


def _same(key: Sequence[str]) -> str:
    return " AND ".join(f"t.{_own(name)} = v.{_own(name)}" for name in key)


def _version(column: str | None) -> str:
    return "t.xmin::text" if column is None else f"t.{_own(column)}::text"


def read(table: str, key: Sequence[str], columns: Sequence[str], version: str | None, *, lock: bool) -> str:
    """Select one row by its key: ``row`` and ``version``."""
    locked = " FOR UPDATE OF t" if lock else ""
    shown = f"{_shown(columns, 't')} AS row, {_version(version)} AS version"
    return f"SELECT {shown} FROM {quoted(table)} t JOIN {_input_row(table)} v ON {_same(key)}{locked}"


def select(table: str, key: Sequence[str], columns: Sequence[str], equal: Sequence[str], absent: Sequence[str]) -> str:
    """Select rows in the order of their key, at most ``$2``. ``absent`` columns must be null."""
    conditions = [f"t.{_own(name)} = v.{_own(name)}" for name in equal]
    conditions += [f"t.{_own(name)} IS NULL" for name in absent]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    order = f" ORDER BY {_list(key, 't.')} LIMIT $2::bigint"
    return f"SELECT {_shown(columns, 't')} FROM {quoted(table)} t CROSS JOIN {_input_row(table)} v{where}{order}"


def insert(table: str, given: Sequence[str], shown: Sequence[str], version: str | None) -> str:
    """Insert a row. Returns ``row`` and ``version`` as read back, and ``intended`` in the columns' own types."""
    return (
        f"WITH v AS MATERIALIZED (SELECT * FROM {_input_row(table)}), t AS (INSERT INTO {quoted(table)} AS t"
        f" ({_list(given)}) SELECT {_list(given, 'v.')} FROM v RETURNING {_shown(shown, 't')} AS row,"
        f" {_version(version)} AS version) SELECT t.row, t.version, {_shown(given, 'v')} AS intended FROM t, v"
    )


def update(table: str, key: Sequence[str], given: Sequence[str], version: str | None) -> str:
    """Update one row by its key. Returns the same as ``insert``."""
    sets = ", ".join(f"{_own(name)} = v.{_own(name)}" for name in given)
    shown = [*key, *given]
    return (
        f"UPDATE {quoted(table)} AS t SET {sets} FROM {_input_row(table)} v WHERE {_same(key)} RETURNING"
        f" {_shown(shown, 't')} AS row, {_version(version)} AS version, {_shown(given, 'v')} AS intended"
    )


def delete(table: str, key: Sequence[str]) -> str:
    """Delete one row by its key."""
    shown = f"{_shown(key, 't')} AS row, NULL AS version, NULL AS intended"
    return f"DELETE FROM {quoted(table)} AS t USING {_input_row(table)} v WHERE {_same(key)} RETURNING {shown}"
