"""Foresight: what the policies make of every step of a workflow, before any run. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from connectors.operation import Operation
from core.canonical import JsonObject
from policy.facts import PUBLISHED
from policy.foresee import Foreseen, foresee
from policy.sets import PolicySet
from runtime.engine.graph import OperationNode, Scope, scopes_of
from runtime.engine.workflow import Workflow


class StepForeseen(Struct, frozen=True):
    """One step of a workflow with what becomes of it; ``step`` is its id in the document."""

    step: str
    operation: str
    foreseen: Foreseen

    def told(self) -> JsonObject:
        """The step with its verdict as plain JSON."""
        return {"step": self.step, "operation": self.operation, **self.foreseen.to_json()}


def foresee_steps(workflow: Workflow, policies: PolicySet) -> list[StepForeseen]:
    """Every step that calls an operation, in the document's order: gates, timers and children are judged by none."""
    return [
        StepForeseen(
            node.id,
            node.operation,
            foresee(
                policies,
                workflow.name,
                node.operation,
                fixed_facts(workflow, workflow.operations[node.operation], None if inside else node.id),
            ),
        )
        for node, inside in _leaves(workflow.graph.root, inside=False)
    ]


def fixed_facts(workflow: Workflow, operation: Operation, step: str | None) -> dict[str, object]:
    """The facts that are the same in every run of this step. One inside a loop has another key each time."""
    facts: dict[str, object] = {
        "action.operation": operation.name,
        "action.connector": operation.connector,
        "action.risk": str(operation.risk),
        "action.side_effects": str(operation.side_effects),
        "run.workflow": workflow.name,
        "run.version": workflow.version,
        "step.origin": PUBLISHED,
        "step.added_by": "",
        "agent.step": "",
        "agent.turn": 0,
        "agent.model": "",
        "agent.read": [],
        "actor.id": f"workflow:{workflow.name}",
        "actor.kind": "workflow",
    }
    return facts if step is None else {**facts, "run.step": step}


def _leaves(scope: Scope, *, inside: bool) -> Iterator[tuple[OperationNode, bool]]:
    for node in scope.nodes:
        if isinstance(node, OperationNode):
            yield node, inside
        for below in scopes_of(node):
            yield from _leaves(below, inside=True)
