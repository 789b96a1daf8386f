"""Connections to a database: how many there are, how long they are waited for, and what an error among them means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from connectors.catalog import Source, catalog_of
from connectors.port import Done, InDoubt, NotSent, Refused
from connectors.sql import statements
from connectors.sql.connector import SqlConnector, SqlSettings
from connectors.sql.link import CONNECTIONS_MAX
from core.errors import TransportError
from tests.connectors.test_sql_transcripts import (
    CATALOG,
    CUSTOMERS,
    KEYS,
    TABLE,
    Told,
    at,
    call,
    catalogue,
    declared,
    wrote,
)
from tests.support.calls import Call

__all__ = ["at"]
pytestmark = pytest.mark.req("V-2")

Make = Callable[..., SqlConnector]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The connections that were opened, each from the next of these."""
    made: list[Any] = []

    async def connect(dsn: str, **_: Any) -> Any:
        made.append(Selecting())
        return made[-1]

    monkeypatch.setattr(asyncpg, "connect", connect)
    return made


class Selecting(Told):
    """A connection that selects nothing, once it may."""

    gate: asyncio.Event | None = None
    at_once = most = 0

    async def fetchval(self, text: str, *given: Any) -> Any:
        if text == statements.IDENTITY:
            return "theirs"
        if text == statements.CATALOGUE:
            return CUSTOMERS
        Selecting.at_once += 1
        Selecting.most = max(Selecting.most, Selecting.at_once)
        try:
            if Selecting.gate is not None:
                await Selecting.gate.wait()
        finally:
            Selecting.at_once -= 1
        return []

    fetchrow = fetch = fetchval


@pytest.fixture
def connector(opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> SqlConnector:
    async def own() -> str:
        return "ours"

    monkeypatch.setattr(Selecting, "gate", asyncio.Event())
    monkeypatch.setattr(Selecting, "most", 0)
    return SqlConnector(SqlSettings("postgresql://bot@db.example/crm", own), CATALOG)


async def passed() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_calls_share_four_connections_and_leave_them_open(connector: SqlConnector, opened: list[Any]) -> None:
    """Each of the four serves again, and all of them are closed at the end."""
    assert Selecting.gate is not None
    for round_ in range(2):
        Selecting.gate.clear()
        calls = [asyncio.create_task(connector.perform(call("select"))) for _ in range(CONNECTIONS_MAX + 3)]
        await passed()
        assert (Selecting.at_once, len(opened)) == (CONNECTIONS_MAX, CONNECTIONS_MAX), round_
        Selecting.gate.set()
        assert all(isinstance(each, Done) for each in await asyncio.gather(*calls))
    assert (Selecting.most, len(opened)) == (CONNECTIONS_MAX, CONNECTIONS_MAX)
    await connector.aclose()
    assert [one.heard[-1] for one in opened] == ["closed in 5 s"] * CONNECTIONS_MAX
    assert "terminated" not in [line for one in opened for line in one.heard]


async def test_a_free_connection_is_waited_for_no_longer_than_the_call(
    connector: SqlConnector, opened: list[Any]
) -> None:
    """Nothing was sent by a call that waits in vain, and those that are at work go on."""
    busy = [asyncio.create_task(connector.perform(call("select"))) for _ in range(CONNECTIONS_MAX)]
    await passed()
    short = replace(call("update", id=7, fields={"level": "gold"}), timeout_seconds=0.01)
    found = await asyncio.wait_for(connector.perform(short), 5.0)
    assert found == NotSent("the database gave no answer: TimeoutError")
    assert Selecting.gate is not None
    Selecting.gate.set()
    assert all(isinstance(each, Done) for each in await asyncio.gather(*busy))
    assert len(opened) == CONNECTIONS_MAX


class Failing(Told):
    """A connection that fails at one statement, by this error."""

    def __init__(self, at: str, error: Exception, *answers: Any) -> None:
        super().__init__(*answers)
        self.at, self.error = at, error

    async def execute(self, text: str, *given: Any) -> None:
        await super().execute(text, *given)
        if text == self.at:
            raise self.error

    async def fetch(self, text: str, *given: Any) -> Any:
        found = await super().fetchval(text, *given)
        if self.at == "work":
            raise self.error
        return found


def said(state: str) -> asyncpg.PostgresError:
    error: Any = asyncpg.PostgresError("no")
    error.sqlstate = state
    found: asyncpg.PostgresError = error
    return found


ROW = {"row": '{"id": 7}', "version": "8"}
SILENT = "the database gave no answer: no"
LOST = (
    ConnectionResetError("no"), OSError("no"), asyncpg.InterfaceError("no"), asyncpg.InternalClientError("no"),
    TimeoutError("no"),
)  # fmt: skip


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("verb", ["select", "update"])
@pytest.mark.parametrize("where", ["BEGIN", "work", "COMMIT"])
async def test_only_the_commit_of_a_write_that_is_not_answered_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, error: Exception, verb: str, where: str
) -> None:
    begin = where if where != "BEGIN" or verb == "update" else "BEGIN READ ONLY"
    answers = [[]] if verb == "select" else [ROW, [wrote("gold")]]
    connection = Failing(begin, error, "theirs", CUSTOMERS, *answers)
    doubt = (verb, where) == ("update", "COMMIT")
    told = InDoubt(f"{SILENT}, after COMMIT was sent") if doubt else NotSent(SILENT)
    assert await performed(monkeypatch, connection, verb) == told
    assert connection.heard[-1] == "terminated"


