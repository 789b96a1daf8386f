"""Finds the operation as which a call is judged that an agent carries out itself."""

from __future__ import annotations

from connectors.catalog import Catalog
from connectors.operation import AGENT, Operation
from core.canonical import JsonObject
from core.errors import InputError

# The operation for tools without a declaration: the tool's name and arguments are its input.
UNDECLARED = "agent.tool.call"


def called(catalog: Catalog, tool: str, arguments: JsonObject) -> tuple[Operation, JsonObject]:
    """The operation that declares a tool, and its input; an undeclared tool is judged as ``UNDECLARED``.

    ``InputError`` if several declare it, because rules about one declaration would not hold for the others.
    """
    found = [one for one in catalog.own.values() if one.connector == AGENT and (one.agent_tool or one.name) == tool]
    if len(found) == 1:
        return found[0], arguments
    if found:
        words = f"is declared as {' and as '.join(one.name for one in found)}, so it is judged as neither"
        raise InputError(words, where="tool", remedy="Have one of them declared for another tool.")
    return catalog.get(UNDECLARED), {"tool": tool, "arguments": arguments}


def performed(catalog: Catalog, name: str) -> Operation:
    """The operation with this name, which connectors perform. ``InputError`` if the agent has to carry it out."""
    operation = catalog.get(name)
    if operation.connector == AGENT:
        words = f"{name} is a tool that its agent carries out itself"
        raise InputError(words, where="operation", remedy='Ask for it with `"mode": "gate"` and its `tool`.')
    return operation
