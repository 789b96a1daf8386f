"""Rows of the connector sql: several of them, keys of two columns, and changes that the database makes itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from connectors.catalog import Catalog
from connectors.port import SOMEBODY, Before, Done, NotSent
from connectors.sql.connector import SqlConnector, SqlSettings
from connectors.sql.link import Link, values_of
from core.canonical import INTEGER_MAX
from tests.support.connectors_sql import call, customer, document, loaded, told

PAIRS = """
CREATE TABLE crm.pairs (id int, part text, status text, made text GENERATED ALWAYS AS (upper(status)) STORED,
  PRIMARY KEY (part, id));
INSERT INTO crm.pairs SELECT n / 2, CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END, 'new' FROM generate_series(209, 2, -1) n;
"""


def pairs() -> dict[str, Any]:
    found = document()
    params = {"table": "crm.pairs", "key": ["id", "part"]}
    part = {"part": {"type": "string"}}
    for name in ("update", "insert"):
        schema = found[name]["input_schema"]
        schema["properties"] = {**schema["properties"], **part}
        schema["properties"]["fields"] = {**schema["properties"]["fields"], "properties": {"status": {}}}
        schema["required"] = ["id", "part", "fields"]
        found[name] |= {"params": params}
    found["update"]["reverse"]["input"]["part"] = "{part}"
    found["select"] |= {"params": params | {"columns": ["id", "part"]}}
    found["select"]["input_schema"]["properties"] = {"status": {}, "limit": {"type": "integer"}}
    return {name: found[name] for name in ("update", "insert", "select")}


@pytest.fixture
async def paired(outside: str, postgres_url: str, database: Any) -> AsyncIterator[tuple[SqlConnector, Catalog]]:
    await database.execute(PAIRS)
    catalog = loaded(pairs())
    connector = SqlConnector(SqlSettings(outside, told(postgres_url)))
    yield connector, catalog
    await connector.aclose()


async def test_rows_come_in_the_order_of_the_whole_key(paired: Any, database: Any) -> None:
    """There are 208 rows; they were written from the last to the first."""
    connector, catalog = paired
    every = [{"id": n, "part": part} for n in range(1, 105) for part in ("a", "b")]
    for asked, count in (({}, 208), ({"limit": 3}, 3), ({"limit": 207}, 207), ({"limit": 208}, 208)):
        found = await connector.perform(call(catalog, "select", **asked))
        told: Any = {"rows": every[:count], "count": count, "truncated": count < 208}
        assert found == Done(told, writers=SOMEBODY)


async def test_what_is_to_be_null_is_a_condition(sql: SqlConnector, declared: Catalog, database: Any) -> None:
    await database.execute("UPDATE crm.customers SET seen = '2026-01-02T03:04:05Z' WHERE id = 1")
    for asked, ids in (({"seen": None}, [2]), ({"seen": None, "status": "new"}, [2]), ({"status": "new"}, [1, 2])):
        found = await sql.perform(call(declared, "select", **asked))
        assert isinstance(found, Done)
        rows: Any = found.output["rows"]
        assert [row["id"] for row in rows] == ids, asked


async def test_a_row_is_found_by_its_whole_key(paired: Any, database: Any) -> None:
    connector, catalog = paired
    sent = call(catalog, "update", id=7, part="b", fields={"status": "gold"})
    before = await connector.read_before(sent)
    assert isinstance(before, Before)
    assert before.values == {"status": "new"}
    done = await connector.perform(sent)
    assert isinstance(done, Done)
    version = str(await database.fetchval("SELECT xmin::text FROM crm.pairs WHERE id = 7 AND part = 'b'"))
    fields = {"status": "gold"}
    assert done == Done(
        {"key": {"id": 7, "part": "b"}, "version": version, "fields": fields, "altered": []}, after=fields
    )
    changed = await database.fetch("SELECT id, part FROM crm.pairs WHERE status <> 'new'")
    assert [tuple(row) for row in changed] == [(7, "b")]


@pytest.mark.parametrize("name", ["update", "delete"])
async def test_whoever_changes_a_row_at_the_same_time_is_waited_for_and_seen(
    sql: SqlConnector, declared: Catalog, database: Any, outside: str, name: str
) -> None:
    given = {"id": 1} | ({"fields": {"status": "gold"}} if name == "update" else {})
    before = await sql.read_before(call(declared, name, **given))
    assert isinstance(before, Before)
    other = await asyncpg.connect(outside)
    async with other.transaction():
        await other.execute("UPDATE crm.customers SET status = 'silver' WHERE id = 1")
        writing = asyncio.create_task(sql.perform(call(declared, name, before, **given)))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        async with asyncio.timeout(60):
            while not await database.fetchval(waits):
                pass
    words = "the row of crm.customers has changed since it was read, so it is read and judged anew"
    assert await writing == NotSent(words)
    assert (await customer(database, 1))["status"] == "silver"
    await other.close()


async def test_what_the_database_makes_of_a_value_is_told(sql: SqlConnector, declared: Catalog, database: Any) -> None:
    await database.execute(
        "CREATE FUNCTION crm.lower() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN NEW.status := lower(NEW.status); RETURN NEW; END $$;"
        "CREATE TRIGGER lowered BEFORE INSERT OR UPDATE ON crm.customers FOR EACH ROW EXECUTE FUNCTION crm.lower()"
    )
    for name, number in (("update", 1), ("insert", 9), ("once", 2)):
        sent = call(declared, name, id=number, fields={"status": "GOLD", "limit eur": "1.5"})
        done = await sql.perform(sent)
        assert isinstance(done, Done), name
        assert done.output["altered"] == ["status"], name
        assert done.output["fields"] == done.after == {"status": "gold", "limit eur": "1.50"}, name
        if name == "once":
            assert await sql.perform(sent) == done, "told again as it was"
            probe = await sql.probe(sent, seconds_since_intent=0)
            assert probe.done == done


async def test_a_reading_cannot_write(outside: str, postgres_url: str, database: Any) -> None:
    link = Link(outside, told(postgres_url))

    async def write(connection: Any) -> Any:
        return await connection.execute("UPDATE crm.customers SET status = 'gold'")

    try:
        assert not isinstance(await link.use(write, seconds=5, writes=False), str)
        assert (await customer(database, 1))["status"] == "new"
        assert await link.use(write, seconds=5, writes=True) == "UPDATE 2"
    finally:
        await link.close()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_without_a_canonical_form_is_its_text(sign: int) -> None:
    most = sign * INTEGER_MAX
    read = values_of(json.dumps({"a": most, "b": most + sign, "c": sign * 10**30}))
    assert read == {"a": most, "b": str(most + sign), "c": str(sign * 10**30)}


@pytest.mark.parametrize(
    ("declaration", "words"),
    [
        ("UNIQUE (big) DEFERRABLE INITIALLY DEFERRED", False),
        ("UNIQUE (big) DEFERRABLE INITIALLY IMMEDIATE", False),
        ("UNIQUE (big, status)", False),
        ("UNIQUE (big) INCLUDE (status)", True),
        ("UNIQUE (big)", True),
    ],
)
async def test_a_key_makes_rows_unique_at_once(
    outside: str, postgres_url: str, database: Any, declaration: str, words: bool
) -> None:
    await database.execute(f"ALTER TABLE crm.customers ADD {declaration}")
    found = document()
    found["select"]["params"]["key"] = ["big"]
    connector = SqlConnector(SqlSettings(outside, told(postgres_url)))
    try:
        faults = await connector.faults(loaded({"select": found["select"]}).own.values())
        assert (faults == []) is words, faults
    finally:
        await connector.aclose()


@pytest.mark.parametrize(("operation", "key"), [("insert", True), ("update", False)])
async def test_what_the_database_makes_itself_is_not_written(
    outside: str, postgres_url: str, database: Any, operation: str, key: bool
) -> None:
    """A key that is generated can be looked for, and not given."""
    await database.execute(
        "CREATE TABLE crm.made (id int GENERATED ALWAYS AS (n) STORED PRIMARY KEY, n int, status text)"
    )
    declared = document()[operation] | {"params": {"table": "crm.made", "key": ["id"]}}
    declared["input_schema"]["properties"]["fields"]["properties"] = {"status": {}}
    connector = SqlConnector(SqlSettings(outside, told(postgres_url)))
    try:
        faults = await connector.faults(loaded({operation: declared}).own.values())
        assert any("crm.made.id is generated by the database" in str(fault) for fault in faults) is key, faults
    finally:
        await connector.aclose()