@pytest.mark.parametrize("verb", ["select", "update"])
@pytest.mark.parametrize(
    ("where", "state"), [(where, state) for where in ("work", "COMMIT") for state in ("57014", "40001", "23505")]
)
async def test_what_the_database_refuses_before_the_commit_is_undone(
    monkeypatch: pytest.MonkeyPatch, verb: str, where: str, state: str
) -> None:
    """A statement that was canceled at work certainly changed nothing; one that was canceled at COMMIT may have."""
    answers = [[]] if verb == "select" else [ROW, [wrote("gold")]]
    connection = Failing(where, said(state), "theirs", CUSTOMERS, *answers)
    told: Any = NotSent("PostgreSQL says: no")
    if state == "23505":
        told = Refused("sql_23505", "PostgreSQL says: no")
    elif (verb, where, state) == ("update", "COMMIT", "57014"):
        told = InDoubt("PostgreSQL says: no, after COMMIT was sent")
    assert await performed(monkeypatch, connection, verb) == told


async def performed(monkeypatch: pytest.MonkeyPatch, connection: Told, verb: str, own: Any = "ours") -> Any:
    async def connect(dsn: str, **_: Any) -> Told:
        return connection

    async def ours() -> str:
        if isinstance(own, Exception):
            raise own
        return str(own)

    monkeypatch.setattr(asyncpg, "connect", connect)
    connector = SqlConnector(SqlSettings("postgresql://bot@db.example/crm", ours), CATALOG)
    given: dict[str, Any] = {} if verb == "select" else {"id": 7, "fields": {"level": "gold"}}
    return await connector.perform(call(verb, **given))


@pytest.mark.parametrize("verb", ["select", "update"])
async def test_nothing_is_sent_before_it_is_known_which_database_is_ours(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    connection = Told()
    found = await performed(monkeypatch, connection, verb, TransportError("our own database is away."))
    assert found == NotSent("our own database is away.")
    assert connection.heard == []


@pytest.mark.parametrize(("own", "there"), [("1/2", "1/2"), ("1/2", "1/3"), ("1/2", "2/2")])
async def test_ours_is_one_database_of_one_cluster(monkeypatch: pytest.MonkeyPatch, own: str, there: str) -> None:
    """Another database of the same cluster is another, and so is one of the same number elsewhere."""
    found = await performed(monkeypatch, Told(there, CUSTOMERS, []), "select", own)
    assert isinstance(found, Refused if own == there else Done)


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ({"output": {}, "after": {}}, Done({}, after={})),
        ({"output": {"n": 1}, "after": {}}, Done({"n": 1}, after={})),
        ({"after": {"a": 2}}, Done({}, after={"a": 2})),
        ({"n": 1}, Done({})),
        ({"output": "x", "after": [1]}, Done({})),
        ([1], Done({})),
    ],
)
async def test_an_outcome_is_recalled_as_it_was_kept(monkeypatch: pytest.MonkeyPatch, kept: Any, told: Done) -> None:
    """After a delete nothing is left, which is not the same as nothing known."""
    row = json.dumps({"key": "k", "result": kept})
    assert await performed(monkeypatch, Told("theirs", CUSTOMERS, KEYS, None, row), "once") == told


