"""Each fault of a declaration of a table, told whole: the key, the fault and the remedy. Nothing else is said."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from connectors.operation import Operation
from connectors.port import Before, Call, Probe, ProbeVerdict
from connectors.sql import statements
from connectors.sql.connector import _judged
from connectors.sql.link import Link
from connectors.sql.table import Found, _faults, _memory_faults
from connectors.tables import ROWS_MAX, TableParams, columns_of, faults_of, params_of, written_of

TABLE = {"table": "crm.customers", "key": ["id"]}
ID, LEVEL = {"type": "integer"}, {"type": "string"}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def base(verb: str) -> dict[str, Any]:
    """A declaration without a fault."""
    told: dict[str, Any] = {"name": f"sql.customer.{verb}", "handler": f"sql:{verb}", "risk": "low", "params": TABLE}
    told |= {"summary": "s", "target": "t", "output_schema": {"type": "object"}, "side_effects": "external_call"}
    fields = closed([], level=LEVEL)
    more: dict[str, dict[str, Any]] = {
        "select": {
            "input_schema": closed([], id=ID, limit=ID),
            "side_effects": "none",
            "params": {**TABLE, "columns": ["id", "level"]},
        },
        "insert": {"input_schema": closed(["fields"], id=ID, fields=fields), "writes": "fields", "in_doubt": "ask"},
        "update": {
            "input_schema": closed(["id", "fields"], id=ID, fields=fields),
            "writes": "fields",
            "in_doubt": "probe",
        },
        "delete": {"input_schema": closed(["id"], id=ID), "in_doubt": "probe"},
    }
    return deepcopy(told | more[verb])


def changed(verb: str, changes: dict[str, Any]) -> Operation:
    """The declaration with values set at these paths; None takes a key out."""
    declared = base(verb)
    for path, value in changes.items():
        *above, last = path.split(".")
        place = declared
        for part in above:
            place = place[part]
        if value is None:
            place.pop(last)
        else:
            place[last] = value
    return Operation.model_validate(declared)


ADDITIONAL = ("input_schema", "Each input is a column, so all are declared.", "Add `additionalProperties: false`.")
FIELDS_DECLARE = (
    "input_schema",
    "`fields` declares each column that may be written.",
    "Declare properties, and `additionalProperties: false`.",
)
REMEMBERS = (
    "in_doubt",
    "Nothing in the database remembers the key of a call.",
    "Name params.idempotency_table, or declare `in_doubt: probe`.",
)
UNDER = ("writes", "What is written stands under `fields`.", "Declare `writes: fields`.")
ONLY_SELECT = ("params", "Only a select has `columns`.", "Take them out; what is written stands under `fields`.")
NEED = "Declare it, and name it in `required`."


def changes_another(verb: str) -> tuple[str, str, str]:
    return "side_effects", f"sql:{verb} changes another database.", "Declare `side_effects: external_call`."


CASES: list[tuple[str, dict[str, Any], list[tuple[str, str, str]]]] = [
    *((verb, {}, []) for verb in ("select", "insert", "update", "delete")),
    ("select", {"params.version": "stamp"}, []),
    ("select", {"params.idempotency_table": "crm.keys"}, []),
    ("select", {"input_schema.additionalProperties": True}, [ADDITIONAL]),
    ("select", {"input_schema.additionalProperties": None}, [ADDITIONAL]),
    ("select", {"input_schema.additionalProperties": {}}, [ADDITIONAL]),
    ("update", {"input_schema.additionalProperties": LEVEL}, [ADDITIONAL]),
    ("insert", {"input_schema.additionalProperties": None}, [ADDITIONAL]),
    ("update", {"input_schema.additionalProperties": None}, [ADDITIONAL]),
    ("delete", {"input_schema.additionalProperties": None}, [ADDITIONAL]),
    (
        "select",
        {"params.columns": None},
        [("params", "A select names the columns that it gives back.", "Add `columns: [...]`.")],
    ),
    (
        "select",
        {"input_schema.properties.fields": {"type": "object"}},
        [("input_schema", "A select compares columns; it has no `fields`.", "Name the columns themselves.")],
    ),
    *(
        (
            "select",
            {"side_effects": effects, "in_doubt": "ask"},
            [("side_effects", "A select changes nothing.", "Declare `side_effects: none`.")],
        )
        for effects in ("internal_db", "external_call", "human_process")
    ),
    ("select", {"kind": "durable"}, [("kind", "sql:select answers within its call.", "Declare `kind: sync`.")]),
    ("delete", {"kind": "durable"}, [("kind", "sql:delete answers within its call.", "Declare `kind: sync`.")]),
    ("delete", {"params.columns": ["level"]}, [ONLY_SELECT]),
    ("insert", {"params.columns": ["level"]}, [ONLY_SELECT]),
    ("update", {"params.columns": ["level"]}, [ONLY_SELECT]),
    (
        "update",
        {"input_schema.properties.where": LEVEL, "input_schema.properties.and": LEVEL},
        [
            ("input_schema", "sql:update does not send 'and'.", "It sends fields, id."),
            ("input_schema", "sql:update does not send 'where'.", "It sends fields, id."),
        ],
    ),
    (
        "insert",
        {"input_schema.properties.limit": ID},
        [("input_schema", "sql:insert does not send 'limit'.", "It sends fields, id.")],
    ),
    (
        "delete",
        {"input_schema.properties.fields": closed([], level=LEVEL)},
        [("input_schema", "sql:delete does not send 'fields'.", "It sends id.")],
    ),
    (
        "update",
        {"input_schema.required": []},
        [
            ("input_schema", "sql:update needs 'fields'.", NEED),
            ("input_schema", "sql:update needs 'id'.", NEED),
        ],
    ),
    ("update", {"input_schema.required": ["fields"]}, [("input_schema", "sql:update needs 'id'.", NEED)]),
    ("insert", {"input_schema.required": []}, [("input_schema", "sql:insert needs 'fields'.", NEED)]),
    ("insert", {"input_schema.required": ["id", "fields"]}, []),
    ("delete", {"input_schema.required": []}, [("input_schema", "sql:delete needs 'id'.", NEED)]),
    ("delete", {"input_schema.required": None}, [("input_schema", "sql:delete needs 'id'.", NEED)]),
    ("update", {"input_schema.properties.fields.properties": {}}, [FIELDS_DECLARE]),
    ("insert", {"input_schema.properties.fields.properties": None}, [FIELDS_DECLARE]),
    ("insert", {"input_schema.properties.fields.additionalProperties": True}, [FIELDS_DECLARE]),
    ("update", {"input_schema.properties.fields.additionalProperties": None}, [FIELDS_DECLARE]),
    ("update", {"input_schema.properties.fields.additionalProperties": LEVEL}, [FIELDS_DECLARE]),
    ("update", {"input_schema.properties.fields.additionalProperties": {}}, [FIELDS_DECLARE]),
    (
        "insert",
        {
            "params.key": ["id", "part"],
            "input_schema.properties.part": LEVEL,
            "input_schema.properties.fields.properties.part": LEVEL,
        },
        [("input_schema", "'part' is the key, and `fields` would write it.", "Take it out of `fields`.")],
    ),
    (
        "insert",
        {"input_schema.properties.fields.properties.id": ID},
        [("input_schema", "'id' is the key, and `fields` would write it.", "Take it out of `fields`.")],
    ),
    ("insert", {"writes": None}, [UNDER]),
    ("update", {"writes": ["fields"]}, [UNDER]),
    ("update", {"writes": ["id"]}, [UNDER]),
    ("insert", {"side_effects": "internal_db"}, [changes_another("insert")]),
    ("update", {"side_effects": "human_process"}, [changes_another("update")]),
    ("delete", {"side_effects": "none"}, [changes_another("delete")]),
    ("update", {"in_doubt": "idempotent"}, [REMEMBERS]),
    ("delete", {"in_doubt": "idempotent"}, [REMEMBERS]),
    ("insert", {"in_doubt": "probe"}, []),
    ("delete", {"in_doubt": "ask"}, []),
    ("update", {"in_doubt": "idempotent", "params.idempotency_table": "crm.keys"}, []),
    ("update", {"diff": {}}, []),
    ("delete", {"diff": {"fields": ["level"]}}, []),
    (
        "insert",
        {"diff": {}},
        [("diff", "An insert replaces nothing, so there is nothing to read first.", "Take it out.")],
    ),
    (
        "select",
        {"params.kind": "x", "params.and": 1},
        [("params", "params has no 'and'.", "It takes table, key, columns, version, idempotency_table.")],
    ),
    (
        "select",
        {"params.key": ["limit"]},
        [("params", "A key column cannot be called 'limit' here.", "Give it another name in a view.")],
    ),
    (
        "select",
        {"params.key": ["limit", "fields", "id"]},
        [
            ("params", "A key column cannot be called 'fields' here.", "Give it another name in a view."),
            ("params", "A key column cannot be called 'limit' here.", "Give it another name in a view."),
        ],
    ),
]


@pytest.mark.req("V-2")
@pytest.mark.parametrize(("verb", "changes", "told"), CASES)
def test_each_fault_is_told_whole_and_alone(
    verb: str, changes: dict[str, Any], told: list[tuple[str, str, str]]
) -> None:
    assert list(faults_of(changed(verb, changes))) == told


REMEDY = "It takes table (schema.name), key, columns, version."
PATTERN = r"String should match pattern '^[^.\x00-\x1f\"]{1,63}\.[^.\x00-\x1f\"]{1,63}$'"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"params.table": "customers"}, [f"params.table: {PATTERN}."]),
        ({"params.table": "a.b.c"}, [f"params.table: {PATTERN}."]),
        ({"params.table": "crm." + "x" * 63}, []),
        ({"params.table": "crm." + "x" * 64}, [f"params.table: {PATTERN}."]),
        ({"params.table": "x" * 63 + ".t"}, []),
        ({"params.table": "x" * 64 + ".t"}, [f"params.table: {PATTERN}."]),
        ({"params.table": None}, ["params.table: Field required."]),
        ({"params.key": None}, ["params.key: Field required."]),
        ({"params.key": []}, ["params.key: Tuple should have at least 1 item after validation, not 0."]),
        ({"params.key": [f"k{n}" for n in range(8)]}, []),
        (
            {"params.key": [f"k{n}" for n in range(9)]},
            ["params.key: Tuple should have at most 8 items after validation, not 9."],
        ),
        ({"params.version": ""}, ["params.version: String should have at least 1 character."]),
        ({"params.version": "v" * 63}, []),
        ({"params.version": "v" * 64}, ["params.version: String should have at most 63 characters."]),
        ({"params.columns": [1]}, ["params.columns.0: Input should be a valid string."]),
        ({"params.idempotency_table": "keys"}, [f"params.idempotency_table: {PATTERN}."]),
    ],
)
def test_each_param_has_its_form_and_its_longest(changes: dict[str, Any], told: list[str]) -> None:
    assert list(faults_of(changed("select", changes))) == [("params", words, REMEDY) for words in told]


def test_all_columns_that_a_declaration_names_are_looked_up() -> None:
    params = {**TABLE, "key": ["id", "part"], "version": "stamp"}
    declared = changed("update", {"params": params, "diff": {"fields": ["note"], "appended": ["note"]}})
    assert columns_of(declared, params_of(declared.params)) == {"id", "part", "level", "stamp", "note"}
    assert written_of(declared) == ("level",)
    both = changed("update", {"params": params, "diff": {"fields": ["note", "city"]}})
    assert columns_of(both, params_of(both.params)) == {"id", "part", "level", "stamp", "note", "city"}
    read = changed("select", {"diff": {}, "input_schema.properties.city": LEVEL})
    assert columns_of(read, params_of(read.params)) == {"id", "level", "city"}
    assert written_of(read) == ()
    given = {"id": 7, "limit": 3, "fields": {"level": "gold"}, **TABLE}
    assert params_of(given) == TableParams(table="crm.customers", key=("id",))
    assert ROWS_MAX == 1000


FITTING_REST = (("id", "level", "stamp"), frozenset[str](), (frozenset({"id"}),))
FITTING = Found("r", *FITTING_REST)
NO_KEY = "is no key of crm.customers. It needs a primary key or a unique constraint on these columns."


@pytest.mark.parametrize(
    ("verb", "params", "found", "told"),
    [
        ("update", {}, FITTING, []),
        ("update", {}, Found("v", (), frozenset(), ()), ["crm.customers is no table."]),
        ("update", {"version": "stamp"}, Found("p", *FITTING_REST), []),
        (
            "update",
            {},
            Found("p", *FITTING_REST),
            ["crm.customers is partitioned, so its rows have no version of their own. Name params.version."],
        ),
        (
            "update",
            {},
            Found("r", ("id", "levels"), frozenset(), (frozenset({"id"}),)),
            ["crm.customers has no column 'level'. Did you mean 'levels'?"],
        ),
        (
            "update",
            {"version": "stamp"},
            Found("r", ("note",), frozenset(), (frozenset({"id"}),)),
            [f"crm.customers has no column {name!r}. Known here: note." for name in ("id", "level", "stamp")],
        ),
        ("update", {}, Found("r", ("id", "level"), frozenset(), ()), [f"(id) {NO_KEY}"]),
        ("update", {}, Found("r", ("id", "level"), frozenset(), (frozenset({"id", "level"}),)), [f"(id) {NO_KEY}"]),
        ("update", {"key": ["id", "stamp"]}, FITTING, []),
        (
            "update",
            {"key": ["id", "stamp"]},
            Found("r", ("id", "level", "stamp"), frozenset(), (frozenset({"level"}),)),
            [f"(id, stamp) {NO_KEY}"],
        ),
        ("update", {}, Found("r", ("id", "level"), frozenset({"id"}), (frozenset({"id"}),)), []),
        (
            "insert",
            {},
            Found("r", ("id", "level"), frozenset({"id", "level"}), (frozenset({"id"}),)),
            [
                "crm.customers.id is generated by the database, so nothing can write it.",
                "crm.customers.level is generated by the database, so nothing can write it.",
            ],
        ),
    ],
)
def test_a_declaration_is_held_against_the_table_that_is_there(
    verb: str, params: dict[str, Any], found: Found, told: list[str]
) -> None:
    declared = changed(verb, {"params": TABLE | params})
    assert list(_faults(declared, params_of(declared.params), found)) == told


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Found("r", ("key", "result"), frozenset(), (frozenset({"key"}),)), []),
        (Found("p", ("key", "made", "result"), frozenset(), (frozenset({"made"}), frozenset({"key"}))), []),
        (None, ["there is no table crm.keys for keys."]),
        (
            Found("v", ("key", "result"), frozenset(), (frozenset({"key"}),)),
            ["there is no table crm.keys for keys."],
        ),
        *(
            (one, ["crm.keys needs `key text PRIMARY KEY` and `result jsonb`."])
            for one in (
                Found("r", ("key",), frozenset(), (frozenset({"key"}),)),
                Found("r", ("result",), frozenset(), (frozenset({"key"}),)),
                Found("r", ("key", "result"), frozenset(), ()),
                Found("r", ("key", "result"), frozenset(), (frozenset({"key", "result"}),)),
            )
        ),
    ],
)
def test_a_table_for_keys_has_a_key_of_its_own_and_a_result(found: Found | None, told: list[str]) -> None:
    assert list(_memory_faults("crm.keys", found)) == told


GIVEN = 'pg_catalog.jsonb_populate_record(NULL::"crm"."t""x", $1::jsonb)'


def shown(of: str, *names: str) -> str:
    """These columns of a row as one JSON text."""
    columns = ", ".join(f'{of}."{name}"' for name in names)
    return f"(SELECT pg_catalog.to_jsonb(x)::text FROM (SELECT {columns}) x)"


def test_statements_are_exactly_these() -> None:
    """A name is quoted wherever it stands, the whole key is compared, and a row is locked where it is to change."""
    table, key = 'crm.t"x', ("id", "part")
    told = {
        "locked": statements.read(table, key, ("a.b",), None, lock=True),
        "read": statements.read(table, key, ("level", "id"), "stamp", lock=False),
        "select": statements.select(table, key, ("level",), ("city", "id"), ("note",)),
        "all": statements.select(table, key, ("level",), (), ()),
        "insert": statements.insert(table, ("id", "level"), ("id", "part"), None),
        "update": statements.update(table, key, ("level", "note"), "stamp"),
        "delete": statements.delete(table, key),
    }
    xmin, stamp = "t.xmin::text AS version", 't."stamp"::text AS version'
    same = 't."id" = v."id" AND t."part" = v."part"'
    found = f"FROM @ t JOIN ~ v ON {same}"
    rows = f"SELECT {shown('t', 'level')} FROM @ t CROSS JOIN ~ v"
    order = 'ORDER BY t."id", t."part" LIMIT $2::bigint'
    pair, both, written = shown("t", "id", "part"), shown("v", "id", "level"), shown("v", "level", "note")
    inserted = 'AS t ("id", "level") SELECT v."id", v."level" FROM v'
    wanted = {
        "locked": f"SELECT {shown('t', 'a.b')} AS row, {xmin} {found} FOR UPDATE OF t",
        "read": f"SELECT {shown('t', 'level', 'id')} AS row, {stamp} {found}",
        "select": f'{rows} WHERE t."city" = v."city" AND t."id" = v."id" AND t."note" IS NULL {order}',
        "all": f"{rows} {order}",
        "insert": f"WITH v AS MATERIALIZED (SELECT * FROM ~), t AS (INSERT INTO @ {inserted}"
        f" RETURNING {pair} AS row, {xmin}) SELECT t.row, t.version, {both} AS intended FROM t, v",
        "update": f'UPDATE @ AS t SET "level" = v."level", "note" = v."note" FROM ~ v WHERE {same}'
        f" RETURNING {shown('t', 'id', 'part', 'level', 'note')} AS row, {stamp}, {written} AS intended",
        "delete": f"DELETE FROM @ AS t USING ~ v WHERE {same}"
        f" RETURNING {pair} AS row, NULL AS version, NULL AS intended",
    }
    own = '"crm"."t""x"'
    assert told == {name: text.replace("@", own).replace("~", GIVEN) for name, text in wanted.items()}


READ = Before({"level": "gold"}, "7")
CHANGED = Probe(ProbeVerdict.CANNOT_TELL, "the row has changed, and nothing in the database says by whom")
GONE = Probe(ProbeVerdict.CANNOT_TELL, "the row is gone, and nothing in the database says by whom")


@pytest.mark.parametrize(
    ("before", "version", "left", "told"),
    [
        (READ, "7", 0.0, Probe(ProbeVerdict.NOT_APPLIED, "the row still has the version 7: nothing was written since")),
        (READ, "7", 9.0, Probe(ProbeVerdict.CANNOT_TELL, "the row still has the version 7", None, 10.0)),
        (READ, "8", 0.0, CHANGED),
        (READ, "8", 9.0, CHANGED),
        (READ, None, 0.0, GONE),
        (None, "7", 0.0, CHANGED),
        (None, None, 0.0, Probe(ProbeVerdict.NOT_APPLIED, "the row is not there")),
        (None, None, 0.5, Probe(ProbeVerdict.CANNOT_TELL, "the row is not there yet", None, 1.5)),
    ],
)
def test_only_an_unchanged_row_proves_anything(
    before: Before | None, version: str | None, left: float, told: Probe
) -> None:
    call = Call("sql.customer.update", {}, "k", 1.0, before)
    assert _judged(call, None if version is None else ({"id": 1}, version), left) == told


@pytest.mark.parametrize("version", [None, "", "7"])
@pytest.mark.parametrize("now", [None, "", "7"])
def test_a_row_without_a_version_is_compared_as_any_other(version: str | None, now: str | None) -> None:
    """The columns that were read say nothing: another program may have written and restored them."""
    call = Call("sql.customer.update", {}, "k", 1.0, Before({"level": "gold"}, version))
    told = _judged(call, ({"level": "gold"}, now), 0.0)
    assert told.verdict is (ProbeVerdict.NOT_APPLIED if version == now else ProbeVerdict.CANNOT_TELL)
    assert _judged(call, ({"level": "iron"}, now), 0.0) == told


async def _none() -> str:
    return ""


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("postgresql://ann:secret@db.example:6432/crm", "postgresql://db.example:6432/crm as ann"),
        ("postgresql://ann@db.example/crm", "postgresql://db.example/crm as ann"),
        ("postgresql://ann@db.example:5432/crm", "postgresql://db.example:5432/crm as ann"),
        ("postgresql://db.example/crm", "postgresql://db.example/crm as nobody"),
    ],
)
def test_a_database_is_named_without_its_secret(url: str, target: str) -> None:
    assert Link(url, _none).target == target
