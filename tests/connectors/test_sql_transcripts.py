"""Statements of the connector sql to a database, one by one, and what it makes of each answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from connectors.catalog import Catalog, catalog_of
from connectors.catalog import Source as Document
from connectors.port import Before, Done, InDoubt, NotSent, Probe, ProbeVerdict, Refused
from connectors.sql import statements
from connectors.sql.connector import SqlConnector, SqlSettings
from connectors.sql.link import CONNECTIONS_MAX, _said, values_of
from core.canonical import JsonObject
from tests.support.calls import Call

KEY = "0123456789abcdef" * 4
TABLE = {"table": "crm.customers", "key": ["id"]}
ID, LEVEL = {"type": "integer"}, {"type": "string"}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def declared(verb: str, name: str = "", **more: Any) -> dict[str, Any]:
    fields = closed([], level=LEVEL, note=LEVEL)
    schema = {
        "select": closed([], level=LEVEL, note={}, limit=ID),
        "delete": closed(["id"], id=ID),
        "insert": closed(["fields"], id=ID, fields=fields),
        "update": closed(["id", "fields"], id=ID, fields=fields),
    }[verb]
    told: dict[str, Any] = {"name": f"sql.customer.{name or verb}", "handler": f"sql:{verb}", "risk": "low"}
    told |= {"summary": "s", "target": "t", "params": TABLE, "input_schema": schema}
    told |= {"output_schema": {"type": "object"}, "timeouts": {"perform": "PT2S"}}
    told |= {"side_effects": "none"} if verb == "select" else {"side_effects": "external_call", "in_doubt": "probe"}
    told |= {"writes": "fields"} if verb in ("insert", "update") else {}
    return told | more


CATALOG = catalog_of([
    Document("crm.yaml", json.dumps({"operations": [
        declared("select", params={**TABLE, "columns": ["id", "level"]}),
        declared("insert"),
        declared("update", diff={"fields": "written"}),
        declared("delete"),
        declared("update", "once", params={**TABLE, "idempotency_table": "crm.keys", "version": "stamp"}),
    ]}))
])  # fmt: skip
READ = statements.read("crm.customers", ("id",), ("id",), None, lock=False)
LOCKED = READ + " FOR UPDATE OF t"


class Told:
    """A connection that answers in turn, and keeps what it is told. A write of a row is told with its JSON decoded."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.heard: list[Any] = []
        self.ended = False

    async def execute(self, text: str, *given: Any) -> None:
        self.heard.append((text, *given))
        if text in self.answers:
            self.answers.remove(text)
            raise ConnectionResetError("gone")

    async def fetchval(self, text: str, *given: Any) -> Any:
        self.heard.append((text, *given))
        if text == statements.IDENTITY and not self.answers:
            return "ours"
        assert self.answers, f"nobody answers {text}"
        answer = self.answers.pop(0)
        of_a_table = isinstance(answer, dict) and "kind" in answer
        assert text == statements.CATALOGUE or not of_a_table, f"{answer} is no answer to {text}"
        return answer

    fetchrow = fetch = fetchval

    def is_closed(self) -> bool:
        return self.ended

    def terminate(self) -> None:
        self.heard.append("terminated")
        self.ended = True

    async def close(self, timeout: float) -> None:
        self.heard.append(f"closed in {timeout:g} s")


def catalogue(*columns: str, key: str = "id") -> dict[str, Any]:
    return {"kind": "r", "columns": [*columns], "generated": [], "uniques": [key]}


CUSTOMERS = catalogue("id", "level", "note", "stamp")
KEYS = catalogue("key", "result", key="key")
Make = Callable[..., SqlConnector]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(connection: Told, catalog: Catalog = CATALOG) -> SqlConnector:
        async def connect(dsn: str, **settings: Any) -> Told:
            connection.heard.append((dsn, settings))
            return connection

        async def own() -> str:
            return "ours"

        monkeypatch.setattr(asyncpg, "connect", connect)
        return SqlConnector(SqlSettings("postgresql://bot:pw@db.example/crm", own), catalog)

    return make


OPENED = [
    (
        "postgresql://bot:pw@db.example/crm",
        {
            "timeout": 10.0,
            "server_settings": {"application_name": "counterseal", "search_path": "pg_catalog"},
            "statement_cache_size": 0,
        },
    ),
    (statements.IDENTITY,),
]


def begun(text: str = "BEGIN") -> list[Any]:
    return [(text,), (statements.BOUNDS, "1500"), (statements.CATALOGUE, "crm", "customers")]


