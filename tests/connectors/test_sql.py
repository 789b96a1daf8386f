"""The connector sql on a real PostgreSQL: one row or nothing, versions, keys, and never our own database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.catalog import Catalog, Source, load_catalog
from connectors.port import Before, Done, InDoubt, NotSent, ProbeVerdict, Refused
from connectors.proposal import build_action, rebuilt_action
from connectors.sql.connector import SqlConnector, SqlSettings
from connectors.sql.link import Link
from core.errors import DefinitionError, InputError
from tests.support.calls import Call
from tests.support.connectors_sql import EXAMPLE, KEY, call, customer, document, loaded, told


@pytest.mark.req("V-2")
async def test_a_row_is_read_changed_and_restored(sql: SqlConnector, declared: Catalog, database: Any) -> None:
    update = declared.get("crm.customer.update")
    values = {
        "id": 1,
        "fields": {"status": "gold", "limit eur": "99", "tags": ["a", "b"], "seen": "2026-01-02T03:04:05Z"},
    }
    before = await sql.read_before(call(declared, "update", **values))
    assert isinstance(before, Before)
    assert before.values == {"status": "new", "limit eur": "12.50", "tags": [], "seen": None}
    action = build_action(update, values, before)
    done = await sql.perform(Call(action.operation, action.input, KEY, 5.0, before, declared=update))
    assert isinstance(done, Done)
    assert done.after is not None
    assert done.after["limit eur"] == "99.00"
    assert done.output["altered"] == [], "it is compared in the columns' own types"
    row = await customer(database, 1)
    assert (row["status"], row["tags"]) == ("gold", ["a", "b"])
    assert (await customer(database, 2))["status"] == "new", "no other row"
    assert action.reversible
    assert action.reverse is not None
    back: Any = action.reverse["input"]
    assert isinstance(await sql.perform(call(declared, "update", **back)), Done)
    row = await customer(database, 1)
    assert (row["status"], str(row["limit eur"]), row["tags"], row["seen"]) == ("new", "12.50", [], None)


async def test_a_row_that_has_changed_since_it_was_read_is_left_alone(
    sql: SqlConnector, declared: Catalog, database: Any
) -> None:
    values: Any = {"id": 1, "fields": {"status": "gold"}}
    before = await sql.read_before(call(declared, "update", **values))
    await database.execute("UPDATE crm.customers SET gone = 'x' WHERE id = 1")
    assert isinstance(before, Before)
    outcome = await sql.perform(call(declared, "update", before, **values))
    assert isinstance(outcome, NotSent)
    assert "changed since it was read" in outcome.message
    assert (await customer(database, 1))["status"] == "new"


@pytest.mark.parametrize("many", [0, 2])
async def test_a_write_that_meets_not_one_row_is_undone(
    sql: SqlConnector, declared: Catalog, database: Any, many: int
) -> None:
    twice = (
        "PERFORM 1; IF pg_trigger_depth() = 1 THEN UPDATE crm.customers SET gone = 'y' WHERE id = 2; END IF; RETURN NEW"
    )
    body = "RETURN NULL" if many == 0 else twice
    await database.execute(
        f"CREATE FUNCTION crm.tamper() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; END $$;"
        "CREATE TRIGGER tamper BEFORE UPDATE ON crm.customers FOR EACH ROW EXECUTE FUNCTION crm.tamper()"
    )
    outcome = await sql.perform(call(declared, "once", id=1, fields={"status": "gold"}))
    if many == 0:
        assert isinstance(outcome, Refused)
        assert outcome.code == "not_one_row"
        assert (await customer(database, 1))["status"] == "new"
        assert await database.fetchval("SELECT count(*) FROM crm.keys") == 0, "the key is undone with the write"
    else:  # what the owner's own trigger does beside it is the owner's
        assert isinstance(outcome, Done)


async def test_a_key_is_one_effect_also_when_it_is_sent_at_the_same_time(
    sql: SqlConnector, declared: Catalog, database: Any
) -> None:
    await database.execute("ALTER TABLE crm.customers ADD n int DEFAULT 0")
    await database.execute(
        "CREATE FUNCTION crm.count() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN NEW.n := OLD.n + 1; RETURN NEW; END $$;"
        "CREATE TRIGGER counted BEFORE UPDATE ON crm.customers FOR EACH ROW EXECUTE FUNCTION crm.count()"
    )
    sent = call(declared, "once", id=1, fields={"status": "gold"})
    outcomes = await asyncio.gather(*(sql.perform(sent) for _ in range(4)))
    assert all(isinstance(outcome, Done) for outcome in outcomes)
    assert all(outcome == outcomes[0] for outcome in outcomes), "each is told the same result"
    assert (await customer(database, 1))["n"] == 1
    probe = await sql.probe(sent, seconds_since_intent=0)
    assert probe.verdict is ProbeVerdict.APPLIED
    assert probe.done == outcomes[0]
    other = replace(sent, idempotency_key="f" * 64)
    early = await sql.probe(other, seconds_since_intent=1)
    assert early.verdict is ProbeVerdict.CANNOT_TELL
    # A lock may be waited for as long as the call may take, and then the statement may run as long; five for the way.
    limit = 2 * declared.get(other.operation).timeouts.perform.total_seconds() + 5
    assert early.retry_after_seconds == limit - 1 + 1
    for since, verdict in ((limit - 0.5, ProbeVerdict.CANNOT_TELL), (limit, ProbeVerdict.NOT_APPLIED)):
        assert (await sql.probe(other, seconds_since_intent=since)).verdict is verdict
    assert (await sql.probe(other, seconds_since_intent=100)).verdict is ProbeVerdict.NOT_APPLIED


async def test_without_a_table_for_keys_only_an_unchanged_row_tells(
    sql: SqlConnector, declared: Catalog, database: Any
) -> None:
    values: Any = {"id": 1, "fields": {"status": "gold"}}
    before = await sql.read_before(call(declared, "update", **values))
    assert isinstance(before, Before)
    sent = call(declared, "update", before, **values)
    assert (await sql.probe(sent, seconds_since_intent=1)).retry_after_seconds is not None
    assert (await sql.probe(sent, seconds_since_intent=100)).verdict is ProbeVerdict.NOT_APPLIED
    assert isinstance(await sql.perform(sent), Done)
    probe = await sql.probe(sent, seconds_since_intent=100)
    assert (probe.verdict, probe.retry_after_seconds) == (ProbeVerdict.CANNOT_TELL, None)


async def test_rows_are_inserted_listed_and_deleted(sql: SqlConnector, declared: Catalog, database: Any) -> None:
    done = await sql.perform(call(declared, "insert", id=3, fields={"status": "new"}))
    assert isinstance(done, Done)
    assert done.output["key"] == {"id": 3}
    again = await sql.perform(call(declared, "insert", id=3, fields={"status": "new"}))
    assert isinstance(again, Refused)
    assert again.code == "sql_23505"
    listed = await sql.perform(call(declared, "select", status="new", limit=2))
    assert isinstance(listed, Done)
    assert (listed.output["count"], listed.output["truncated"]) == (2, True)
    rows: Any = listed.output["rows"]
    assert rows[0] == {"id": 1, "status": "new", "limit eur": "12.50", "big": "9007199254740993"}
    unseen = await sql.perform(call(declared, "select", seen=None))
    assert isinstance(unseen, Done)
    assert (unseen.output["count"], unseen.output["truncated"]) == (3, False)
    gone = await sql.perform(call(declared, "delete", id=3))
    assert isinstance(gone, Done)
    assert await customer(database, 3) is None
    assert isinstance(await sql.perform(call(declared, "delete", id=3)), Refused)


async def test_values_are_values(sql: SqlConnector, declared: Catalog, database: Any) -> None:
    hostile = "x'; DROP TABLE crm.customers; --"
    assert isinstance(await sql.perform(call(declared, "update", id=1, fields={"status": hostile})), Done)
    assert (await customer(database, 1))["status"] == hostile
    refused = await sql.perform(call(declared, "update", id=1, fields={"status": "bad"}))
    assert isinstance(refused, Refused)
    assert refused.code == "sql_23514"
    wrong = await sql.perform(call(declared, "update", id=1, fields={"seen": "yesterday-ish"}))
    assert isinstance(wrong, Refused)


async def test_a_lock_is_waited_for_within_the_limit_alone(sql: SqlConnector, declared: Catalog, database: Any) -> None:
    async with database.transaction():
        await database.execute("UPDATE crm.customers SET gone = 'x' WHERE id = 1")
        sent = replace(call(declared, "update", id=1, fields={"status": "gold"}), timeout_seconds=0.5)
        outcome = await sql.perform(sent)
    assert isinstance(outcome, NotSent), "it was undone, certainly"
    assert (await customer(database, 1))["status"] == "new"


async def test_our_own_database_is_refused_whatever_it_is_called(
    outside: str, declared: Catalog, database: Any
) -> None:
    named = outside.replace("127.0.0.1", "localhost") if "127.0.0.1" in outside else outside
    connector = SqlConnector(SqlSettings(named, told(outside)))
    try:
        outcome = await connector.perform(call(declared, "update", id=1, fields={"status": "gold"}))
        assert isinstance(outcome, Refused)
        assert outcome.code == "own_database"
        well, words = await connector.check()
        assert not well
        assert "own database" in words
        assert (await customer(database, 1))["status"] == "new"
    finally:
        await connector.aclose()


def set_at(declared: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *way, last = path.split(".")
    place = declared
    for part in way:
        place = place[part]
    place[last] = value
    return declared


@pytest.mark.req("V-2")
@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("update.params.table", "crm.customer", "there is no table crm.customer"),
        ("update.params.table", "pg_catalog.pg_class", "has no column 'id'"),
        ("update.params.table", "crm.shown", "crm.shown is no table"),
        ("update.params.table", "crm.parted", "its rows have no version of their own"),
        ("update.params.version", "rev", "has no column 'rev'"),
        ("once.params.idempotency_table", "crm.notes", "needs `key text PRIMARY KEY`"),
        ("once.params.idempotency_table", "crm.keyless", "needs `key text PRIMARY KEY`"),
        ("select.params.columns", ["id", "stat"], "has no column 'stat'. Did you mean 'status'?"),
        ("select.params.key", ["status"], "(status) is no key of crm.customers"),
        ("select.params.key", ["big"], "(big) is no key of crm.customers"),
    ],
)
async def test_names_that_the_catalogue_has_not_are_refused(
    outside: str, postgres_url: str, database: Any, path: str, value: Any, words: str
) -> None:
    await database.execute("CREATE VIEW crm.shown AS SELECT * FROM crm.customers")
    await database.execute("CREATE TABLE crm.keyless (key text, result jsonb, UNIQUE (key, result))")
    await database.execute("CREATE TABLE crm.parted (LIKE crm.customers INCLUDING ALL) PARTITION BY LIST (id)")
    await database.execute("CREATE UNIQUE INDEX ON crm.customers (big) WHERE big > 0")
    catalog = loaded(set_at(document(), path, value))
    connector = SqlConnector(SqlSettings(outside, told(postgres_url)))
    try:
        said = await connector.faults(catalog.own.values())
        assert words in " ".join(said)
        name = path.partition(".")[0]
        given = {} if name == "select" else {"id": 1, "fields": {"status": "gold"}}
        outcome = await connector.perform(call(catalog, name, **given))
        assert isinstance(outcome, Refused), "the first call finds it, too"
        assert (outcome.code, words in outcome.message) == ("wrong_declaration", True)
    finally:
        await connector.aclose()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("once.params", {"table": "crm.customers", "key": ["id"]}, "Nothing in the database remembers the key"),
        ("update.input_schema.additionalProperties", True, "additionalProperties: false"),
        ("update.input_schema.properties.fields.additionalProperties", True, "additionalProperties: false"),
        ("update.input_schema.properties.where", {"type": "string"}, "does not send 'where'"),
        ("update.input_schema.required", ["fields"], "needs 'id'"),
        ("update.input_schema.properties.fields.properties.id", {}, "`fields` would write it"),
        ("delete.handler", "sql:truncate", "no handler 'sql:truncate'"),
        ("delete.side_effects", "none", "side_effects: external_call"),
        ("select.params.table", "customers", "params.table"),
        ("select.params.columns", [], "Add `columns: [...]`"),
        ("update.params.sql", "DELETE", "params has no 'sql'"),
        ("insert.diff", {"fields": "written"}, "nothing to read first"),
    ],
)
def test_a_declaration_that_fits_no_table_is_refused(path: str, value: Any, words: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        loaded(set_at(document(), path, value))
    assert words in str(caught.value)


async def test_only_a_commit_without_an_answer_is_in_doubt(
    outside: str, postgres_url: str, declared: Catalog, database: Any
) -> None:
    """The backend is ended while it works, and while it commits."""
    link = Link(outside, told(postgres_url))

    async def dies(connection: Any) -> str:
        number = await connection.fetchval("SELECT pg_backend_pid()")
        await database.fetchval("SELECT pg_terminate_backend($1, 5000)", number)
        return str(await connection.fetchval("SELECT 'alive'"))

    async def dies_later(connection: Any) -> str:
        number = await connection.fetchval("SELECT pg_backend_pid()")
        await database.fetchval("SELECT pg_terminate_backend($1, 5000)", number)
        return "done"

    try:
        assert isinstance(await link.use(dies, seconds=5, writes=True), NotSent)
        assert isinstance(await link.use(dies_later, seconds=5, writes=True), InDoubt)
        assert isinstance(await link.use(dies_later, seconds=5, writes=False), NotSent)
    finally:
        await link.close()


@pytest.mark.parametrize(("state", "outcome"), [("40001", NotSent), ("40003", InDoubt), ("57014", InDoubt)])
async def test_a_commit_of_which_the_database_does_not_know_is_in_doubt(
    sql: SqlConnector, declared: Catalog, database: Any, state: str, outcome: type
) -> None:
    """The state 40003 is *statement completion unknown*; 40001 says that all was rolled back."""
    await database.execute(
        "CREATE FUNCTION crm.at_the_end() RETURNS trigger LANGUAGE plpgsql"
        f" AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$;"
        "CREATE CONSTRAINT TRIGGER at_the_end AFTER UPDATE ON crm.customers DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION crm.at_the_end()"
    )
    assert type(await sql.perform(call(declared, "update", id=1, fields={"status": "gold"}))) is outcome


async def test_an_empty_version_is_compared_like_any_other(outside: str, postgres_url: str, database: Any) -> None:
    """The row had no version when it was read, and somebody has changed it since."""
    await database.execute("ALTER TABLE crm.customers ADD rev text")
    found = document()
    found["update"]["params"] = {"table": "crm.customers", "key": ["id"], "version": "rev"}
    catalog, values = loaded(found), {"id": 1, "fields": {"status": "gold"}}
    connector = SqlConnector(SqlSettings(outside, told(postgres_url)))
    try:
        before = await connector.read_before(call(catalog, "update", **values))
        assert isinstance(before, Before)
        await database.execute("UPDATE crm.customers SET rev = '1', status = 'theirs' WHERE id = 1")
        assert isinstance(await connector.perform(call(catalog, "update", before, **values)), NotSent)
        assert (await customer(database, 1))["status"] == "theirs"
    finally:
        await connector.aclose()


async def test_nobody_there_is_not_sent(postgres_url: str, closed_url: str, declared: Catalog) -> None:
    port = closed_url.rpartition(":")[2]
    connector = SqlConnector(SqlSettings(f"postgresql://u:secret@127.0.0.1:{port}/x", told(postgres_url)))
    outcome = await connector.perform(call(declared, "update", id=1, fields={"status": "gold"}))
    assert isinstance(outcome, NotSent)
    assert connector.target == f"postgresql://127.0.0.1:{port}/x as u"
    assert isinstance(await connector.faults(declared.own.values()), str), "told at the first call"
    await connector.aclose()


@pytest.mark.req("V-2", "Q-15")
def test_an_action_that_was_kept_is_the_same_once_more(declared: Catalog) -> None:
    operation, before = declared.get("crm.customer.once"), Before({"status": "new"}, "7")
    action = build_action(operation, {"id": 1, "fields": {"status": "gold"}}, before)
    assert action.input["idempotency_table"] == "crm.keys"
    assert rebuilt_action(operation, action.input, before) == action
    with pytest.raises(InputError, match="idempotency_table"):
        build_action(operation, action.input, before)


async def test_the_example_fits_its_tables(outside: str, postgres_url: str, database: Any) -> None:
    example = load_catalog([Source("customers.yaml", EXAMPLE)])
    await database.execute("ALTER TABLE crm.customers ADD owner text")
    await database.execute("CREATE TABLE crm.counterseal_keys (key text PRIMARY KEY, result jsonb)")
    connector = SqlConnector(SqlSettings(outside, told(postgres_url)))
    try:
        assert await connector.check() == (True, f"reachable as {connector.target}")
        assert await connector.faults(example.own.values()) == []
    finally:
        await connector.aclose()
