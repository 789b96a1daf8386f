"""Declarations of operations on tables: each fault whole, and every column that the database is asked about."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.operation import Operation
from connectors.tables import columns_of, faults_of, params_of, written_of
from tests.connectors.test_sql import document, set_at

_CLOSED = "Add `additionalProperties: false`."
_COLUMNS = (
    "`fields` declares each column that may be written.",
    "Declare properties, and `additionalProperties: false`.",
)
_NEEDED = "Declare it, and name it in `required`."
_NO_NAME = "Give it another name in a view."
_TAKES = "It takes table (schema.name), key, columns, version."
_REMEMBERED = "Name params.idempotency_table, or declare `in_doubt: probe`."


@pytest.mark.req("V-2")
@pytest.mark.parametrize(
    ("path", "value", "faults"),
    [
        (
            "once.params",
            {"table": "crm.customers", "key": ["id"]},
            [("in_doubt", "Nothing in the database remembers the key of a call.", _REMEMBERED)],
        ),
        (
            "update.input_schema.additionalProperties",
            True,
            [("input_schema", "Each input is a column, so all are declared.", _CLOSED)],
        ),
        ("update.input_schema.properties.fields.additionalProperties", True, [("input_schema", *_COLUMNS)]),
        ("insert.input_schema.properties.fields.properties", {}, [("input_schema", *_COLUMNS)]),
        (
            "update.input_schema.properties.where",
            {"type": "string"},
            [("input_schema", "sql:update does not send 'where'.", "It sends fields, id.")],
        ),
        (
            "delete.input_schema.properties.fields",
            {"type": "object"},
            [("input_schema", "sql:delete does not send 'fields'.", "It sends id.")],
        ),
        ("update.input_schema.required", ["fields"], [("input_schema", "sql:update needs 'id'.", _NEEDED)]),
        ("update.input_schema.required", ["id"], [("input_schema", "sql:update needs 'fields'.", _NEEDED)]),
        ("insert.input_schema.required", ["id"], [("input_schema", "sql:insert needs 'fields'.", _NEEDED)]),
        ("insert.input_schema.required", ["fields"], []),
        ("delete.input_schema.required", [], [("input_schema", "sql:delete needs 'id'.", _NEEDED)]),
        (
            "update.input_schema.properties.fields.properties.id",
            {},
            [("input_schema", "'id' is the key, and `fields` would write it.", "Take it out of `fields`.")],
        ),
        ("update.writes", ["id"], [("writes", "What is written stands under `fields`.", "Declare `writes: fields`.")]),
        ("update.kind", "durable", [("kind", "sql:update answers within its call.", "Declare `kind: sync`.")]),
        *(
            (
                f"{name}.side_effects",
                effects,
                [("side_effects", f"sql:{name} changes another database.", "Declare `side_effects: external_call`.")],
            )
            for name in ("insert", "update", "delete")
            for effects in ("none", "internal_db", "human_process")
        ),
        (
            "select.params.columns",
            [],
            [("params", "A select names the columns that it gives back.", "Add `columns: [...]`.")],
        ),
        (
            "update.params.columns",
            ["id"],
            [("params", "Only a select has `columns`.", "Take them out; what is written stands under `fields`.")],
        ),
        (
            "update.params.sql",
            "DELETE",
            [("params", "params has no 'sql'.", "It takes table, key, columns, version, idempotency_table.")],
        ),
        (
            "select.input_schema.properties.fields",
            {"type": "object"},
            [("input_schema", "A select compares columns; it has no `fields`.", "Name the columns themselves.")],
        ),
        (
            "update.params.key",
            ["fields"],
            [
                ("params", "A key column cannot be called 'fields' here.", _NO_NAME),
                ("input_schema", "sql:update does not send 'id'.", "It sends fields."),
            ],
        ),
        ("select.params.key", ["limit"], [("params", "A key column cannot be called 'limit' here.", _NO_NAME)]),
        (
            "insert.diff",
            {"fields": "written"},
            [("diff", "An insert replaces nothing, so there is nothing to read first.", "Take it out.")],
        ),
        (
            "select.params.key",
            [],
            [("params", "params.key: Tuple should have at least 1 item after validation, not 0.", _TAKES)],
        ),
        ("select.params.table", 7, [("params", "params.table: Input should be a valid string.", _TAKES)]),
    ],
)
def test_each_fault_of_a_declaration_is_told_whole(path: str, value: Any, faults: list[tuple[str, str, str]]) -> None:
    declared = set_at(document(), path, value)[path.partition(".")[0]]
    assert list(faults_of(Operation.model_validate(declared))) == faults


def test_a_select_has_no_effect() -> None:
    effects = {"side_effects": "external_call", "in_doubt": "probe"}
    declared = Operation.model_validate(document()["select"] | effects)
    told = ("side_effects", "A select changes nothing.", "Declare `side_effects: none`.")
    assert list(faults_of(declared)) == [told]


@pytest.mark.parametrize("name", ["update", "once", "insert", "delete", "select"])
def test_what_is_right_has_no_fault_and_the_database_is_asked_about_each_column(name: str) -> None:
    declared = document()[name]
    declared["params"]["version"] = "changed at"
    operation = Operation.model_validate(declared)
    assert list(faults_of(operation)) == []
    fields = {"status", "limit eur", "tags", "seen", "big"}
    wanted = {
        "update": {"id"} | fields,
        "once": {"id"} | fields,
        "insert": {"id"} | fields,
        "delete": {"id", "status"},  # the column that is read before, and nothing else
        "select": {"id", "status", "limit eur", "big", "seen"},
    }
    assert columns_of(operation, params_of(operation.params)) == wanted[name] | {"changed at"}
    assert set(written_of(operation)) == (fields if name in ("update", "once", "insert") else set())
