"""The marks in a declaration's schemas that origins need.

``x-argument`` on an input is its ``ArgumentKind``, which says how its origin is found. ``x-records`` at the top of
``output_schema`` is the JSON Pointer to the records of a result. ``x-written-by`` on an output says who can write it
outside; everything below inherits it, until another mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from connectors.disclosure import resolved
from connectors.schema import CONDITIONAL
from core.canonical import Json, JsonObject
from core.origins.kinds import ArgumentKind

ARGUMENT, RECORDS, WRITTEN_BY = "x-argument", "x-records", "x-written-by"
_DEPTH_MAX = 32


class Writer(StrEnum):
    """The least trusted party that can write a field outside. Members are ordered, most trusted first."""

    SYSTEM = "system"
    PEOPLE = "people"
    ANYONE = "anyone"


# The formats that validation checks; JSON Schema ignores all others.
FORMATS = (
    *("date", "date-time", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6"),
    *("uri", "uri-reference", "uri-template", "iri", "iri-reference", "uuid", "json-pointer", "relative-json-pointer"),
    "regex",
)


def check_marks(schema: JsonObject, *, output: bool) -> None:
    """Refuse unknown marks, and marks in places where nothing reads them. ``ValueError`` names the right place."""
    records = schema.get(RECORDS)
    if records is not None:
        if not output:
            raise ValueError(f"{RECORDS} belongs at the top of output_schema")
        _check_records(schema, records)
    _check(schema, output=output, marks=True, top=True)


def _check_records(schema: JsonObject, pointer: Json) -> None:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise ValueError(f'{RECORDS} is {pointer!r}; it must be a JSON Pointer, such as /items, or "" for all of it')
    place: Json = schema
    for part in pointer.split("/")[1:]:
        properties = resolved(schema, place).get("properties")
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(properties, dict) or name not in properties:
            raise ValueError(f"{RECORDS} is {pointer!r}, and output_schema declares no such property")
        place = properties[name]
    if resolved(schema, place).get("type") not in ("object", "array"):
        raise ValueError(f"{RECORDS} is {pointer!r}, which is neither an object nor a list")


def _check_format(found: Json, *, output: bool) -> None:
    """Refuse a format that is never checked. A value that is no text is a property named ``format``, and passes."""
    if not isinstance(found, str):
        return
    if output:
        raise ValueError(
            "`format` asserts nothing in output_schema: an output is kept as the system gave it; remove it"
        )
    if found not in FORMATS:
        raise ValueError(f"format is {found!r}, which asserts nothing; it must be one of {', '.join(FORMATS)}")


def _check(schema: Json, *, output: bool, marks: bool, top: bool = False) -> None:
    if isinstance(schema, list):
        for item in schema:
            _check(item, output=output, marks=marks)
    if not isinstance(schema, dict):
        return
    mark, values = (WRITTEN_BY, [*Writer]) if output else (ARGUMENT, [*ArgumentKind])
    found = schema.get(mark)
    if found is not None and not isinstance(found, dict):  # a property may have this name
        if found not in values:
            raise ValueError(f"{mark} is {found!r}; it must be one of {', '.join(values)}")
        if not marks:
            raise ValueError(f"{mark} belongs in properties, items or additionalProperties")
    other = ARGUMENT if output else WRITTEN_BY
    if isinstance(schema.get(other), str):
        raise ValueError(f"{other} belongs in {'input_schema' if output else 'output_schema'}")
    if not top and isinstance(schema.get(RECORDS), str):
        raise ValueError(f"{RECORDS} belongs at the top of output_schema")
    _check_format(schema.get("format"), output=output)
    for name, item in schema.items():
        if name not in ("const", "enum", "default", "examples"):
            _check(item, output=output, marks=marks and name not in CONDITIONAL)


def records_of(output_schema: Mapping[str, Any]) -> str | None:
    """The pointer to the records of a result; None if the declaration names none."""
    found = output_schema.get(RECORDS)
    return found if isinstance(found, str) else None


def kind_at(schema: JsonObject, path: tuple[str, ...]) -> ArgumentKind:
    """The kind of the argument at a path of property names; ``value``, the strictest, if none is declared."""
    kind, here = ArgumentKind.VALUE, resolved(schema, schema)
    for name in path:
        properties = here.get("properties")
        inner = properties.get(name) if isinstance(properties, dict) else None
        here = resolved(schema, inner if inner is not None else here.get("additionalProperties"))
        kind = ArgumentKind(str(here[ARGUMENT])) if ARGUMENT in here else kind
    return kind


def writer_at(schema: JsonObject, pointer: str) -> Writer:
    """The least trusted writer of the value at a pointer (without list indexes) or of anything below it."""
    writer, here = _writer(schema, Writer.ANYONE), schema
    for part in pointer.split("/")[1:]:
        here = _items(schema, here)
        writer = _writer(here, writer)
        properties, name = here.get("properties"), part.replace("~1", "/").replace("~0", "~")
        inner = properties.get(name) if isinstance(properties, dict) else None
        here = resolved(schema, inner if inner is not None else here.get("additionalProperties"))
        writer = _writer(here, writer)
    return max([writer, *_below(schema, here, writer, 0)], key=[*Writer].index)


def kept_of(output_schema: JsonObject) -> tuple[str, ...]:
    """The declared fields of a result that not just anyone can write outside, as pointers without list indexes."""
    return tuple(sorted({*_kept(output_schema, output_schema, "", Writer.ANYONE, 0)}))


def _kept(root: JsonObject, schema: Json, pointer: str, above: Writer, depth: int) -> Iterator[str]:
    here = _items(root, resolved(root, schema))
    writer = _writer(here, above)
    if depth > _DEPTH_MAX:
        return
    properties = here.get("properties")
    if isinstance(properties, dict):
        for name, inner in properties.items():
            step = name.replace("~", "~0").replace("/", "~1")
            yield from _kept(root, inner, f"{pointer}/{step}", writer, depth + 1)
    elif pointer and writer is not Writer.ANYONE and max(_below(root, here, writer, 0), key=[*Writer].index) == writer:
        yield pointer


def _items(root: JsonObject, here: JsonObject) -> JsonObject:
    for _ in range(_DEPTH_MAX):
        inner = resolved(root, here.get("items"))
        if not inner:
            break
        here = {WRITTEN_BY: here[WRITTEN_BY], **inner} if WRITTEN_BY in here else inner
    return here


def _writer(here: JsonObject, above: Writer) -> Writer:
    return Writer(str(here[WRITTEN_BY])) if WRITTEN_BY in here else above


def _below(root: JsonObject, schema: Json, above: Writer, depth: int) -> Iterator[Writer]:
    here = resolved(root, schema)
    if depth > _DEPTH_MAX:
        yield Writer.ANYONE
        return
    yield _writer(here, above)
    properties = here.get("properties")
    for item in [*(properties.values() if isinstance(properties, dict) else ()), here.get("items")]:
        if item is not None:
            yield from _below(root, item, _writer(here, above), depth + 1)
    other = here.get("additionalProperties")
    if isinstance(other, dict):
        yield from _below(root, other, _writer(here, above), depth + 1)
