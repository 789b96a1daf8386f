"""Origins of what an agent's model says: matched with what it was shown before it said so. Pure.

Sources are the agent's first messages, as it was told when it began where they come from, and the results of calls
that were done. Whatever the model said before stays its own, and what it was told of refused calls is no source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from connectors.marks import kind_at, records_of
from connectors.operation import Operation
from core.action import Action
from core.bounded_json import parse_object
from core.canonical import Json, JsonObject, digest
from core.errors import InputError
from core.origins.expressions import Origins, distinct, under
from core.origins.leaves import pointed
from core.origins.matching import MODEL, PERSON, UNKNOWN, VERSION, WORKFLOW, Matcher
from policy.facts import CARRIES, ORIGIN
from policy.sets import PolicySet
from runtime.engine.agent_came import masked
from runtime.engine.agent_chat import Chat, Shown
from runtime.engine.agent_given import weakest
from runtime.engine.agent_node import AgentNode
from runtime.engine.agent_state import agent_of, is_turn, number_of
from runtime.engine.commit import StepRow
from runtime.engine.graph import ChildNode, Leaf, OperationNode
from runtime.engine.instructions import Known, ReadChat
from runtime.engine.origins import Follower, Traced, listed
from runtime.engine.tools import ToolKind
from runtime.engine.tracing import Trace


class AgentFacts(Struct, frozen=True):
    """The facts about the agent that proposes an action. ``read``: operations whose results its model has seen."""

    step: str
    turn: int
    model: str
    read: tuple[str, ...] = ()


def chat_first(step: StepRow, leaf: Leaf, known: Known, policy: PolicySet) -> ReadChat | None:
    """The order to read what a model was shown first, where it has said what this step would do."""
    if "/" not in step.key or is_turn(step.key) or known.chat is not None:
        return None
    counts = isinstance(leaf, OperationNode) or (isinstance(leaf, ChildNode) and policy.traces)
    return ReadChat(step, agent_of(step.key), known) if counts else None


def facts_of_agent(node: AgentNode, step: StepRow, chat: Chat | None) -> AgentFacts:
    """The facts about the agent of this turn or call."""
    key, (turn, _) = agent_of(step.key), number_of(step.key)
    seen = [] if chat is None else chat.before(f"{key}/{turn}")
    return AgentFacts(key, turn, node.model, read_of(node, seen))


def read_of(node: AgentNode, seen: Sequence[Shown]) -> tuple[str, ...]:
    """The operations whose results the model has seen, sorted."""
    done = [one for one in seen if one.role == "tool" and not one.refused and _is_operation(node, one)]
    return tuple(sorted({one.source for one in done}))


def trace_call(follower: Follower, node: AgentNode, step: StepRow, chat: Chat | None, action: Action) -> Trace:
    """The origins of the arguments of a call, or of a turn; unknown where nobody knows what the model was shown."""
    operation, key, (turn, call) = follower.operations[action.operation], agent_of(step.key), number_of(step.key)
    seen = None if chat is None else chat.before(f"{key}/{turn}")
    matcher = None if seen is None else matcher_of(follower, node, chat, seen)
    fixed = _fixed(follower, node, step, chat)
    facts: dict[str, list[list[str]] | list[str]] = {}
    told: JsonObject = {}
    for name in sorted(operation.arguments):
        found, carried, value = Origins(), list[str](), None
        for path, value in _values(operation, action, name):
            if not call:
                found += [[WORKFLOW]] if path[0] in ("model", "tools") else [[UNKNOWN]]
            elif path[0] in operation.params or under(fixed, path):
                found += under(fixed, path) or [[WORKFLOW]]
            elif matcher is None:
                found, carried = [*found, [UNKNOWN]], [UNKNOWN]
            else:
                kind = kind_at(operation.input_schema, path)
                found += matcher.origins(value, kind, known=_names(operation.input_schema))
                carried += matcher.carries(value)
        facts |= {f"{ORIGIN}{name}": distinct(found), f"{CARRIES}{name}": sorted({*carried})}
        if found:
            told[name] = {"origins": listed(distinct(found)), "digest": digest(value)}
    shown: Json = None if chat is None or seen is None else shown_digest(seen)
    return Trace(
        facts,
        {"matcher": VERSION, "turn": f"{key}/{turn}", "shown": shown, "arguments": told},
        True,
        read_of(node, seen or ()),
    )


def handed_by_model(
    follower: Follower, node: AgentNode, step: StepRow, chat: Chat | None, inputs: JsonObject
) -> Traced:
    """The origins of what a call hands to another run, by its top names."""
    fixed = _fixed(follower, node, step, chat)
    if chat is None:
        return tuple(((name,), [[UNKNOWN]]) for name in inputs)
    key, (turn, _) = agent_of(step.key), number_of(step.key)
    matcher = matcher_of(follower, node, chat, chat.before(f"{key}/{turn}"))
    return tuple(((name,), under(fixed, (name,)) or matcher.origins(value)) for name, value in inputs.items())


def matcher_of(follower: Follower, node: AgentNode, chat: Chat | None, seen: Sequence[Shown]) -> Matcher:
    """A matcher that knows what the model was shown, in its order."""
    matcher, own = Matcher(), dict[str, bool]()
    beginning = [one for one in seen if not one.step]
    for source in [] if chat is None else chat.sources:
        at: Any = source.get("message")
        value = source.get("value") if at is None else beginning[at].value
        _given(matcher, str(source["origin"]), value)
    for number, one in enumerate(beginning):
        if number > 1:  # remembered of an earlier run: nobody told where it comes from
            _given(matcher, MODEL if one.role == "assistant" else UNKNOWN, one.value)
    for one in seen[len(beginning) :]:
        if one.role == "assistant":
            own |= _said(matcher, one.value, one.step)
        elif one.role == "tool" and not one.refused:
            _shown(matcher, follower, node, one, own=own.get(one.step, False))
    return matcher


def shown_digest(seen: Sequence[Shown]) -> str:
    """The digest of everything that the model was shown, in its order."""
    return digest([[one.role, one.step, one.came, one.source, one.value] for one in seen])


def _given(matcher: Matcher, origin: str, value: Json) -> None:
    if origin == MODEL:
        matcher.said(value)
    else:
        matcher.given(origin, value)


def _said(matcher: Matcher, output: Json, step: str) -> dict[str, bool]:
    """Take in an answer: by the step of each call, if all of it is in the requester's words."""
    said: Mapping[str, Any] = output if isinstance(output, dict) else {}
    matcher.said(said.get("text"))
    own = {}
    for number, call in enumerate(said.get("tool_calls") or (), start=1):
        own[f"{step}/{number}"] = matcher.said(_arguments(str(call["function"]["arguments"])))
    return own