def call(name: str, before: Before | None = None, **values: Any) -> Call:
    operation = CATALOG.get(f"sql.customer.{name}")
    return Call(operation.name, {**values, **operation.params}, KEY, 1.5, before, declared=operation)


def wrote(level: Any, version: str = "9") -> dict[str, Any]:
    row, intended = json.dumps({"id": 7, "level": level}), json.dumps({"level": "gold"})
    return {"row": row, "version": version, "intended": intended}


async def test_an_update_locks_compares_and_changes_one_row(at: Make) -> None:
    found = {"row": '{"id": 7}', "version": "8"}
    connection = Told("theirs", CUSTOMERS, found, [wrote("gold")])
    connector = at(connection)
    done = await connector.perform(call("update", Before({}, "8"), id=7, fields={"level": "gold"}))
    after: JsonObject = {"level": "gold"}
    assert done == Done({"key": {"id": 7}, "version": "9", "fields": after, "altered": []}, after=after)
    changed = statements.update("crm.customers", ("id",), ("level",), None)
    assert connection.heard == [
        *OPENED,
        *begun(),
        (LOCKED, '{"id":7}'),
        (changed, '{"id":7,"level":"gold"}'),
        ("COMMIT",),
    ]
    connection.heard.clear()
    connection.answers = [found, [wrote("GOLD")]]
    altered = await connector.perform(call("update", Before({}, "8"), id=7, fields={"level": "gold"}))
    assert isinstance(altered, Done)
    assert (altered.output["altered"], altered.after) == (["level"], {"level": "GOLD"})
    assert connection.heard[2:4] == [(LOCKED, '{"id":7}'), (changed, '{"id":7,"level":"gold"}')], "checked once"
    connection.heard.clear()
    await connector.aclose()
    assert connection.heard == ["closed in 5 s"]


MOVED = "the row of crm.customers has changed since it was read, so it is read and judged anew"
ABSENT = "crm.customers has no row with this key, or it is hidden from this login"


@pytest.mark.parametrize(
    ("found", "rows", "told"),
    [
        ({"row": "{}", "version": "9"}, None, NotSent(MOVED)),
        ({"row": "{}", "version": None}, None, NotSent(MOVED)),
        (None, None, Refused("not_found", ABSENT)),
        (
            {"row": "{}", "version": "8"},
            [],
            Refused(
                "not_one_row",
                "sql.customer.update would have changed 0 rows of crm.customers, not one; it is undone",
            ),
        ),
        (
            {"row": "{}", "version": "8"},
            [wrote("x"), wrote("x")],
            Refused(
                "not_one_row",
                "sql.customer.update would have changed 2 rows of crm.customers, not one; it is undone",
            ),
        ),
    ],
)
async def test_a_row_that_is_not_as_it_was_read_is_left_alone(at: Make, found: Any, rows: Any, told: Any) -> None:
    connection = Told("theirs", CUSTOMERS, found, *([] if rows is None else [rows]))
    assert await at(connection).perform(call("update", Before({}, "8"), id=7, fields={"level": "gold"})) == told
    assert connection.heard[-1] == "terminated"
    assert ("COMMIT",) not in connection.heard
    assert connection.answers == []


@pytest.mark.parametrize(
    ("read", "now", "good"),
    [(None, "8", False), ("8", None, False), ("", "8", False), (None, None, True), ("8", "08", False)],
)
@pytest.mark.parametrize("verb", ["update", "delete"])
async def test_a_version_that_was_empty_is_compared_as_any_other(
    at: Make, verb: str, read: str | None, now: str | None, good: bool
) -> None:
    gone = {"row": '{"id": 7}', "version": None, "intended": None}
    rows = [] if not good else [[wrote("gold") if verb == "update" else gone]]
    connection = Told("theirs", CUSTOMERS, {"row": "{}", "version": now}, *rows)
    given = {"fields": {"level": "gold"}} if verb == "update" else {}
    done = await at(connection).perform(call(verb, Before({}, read), id=7, **given))
    assert isinstance(done, Done) if good else done == NotSent(MOVED)


async def test_what_was_not_read_is_changed_whatever_its_version(at: Make) -> None:
    connection = Told("theirs", CUSTOMERS, {"row": "{}", "version": "8"}, [wrote("gold")])
    assert isinstance(await at(connection).perform(call("update", id=7, fields={"level": "gold"})), Done)


