"""An agent in a graph: its model, its instructions, its closed list of tools, its limits."""

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
    """The bounds of an agent. ``cost`` is in US dollars; None means no limit."""

    turns: int
    calls: int
    asks: int
    refusals: int
    tokens: int
    cost: str | None = None


class Remember(Struct, frozen=True):
    """The channel that carries turns over to later agents, and the most earlier turns that an agent is shown."""

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


class ModelInput:
    """The input of a call, as read from the model's text. It is data, never a template."""

    references = frozenset({GIVEN})

    def literals(self) -> JsonObject:
        """Return nothing: the input is not known before the model gives it."""
        return {}

    def word(self, path: tuple[str | int, ...]) -> str | None:
        """Return None: the document fixes no part of the model's input."""
        return None

    def render(self, values: Mapping[str, object]) -> Json:
        """The input."""
        return dict(cast(JsonObject, values[GIVEN]))


class EscapedInput(ModelInput):
    """The input of a call of an operation. A text in a query language is escaped, because a model wrote it.

    ``kept`` are the inputs that are not escaped: the author gives them, or lets the model write in their language.
    ``fixed`` are those that the author gives.
    """

    def __init__(self, languages: Languages, unescaped: Collection[str], fixed: Renderable | None = None) -> None:
        self._languages, self._unescaped, self._fixed = languages, frozenset(unescaped), fixed

    def word(self, path: tuple[str | int, ...]) -> str | None:
        """The text at this place if the author has fixed it."""
        return None if self._fixed is None else self._fixed.word(path)

    def render(self, values: Mapping[str, object]) -> Json:
        """The input, as it is proposed."""
        given = cast(JsonObject, values[GIVEN])
        return {
            name: item if name in self._unescaped else translated(item, self._languages, (name,))
            for name, item in given.items()
        }


class Question:
    """The words of a model's question to people, marked as its own."""

    references = frozenset({GIVEN})

    def literals(self) -> JsonObject:
        """Return nothing: the words are not known before the model gives them."""
        return {}

    def word(self, path: tuple[str | int, ...]) -> str | None:
        """Return None: the document fixes none of the model's words."""
        return None

    def render(self, values: Mapping[str, object]) -> Json:
        """The words."""
        return f"A model asks: {cast(JsonObject, values[GIVEN]).get('question')}"
