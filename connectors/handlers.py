"""Checks that an installation's declarations fit their handlers, so that none declares an input that is never sent.

The packaged declarations define a handler: it sends every input that one of them declares, and needs every input that
all of them require.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from connectors import display, frozen
from connectors.canonical import canonical
from connectors.operation import AGENT, InDoubtRule, Kind, Operation
from connectors.parts import KeyScope
from connectors.tables import HANDLERS, faults_of
from core.errors import InputError, nearest

# The handler of the tools of agents.
CALL = "agent:call"
# Handlers that send every field that ``writes`` names.
_SENDS_WRITES = frozenset({"servicenow:update"})


def _of_tools(operation: Operation) -> Iterator[tuple[str, str, str]]:
    """Yield the faults of the declaration of a tool that an agent carries out itself."""
    if operation.connector != AGENT:
        yield "agent_tool", "only a tool that an agent carries out itself has this name.", "Declare `connector: agent`."
    elif operation.handler != CALL:
        yield "handler", f"an agent's tool is {CALL!r}.", f"Write `handler: {CALL}`."
    # The agent's tool cannot be read, probed, undone, shared or repeated from here.
    wrong = (
        ("side_effects", not operation.has_effect),
        ("in_doubt", operation.in_doubt is not InDoubtRule.ASK),
        ("kind", operation.kind is not Kind.SYNC),
        ("diff", operation.diff is not None),
        ("reverse", operation.reverse is not None),
        ("params", bool(operation.params)),
        ("idempotency", operation.idempotency.scope is not KeyScope.STEP),
    )
    for key, holds in wrong:
        if holds:
            words = f"`{key}` says what does not hold for a tool that an agent carries out itself."
            yield key, words, "Declare side_effects: external_call and in_doubt: ask, and leave the others out."


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
    if operation.connector == AGENT or operation.agent_tool is not None:
        yield from _of_tools(operation)
        return
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
