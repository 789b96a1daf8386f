"""The steps of an agent: a turn calls the model, and a call does what the model asked for. Pure.

``around`` is the one place where the life of a step treats agents specially. Policy judges a turn by the digest of its
messages.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from core.canonical import Json
from runtime.engine.book.agent_chat import messages
from runtime.engine.book.instructions import Next, Over, Perform, ReadChat
from runtime.engine.book.recorded import Diverged
from runtime.engine.life.proposal import Leased, agent_node, settings
from runtime.engine.model.errors import ErrorClass, StepError
from runtime.engine.model.graph import ChildNode, Leaf, OperationNode
from runtime.engine.model.keys import StepKey

_LOST = StepError(
    ErrorClass.CONSISTENCY, "not_remembered", "Turns of an earlier agent are not there any more: they were erased."
)


def around(leased: Leased, leaf: Leaf, go_on: Callable[[Leased, Leaf], Next]) -> Next:
    """Go on with a step. An agent's step first needs its model's messages, and a turn puts them into its call."""
    key = StepKey.of(leased.step.key)
    if key.is_turn and leased.transition.view.run.canceling is None:
        return _turn(leased, leaf, go_on)
    if key.is_call and leased.known.chat is None and _needs_chat(leased, leaf):
        return ReadChat(leased.step, key.agent, leased.known)
    return go_on(leased, leaf)


def _needs_chat(leased: Leased, leaf: Leaf) -> bool:
    """True if the messages may be needed, to find the origins of a call's input."""
    return isinstance(leaf, OperationNode) or (isinstance(leaf, ChildNode) and leased.policy.traces)


def _turn(leased: Leased, leaf: Leaf, go_on: Callable[[Leased, Leaf], Next]) -> Next:
    """Read the messages, propose the turn, and put them into its call.

    ``Diverged`` if they are not those of the run.
    """
    transition, step, chat = leased.transition, leased.step, leased.known.chat
    key = StepKey.of(step.key)
    node, agent = agent_node(transition.graph, step.key), transition.run.state.agents.get(key.agent)
    if chat is None:
        return ReadChat(step, key.agent, leased.known)
    if chat.lost:
        transition.fail(step, _LOST.to_json())
        return Over()
    work = go_on(leased, leaf)
    if not isinstance(work, Perform) or agent is None:
        return work
    if chat.digest != agent.digest:
        raise Diverged("the messages of an agent are not those that its run has counted")
    conversation: list[Json] = [*messages(node, chat, agent.limit)]
    return replace(work, call=replace(work.call, input={**settings(node, agent), "messages": conversation}))
