"""Checking, when a workflow is published, what the workflows that it runs would inherit (P-8)."""

from __future__ import annotations

from core.db import Connection
from core.errors import InputError, NotFoundError
from runtime.definition.catalog import Definitions
from runtime.engine.graph import ChildNode
from runtime.engine.workflow import Workflow
from runtime.store import documents


async def check_children(connection: Connection, definitions: Definitions, tenant: str, workflow: Workflow) -> None:
    """Refuse a copy that the workflow within has no channel for; ``InputError`` names the step.

    Only what is named by its version, and published, is known now. All else is checked when the run within starts.
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
