"""Marks that origins need, in declarations: what they say, where they stand, who has them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from connectors.catalog import load_catalog
from connectors.marks import Writer, kind_at, records_of, writer_at
from connectors.operation import Operation
from core.origins.kinds import ArgumentKind

CATALOG = load_catalog().operations


def declared(**schemas: Any) -> Operation:
    base: dict[str, Any] = {
        "name": "mail.message.get",
        "handler": "mail:get",
        "side_effects": "none",
        "risk": "low",
        "summary": "x",
        "target": "x",
        "input_schema": {},
        "output_schema": {},
    }
    base.update(schemas)
    for name in ("input_schema", "output_schema"):
        base[name] = {"type": "object", **base[name]}
    return Operation.model_validate(base)


def properties(**named: Any) -> dict[str, Any]:
    return {"properties": named}


@pytest.mark.parametrize(
    ("schemas", "words"),
    [
        (
            {"input_schema": properties(a={"x-argument": "word"})},
            "x-argument is 'word'; it must be one of value, text, f",
        ),
        ({"input_schema": {"anyOf": [properties(a={"x-argument": "text"})]}}, "belongs in properties, items"),
        ({"input_schema": properties(a={"x-written-by": "system"})}, "x-written-by belongs in output_schema"),
        ({"input_schema": {"x-records": "/a"}}, "x-records belongs at the top of output_schema"),
        ({"input_schema": properties(a={"x-records": "/a"})}, "x-records belongs at the top of output_schema"),
        ({"output_schema": properties(a={"x-written-by": "me"})}, "it must be one of system, people, anyone"),
        ({"output_schema": properties(a={"x-written-by": 3})}, "x-written-by is 3"),
        ({"output_schema": properties(a={"x-argument": "text"})}, "x-argument belongs in input_schema"),
        ({"output_schema": {"then": properties(a={"x-written-by": "system"})}}, "belongs in properties, items"),
        ({"output_schema": properties(a={"x-records": "/b"})}, "x-records belongs at the top"),
        ({"output_schema": {"x-records": "items", **properties(items={"type": "array"})}}, "must be a JSON Pointer"),
        ({"output_schema": {"x-records": "/item", **properties(items={"type": "array"})}}, "declares no such property"),
        ({"output_schema": {"x-records": "/a", **properties(a={"type": "string"})}}, "neither an object nor a list"),
        ({"output_schema": {"x-records": "/a", **properties(a={})}}, "neither an object nor a list"),
        ({"output_schema": {"x-records": 3}}, "must be a JSON Pointer"),
    ],
)
def test_a_mark_that_nothing_reads_is_refused(schemas: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        declared(**schemas)


def test_a_property_may_have_the_name_of_a_mark() -> None:
    declared(input_schema=properties(**{"x-written-by": {"type": "string"}, "x-argument": {"type": "string"}}))
    declared(output_schema=properties(a={"const": {"x-argument": "text"}}))


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_packaged_operation_says_all_of_it(name: str) -> None:
    operation = CATALOG[name]
    missing = [key for key, item in operation.input_schema["properties"].items() if "x-argument" not in item]
    output = operation.output_schema
    if "x-written-by" not in output:
        missing += [key for key, item in output["properties"].items() if "x-written-by" not in item]
    assert missing == []


def test_records_are_where_the_declaration_says() -> None:
    assert records_of(CATALOG["servicenow.record.query"].output_schema) == "/records"
    assert records_of(CATALOG["servicenow.incident.get"].output_schema) == ""
    assert records_of(CATALOG["http.request.send"].output_schema) is None


def test_kinds_are_those_of_the_nearest_mark() -> None:
    update = CATALOG["servicenow.incident.update"].input_schema
    assert kind_at(update, ("fields", "work_notes")) is ArgumentKind.TEXT
    assert kind_at(update, ("fields", "assigned_to")) is ArgumentKind.VALUE
    assert kind_at(update, ("fields", "u_other")) is ArgumentKind.VALUE
    assert kind_at(CATALOG["servicenow.incident.query"].input_schema, ("limit",)) is ArgumentKind.FLAG
    assert kind_at({"type": "object"}, ("unheard", "of")) is ArgumentKind.VALUE


def test_a_field_is_as_trustworthy_as_its_weakest_writer() -> None:
    record = CATALOG["servicenow.incident.get"].output_schema
    assert writer_at(record, "/sys_id") is Writer.SYSTEM
    assert writer_at(record, "/short_description") is Writer.ANYONE
    assert writer_at(record, "") is Writer.ANYONE
    row = properties(id={"x-written-by": "system"}, name={"x-written-by": "people"}, note={})
    rows = {"type": "array", "items": {"type": "object", **row}}
    schema = {"type": "object", "x-written-by": "system", **properties(rows=rows, other={"x-written-by": "anyone"})}
    assert writer_at(schema, "/rows/id") is Writer.SYSTEM
    assert writer_at(schema, "/rows/name") is Writer.PEOPLE
    assert writer_at(schema, "/rows/note") is Writer.SYSTEM
    assert writer_at(schema, "/rows") is Writer.PEOPLE
    assert writer_at(schema, "") is Writer.ANYONE
    assert writer_at({"type": "object", **properties(a={"$ref": "#"})}, "/a/a") is Writer.ANYONE
    assert writer_at({"type": "object"}, "/a") is Writer.ANYONE
