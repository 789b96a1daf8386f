"""Statements of a ``Database`` to PostgreSQL, and the connections that it uses again, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from core import db
from core.db import Database, DatabaseClock, address, check_tenant, within
from core.errors import InputError, NotFoundError, TransportError
from core.grouping import SHAPES, TOGETHER_MAX, WRITERS, Call, called


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ann:pw@db.example:5432/x", "postgresql://ann:pw@db.example:5432/x"),
        ("postgres://ann@db.example/x", "postgres://ann@db.example/x"),
        ("postgresql+asyncpg://ann:pw@db.example/x", "postgresql://ann:pw@db.example/x"),
        ("postgresql://ann:p/w?%25#ü@db.example/x", "postgresql://ann:p%2Fw%3F%25%23%C3%BC@db.example/x"),
        ("postgresql://ann:@db.example/x", "postgresql://ann:@db.example/x"),
        ("postgresql://db.example/x?sslmode=require", "postgresql://db.example/x?sslmode=require"),
        ("postgresql:///x?host=/run/pg", "postgresql:///x?host=/run/pg"),
        ("postgresql://:pw@db.example/x", "postgresql://:pw@db.example/x"),
    ],
)
def test_an_address_is_told_as_the_driver_takes_it(url: str, told: str) -> None:
    assert address(url) == told


@pytest.mark.parametrize("url", ["", "mysql://a/b", "postgresql://db.example", "postgresql://db.example/", "db/x"])
def test_what_is_no_address_of_a_database_is_refused(url: str) -> None:
    with pytest.raises(InputError) as caught:
        address(url)
    assert str(caught.value) == "is no address of a PostgreSQL database"


@pytest.mark.parametrize(
    ("tenant", "good"),
    [
        ("a", True),
        ("0", True),
        ("a-b_c9", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("", False),
        ("A", False),
        ("-a", False),
        ("_a", False),
        ("a\n", False),
        ("a'b", False),
        ("ä", False),
        ("a.b", False),
    ],
)
def test_a_tenant_is_safe_to_be_written_into_a_statement(tenant: str, good: bool) -> None:
    if good:
        assert check_tenant(tenant) == tenant
        return
    with pytest.raises(InputError) as caught:
        check_tenant(tenant)
    remedy = "Use lower-case letters, digits, - and _, at most 63, starting with a letter or digit."
    assert str(caught.value) == f"{tenant!r} is not a tenant id. {remedy}"


def test_the_clock_goes_on_from_its_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = 103.0
    monkeypatch.setattr("time.monotonic", lambda: passed)
    reading = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    clock, other = DatabaseClock(reading, 100.5), DatabaseClock(reading, 104.0)
    assert (clock.now(), clock.age(), clock.error) == (reading, 0.0, timedelta(seconds=2.5))
    for passed in (110.0, 103.75):
        since = passed - 103.0
        assert (clock.now(), clock.age(), clock.error) == (
            reading + timedelta(seconds=since),
            since,
            timedelta(seconds=2.5),
        )
    assert other.error == timedelta(0)
    assert timedelta(seconds=0.25) == db.CLOCK_ERROR_MAX


class Told:
    """A connection that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.open, self.ended = False, False

    async def execute(self, text: str) -> None:
        self.heard.append(text)
        self.open = text.startswith("BEGIN")

    async def set_type_codec(self, name: str, **settings: Any) -> None:
        decoded, encoded = settings["decoder"]("[1]"), settings["encoder"]({"a": 1})
        self.heard.append(f"{settings['schema']}.{name} as {settings['format']}: {decoded} {encoded}")

    def is_closed(self) -> bool:
        return self.ended

    def is_in_transaction(self) -> bool:
        return self.open

    def terminate(self) -> None:
        self.heard.append("terminated")
        self.ended = True

    async def close(self) -> None:
        self.heard.append("closed")
        self.ended = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any], Told]]:
    """The connections that were made, each with its address and settings."""
    connections: list[tuple[str, dict[str, Any], Told]] = []

    async def connect(dsn: str, **settings: Any) -> Told:
        connections.append((dsn, settings, Told()))
        return connections[-1][2]

    monkeypatch.setattr(asyncpg, "connect", connect)
    return connections


