"""The declaration of an operation on one table: its ``params``, and the checks of params and inputs.

No SQL comes from a workflow or a model. A declaration names the table, the key and the columns; a call gives values.
``connectors.sql.table`` checks the names against the database's catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from connectors.operation import InDoubtRule, Kind, Operation
from core.action import SideEffects

SELECT, INSERT, UPDATE, DELETE = "sql:select", "sql:insert", "sql:update", "sql:delete"
HANDLERS = (SELECT, INSERT, UPDATE, DELETE)
FIELDS, LIMIT = "fields", "limit"
ROWS_MAX = 1000

# An identifier as the database's catalogue has it. Statements quote it.
Identifier = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[^\x00-\x1f\"]+$")]
TableName = Annotated[str, Field(pattern=r"^[^.\x00-\x1f\"]{1,63}\.[^.\x00-\x1f\"]{1,63}$")]


class TableParams(BaseModel):
    """The ``params`` of an operation of the connector ``sql``.

    ``columns`` are the columns that a select returns. ``version`` is a column that changes with every update of a row;
    without it PostgreSQL's ``xmin`` is the version. A write inserts its key into ``idempotency_table``, in the same
    transaction.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    table: TableName
    key: Annotated[tuple[Identifier, ...], Field(min_length=1, max_length=8)]
    columns: tuple[Identifier, ...] = ()
    version: Identifier | None = None
    idempotency_table: TableName | None = None


def params_of(values: Mapping[str, Any]) -> TableParams:
    """Read the params from the input of a call, which contains them."""
    given = {name: values[name] for name in TableParams.model_fields if name in values}
    return TableParams.model_validate_json(orjson.dumps(given), strict=True)


def columns_of(operation: Operation, params: TableParams) -> frozenset[str]:
    """Every column that the declaration names."""
    named = {*params.key, *params.columns, *_properties(operation)} - {FIELDS, LIMIT}
    version = () if params.version is None else (params.version,)
    return frozenset({*named, *written_of(operation), *version, *_read_before(operation)})


def written_of(operation: Operation) -> tuple[str, ...]:
    """The columns that an insert or an update may set besides the key."""
    fields = _properties(operation).get(FIELDS, {})
    return tuple(fields.get("properties", {})) if isinstance(fields, dict) else ()


def _properties(operation: Operation) -> Mapping[str, Any]:
    found = operation.input_schema.get("properties", {})
    return found if isinstance(found, dict) else {}


def _read_before(operation: Operation) -> tuple[str, ...]:
    diff = operation.diff
    return diff.fields if diff is not None and isinstance(diff.fields, tuple) else ()


def faults_of(operation: Operation) -> Iterator[tuple[str, str, str]]:
    """Yield the faults of a declaration that can be found without the database: key, fault, remedy."""
    try:
        params = params_of(operation.params)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            place = ".".join(["params", *(str(part) for part in fault["loc"])])
            yield "params", f"{place}: {fault['msg']}.", "It takes table (schema.name), key, columns, version."
        return
    if strange := sorted(operation.params.keys() - TableParams.model_fields.keys()):
        yield "params", f"params has no {strange[0]!r}.", f"It takes {', '.join(TableParams.model_fields)}."
    if operation.kind is not Kind.SYNC:
        yield "kind", f"{operation.handler} answers within its call.", "Declare `kind: sync`."
    if operation.input_schema.get("additionalProperties", True) is not False:
        yield "input_schema", "Each input is a column, so all are declared.", "Add `additionalProperties: false`."
    yield from _inputs(operation, params)
    yield from _effects(operation, params)


def _inputs(operation: Operation, params: TableParams) -> Iterator[tuple[str, str, str]]:
    given, handler = _properties(operation), operation.handler
    for name in sorted({FIELDS, LIMIT} & {*params.key}):
        yield "params", f"A key column cannot be called {name!r} here.", "Give it another name in a view."
    if handler == SELECT:
        if not params.columns:
            yield "params", "A select names the columns that it gives back.", "Add `columns: [...]`."
        if FIELDS in given:
            yield "input_schema", "A select compares columns; it has no `fields`.", "Name the columns themselves."
        return
    if params.columns:
        yield "params", "Only a select has `columns`.", "Take them out; what is written stands under `fields`."
    allowed = {*params.key} | (set() if handler == DELETE else {FIELDS})
    for name in sorted(given.keys() - allowed):
        yield "input_schema", f"{handler} does not send {name!r}.", f"It sends {', '.join(sorted(allowed))}."
    needed = allowed - ({*params.key} if handler == INSERT else set())
    for name in sorted(needed - {*operation.input_schema.get("required", ())}):
        yield "input_schema", f"{handler} needs {name!r}.", "Declare it, and name it in `required`."
    if handler == DELETE:
        return
    fields = given.get(FIELDS, {})
    if not written_of(operation) or fields.get("additionalProperties", True) is not False:
        remedy = "Declare properties, and `additionalProperties: false`."
        yield "input_schema", "`fields` declares each column that may be written.", remedy
    for name in sorted({*written_of(operation)} & {*params.key}):
        yield "input_schema", f"{name!r} is the key, and `fields` would write it.", "Take it out of `fields`."
    if operation.writes != FIELDS:
        yield "writes", "What is written stands under `fields`.", "Declare `writes: fields`."


def _effects(operation: Operation, params: TableParams) -> Iterator[tuple[str, str, str]]:
    if operation.handler == SELECT:
        if operation.has_effect:
            yield "side_effects", "A select changes nothing.", "Declare `side_effects: none`."
        return
    if operation.side_effects is not SideEffects.EXTERNAL_CALL:
        yield "side_effects", f"{operation.handler} changes another database.", "Declare `side_effects: external_call`."
    if operation.in_doubt is InDoubtRule.IDEMPOTENT and params.idempotency_table is None:
        remedy = "Name params.idempotency_table, or declare `in_doubt: probe`."
        yield "in_doubt", "Nothing in the database remembers the key of a call.", remedy
    if operation.handler == INSERT and operation.diff is not None:
        yield "diff", "An insert replaces nothing, so there is nothing to read first.", "Take it out."
