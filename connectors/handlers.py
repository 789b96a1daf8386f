"""Checks that an installation's declarations fit their handlers, so none declares an input that is never sent.

The packaged declarations define a handler: it sends every input that one of them declares, and needs every input that
all of them require.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from connectors import display, frozen
from connectors.canonical import canonical
from connectors.operation import Operation
from connectors.tables import HANDLERS, faults_of
from core.errors import InputError, nearest

# Handlers that send every field that ``writes`` names.
_SENDS_WRITES = frozenset({"servicenow:update"})


def faults(operation: Operation, packaged: Iterable[Operation]) -> Iterator[tuple[str, str, str]]:
    """Yield the faults of an installation's declaration, by its handler: the key, the fault, the remedy.

    Handlers of connectors that are not packaged are not checked.
    """
    if operation.handler in HANDLERS:
        yield from faults_of(operation)
        return
    if operation.connector == frozen.MCP:
        yield from frozen.faults_of(operation)
        return
    if operation.tool is not None:
        yield "tool", f"{operation.handler} calls no tool of a server.", "Take it out."
    try:
        canonical(operation.handler, operation.params)
    except InputError as error:
        yield "params", f"{error.where}: {error.message}.", error.remedy
    if operation.connector == "slack":
        try:
            display.check(operation.params, where="params")
        except InputError as error:
            yield "params", f"{error.where} {error.message}.", error.remedy
    known = [one for one in packaged if one.connector == operation.connector]
    same = [one for one in known if one.handler == operation.handler]
    if not same:
        if known or operation.connector == "sql":
            names = sorted({one.handler for one in known} or HANDLERS)
            yield "handler", f"there is no handler {operation.handler!r}.", nearest(operation.handler, names)
        return
    sent = {name for one in same for name in one.input_schema.get("properties", {})}
    given = {*operation.input_schema.get("properties", {}), *operation.params}
    free = {*(operation.writes if isinstance(operation.writes, tuple) else ())}
    for name in sorted(given - sent - (free if operation.handler in _SENDS_WRITES else set())):
        key = "params" if name in operation.params else "input_schema"
        yield key, f"{operation.handler} does not send {name!r}.", f"It sends {', '.join(sorted(sent))}."
    needed = set.intersection(*({*one.input_schema.get("required", ())} for one in same))
    for name in sorted(needed - {*operation.input_schema.get("required", ()), *operation.params}):
        remedy = "Give it in params, or declare it under input_schema and name it in `required`."
        yield "input_schema", f"{operation.handler} needs the input {name!r}.", remedy
    if operation.kind is not same[0].kind:
        yield "kind", f"{operation.handler} is {same[0].kind}.", f"Declare `kind: {same[0].kind}`."
