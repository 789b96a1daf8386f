"""The facts by which policy judges an action of a step, from the run as it is now. Pure.

Origins of values are worked out only if a rule reads them, or an agent's model made the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from core.action import Action
from core.canonical import Json, JsonObject, digest
from policy.facts import FactContext
from policy.sets import Applying, PolicySet
from runtime.engine.book import edits
from runtime.engine.book.agent_chat import Chat
from runtime.engine.book.instructions import Next, StartRun
from runtime.engine.book.plan import variables
from runtime.engine.life.transition import Transition
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.graph import ChildNode, ContinueNode, Leaf, OperationNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import StepRow
from runtime.engine.model.run import RunView
from runtime.engine.model.traces import Trace
from runtime.engine.model.workflow import Workflow
from runtime.engine.origins import tracing
from runtime.engine.origins.agent import AgentFacts, facts_of_agent, handed_by_model, trace_call
from runtime.engine.origins.follow import Follower, carried, follower_of, following, starter_of

NO_AGENT = AgentFacts("", 0, "")
NOTHING: Mapping[str, object] = MappingProxyType({})


def further_facts(
    transition: Transition,
    step: StepRow,
    workflow: Workflow,
    applying: Applying,
    action: Action,
    context: FactContext,
    chat: Chat | None,
) -> tuple[FactContext, Mapping[str, object]]:
    """The facts that only some actions need: about equal calls, about an agent, about origins.

    ``chat`` holds the messages of an agent's model, if that model proposed the action.
    """
    node = transition.graph.leaf(StepKey.of(step.key).agent) if StepKey.of(step.key).is_inner else None
    agent = facts_of_agent(node, step, chat) if isinstance(node, AgentNode) else NO_AGENT
    traced: Mapping[str, object] = NOTHING
    if step.key in transition.traces:
        known = transition.traces[step.key]
        traced, agent = known.facts, replace(agent, read=known.read)
    elif applying.traces or (agent.step and not StepKey.of(step.key).is_turn):
        trace = transition.traces[step.key] = trace_of(transition, step, workflow, action, chat)
        traced = trace.facts
    complete = replace(
        context,
        same_in_run=others_of(transition, step, action) if applying.recounts else 0,
        agent_step=agent.step,
        agent_turn=agent.turn,
        agent_model=agent.model,
        agent_read=agent.read,
    )
    return complete, traced


UNCOUNTED: Mapping[str, int | None] = {"asked": 0, "refused": 0, "same": 0}


def counted_of(view: RunView) -> Mapping[str, int | None]:
    """The agent's counters at the time of its request; each is None if the run's release did not count."""
    stored = view.run.trigger.get("counted")
    found: JsonObject = stored if isinstance(stored, dict) else {}
    return {name: number if isinstance(number := found.get(name), int) else None for name in UNCOUNTED}


def call_of(action: Action) -> str:
    """The digest of a call: equal for equal inputs of one operation, in whichever step."""
    return digest([action.operation, action.input])[:32]


def others_of(transition: Transition, step: StepRow, action: Action) -> int:
    """The number of other steps whose equal call was let out, in this run and all runs of its family."""
    call, own = call_of(action), f"{transition.view.run_id}:"
    known = () if transition.view.family is None else transition.view.family.same.get(call, ())
    return len({*known, *(own + key for key in transition.run.same.get(call, ()))} - {own + step.key})


def trace_of(transition: Transition, step: StepRow, workflow: Workflow, action: Action, chat: Chat | None) -> Trace:
    """The origins of the arguments of this step's action."""
    return trace_by(following(transition, step, workflow), step, transition.leaf(step.key), action, chat)


def trace_by(follower: Follower, step: StepRow, leaf: Leaf, action: Action, chat: Chat | None) -> Trace:
    """The origins of the arguments of this step's action, found by a follower of its run."""
    node = follower.graph.leaf(StepKey.of(step.key).agent)
    if isinstance(node, AgentNode):
        return trace_call(follower, node, step, chat, action)
    assert isinstance(leaf, OperationNode), "policy judges what calls an operation"
    traced = tracing.trace(follower, leaf.id, leaf.inputs, follower.operations[action.operation], action)
    return edits.retraced(traced, edits.of_step(follower.run, step.key))


def handed_on(
    transition: Transition, work: Next, workflow: Workflow, policy: PolicySet, chat: Chat | None = None
) -> Next:
    """Add the origins of another run's input to the order to start that run, if a rule in force reads origins."""
    if not isinstance(work, StartRun) or not policy.traces:
        return work
    follower, leaf = following(transition, work.step, workflow), transition.leaf(work.step.key)
    node = transition.graph.leaf(StepKey.of(work.step.key).agent)
    assert isinstance(leaf, ChildNode | ContinueNode), "nothing else starts runs"
    if isinstance(node, AgentNode):
        given = handed_by_model(follower, node, work.step, chat, work.inputs)
    else:
        given = follower.template(leaf.inputs, leaf.id)
    facts: JsonObject = {"trigger": carried(given)}
    for name in work.inherited:
        facts[f"state.{name}"] = carried((((), follower.path(f"state.{name}", leaf.id)),))
    return replace(work, origins=facts)


def result_origins(view: RunView, workflow: Workflow) -> list[Json]:
    """The origins of a run's result, by path in the result."""
    graph = workflow.graph
    starter = starter_of(view.trigger_type, view.run.requested_by, view.directory)
    follower = follower_of(view.run, graph, starter, workflow, variables(graph, view.run.state, view.constants, ""))
    return carried(follower.template(graph.result, "")) if graph.result is not None else []