async def test_an_insert_and_a_delete_say_all(at: Make) -> None:
    connection = Told("theirs", CUSTOMERS, [wrote("gold")])
    done = await at(connection).perform(call("insert", id=7, fields={"note": "x", "level": "gold"}))
    assert isinstance(done, Done)
    inserted = statements.insert("crm.customers", ["id", "level", "note"], ["id", "level", "note"], None)
    row = '{"id":7,"note":"x","level":"gold"}'
    assert connection.heard == [*OPENED, *begun(), (inserted, row), ("COMMIT",)], "an insert locks nothing"
    gone = {"row": '{"id": 7}', "version": None, "intended": None}
    connection = Told("theirs", CUSTOMERS, {"row": "{}", "version": "8"}, [gone])
    deleted = await at(connection).perform(call("delete", Before({}, "8"), id=7))
    assert deleted == Done({"key": {"id": 7}, "version": None, "fields": {}, "altered": []}, after={})
    removed = statements.delete("crm.customers", ("id",))
    assert connection.heard[5:] == [(LOCKED, '{"id":7}'), (removed, '{"id":7}'), ("COMMIT",)]


@pytest.mark.parametrize("verb", ["insert", "update", "delete"])
@pytest.mark.parametrize("many", [0, 2, 3])
async def test_a_write_of_none_or_of_several_rows_is_undone(at: Make, verb: str, many: int) -> None:
    """A rule or a trigger of the database may make that of it."""
    locked = [] if verb == "insert" else [{"row": '{"id": 7}', "version": "8"}]
    connection = Told("theirs", CUSTOMERS, *locked, [wrote("gold")] * many)
    given: dict[str, Any] = {"id": 7} | ({} if verb == "delete" else {"fields": {"level": "gold"}})
    words = f"sql.customer.{verb} would have changed {many} rows of crm.customers, not one; it is undone"
    assert await at(connection).perform(call(verb, **given)) == Refused("not_one_row", words)
    assert connection.heard[-1] == "terminated"


@pytest.mark.parametrize(
    ("given", "row", "intended", "fields", "altered"),
    [
        ({"id": 7}, {"level": "gold"}, {"level": "gold"}, {"level": "gold"}, []),
        ({"id": 7}, {"level": "GOLD"}, {"level": "gold"}, {"level": "GOLD"}, ["level"]),
        ({"id": 7}, {"level": None}, {"level": ""}, {"level": None}, ["level"]),
        ({}, {"level": "x", "note": "y"}, {"level": "x", "note": "z"}, {"level": "x", "note": "y"}, ["note"]),
        ({"id": None}, {"level": "gold"}, {"id": None, "level": "gold"}, {"level": "gold"}, []),
    ],
)
async def test_an_insert_tells_what_became_of_each_value(
    at: Make, given: Any, row: Any, intended: Any, fields: Any, altered: list[str]
) -> None:
    """The key is told by itself, and a value that the database altered is named; what is null is sent as null."""
    found = {"row": json.dumps({"id": 7, **row}), "version": None, "intended": json.dumps(intended)}
    connection = Told("theirs", CUSTOMERS, [found])
    written = {name: value for name, value in intended.items() if name != "id"}
    done = await at(connection).perform(call("insert", **given, fields=written))
    told = {"key": {"id": 7}, "version": None, "fields": fields, "altered": altered}
    differs = {name: {"asked": intended[name], "found": row[name]} for name in altered}
    assert done == Done(told, after=fields, altered=differs)
    assert json.loads(connection.heard[-2][1]) == {**given, **written}


async def test_an_insert_tells_the_key_that_the_database_gave(at: Make) -> None:
    row = {"row": '{"id": 9, "level": "gold"}', "version": "4", "intended": '{"level": "gold"}'}
    connection = Told("theirs", CUSTOMERS, [row])
    done = await at(connection).perform(call("insert", fields={"level": "gold"}))
    after: JsonObject = {"level": "gold"}
    assert done == Done({"key": {"id": 9}, "version": "4", "fields": after, "altered": []}, after=after)
    inserted = statements.insert("crm.customers", ["level"], ["id", "level"], None)
    assert connection.heard == [*OPENED, *begun(), (inserted, '{"level":"gold"}'), ("COMMIT",)]


