"""The facts by which policy judges an action of a step, from the run as it is now. Pure.

Where values come from is worked out only where a rule reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from core.action import Action
from core.canonical import Json, JsonObject, digest
from core.identity import Directory, Kind, Standing, principal
from core.origins.matching import REQUESTER
from policy.evaluate import build_facts
from policy.facts import FactContext
from policy.sets import PolicySet
from runtime.engine import contributors, tracing
from runtime.engine.commit import StepRow
from runtime.engine.graph import ChildNode, ContinueNode, OperationNode
from runtime.engine.instructions import Next, StartRun
from runtime.engine.origins import Follower, carried, follower_of
from runtime.engine.plan import variables
from runtime.engine.run import RunView
from runtime.engine.transition import Transition
from runtime.engine.workflow import Workflow

# How a run starts if somebody who was authenticated has ordered it, and gave its input.
_BY_PEOPLE = frozenset({"http", "cli"})
_BY_RUNS = "workflow"


def facts_of(
    transition: Transition, step: StepRow, workflow: Workflow, policy: PolicySet, action: Action, writes: int
) -> dict[str, object]:
    """Everything that policy may know of what this step would do. ``writes`` are those of the run before it."""
    view, run = transition.view, transition.run
    applying = policy.applying(view.workflow, action.operation)
    traced: Mapping[str, object] = {}
    if applying.traces:
        trace = transition.traces[step.key] = trace_of(transition, step, workflow, action)
        traced = trace.facts
    context = FactContext(
        run_workflow=view.workflow,
        run_version=view.workflow_version,
        run_id=str(view.run_id),
        run_reference=view.run.reference,
        run_requested_by=view.run.requested_by,
        run_trigger=view.trigger_type,
        run_step=step.key,
        step_added_by=contributors.added_by(run.state, step.key) if run.state.shaped else "",
        actor_id=f"workflow:{view.workflow}",
        actor_kind="workflow",
        writes_in_run=writes,
        same_in_run=others_of(transition, step, action) if applying.recounts else 0,
        refused_in_run=run.refused,
        asked_in_run=run.asked,
        tenant_id=view.tenant_id,
        tenant_workspace=view.workspace_id,
    )
    return build_facts(action, context, traced)


def call_of(action: Action) -> str:
    """The digest of a call: equal for equal inputs of one operation, whoever makes it."""
    return digest([action.operation, action.input])[:32]


def others_of(transition: Transition, step: StepRow, action: Action) -> int:
    """The number of other steps of this run that were let out with the very same call."""
    return len({*transition.run.same.get(call_of(action), ())} - {step.key})


def trace_of(transition: Transition, step: StepRow, workflow: Workflow, action: Action) -> tracing.Trace:
    """The origins of the arguments of what this step would do."""
    leaf = transition.graph.leaf(step.key)
    assert isinstance(leaf, OperationNode), "policy judges what calls an operation"
    operation = workflow.operations[action.operation]
    return tracing.trace(following(transition, step, workflow), leaf.id, leaf.inputs, operation, action)


def starter_of(trigger_type: str, requester: str, directory: Directory) -> str:
    """The origin of what a run was started with; "" if another run has started it, which tells the origins itself.

    What a service account sends, no person gave.
    """
    if trigger_type == _BY_RUNS:
        return ""
    entry = directory.entry(principal(Kind.PERSON, requester)) or directory.entry(requester)
    is_machine = entry is not None and entry.standing is Standing.MACHINE
    return REQUESTER if trigger_type in _BY_PEOPLE and not is_machine else f"trigger:{trigger_type}"


def following(transition: Transition, step: StepRow | None, workflow: Workflow | None) -> Follower:
    """A follower of the origins that the expressions of a step see; of no step those of the run's result."""
    view, key = transition.view, "" if step is None else step.key
    starter = starter_of(view.trigger_type, view.run.requested_by, view.directory)
    return follower_of(transition.run, transition.graph, starter, workflow, transition.variables(key))


def handed_on(transition: Transition, work: Next, workflow: Workflow, policy: PolicySet) -> Next:
    """An order to start another run, with the origins of what it is given, where a rule in force reads any."""
    if not isinstance(work, StartRun) or not policy.traces:
        return work
    leaf = transition.graph.leaf(work.step.key)
    assert isinstance(leaf, ChildNode | ContinueNode), "nothing else starts runs"
    follower = following(transition, work.step, workflow)
    told: JsonObject = {"trigger": carried(follower.template(leaf.inputs, leaf.id))}
    for name in work.inherited:
        told[f"state.{name}"] = carried((((), follower.path(f"state.{name}", leaf.id)),))
    return replace(work, origins=told)


def result_origins(view: RunView, workflow: Workflow) -> list[Json]:
    """The origins of what a run has come to, by the paths in it."""
    graph = workflow.graph
    starter = starter_of(view.trigger_type, view.run.requested_by, view.directory)
    follower = follower_of(view.run, graph, starter, workflow, variables(graph, view.run.state, view.constants, ""))
    return carried(follower.template(graph.result, "")) if graph.result is not None else []


def told_of(transition: Transition, step: StepRow) -> JsonObject | None:
    """The origins of what this step would do as the book tells them; None where nobody has asked for them."""
    trace = transition.traces.get(step.key)
    return None if trace is None else trace.told
