"""A turn: a call of the model with all messages so far. Policy judges them by their digest. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from core.canonical import Json, JsonObject
from runtime.engine.book.agent_chat import messages
from runtime.engine.book.instructions import Next, Over, Perform, ReadChat
from runtime.engine.book.recorded import Diverged
from runtime.engine.life.intend import Proposal
from runtime.engine.life.outside import own_token
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.agent_state import GIVEN, Agent
from runtime.engine.model.errors import ErrorClass, StepError
from runtime.engine.model.graph import HANDED_OUT, Graph, OperationNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import StepRow
from runtime.engine.model.run import Run

_LOST = StepError(
    ErrorClass.CONSISTENCY, "not_remembered", "Turns of an earlier agent are not there any more: they were erased."
)
OWN = frozenset({HANDED_OUT, GIVEN})


def own_values(run: Run, graph: Graph, step: StepRow, leaf: OperationNode) -> JsonObject:
    """The values that only this step's input may read: its waiting token, and what a model has given to it."""
    read = leaf.inputs.references
    found: JsonObject = {HANDED_OUT: own_token(run, step)} if HANDED_OUT in read else {}
    return {**found, GIVEN: _given_to(run, graph, step.key)} if GIVEN in read else found


def _given_to(run: Run, graph: Graph, key: str) -> JsonObject:
    """The input of a call, as the model gave it; for a turn, its input as judged, with a digest for the messages."""
    if not StepKey.of(key).is_turn:
        return run.spoken[key].input or {}
    agent = run.state.agents[StepKey.of(key).agent]
    words = f"The messages of {agent.turn - agent.first} turns before, SHA-256 {agent.digest}"
    return {**_settings(_node(graph, key), agent), "messages": [{"role": "user", "content": words}]}


def turn(p: Proposal, propose: Callable[[Proposal], Next]) -> Next:
    """Read the messages, propose the turn, and put them into its call.

    ``Diverged`` if they are not those of the run.
    """
    chat, node = p.known.chat, _node(p.transition.graph, p.step.key)
    agent = p.transition.run.state.agents.get(StepKey.of(p.step.key).agent)
    if chat is None:
        return ReadChat(p.step, StepKey.of(p.step.key).agent, p.known)
    if chat.lost:
        p.transition.fail(p.step, _LOST.to_json())
        return Over()
    work = propose(p)
    if not isinstance(work, Perform) or agent is None:
        return work
    if chat.digest != agent.digest:
        raise Diverged("the messages of an agent are not those that its run has counted")
    said: list[Json] = [*messages(node, chat, agent.limit)]
    return replace(work, call=replace(work.call, input={**_settings(node, agent), "messages": said}))


def _node(graph: Graph, key: str) -> AgentNode:
    node = graph.leaf(StepKey.of(key).agent)
    assert isinstance(node, AgentNode), "only an agent has turns"
    return node


def _settings(node: AgentNode, agent: Agent) -> JsonObject:
    offered: list[Json] = [] if agent.limit else [tool.tool.offer() for tool in node.tools.values()]
    settings: JsonObject = {"model": node.model}
    return {**settings, "tools": offered} if offered else settings
