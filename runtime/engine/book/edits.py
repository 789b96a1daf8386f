"""Edits of a step's input: they are kept by step, and replace values of the input before it is judged anew. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.operation import Operation
from core.canonical import Json, JsonObject
from core.origins.matching import PERSON
from policy.facts import CARRIES, ORIGIN
from runtime.engine.model.run import Run
from runtime.engine.model.traces import Trace

# The reason code of a question that is void because somebody has edited its action.
EDITED = "edited"


def editable(operation: Operation, inputs: Mapping[str, Json]) -> JsonObject:
    """The values of an input that people may edit, by name: the fields that it writes, and its other named values."""
    own: JsonObject = {name: value for name, value in inputs.items() if name not in operation.params}
    if not isinstance(operation.writes, str):
        return own
    written = own.pop(operation.writes, None)
    return {**own, **(written if isinstance(written, dict) else {})}


def schema_of(operation: Operation, name: str) -> Json:
    """The declared schema of a value that ``editable`` names; None if there is none."""
    schemas: Json = operation.input_schema.get("properties")
    if isinstance(operation.writes, str) and isinstance(schemas, dict):
        inner = schemas.get(operation.writes)
        fields = inner.get("properties") if isinstance(inner, dict) else None
        if isinstance(fields, dict) and name in fields:
            return fields[name]
    return schemas.get(name) if isinstance(schemas, dict) else None


def edited(operation: Operation, inputs: JsonObject, changed: Mapping[str, Json]) -> JsonObject:
    """The input with these values in place of its own. A name is looked for among the written fields first."""
    found: JsonObject = {**inputs}
    inner = found.get(operation.writes) if isinstance(operation.writes, str) else None
    written: JsonObject = {**inner} if isinstance(inner, dict) else {}
    for name, value in changed.items():
        if name in written:
            written[name] = value
        else:
            found[name] = value
    return {**found, str(operation.writes): written} if written else found


def of_step(run: Run, key: str) -> JsonObject:
    """The values of a step that people have edited, as they are now."""
    return {name: both["now"] for name, both in run.edits.get(key, {}).items()}


def retraced(trace: Trace, changed: Mapping[str, Json]) -> Trace:
    """The origins, where edited values count as given by a person."""
    if not changed:
        return trace
    facts, traced = {**trace.facts}, trace.recorded["arguments"]
    arguments: JsonObject = {**traced} if isinstance(traced, dict) else {}
    for name in changed:
        if f"{ORIGIN}{name}" in facts:
            facts |= {f"{ORIGIN}{name}": [[PERSON]], f"{CARRIES}{name}": []}
            arguments[name] = {"origins": [[PERSON]], "sources": []}
    return Trace(facts, {**trace.recorded, "arguments": arguments}, trace.of_agent, trace.read)
