"""A PostgreSQL of a customer, declared operations on its tables, and the connector sql on it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from connectors.catalog import Catalog, Source, load_catalog
from connectors.port import Before, Call
from connectors.proposal import build_action
from connectors.sql.connector import SqlConnector, SqlSettings
from connectors.sql.statements import IDENTITY
from tests.support.databases import Databases

EXAMPLE = (Path(__file__).resolve().parents[2] / "examples" / "customers" / "operations" / "customers.yaml").read_text()
SCHEMA = """
CREATE SCHEMA crm;
CREATE TABLE crm.customers (id int PRIMARY KEY, status text NOT NULL CHECK (status <> 'bad'), "limit eur" numeric(12,2),
  tags text[] DEFAULT '{}', seen timestamptz, big bigint, gone text);
CREATE TABLE crm.notes (author text, body text);
CREATE TABLE crm.keys (key text PRIMARY KEY, result jsonb);
INSERT INTO crm.customers (id, status, "limit eur", big)
  VALUES (1, 'new', 12.50, 9007199254740993), (2, 'new', NULL, 1);
"""
FIELDS: dict[str, Any] = {"status": {"type": "string"}, "limit eur": {"type": "string"}, "tags": {}, "seen": {}}
FIELDS["big"] = {}
ID: dict[str, Any] = {"id": {"type": "integer"}}


def operation(name: str, handler: str, properties: dict[str, Any], required: list[str], **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "additionalProperties": False, "required": required, "properties": properties}
    effect = {"side_effects": "none"} if handler == "select" else {"side_effects": "external_call", "in_doubt": "probe"}
    params = {"table": "crm.customers", "key": ["id"]}
    said: dict[str, Any] = {"connector": "sql", "handler": f"sql:{handler}", "risk": "medium", "params": params}
    said |= {"summary": f"{handler} a customer", "target": "customers", "timeouts": {"perform": "PT5S"}, **effect}
    return {"name": f"crm.customer.{name}", **said, "input_schema": schema, "output_schema": {"type": "object"}, **more}


def document() -> dict[str, Any]:
    inner = {"type": "object", "additionalProperties": False, "properties": FIELDS}
    written = {**ID, "fields": inner}
    reverse = {"operation": "crm.customer.update", "input": {"id": "{id}", "fields": "{before}"}}
    update = {"writes": "fields", "diff": {"fields": "written"}, "reverse": reverse, "target": "customers/{id}"}
    once = {"params": {"table": "crm.customers", "key": ["id"], "idempotency_table": "crm.keys"}}
    columns = {"params": {"table": "crm.customers", "key": ["id"], "columns": ["id", "status", "limit eur", "big"]}}
    listed = {"status": {"type": "string"}, "seen": {}, "limit": {"type": "integer", "minimum": 1}}
    found: dict[str, Any] = {
        "update": operation("update", "update", written, ["id", "fields"], **update),
        "once": operation("once", "update", written, ["id", "fields"], **update, **once) | {"in_doubt": "idempotent"},
        "insert": operation("insert", "insert", written, ["fields"], writes="fields"),
        "delete": operation("delete", "delete", ID, ["id"], writes=["id"], diff={"fields": ["status"]}),
        "select": operation("select", "select", listed, [], **columns),
    }
    return deepcopy(found)


def loaded(declared: dict[str, Any]) -> Catalog:
    return load_catalog([Source("crm.yaml", json.dumps({"operations": [*declared.values()]}, indent=1))])


KEY = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def declared() -> Catalog:
    return loaded(document())


@pytest.fixture
async def outside(databases: Databases) -> AsyncIterator[str]:
    """A database that is not ours."""
    with databases.made("crm") as url:
        database = await asyncpg.connect(url)
        await database.execute(SCHEMA)
        await database.close()
        yield url


@pytest.fixture
async def database(outside: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(outside)
    yield connection
    await connection.close()


def told(url: str) -> Callable[[], Any]:
    async def identity() -> str:
        connection = await asyncpg.connect(url)
        try:
            return str(await connection.fetchval(IDENTITY))
        finally:
            await connection.close()

    return identity


@pytest.fixture
async def sql(outside: str, postgres_url: str, declared: Catalog) -> AsyncIterator[SqlConnector]:
    connector = SqlConnector(SqlSettings(outside, told(postgres_url)))
    yield connector
    await connector.aclose()


def call(declared: Catalog, name: str, before: Before | None = None, key: str = KEY, **values: Any) -> Call:
    operation = declared.get(f"crm.customer.{name}")
    action = build_action(operation, values)
    return Call(action.operation, action.input, key, 5.0, before, declared=operation)


async def customer(database: Any, number: int) -> Any:
    return await database.fetchrow("SELECT * FROM crm.customers WHERE id = $1", number)
