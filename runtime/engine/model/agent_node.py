"""An agent in a graph: its model, its words, its closed list of tools, its limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from msgspec import Struct

from connectors.operation import Operation
from core.canonical import Json, JsonObject
from core.templates import Languages, translated
from runtime.engine.model.agent_state import GIVEN
from runtime.engine.model.graph import AgentLeaf, ChildNode, Leaf, OperationNode, Renderable, TaskNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.tools import Tool


class Limits(Struct, frozen=True):
    """The bounds of an agent. ``cost`` is in US dollars; None is no limit of cost."""

    turns: int
    calls: int
    asks: int
    refusals: int
    tokens: int
    cost: str | None = None


class Remember(Struct, frozen=True):
    """The channel by which turns are carried over, and how many of them an agent is shown at most."""

    channel: str
    turns: int


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool, and the leaf of its calls. ``fixed`` are the inputs that the author gives."""

    tool: Tool
    leaf: OperationNode | TaskNode | ChildNode
    fixed: Renderable
    operation: Operation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentNode(AgentLeaf):
    """A leaf that is an agent. ``turn`` is the leaf of each of its turns."""

    model: str
    instructions: Renderable
    input: Renderable
    turn: OperationNode
    tools: Mapping[str, AgentTool]
    limits: Limits
    result: JsonObject | None = None
    fails_at_limit: bool = False
    fails_if_denied: bool = False
    timeout: timedelta | None = None
    remember: Remember | None = None

    def inner(self, key: StepKey, tool: str | None) -> Leaf:
        """The leaf of a turn (``3``), or of a call (``3/2``) of this tool."""
        return self.turn if tool is None or not key.is_call else self.tools[tool].leaf


class Given:
    """The input of a call, as it was read from what the model wrote. It is data, never a template."""

    references = frozenset({GIVEN})

    def literals(self) -> JsonObject:
        """No input is known before a model gives it."""
        return {}

    def word(self, path: tuple[str | int, ...]) -> str | None:
        """Nothing that a model gives is a document's."""
        return None

    def render(self, values: Mapping[str, object]) -> Json:
        """The input."""
        return dict(cast(JsonObject, values[GIVEN]))


class Spoken(Given):
    """The input of a call of an operation: escaped where a text has a language, because a model wrote it.

    ``kept`` are the inputs that the author gives, or lets the model write in their language. ``fixed`` are those that
    the author gives.
    """

    def __init__(self, languages: Languages, kept: Collection[str], fixed: Renderable | None = None) -> None:
        self._languages, self._kept, self._fixed = languages, frozenset(kept), fixed

    def word(self, path: tuple[str | int, ...]) -> str | None:
        """The text at this place if the author has fixed it."""
        return None if self._fixed is None else self._fixed.word(path)

    def render(self, values: Mapping[str, object]) -> Json:
        """The input, as it is proposed."""
        given = cast(JsonObject, values[GIVEN])
        return {
            name: item if name in self._kept else translated(item, self._languages, (name,))
            for name, item in given.items()
        }


class Question:
    """The words of a model's question to people, marked as its own."""

    references = frozenset({GIVEN})

    def literals(self) -> JsonObject:
        """No word is known before a model says it."""
        return {}

    def word(self, path: tuple[str | int, ...]) -> str | None:
        """Nothing that a model says is a document's."""
        return None

    def render(self, values: Mapping[str, object]) -> Json:
        """The words."""
        return f"A model asks: {cast(JsonObject, values[GIVEN]).get('question')}"