async def test_all_of_the_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end says how the database proves who it is."""
    asked: list[str] = []

    async def connect(dsn: str, **_: Any) -> Told:
        asked.append(dsn)
        return Told("theirs", CUSTOMERS, [])

    async def ours() -> str:
        return "ours"

    monkeypatch.setattr(asyncpg, "connect", connect)
    url = "postgresql://bot@db.example:6432/crm?sslmode=verify-full"
    connector = SqlConnector(SqlSettings(url, ours), CATALOG)
    assert isinstance(await connector.perform(call("select")), Done)
    assert asked == [url]
    assert connector.target == "postgresql://db.example:6432/crm as bot"


async def test_a_connection_that_does_not_close_holds_no_other_back(
    connector: SqlConnector, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Selecting.gate is not None
    calls = [asyncio.create_task(connector.perform(call("select"))) for _ in range(3)]
    await passed()
    Selecting.gate.set()
    await asyncio.gather(*calls)
    for number, error in enumerate((OSError("a"), asyncpg.InterfaceError("b"), TimeoutError())):

        async def close(timeout: float, number: int = number, error: Exception = error) -> None:
            opened[number].heard.append("tried")
            raise error

        monkeypatch.setattr(opened[number], "close", close)
    await connector.aclose()
    assert [one.heard[-1] for one in opened] == ["tried"] * 3


async def test_a_declaration_that_does_not_fit_is_refused_each_time(at: Make) -> None:
    connection = Told("theirs", catalogue("id"), "theirs", catalogue("id"), "theirs", CUSTOMERS, [])
    connector = at(connection)
    words = "sql.customer.select: crm.customers has no column 'level'."
    for _ in range(2):
        connection.ended = False
        found = await connector.perform(call("select"))
        assert isinstance(found, Refused)
        assert found.message.startswith(words)
    connection.ended = False
    assert not isinstance(await connector.perform(call("select")), Refused)


async def test_faults_of_the_table_and_of_that_for_keys_are_both_told(at: Make) -> None:
    connection = Told("theirs", catalogue("id", "note", "stamp"), None)
    found = await at(connection).faults(["sql.customer.once"])
    assert found == [
        "sql.customer.once: crm.customers has no column 'level'. Known here: id, note, stamp.",
        "sql.customer.once: there is no table crm.keys for keys.",
    ]


@pytest.mark.parametrize("level", ["", 0, False])
async def test_a_column_is_compared_with_what_is_empty_and_null_is_looked_for(at: Make, level: Any) -> None:
    connection = Told("theirs", CUSTOMERS, [])
    await at(connection).perform(call("select", level=level, note=None))
    text, given, _ = connection.heard[-2]
    assert 't."level" = v."level" AND t."note" IS NULL' in text
    assert json.loads(given) == {"level": level, "note": None}


async def test_a_handler_that_the_connector_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    upsert = declared("update", "upsert", handler="sql:upsert", params=TABLE)
    connection = Told()

    async def connect(*_: Any, **__: Any) -> Told:
        return connection

    monkeypatch.setattr("asyncpg.connect", connect)

    async def ours() -> str:
        return "ours"

    catalog = catalog_of([Source("crm.yaml", json.dumps({"operations": [upsert]}))])
    connector = SqlConnector(SqlSettings("postgresql://bot@db.example/crm", ours), catalog)
    values: Any = {**TABLE, "id": 7, "fields": {}}
    found = await connector.perform(
        Call("sql.customer.upsert", values, "k", 1.0, declared=catalog.get("sql.customer.upsert"))
    )
    assert found == Refused("unknown_handler", "the connector sql has no function 'upsert'")
    assert connection.heard == []


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("id", []),
        ('id"note', ["sql.customer.delete: (id) is no key of crm.customers."]),
        ('note"id', ["sql.customer.delete: (id) is no key of crm.customers."]),
    ],
)
async def test_a_key_of_several_columns_is_no_key_of_one(at: Make, key: str, told: list[str]) -> None:
    found = await at(Told("theirs", catalogue("id", "note", key=key))).faults(["sql.customer.delete"])
    assert [words.partition(" It needs")[0] for words in found] == told


async def test_a_generated_column_is_there_and_may_be_read(at: Make) -> None:
    table: dict[str, Any] = catalogue("id", "level", "note") | {"generated": ["level", "note"]}
    assert await at(Told("theirs", table)).faults(["sql.customer.select"]) == []
    assert await at(Told("theirs", table)).faults(["sql.customer.update"]) == [
        f"sql.customer.update: crm.customers.{name} is generated by the database, so nothing can write it."
        for name in ("level", "note")
    ]


async def test_a_declaration_is_the_databases_by_its_connector_and_not_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owned = declared("delete", params=TABLE) | {"name": "crm.customer.remove", "connector": "sql"}
    second = owned | {"name": "crm.customer.drop"}
    other = owned | {"name": "sql.customer.remove", "connector": "crm", "handler": "crm:remove"}
    catalog = catalog_of([Source("crm.yaml", json.dumps({"operations": [owned, second, other]}))])

    async def connect(*_: Any, **__: Any) -> Told:
        return Told("theirs", CUSTOMERS, CUSTOMERS)

    async def ours() -> str:
        return "ours"

    monkeypatch.setattr(asyncpg, "connect", connect)
    connector = SqlConnector(SqlSettings("postgresql://bot@db.example/crm", ours), catalog)
    assert await connector.check() == (
        True,
        "reachable as postgresql://db.example/crm as bot; 2 operations fit its tables",
    )
