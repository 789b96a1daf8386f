"""Checks, when a workflow is published, what its children would inherit (P-8)."""

from __future__ import annotations

from core.db import Connection
from core.errors import InputError, NotFoundError
from runtime.definition.catalog import Definitions
from runtime.engine.graph import ChildNode
from runtime.engine.workflow import Workflow
from runtime.store import documents


async def check_children(connection: Connection, definitions: Definitions, tenant: str, workflow: Workflow) -> None:
    """Refuse a copy that the child's workflow has no fitting channel for; ``InputError`` names the step.

    Only a child that is named with its version, and published, is known now. Others are checked when the child starts.
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
