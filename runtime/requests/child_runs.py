"""Collects what a child run hands over to the run above: the origins of its result, and the usage of its models."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import asyncpg

from core.canonical import Json, JsonObject
from core.db import Connection
from core.errors import ConsistencyError, InputError, NotFoundError
from runtime.definition.catalog import Definitions
from runtime.engine.life.facts import result_origins
from runtime.engine.model.graph import ChildNode
from runtime.engine.model.states import RUN
from runtime.engine.model.workflow import Workflow
from runtime.store import documents, journal
from runtime.store.views import load


async def origins_of(
    connection: Connection, definitions: Definitions, ending: asyncpg.Record, *, traced: bool = False
) -> list[Json] | None:
    """The origins of the result of a run that has ended; None if no rule of the parent run reads origins.

    ``traced`` says that the run above needs them, even if it does not wait yet.
    """
    if not (traced or ending["traced"]):
        return None
    view = await load(connection, UUID(int=ending["run_id"].int), definitions.graphs)
    return result_origins(view, await definitions.of_run(connection, view.definition))


async def used_within(connection: Connection, ending: asyncpg.Record, step: str) -> JsonObject | None:
    """Sum up the usage of the models in a run and in all runs below it, and the calls that its agents made.

    None unless the run is over and was started by a call of an agent (``step`` is the step above that waits for it).
    """
    if "/" not in step or ending["status"] not in RUN.terminal:
        return None
    usage, calls = await journal.used(connection, UUID(int=ending["run_id"].int))
    return {"usage": [*usage], "calls": calls} if usage or calls else None


async def check_children(connection: Connection, definitions: Definitions, tenant: str, workflow: Workflow) -> None:
    """Refuse an inherited channel that the child's workflow does not declare alike; ``InputError`` names the step.

    Only a published child that is named with its version can be checked now; others are checked when they start.
    """
    for leaf in workflow.graph.leaves.values():
        if not isinstance(leaf, ChildNode) or not leaf.inherit or leaf.version is None:
            continue
        try:
            stored = await documents.startable_workflow(connection, tenant, leaf.workflow, leaf.version)
        except NotFoundError:
            continue
        within = definitions.compiled(stored).graph.channels
        for name in leaf.inherit:
            own = workflow.graph.channels[name]
            if name not in within or within[name].reducer is not own.reducer:
                words = f"{leaf.workflow}@{leaf.version} has no channel {name!r} that is folded by {own.reducer}"
                raise InputError(words, where=f"{leaf.id}.inherit", remedy="Declare it there, or inherit another.")


async def result_schemas(
    connection: Connection, definitions: Definitions, tenant: str, workflow: Workflow
) -> dict[str, JsonObject]:
    """The result schemas of the published workflows that this one runs, by the names that its steps use."""
    found = dict[str, JsonObject]()
    for leaf in workflow.graph.leaves.values():
        if isinstance(leaf, ChildNode):
            with suppress(NotFoundError, ConsistencyError):  # a child that cannot run now is checked when it starts
                stored = await documents.startable_workflow(connection, tenant, leaf.workflow, leaf.version)
                name = leaf.workflow if leaf.version is None else f"{leaf.workflow}@{leaf.version}"
                found[name] = definitions.compiled(stored).gives
    return {name: schema for name, schema in found.items() if schema}
