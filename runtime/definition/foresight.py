"""Foresight: the verdict of the policies on every step of a workflow before any run. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from connectors.operation import Operation
from core.canonical import JsonObject
from policy.facts import AGENT, PUBLISHED
from policy.foresee import Foreseen, foresee
from policy.sets import PolicySet
from runtime.definition.reserved import ACTION
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.graph import Node, OperationNode, Scope, scopes_of
from runtime.engine.model.workflow import Workflow


class StepForeseen(Struct, frozen=True):
    """One step of a workflow with the verdict on it; ``step`` is its id in the document.

    An agent has one verdict for its turns, and one for the calls of each tool (``step`` is ``AGENT/TOOL``).
    """

    step: str
    operation: str
    foreseen: Foreseen

    def to_json(self) -> JsonObject:
        """The step with its verdict as plain JSON."""
        return {"step": self.step, "operation": self.operation, **self.foreseen.to_json()}


def foresee_steps(workflow: Workflow, policies: PolicySet) -> list[StepForeseen]:
    """The verdict on every step that calls an operation, in document order. Policies do not judge other steps."""
    return [
        StepForeseen(step, operation, foresee(policies, workflow.name, operation, facts))
        for node, inside in _leaves(workflow.graph.root, inside=False)
        for step, operation, facts in _judged(workflow, node, inside=inside)
    ]


def foresee_call(policies: PolicySet, operation: Operation, account: str) -> Foreseen:
    """The verdict on each action that the agent of this service account may ask for."""
    facts = {
        **_of_operation(operation),
        "step.origin": AGENT,
        "agent.id": account,
    }
    return foresee(policies, ACTION, operation.name, facts)


def _of_operation(operation: Operation) -> dict[str, object]:
    return {
        "action.operation": operation.name,
        "action.connector": operation.connector,
        "action.risk": str(operation.risk),
        "action.side_effects": str(operation.side_effects),
    }


def _judged(workflow: Workflow, node: Node, *, inside: bool) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield each judged part of a node: the name of the step, its operation, and the facts known beforehand."""
    if isinstance(node, OperationNode):
        step = None if inside else node.id
        yield node.id, node.operation, fixed_facts(workflow, workflow.operations[node.operation], step)
    if isinstance(node, AgentNode):
        calls = {f"{node.id}/{name}": tool.operation for name, tool in node.tools.items() if tool.operation is not None}
        for step, operation in {node.id: workflow.operations[node.turn.operation], **calls}.items():
            known = fixed_facts(workflow, operation, None)
            facts = {name: fact for name, fact in known.items() if not name.startswith("agent.")}
            facts |= {"step.origin": AGENT, "agent.model": node.model}
            yield step, operation.name, facts if inside else {**facts, "agent.step": node.id}


def fixed_facts(workflow: Workflow, operation: Operation, step: str | None) -> dict[str, object]:
    """The facts that are the same in every run of this step. ``step`` is None in a loop, where keys differ."""
    facts: dict[str, object] = {
        **_of_operation(operation),
        "run.workflow": workflow.name,
        "run.version": workflow.version,
        "step.origin": PUBLISHED,
        "step.added_by": "",
        "step.added_by_text": "",
        "agent.step": "",
        "agent.id": "",
        "agent.owner": "",
        "agent.turn": 0,
        "agent.model": "",
        "agent.read": [],
        "actor.id": f"workflow:{workflow.name}",
        "actor.kind": "workflow",
    }
    return facts if step is None else {**facts, "run.step": step}


def _leaves(scope: Scope, *, inside: bool) -> Iterator[tuple[Node, bool]]:
    for node in scope.nodes:
        yield node, inside
        for below in scopes_of(node):
            yield from _leaves(below, inside=True)