@pytest.mark.parametrize(("seconds", "bound"), [(0.0004, "1"), (0.0019, "1"), (0.002, "2"), (60.0, "60000")])
async def test_a_database_has_a_millisecond_at_least(at: Make, seconds: float, bound: str) -> None:
    """A bound of zero is none for PostgreSQL."""
    connection = Told("theirs", CUSTOMERS, [])
    await at(connection).perform(replace(call("select"), timeout_seconds=seconds))
    assert (statements.BOUNDS, bound) in connection.heard


async def test_connections_are_kept_one_by_one_and_a_closed_one_is_not_used_again(
    at: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose database is ours is asked once for all of them."""
    connection, asked = Told("theirs", CUSTOMERS, [], [], "theirs", []), list[str]()
    connector = at(connection)
    opened = len(OPENED)

    async def own() -> str:
        asked.append("own")
        return "ours"

    monkeypatch.setattr(connector._link, "_own", own)
    assert isinstance(await connector.perform(call("select")), Done)
    assert isinstance(await connector.perform(call("select")), Done)
    assert connection.heard.count(OPENED[1]) == 1
    connection.ended = True
    assert isinstance(await connector.perform(call("select")), Done)
    assert connection.heard[-4 - opened : -4] == OPENED
    assert (asked, connection.answers) == (["own"], [])


async def test_a_connection_that_is_not_known_in_time_is_ended(at: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Told("theirs")

    async def hang(text: str) -> None:
        connection.heard.append((text,))
        await asyncio.Event().wait()

    monkeypatch.setattr(connection, "fetchval", hang)
    found = await at(connection).perform(replace(call("select"), timeout_seconds=0.01))
    assert found == NotSent("the database gave no answer: TimeoutError")
    assert connection.heard == [*OPENED, "terminated"]


QUOTED = '"crm"."keys"'
REMEMBER, RECALL, KEEP = (
    text.format(table=QUOTED) for text in (statements.REMEMBER, statements.RECALL, statements.KEEP)
)


async def test_a_key_is_remembered_before_and_kept_with_the_outcome(at: Make) -> None:
    connection = Told("theirs", CUSTOMERS, KEYS, KEY, {"row": "{}", "version": "8"}, [wrote("gold")])
    done = await at(connection).perform(call("once", Before({}, "8"), id=7, fields={"level": "gold"}))
    assert isinstance(done, Done)
    kept = {"output": done.output, "after": done.after}
    stamped = statements.read("crm.customers", ("id",), ("id",), "stamp", lock=True)
    *heard, (keep, key, stored), commit = connection.heard
    assert heard == [
        *OPENED,
        *begun(),
        (statements.CATALOGUE, "crm", "keys"),
        (REMEMBER, KEY),
        (stamped, '{"id":7}'),
        (statements.update("crm.customers", ("id",), ("level",), "stamp"), '{"id":7,"level":"gold"}'),
    ]
    assert (keep, key, json.loads(stored), commit) == (KEEP, KEY, kept, ("COMMIT",))


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ({"output": {"n": 1}, "after": {"a": 2}}, Done({"n": 1}, after={"a": 2})),
        ({"output": {"n": 1}, "after": None}, Done({"n": 1})),
        (None, Done({})),
        ("x", Done({})),
    ],
)
async def test_a_key_that_is_there_tells_the_outcome_again(at: Make, kept: Any, told: Done) -> None:
    row = json.dumps({"key": KEY, "result": kept})
    connection = Told("theirs", CUSTOMERS, KEYS, None, row)
    assert await at(connection).perform(call("once", id=7, fields={"level": "gold"})) == told
    assert connection.heard[6:] == [(REMEMBER, KEY), (RECALL, KEY), ("COMMIT",)]
    connection = Told("theirs", CUSTOMERS, KEYS, row)
    probe = await at(connection).probe(call("once", id=7, fields={}), seconds_since_intent=0)
    assert probe == Probe(ProbeVerdict.APPLIED, "the key of this call is in crm.keys", told)
    assert connection.heard[2:] == [
        *begun("BEGIN READ ONLY"),
        (statements.CATALOGUE, "crm", "keys"),
        (RECALL, KEY),
        ("COMMIT",),
    ]


@pytest.mark.parametrize(("seconds", "again"), [(0.0, 10.0), (8.5, 1.5), (9.0, None), (20.0, None)])
async def test_a_key_that_is_not_there_may_still_come(at: Make, seconds: float, again: float | None) -> None:
    """The call may run for its lock's time and for its own: two seconds each, and five for the way."""
    verdict = ProbeVerdict.NOT_APPLIED if again is None else ProbeVerdict.CANNOT_TELL
    words = "the key of this call is not in crm.keys"
    probe = await at(Told("theirs", CUSTOMERS, KEYS, None)).probe(call("once", id=7), seconds_since_intent=seconds)
    assert probe == Probe(verdict, words, None, again)
    row = {"row": "{}", "version": "8"}
    connection = Told("theirs", CUSTOMERS, row)
    probe = await at(connection).probe(call("update", Before({}, "8"), id=7), seconds_since_intent=seconds)
    assert (probe.verdict, probe.retry_after_seconds) == (verdict, again)
    assert connection.heard[2:] == [*begun("BEGIN READ ONLY"), (READ, '{"id":7}'), ("COMMIT",)]
    reading = await at(Told()).probe(call("select"), seconds_since_intent=0)
    assert reading == Probe(ProbeVerdict.NOT_APPLIED, "sql.customer.select changes nothing, so it can be repeated")


@pytest.mark.parametrize(
    ("limit", "asked", "count", "cut"),
    [
        (None, 1001, 1000, False),
        (None, 1001, 1001, True),
        (2, 3, 2, False),
        (2, 3, 3, True),
        (1000, 1001, 3, False),
        (1001, 1001, 3, False),
        ("2", 1001, 3, False),
    ],
)
async def test_a_select_asks_for_one_more_than_it_gives(
    at: Make, limit: Any, asked: int, count: int, cut: bool
) -> None:
    connection = Told("theirs", CUSTOMERS, [('{"id": 1, "level": 12.50}',)] * count)
    given = {} if limit is None else {"limit": limit}
    done = await at(connection).perform(call("select", level="gold", note=None, **given))
    kept = count - cut
    rows: list[Any] = [{"id": 1, "level": "12.50"}] * kept
    assert done == Done({"rows": rows, "count": kept, "truncated": cut})
    text = statements.select("crm.customers", ("id",), ("id", "level"), ["level"], ["note"])
    asking = (text, '{"level":"gold","note":null}', asked)
    assert connection.heard == [*OPENED, *begun("BEGIN READ ONLY"), asking, ("COMMIT",)]


async def test_a_pre_read_has_the_fields_of_the_diff_and_the_version(at: Make) -> None:
    connection = Told("theirs", CUSTOMERS, {"row": '{"level": "iron", "note": null}', "version": "8"})
    asked = call("update", id=7, fields={"note": "x", "level": "gold"})
    assert await at(connection).read_before(asked) == Before({"level": "iron", "note": None}, "8")
    text = statements.read("crm.customers", ("id",), ("level", "note"), None, lock=False)
    assert connection.heard[2:] == [*begun("BEGIN READ ONLY"), (text, '{"id":7}'), ("COMMIT",)]
    assert await at(Told("theirs", CUSTOMERS, None)).read_before(asked) == Refused("not_found", ABSENT)
    lost = Told("theirs", CUSTOMERS, {"row": "{}", "version": "8"}, "COMMIT")
    assert await at(lost).read_before(asked) == NotSent("the database gave no answer: gone")


async def test_only_a_commit_of_a_write_is_in_doubt(at: Make) -> None:
    asked, row = call("update", id=7, fields={"level": "gold"}), {"row": "{}", "version": "8"}
    connection = Told("theirs", CUSTOMERS, row, [wrote("gold")], "COMMIT")
    words = "the database gave no answer: gone"
    assert await at(connection).perform(asked) == InDoubt(f"{words}, after COMMIT was sent")
    assert connection.heard[-2:] == [("COMMIT",), "terminated"]
    assert await at(Told("theirs", "BEGIN")).perform(asked) == NotSent(words)
    assert await at(Told("theirs", CUSTOMERS, [], "COMMIT")).perform(call("select")) == NotSent(words)
    lost = Told("theirs", CUSTOMERS, row, "COMMIT")
    probe = await at(lost).probe(asked, seconds_since_intent=99)
    assert probe == Probe(ProbeVerdict.CANNOT_TELL, f"the database could not be asked: {words}", None, 15.0)


async def test_our_own_database_is_not_touched(at: Make) -> None:
    words = "COUNTERSEAL_SQL_URL leads to Counterseal's own database; name another one"
    connection = Told("ours")
    assert await at(connection).perform(call("select")) == Refused("own_database", words)
    assert connection.heard == [*OPENED, "terminated"]
    assert await at(Told("ours")).check() == (False, words)


async def test_the_check_tells_every_fault_of_every_declaration(at: Make) -> None:
    every = [CUSTOMERS, CUSTOMERS, CUSTOMERS, CUSTOMERS, CUSTOMERS, KEYS]
    connection = Told("theirs", *every)
    well = "reachable as postgresql://db.example/crm as bot; 5 operations fit its tables"
    assert await at(connection).check() == (True, well)
    assert connection.heard[2:4] == [("BEGIN READ ONLY",), (statements.BOUNDS, "10000")]
    lacking = catalogue("id", "level", "stamp")
    connector = at(Told("theirs", CUSTOMERS, lacking, lacking, None, CUSTOMERS, None))
    faults = [
        "sql.customer.insert: crm.customers has no column 'note'. Known here: id, level, stamp.",
        "sql.customer.update: crm.customers has no column 'note'. Known here: id, level, stamp.",
        "sql.customer.delete: there is no table crm.customers.",
        "sql.customer.once: there is no table crm.keys for keys.",
    ]
    assert await connector.check() == (False, " ".join(faults))
    named = at(Told("theirs", None))
    assert await named.faults(["sql.customer.delete"]) == ["sql.customer.delete: there is no table crm.customers."]
    assert await at(Told("theirs")).faults([]) == []
    wrong = await at(Told("theirs", None)).perform(call("select"))
    assert wrong == Refused("wrong_declaration", "sql.customer.select: there is no table crm.customers.")


async def test_a_declaration_is_checked_for_itself_and_for_each_of_its_params(at: Make) -> None:
    """A declaration or a table that fits says nothing of another."""
    params: dict[str, Any] = {**TABLE, "columns": ["id"]}
    both = [declared("select", name, params=params, input_schema=closed([], **{name: LEVEL})) for name in ("note", "x")]
    catalog = catalog_of([Document("crm.yaml", json.dumps({"operations": both}))])
    connection = Told("theirs", CUSTOMERS, [], [])
    connector = at(connection, catalog)
    good, wrong = (Call(one.name, params, KEY, 1.5, declared=one) for one in catalog.operations.values())
    nothing: JsonObject = {"rows": [], "count": 0, "truncated": False}
    assert [await connector.perform(good), await connector.perform(good)] == [Done(nothing), Done(nothing)]
    connection.answers = [CUSTOMERS]
    lacking = "sql.customer.x: crm.customers has no column 'x'. Known here: id, level, note, stamp."
    assert await connector.perform(wrong) == Refused("wrong_declaration", lacking)
    connection.ended, connection.answers = False, ["theirs", catalogue("id")]
    elsewhere = replace(good, input={**params, "table": "crm.others"})
    words = "sql.customer.note: crm.others has no column 'note'. Known here: id."
    assert await connector.perform(elsewhere) == Refused("wrong_declaration", words)
    assert connection.answers == []


@pytest.mark.parametrize(
    ("state", "told", "at_commit"),
    [
        ("28P01", Refused("unauthorized", "PostgreSQL says: no"), None),
        ("42501", Refused("unauthorized", "PostgreSQL says: no"), None),
        *(
            (f"{kind}000", Refused(f"sql_{kind}000", "PostgreSQL says: no"), None)
            for kind in ("0A", "21", "22", "23", "2F", "38", "39", "3F", "42", "44", "P0")
        ),
        *(
            (state, NotSent("PostgreSQL says: no"), NotSent("PostgreSQL says: no"))
            for state in ("40001", "40P01", "40002")
        ),
        *(
            (state, NotSent("PostgreSQL says: no"), InDoubt("PostgreSQL says: no, after COMMIT was sent"))
            for state in ("08006", "40003", "25006", "53300", "55P03", "57014", "57P01", "58030", "XX000", "")
        ),
    ],
)
def test_an_error_of_the_database_is_judged_by_its_state(state: str, told: Any, at_commit: Any) -> None:
    error: Any = asyncpg.PostgresError("no")
    error.sqlstate = state
    assert _said(error, committing=False) == told
    assert _said(error, committing=True) == (at_commit or told)


def test_a_row_is_read_as_json_of_exact_numbers() -> None:
    assert values_of(None) == values_of("[1]") == {}
    assert values_of('{"a": 1.50, "b": 9007199254740991, "c": -9007199254740992, "d": [1e2]}') == {
        "a": "1.50",
        "b": 9007199254740991,
        "c": "-9007199254740992",
        "d": ["1e2"],
    }
    assert CONNECTIONS_MAX == 4