CODECS = [f'pg_catalog.{name} as text: [1] {{"a":1}}' for name in ("json", "jsonb")]


async def test_a_connection_is_of_its_role_and_with_indexes(made: Any) -> None:
    await Database("postgresql+asyncpg://a:b@c/d", "counterseal_faces").connect()
    [(dsn, settings, connection)] = made
    hot = {"jit": "off", "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_hashjoin": "off"}
    server = {"role": "counterseal_faces", "application_name": "counterseal", **hot, "enable_mergejoin": "off"}
    assert (dsn, connection.heard) == ("postgresql://a:b@c/d", CODECS)
    kept = {"statement_cache_size": 512, "max_cached_statement_lifetime": 0, "max_cacheable_statement_size": 65536}
    assert settings == {"timeout": 10, "server_settings": server, **kept}


@pytest.mark.parametrize(
    "error", [OSError("away"), TimeoutError("away"), asyncpg.PostgresError("away"), asyncpg.InterfaceError("away")]
)
async def test_a_database_that_is_away_is_told_with_its_setting(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def connect(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(asyncpg, "connect", connect)
    with pytest.raises(TransportError) as caught:
        await Database("postgresql://c/d", "r").connect()
    remedy = "Check COUNTERSEAL_DATABASE_URL and `counterseal doctor`."
    assert str(caught.value) == f"PostgreSQL cannot be reached: away. {remedy}"


class Broken(Exception):
    pass


@pytest.mark.parametrize("ends", [asyncio.CancelledError(), Broken(), TimeoutError()])
async def test_a_connection_that_was_not_made_ready_is_not_left_open(
    monkeypatch: pytest.MonkeyPatch, ends: BaseException
) -> None:
    class Unready(Told):
        async def set_type_codec(self, name: str, **settings: Any) -> None:
            raise ends

    made = Unready()

    async def connect(*_: Any, **__: Any) -> Unready:
        return made

    monkeypatch.setattr(asyncpg, "connect", connect)
    with pytest.raises(TransportError if isinstance(ends, OSError) else type(ends)):
        await Database("postgresql://c/d", "r").connect()
    assert made.heard == ["terminated"]


@pytest.mark.parametrize("many", [1, 2, 3])
async def test_no_more_connections_are_used_at_once_than_were_said(made: Any, many: int) -> None:
    database, end, inside = Database("postgresql://c/d", "r", connections=many), asyncio.Event(), list[int]()

    async def use(number: int) -> None:
        async with database.connection():
            inside.append(number)
            await end.wait()

    tasks = [asyncio.create_task(use(number)) for number in range(many + 2)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert inside == [*range(many)]
    end.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 30)
    assert (inside, len(made)) == ([*range(many + 2)], many)


@pytest.mark.parametrize(
    ("ends", "again", "told"),
    [
        (None, True, None),
        (NotFoundError("x"), True, NotFoundError),
        (asyncpg.PostgresError("x"), True, asyncpg.PostgresError),
        (Broken(), False, Broken),
        (asyncio.CancelledError(), False, asyncio.CancelledError),
        (asyncpg.InternalClientError("x"), False, TransportError),
        ("in a transaction", False, None),
        ("closed", False, None),
    ],
)
async def test_a_connection_in_an_unknown_state_is_not_used_again(made: Any, ends: Any, again: bool, told: Any) -> None:
    database = Database("postgresql://c/d", "r")
    seen: Any = None
    try:
        async with database.connection() as connection:
            if ends == "in a transaction":
                await connection.execute("BEGIN")
            elif ends == "closed":
                await connection.close()
            elif ends is not None:
                raise ends
    except BaseException as error:
        seen = error
    assert type(seen) is (type(None) if told is None else told)
    assert ("terminated" in made[0][2].heard) is not again
    async with database.connection() as connection:
        assert (connection is made[0][2]) is again
    assert len(made) == (1 if again else 2)


async def test_connections_are_closed_with_their_database(made: Any) -> None:
    async with Database("postgresql://c/d", "r", connections=2) as database:
        async with database.connection(), database.connection():
            pass
        async with database.connection():
            assert len(made) == 2
    assert [one[2].heard[-1] for one in made] == ["closed", "closed"]
    async with database.connection():
        pass
    assert made[2][2].heard[-1] == "terminated", "nobody would close it any more"
    with suppress(Broken):
        async with Database("postgresql://c/d", "r") as other:
            async with other.connection():
                pass
            raise Broken
    assert made[3][2].heard[-1] == "closed", "whatever has ended its use"


async def test_the_connection_that_was_used_last_is_used_next(made: Any) -> None:
    """One that has lain idle may have been closed by whoever is between; those beyond the need stay idle."""
    database = Database("postgresql://c/d", "r")
    async with database.connection() as first, database.connection() as second, database.connection() as third:
        assert len({id(first), id(second), id(third)}) == 3
    for _ in range(3):
        async with database.connection() as again:
            assert again is first, "it was given back last"
    made[0][2].ended = True
    async with database.connection() as again:
        assert again is second
    assert len(made) == 3


async def test_connections_that_a_restart_has_closed_are_passed_over(made: Any) -> None:
    database = Database("postgresql://c/d", "r")
    async with database.connection(), database.connection():
        pass
    for one in made:
        one[2].ended = True
    async with database.connection() as connection:
        assert connection is made[2][2]
    assert len(database._free) == 1


OF_ACME = "BEGIN; SET LOCAL counterseal.tenant = 'acme'"


async def test_a_transaction_is_its_tenants_and_ends_as_its_work_does(made: Any) -> None:
    database, told = Database("postgresql://c/d", "r"), Told()
    connection: Any = told
    async with within(connection, "acme") as one, within(one, "other") as same:
        assert one is same is connection
    async with within(connection, None):
        pass
    for error in (NotFoundError("x"), asyncpg.PostgresError("x"), Broken()):
        with suppress(type(error)):
            async with within(connection, "acme"):
                raise error
        told.open = False
    ended = [OF_ACME, "ROLLBACK"]
    assert told.heard == [OF_ACME, "COMMIT", "BEGIN", "COMMIT", *ended, *ended, OF_ACME]
    with pytest.raises(InputError, match="is not a tenant id"):
        async with within(connection, "a'; DROP"):
            pass
    async with within(database, "acme"), database.transaction("beta"):
        pass
    assert [one[2].heard[len(CODECS) :] for one in made] == [
        [OF_ACME, "COMMIT"],
        ["BEGIN; SET LOCAL counterseal.tenant = 'beta'", "COMMIT"],
    ]


class Row:
    """A connection whose function gives back its own first parameter."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def fetchrow(self, statement: str, *parameters: Any) -> list[Any]:
        self.said.append(statement)
        firsts = [int(call.partition(",")[0].partition(")")[0]) for call in statement.split("f($")[1:]]
        return [parameters[place - 1] for place in firsts]


@pytest.mark.parametrize("orders", [("z", "a", "b"), ("a", "b", "z"), ("b", "b", "a"), ("c", "b", "a", "e", "d")])
async def test_each_call_gets_its_own_answer(orders: Sequence[str]) -> None:
    row: Any = Row()
    calls = [Call("f", (f"id{number}", number), (order,)) for number, order in enumerate(orders)]
    assert await called(row, calls) == [f"id{number}" for number in range(len(orders))]
    size = 4 if len(orders) <= 4 else 16
    first = size // 4 + 1
    texts = [f"f(${2 * n + 1}, ${2 * n + 2})" for n in range(size)]
    padded = [f"(SELECT {text} WHERE ${2 * n + 1} IS NOT NULL)" for n, text in enumerate(texts)]
    assert row.said == [f"SELECT {', '.join([*texts[:first], *padded[first:]])}"]
    assert (WRITERS, TOGETHER_MAX, SHAPES) == (2, 16, (1, 4, 16))
