"""The turns of earlier agents that an agent is shown: a channel carries references to them, never their words. Pure.

Each reference is ``[run, step]``: a whole turn, with the results of all its calls. An agent that ends well adds its
own turns; the next one is shown the newest. The words stay in the book of their run, and are erased with it. A child
run that has inherited the channel reads them there, but only from the runs above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from core.canonical import Json
from runtime.engine.agent_node import AgentNode
from runtime.engine.agent_state import agent_of
from runtime.engine.events import AgentBegan
from runtime.engine.told import Told


def recalled(node: AgentNode, seen: Mapping[str, object]) -> list[Json]:
    """References to the turns that an agent is shown first: the newest that its channel has."""
    if node.remember is None:
        return []
    held = cast("list[Json]", seen[f"state.{node.remember.channel}"])
    return held[-node.remember.turns :]


def wanted(told: Iterable[Told], key: str) -> list[tuple[str, str]]:
    """The agents whose turns the agent with this key was shown first: each by its run and its key."""
    refs: list[Json] = []
    for each in told:
        if each.step == key and isinstance(each.event, AgentBegan):
            refs = each.event.remembered or []
    return [*dict.fromkeys((one, agent_of(step)) for one, step in map(pair, refs))]


def pair(ref: Json) -> tuple[str, str]:
    """The run and the step of a reference; two empty texts if it is none."""
    match ref:
        case [str(run), str(step)]:
            return run, step
        case _:
            return "", ""
