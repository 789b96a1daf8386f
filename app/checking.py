"""Checks of a workflow against this installation: its connectors, literal hosts, and the tables of a SQL database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import aclosing
from typing import TypeAlias

from msgspec import Struct

from app import adapters
from app.definitions import CONFIGURED, lacking
from app.settings import Settings
from connectors.frozen import CALL
from connectors.port import Connectors, Declared
from core.canonical import JsonObject
from core.errors import InputError
from core.identity import Directory
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.graph import OperationNode
from runtime.engine.model.workflow import Workflow

# The people of each group who may answer, by their ids.
Members: TypeAlias = Mapping[str, frozenset[str]]


class ConnectorStates(Struct, frozen=True):
    """The state of a workflow's connectors in this process. Each warning names the place and the remedy."""

    connectors: dict[str, str]
    warnings: list[str]


async def check_connectors(
    settings: Settings, workflow: Workflow, file: str, people: Members | None = None
) -> ConnectorStates:
    """Check the connectors that a workflow needs, as they are configured in this process.

    ``people`` are the members of each group who may answer, if there is a directory. ``InputError`` if a declaration
    does not fit its database.
    """
    async with aclosing(adapters.connectors_of(settings)) as connectors:
        missing = lacking(workflow.connectors, connectors)
        warnings = [f"the connector {name!r} is {words}" for name, words in missing.items()]
        warnings += [
            *_own_events(workflow),
            *_unanswered(workflow, people),
            *_refused_hosts(workflow, connectors),
            *await _tables(workflow, connectors, file),
        ]
    standing = {name: missing.get(name, CONFIGURED) for name in workflow.connectors}
    return ConnectorStates(standing, warnings)


def members(people: Directory) -> Members:
    """The active people of each group."""
    groups = {group for one in people.entries.values() for group in one.groups}
    return {group: frozenset(one.id for one in people.members(group)) for group in groups}


def _unanswered(workflow: Workflow, people: Members | None) -> Iterator[str]:
    """Steps that are to be held for a group in which nobody can answer: their failure fails the run instead."""
    for node in workflow.graph.leaves.values():
        if node.hold and people is not None and not people.get(node.hold):
            words = f"nobody in the directory's group {node.hold!r} can answer, so it is not held"
            yield f"step {node.id!r}: {words}; its failure fails the run"


def _refused_hosts(workflow: Workflow, connectors: Connectors) -> Iterator[str]:
    """Steps whose literal address no setting allows. The value of an expression is known only when its step runs."""
    for place, name, literals in _calls(workflow):
        operation = workflow.operations[name]
        given = {**literals, **operation.params}
        fixed = operation.handler == CALL and operation.connector in connectors
        if fixed or (operation.connector == "http" and "url" in given):
            refused = connectors.ready(operation.connector, operation.name, given)
            if refused is not None:
                yield f"{place}: {refused.message}"


# The event that a function of ServiceNow's connector causes, for functions that do not update.
_EVENTS = {"create": "insert", "delete": "delete"}


def _own_events(workflow: Workflow) -> Iterator[str]:
    """Steps whose writes to a table cause events that start the workflow again, or may do so."""
    listens = workflow.servicenow
    if listens is None:
        return
    follows = "events of our own writes start nothing (`own_events`)"
    if listens.own_events:
        follows = "it starts itself again with each write, unless its `when` ends that"
    for place, name, literals in _calls(workflow):
        operation = workflow.operations[name]
        table = {**literals, **operation.params}.get("table")
        event = _EVENTS.get(operation.function, "update")
        if operation.connector != "servicenow" or not operation.has_effect or event not in listens.events:
            continue
        if table in (listens.table, None):
            where = table or f"a table that may be {listens.table}"
            yield f"{place}: writes to {where}, whose {event}s start this workflow: {follows}"


def _calls(workflow: Workflow) -> Iterator[tuple[str, str, JsonObject]]:
    """Every step and agent's tool that calls an operation: its place, the operation, its literal arguments."""
    for node in workflow.graph.leaves.values():
        if isinstance(node, OperationNode):
            yield f"step {node.id!r}", node.operation, node.inputs.literals()
        for tool in node.tools.values() if isinstance(node, AgentNode) else ():
            if tool.operation is not None:
                place = f"step {node.id!r}, tool {tool.tool.name!r}"
                yield place, tool.operation.name, tool.fixed.literals()


async def _tables(workflow: Workflow, connectors: Connectors, file: str) -> list[str]:
    """Compare the declarations that the workflow uses with their database; a warning if it does not answer now."""
    warnings: list[str] = []
    for name in workflow.connectors:
        declared = [one for one in workflow.operations.values() if one.connector == name]
        used = sorted(one.name for one in declared)
        connector = connectors.get(name)
        if not isinstance(connector, Declared):
            continue
        faults = await connector.faults(declared)
        if isinstance(faults, str):
            warnings.append(f"{', '.join(used)} were not compared with their database: {faults}")
        elif faults:
            words = f"declarations do not fit the database of {name!r}: {' '.join(faults)}"
            raise InputError(words, where=file, remedy="Mend the declarations, or the database.")
    return warnings
