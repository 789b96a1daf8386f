"""Another PostgreSQL beside the runtime's own, whose rows the workload ``sql`` writes. Its statements are calls."""

from __future__ import annotations

from typing import Any

import asyncpg

from connectors.port import Call, Probe
from connectors.sql.connector import SqlConnector, SqlSettings
from connectors.sql.statements import IDENTITY
from tests.support.insides import wrap_connections_of

_UPDATE = """
  - name: crm.customer.%s
    connector: sql
    handler: sql:update
    params: {table: crm.customers, key: [id]%s}
    side_effects: external_call
    risk: medium
    summary: "Update {id}: {fields}"
    target: "customers/{id}"
    writes: fields
    diff: {fields: written}
    in_doubt: %s
    timeouts: {perform: PT10S}
    input_schema:
      type: object
      additionalProperties: false
      required: [id, fields]
      properties:
        id: {type: integer}
        fields: {type: object, additionalProperties: false, properties: {status: {type: string}}}
    output_schema: {type: object}
    retry: {attempts: 4, backoff: [5], jitter: 0}"""
# With a table for keys, sent again or asked for; and without one, so that the row itself has to tell.
OPERATIONS = "operations:" + "".join(
    (
        _UPDATE % ("update", ", idempotency_table: crm.keys", "idempotent"),
        _UPDATE % ("look", ", idempotency_table: crm.keys", "probe"),
        _UPDATE % ("set", "", "probe"),
    )
)
# Every write of a row leaves a line, so that one that was made twice is seen.
_TABLES = """
CREATE SCHEMA crm;
CREATE TABLE crm.customers (id int PRIMARY KEY, status text NOT NULL);
CREATE TABLE crm.keys (key text PRIMARY KEY, result jsonb);
CREATE TABLE crm.written (id int NOT NULL);
CREATE FUNCTION crm.note() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN INSERT INTO crm.written VALUES (NEW.id); RETURN NEW; END$$;
CREATE TRIGGER note AFTER UPDATE ON crm.customers FOR EACH ROW EXECUTE FUNCTION crm.note();
INSERT INTO crm.customers SELECT number, 'new' FROM generate_series(1, 9) number;
"""


def beside(url: str) -> str:
    """The address of the other database."""
    return f"{url}_crm"


async def found(url: str) -> None:
    """Make the other database beside this one; nothing kills whoever does."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f'CREATE DATABASE "{beside(url).rpartition("/")[2]}" STRATEGY FILE_COPY')
    except asyncpg.DuplicateDatabaseError:
        return
    finally:
        await connection.close()
    other = await asyncpg.connect(beside(url))
    try:
        await other.execute(_TABLES)
    finally:
        await other.close()


async def written(url: str) -> list[int]:
    """The rows that were written, once for each time."""
    other = await asyncpg.connect(beside(url))
    try:
        return [row["id"] for row in await other.fetch("SELECT id FROM crm.written ORDER BY id")]
    finally:
        await other.close()


class _Later(SqlConnector):
    """Asked an hour after the intent: whoever left it in doubt is dead, and what was sent has arrived."""

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        return await super().probe(call, seconds_since_intent=seconds_since_intent + 3600)


def connector(url: str, killer: Any) -> Any:
    """The connector, on a link whose statements the killer numbers."""

    async def own() -> str:
        connection = await asyncpg.connect(url)
        try:
            return str(await connection.fetchval(IDENTITY))
        finally:
            await connection.close()

    made = _Later(SqlSettings(beside(url), own))
    wrap_connections_of(made, lambda one: killer.wrap("rows", one, "execute", "fetchrow", "fetchval", "fetch"))
    return killer.wrap("connector", made, "read_before", "perform", "probe")
