"""Finds the gates that added steps must come after, also gates within the run's children and in the runs above it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from core.db import Connection
from core.errors import ConsistencyError, CountersealError, InputError
from policy.load import PolicyName
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import ExtensionDocument
from runtime.engine.book.gates import OPAQUE, children_in, come_before, gates_ahead, may_hold_gates
from runtime.engine.model.graph import ChildNode, Graph, LeafNode
from runtime.engine.model.run import RunView
from runtime.engine.model.states import RUN
from runtime.engine.model.workflow import Workflow
from runtime.store import documents, runs
from runtime.store.views import load


class Gating(Struct):
    """Finds gates for one extension. ``known``: whether other workflows, by name and version, hold a gate."""

    connection: Connection
    definitions: Definitions
    tenant: str
    known: dict[tuple[str, int | None], bool] = field(default_factory=dict)

    async def ahead(self, view: RunView, graph: Graph) -> tuple[str, ...]:
        """The steps of the outermost list that are, or contain, a gate which the run has not passed yet.

        A child counts as a gate if it has a gate ahead, or if the version that would start now may reach one.
        """
        held = set[str]()
        for run_id, workflow in await runs.open_children(self.connection, view.run_id):
            if workflow not in held:
                below = await load(self.connection, run_id, self.definitions.graphs, tenant=self.tenant)
                within = await self.definitions.of_run(self.connection, below.definition)
                if await self.ahead(below, within.graph):
                    held.add(workflow)
        for child in children_in(graph):
            await self._look_into(child)
        return gates_ahead(graph, view.run.state, lambda child: child.workflow in held or self._holds(child))

    async def above(self, view: RunView) -> str | None:
        """Describe a gate that a run above this one has not passed yet, with that run's id; None if there is none."""
        parent = view.parent
        while parent is not None:
            up = await load(self.connection, parent, self.definitions.graphs, tenant=self.tenant)
            graph = (await self.definitions.of_run(self.connection, up.definition)).graph
            gates = gates_ahead(graph, up.run.state, lambda child: False)
            if gates and up.run.status not in RUN.terminal:
                return f"{gates[0]!r} of run {parent}"
            parent = up.parent
        return None

    async def _look_into(self, child: ChildNode) -> None:
        place = (child.workflow, child.version)
        if place in self.known:
            return
        self.known[place] = False  # a workflow that runs itself holds a gate only if the rest of it holds one
        try:
            stored = await documents.startable_workflow(self.connection, self.tenant, *place)
            graph = self.definitions.compiled(stored).graph
        except CountersealError:
            self.known[place] = True  # nobody knows which version will run when it starts
            return
        for inner in children_in(graph):
            await self._look_into(inner)
        self.known[place] = may_hold_gates(graph, self._holds)

    def _holds(self, child: ChildNode) -> bool:
        return self.known[child.workflow, child.version]


async def gates_of(
    gating: Gating, view: RunView, before: Workflow, after: Workflow, extension: ExtensionDocument
) -> tuple[tuple[str, ...], tuple[PolicyName, ...]]:
    """The gates that the new steps must come after, and the policies that let them come before gates ahead.

    ``after`` is the workflow with the new steps. ``InputError`` if a step before such a gate would have to wait for
    them.
    """
    gates, above = await gating.ahead(view, before.graph), await gating.above(view)
    if not gates and above is None:
        return (), ()
    early = await _early(gating, view, before, after)
    if early:
        return (), early
    if above is not None:
        words = f"The gate {above}, which waits for this run, is still ahead, and nothing is added before it."
        raise ConsistencyError(words, remedy="Add the steps to that run, or let a policy name their operations.")
    for name in extension.before:
        if gate := come_before(before.graph, gates, name):
            words = f"names {name!r}, and the gate {gate!r} is still ahead of it; what is added comes after every gate"
            remedy = "Leave `before` out, or name a policy's operations in `extensions: {before_gates: [...]}`."
            raise InputError(words, where="before", remedy=remedy)
    return gates, ()


async def _early(gating: Gating, view: RunView, before: Workflow, after: Workflow) -> tuple[PolicyName, ...]:
    """The policies that together name every operation of the new steps; empty if no policy names one of them."""
    policies = await gating.definitions.policies(gating.connection, gating.tenant, view.policies)
    found: dict[PolicyName, None] = {}
    for operation in _operations(before, after):
        allowed = () if operation in OPAQUE else policies.before_gates(view.workflow, operation)
        if not allowed:
            return ()
        found |= dict.fromkeys(allowed)
    return tuple(found)


def _operations(before: Workflow, after: Workflow) -> Iterable[str]:
    known = {node.id for node in before.graph.root.walk()}
    new = (node for node in after.graph.root.walk() if node.id not in known)
    return sorted({node.operation for node in new if isinstance(node, LeafNode)})
