"""The channels by which agents remember earlier turns: they are checked, and bounded by whole turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from core.errors import nearest
from runtime.definition.compiler import GraphCompiler
from runtime.definition.model import ChannelDocument, WorkflowDocument
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.graph import Channel, Reducer


def with_memory(
    compiler: GraphCompiler, content: WorkflowDocument, channels: Mapping[str, Channel]
) -> Mapping[str, Channel]:
    """The channels; a channel of agents' turns keeps the largest number of turns that any agent is shown."""
    turns: dict[str, int] = {}
    for leaf in compiler.leaves.values():
        if isinstance(leaf, AgentNode) and leaf.remember is not None:
            name, path = leaf.remember.channel, (*compiler.place(leaf.id), "agent", "remember", "channel")
            declared = content.channels.get(name)
            if declared is None:
                remedy = nearest(name, content.channels, "Declared") or "None is declared."
                compiler.problem(path, f"There is no channel {name!r}.", remedy)
                continue
            turns[name] = max(turns.get(name, 0), leaf.remember.turns)
            if problem := _unfit(declared):
                remedy = f"Declare it as `{name}: {{reduce: union}}`, with `ledger: true` if all is to be kept."
                compiler.problem(path, f"The channel {name!r} cannot carry turns: {problem}.", remedy)
    for leaf in compiler.leaves.values():
        for name in leaf.sets.keys() & turns.keys():
            words = f"The channel {name!r} carries the turns of agents, so no step sets it."
            compiler.problem((*compiler.place(leaf.id), "set", name), words, "Set another channel.")
    if not turns:
        return channels
    bounded = {name: replace(channels[name], keep=most, turns=True) for name, most in turns.items() if name in channels}
    return {**channels, **bounded}


def _unfit(channel: ChannelDocument) -> str:
    """The reason why a channel cannot carry the turns of agents; "" if it can."""
    if channel.keep is not None:
        return "`remember` bounds it by whole turns, so it has no `keep` of its own"
    if channel.reduce is not Reducer.UNION:
        return f"it is folded by {channel.reduce}, which keeps no turns apart"
    return "it has an `initial` value, which is no turn" if channel.initial is not None else ""
