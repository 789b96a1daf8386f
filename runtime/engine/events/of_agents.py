"""The events of agents. The steps of turns and calls tell what a model says, and what becomes of its calls."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from core.canonical import Json, JsonObject
from evidence.events import EventType
from runtime.engine.events.private import Private


class AgentBegan(Struct, frozen=True):
    """An agent begins with ``messages``; its turns come next. ``tools`` are the sources of what the model may call.

    ``fixed`` are the inputs that the author fixed, by the tool's name.
    ``sources`` say where the messages come from: each an ``origin`` with its ``value``, or with the number of the
    ``message`` that it is. ``matching`` is the part of the tools' declarations by which origins are found.
    ``remembered`` are the turns of earlier agents that its model is shown first, each ``[run, step]``.
    """

    TYPE: ClassVar = EventType.AGENT_BEGAN
    model: str
    tools: list[Json]
    messages: Private[list[JsonObject] | None] = None
    fixed: Private[JsonObject | None] = None
    sources: Private[list[JsonObject] | None] = None
    matching: Private[JsonObject | None] = None
    remembered: Private[list[Json] | None] = None


class AgentAnswered(Struct, frozen=True):
    """The model's answer in a turn, taken apart: it calls tools, gives a result, or does not fit what is wanted.

    ``calls`` has one entry for each call, in its order: ``[source, ""]``, or ``[source, code]`` for one that is
    refused. ``said`` are the same calls with their values: id, tool, and input, or the reason of the refusal.
    ``problem`` says what is wrong with an answer, ``result`` is the agent's result.
    """

    TYPE: ClassVar = EventType.AGENT_ANSWERED
    came: str
    calls: list[Json]
    said: Private[list[JsonObject] | None] = None
    problem: Private[str | None] = None
    result: Private[Json] = None