def _arguments(text: str) -> Json:
    try:
        return parse_object(text.encode(errors="replace"), where="arguments") if text.strip() else {}
    except InputError:
        return text


def _shown(matcher: Matcher, follower: Follower, node: AgentNode, one: Shown, *, own: bool) -> None:
    """Take in the result of a call that was done, as the model was shown it."""
    tool = node.tools.get(one.tool)
    if tool is None:
        matcher.withheld()
    elif tool.operation is not None:
        schema = tool.operation.output_schema
        value = masked(schema, schema, one.value)
        matcher.shown(tool.operation.name, value, records=records_of(schema), own=own)
    elif tool.tool.kind is ToolKind.PEOPLE:
        matcher.given(PERSON, one.value)
    else:
        carried: Any = follower.run.state.origins.get(one.step)
        parts = [(path, origins) for path, origins in carried or ()]
        for path, origins in parts or [((), [[UNKNOWN]])]:
            _given(matcher, weakest(origins), pointed(one.value, "".join(f"/{part}" for part in path)))


def _fixed(follower: Follower, node: AgentNode, step: StepRow, chat: Chat | None) -> Traced:
    """The origins of what the author has fixed for the tool of this call."""
    spoken = follower.run.spoken.get(step.key)
    tool = node.tools.get(spoken.tool) if spoken is not None else None
    return () if tool is None else tuple(one for one in follower.template(tool.fixed, node.id) if one[0])


def _values(operation: Operation, action: Action, name: str) -> Iterator[tuple[tuple[str, ...], Json]]:
    if name in action.input:
        yield (name,), action.input[name]
    if isinstance(operation.writes, str) and name in action.fields:
        yield (operation.writes, name), action.fields[name]


def _names(schema: Json) -> frozenset[str]:
    """The names of all properties that a schema declares."""
    found = set[str]()
    if isinstance(schema, dict):
        properties = schema.get("properties")
        found.update(properties if isinstance(properties, dict) else ())
        for item in schema.values():
            found |= _names(item)
    elif isinstance(schema, list):
        for item in schema:
            found |= _names(item)
    return frozenset(found)


def _is_operation(node: AgentNode, one: Shown) -> bool:
    tool = node.tools.get(one.tool)
    return tool is not None and tool.operation is not None
