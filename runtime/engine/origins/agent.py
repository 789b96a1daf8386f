"""The origins of what an agent's model writes, found by matching it with the messages before it. Pure.

Sources are the agent's first messages, with the origins that were recorded when it began, and the results of calls that
were done. Values that only the model itself wrote before keep the model as their origin. The messages about refused
calls are no source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from connectors.marks import kept_of, kind_at, records_of
from connectors.operation import Operation
from connectors.proposal import writes_of
from core.action import Action
from core.canonical import Json, JsonObject
from core.origins.conversation import Passage, calls_of
from core.origins.expressions import under
from core.origins.ingredients import Origins, distinct
from core.origins.kinds import ArgumentKind
from core.origins.leaves import pointed
from core.origins.matching import MODEL, PERSON, REQUESTER, UNKNOWN, VERSION, WORKFLOW
from core.origins.repeats import Path
from core.templates import Template
from policy.facts import CARRIES, ORIGIN
from runtime.engine.book.agent_chat import Chat, Conversation, Shown, schema_of
from runtime.engine.book.agent_result import HIDDEN, masked
from runtime.engine.book.draft import Draft
from runtime.engine.model.agent_node import AgentNode, AgentTool
from runtime.engine.model.agent_state import CallResult
from runtime.engine.model.events import AgentBegan
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import StepRow
from runtime.engine.model.tools import ToolKind
from runtime.engine.model.traces import Trace
from runtime.engine.origins.follow import TOOL, Follower, Traced, following, listed
from runtime.engine.origins.tracing import value_at


class AgentFacts(Struct, frozen=True):
    """The facts about the agent that proposes an action. ``read``: the operations whose results its model has seen."""

    step: str
    turn: int
    model: str
    read: tuple[str, ...] = ()


def facts_of_agent(node: AgentNode, step: StepRow, chat: Chat | None) -> AgentFacts:
    """The facts about the agent of this turn or call."""
    key = StepKey.of(step.key)
    seen = [] if chat is None else chat.before(key.in_turn)
    return AgentFacts(key.agent, key.turn, node.model, read_of(node, seen))


def read_of(node: AgentNode, seen: Sequence[Shown]) -> tuple[str, ...]:
    """The operations whose results the model has seen, sorted."""
    done = [one for one in seen if one.role == "tool" and not one.past and not one.refused and _is_operation(node, one)]
    past = {one.operation for one in seen if one.past and one.operation and not one.refused}
    return tuple(sorted({one.source for one in done} | past))


def trace_call(follower: Follower, node: AgentNode, step: StepRow, chat: Chat | None, action: Action) -> Trace:
    """The origins of the arguments of a call, or of a turn; unknown if the messages of the model are not known."""
    operation, at = follower.operations[action.operation], StepKey.of(step.key)
    key, turn, call = at.agent, at.turn, at.call
    values = follower.run.spoken.get(step.key) if call else None
    if values is not None and values.input:
        # The model's text is matched before it is escaped and made canonical, because a verifier has only that text.
        raw = {name: _as_written(values.input, name, value) for name, value in action.input.items()}
        action = replace(action, input=raw, fields=writes_of(operation, raw) if raw != action.input else action.fields)
    known = None if chat is None else known_of(follower, node, step, chat)
    fixed = _fixed(follower, node, step, chat)
    own = {} if not call else _matched(operation, action, known, fixed, _sibling_arguments(node, step, chat))
    facts: dict[str, list[list[str]] | list[str]] = {}
    origins: JsonObject = {}
    for name in sorted(operation.arguments):
        found, carried, matched, authored = Origins(), list[str](), list[Json](), Origins()
        for path, value in _values(operation, action, name):
            if not call:
                found += [[WORKFLOW]] if path[0] in ("model", "tools") else [[UNKNOWN]]
            elif path[0] in operation.params or under(fixed, path):
                authored += under(fixed, path) or [[WORKFLOW]]
            elif known is None:
                found, carried = [*found, [UNKNOWN]], [UNKNOWN]
            else:
                matched.append([*path])
                found += own[path]
                carried += known.matcher.carries(value)
        found += authored
        facts |= {f"{ORIGIN}{name}": distinct(found), f"{CARRIES}{name}": sorted({*carried})}
        if found:
            origins[name] = {"origins": listed(distinct(found)), "matched": matched, "fixed": listed(authored)}
    seen = () if chat is None else chat.before(f"{key}/{turn}")
    shown = None if known is None else known.shown
    book: JsonObject = {"matcher": VERSION, "turn": f"{key}/{turn}", "shown": shown, "arguments": origins}
    return Trace(facts, book, True, read_of(node, seen))


def _as_written(given: JsonObject, name: str, proposed: Json) -> Json:
    """An argument as the model wrote it; if its type has changed since, the proposed value."""
    written = given.get(name)
    return written if type(written) is type(proposed) else proposed


def _matched(
    operation: Operation, action: Action, known: Conversation | None, fixed: Traced, siblings: Iterable[JsonObject]
) -> Mapping[Path, Origins]:
    """The origins of the values that the model gave to a call, without origins that earlier calls have used up."""
    if known is None:
        return {}
    given: dict[Path, Json] = {}
    for name in operation.arguments:
        given |= dict(_values(operation, action, name))
    given = {path: value for path, value in given.items() if path[0] not in operation.params and not under(fixed, path)}
    schema, names = operation.input_schema, _names(operation.input_schema)
    found = {
        path: known.matcher.origins(value, kind_at(schema, path), known=names, name=path[-1])
        for path, value in given.items()
    }
    return known.listener.performed.spend(operation.name, given, found, siblings)


def _sibling_arguments(node: AgentNode, step: StepRow, chat: Chat | None) -> Iterator[JsonObject]:
    """The arguments of earlier calls of the same tool in the same answer, if the tool has an effect."""
    key = StepKey.of(step.key)
    answers = [one for one in chat.shown if one.role == "assistant" and not one.past] if chat is not None else []
    calls = calls_of(key.in_turn, next((one.value for one in answers if one.step == key.in_turn), None))
    own = node.tools.get(calls[key.call - 1].tool) if key.call <= len(calls) else None
    if own is None or own.operation is None or not own.operation.has_effect:
        return
    for call in calls[: key.call - 1]:
        if node.tools.get(call.tool) == own and isinstance(call.arguments, dict):
            yield call.arguments


def handed_by_model(
    follower: Follower, node: AgentNode, step: StepRow, chat: Chat | None, inputs: JsonObject
) -> Traced:
    """The origins of the input that a call gives to another run, by top-level name."""
    fixed = _fixed(follower, node, step, chat)
    if chat is None:
        return tuple(((name,), [[UNKNOWN]]) for name in inputs)
    matcher = known_of(follower, node, step, chat).matcher
    return tuple(((name,), under(fixed, (name,)) or matcher.origins(value)) for name, value in inputs.items())


def known_of(follower: Follower, node: AgentNode, step: StepRow, chat: Chat) -> Conversation:
    """The conversation before the answer in the turn of this call, or before this turn."""
    at, key = StepKey.of(step.key).in_turn, StepKey.of(step.key).agent
    mark = chat.marks.get(at, chat.digest)
    return chat.listeners.known(
        follower.run.run_id, key, at, mark, lambda: [*conversation_of(follower, node, chat, chat.before(at))]
    )


def conversation_of(follower: Follower, node: AgentNode, chat: Chat, seen: Sequence[Shown]) -> Iterator[Passage | None]:
    """Everything that the model was shown or has written, in order."""
    if chat.lost:
        yield None
    beginning, past = [one for one in seen if not one.step], [one for one in seen if one.past]
    for source in chat.sources:
        at: Any = source.get("message")
        yield Passage(str(source["origin"]), source.get("value") if at is None else beginning[at].value)
    for one in past:  # an earlier agent's: its origin is not told, so it is unknown, unless a model has said it
        is_model = one.role == "assistant"
        yield Passage(MODEL, one.value, one.step, answer=True) if is_model else Passage(UNKNOWN, _shown(node, one))
    for one in (one for one in seen if one.step and not one.past):
        if one.role == "assistant":
            yield Passage(MODEL, one.value, one.step, answer=True)
        elif one.role == "tool" and not one.refused:
            yield from _result(follower, node.tools.get(one.tool), one)


def _result(follower: Follower, tool: AgentTool | None, one: Shown) -> Iterator[Passage | None]:
    """The result of a call that was done, as the model was shown it."""
    if tool is None:
        yield None
    elif tool.operation is not None:
        schema = tool.operation.output_schema
        value = masked(schema, schema, one.value)
        protected, effect = kept_of(schema), tool.operation.has_effect
        yield Passage(
            f"{TOOL}{tool.operation.name}", value, one.step, records_of(schema), effect=effect, protected=protected
        )
    elif tool.tool.kind is ToolKind.PEOPLE:
        yield Passage(PERSON, one.value)
    else:
        carried: Any = follower.run.state.origins.get(one.step)
        for path, origins in carried or [((), [[UNKNOWN]])]:
            yield Passage(weakest(origins), pointed(one.value, "".join(f"/{part}" for part in path)))


def _shown(node: AgentNode, one: Shown) -> Json:
    """A result from an earlier agent's turn, in the form in which this agent is shown it."""
    schema = schema_of(node, one) if one.outcome == CallResult.DONE else {}
    return HIDDEN if schema is None else masked(schema, schema, one.value)


def matching_of(node: AgentNode) -> JsonObject:
    """The parts of the tools' declarations that a verifier needs to match again, by the tool's name."""
    found: JsonObject = {}
    for name, tool in node.tools.items():
        operation = tool.operation
        if operation is None:
            found[name] = {"people": tool.tool.kind is ToolKind.PEOPLE}
            continue
        places: list[tuple[str, ...]] = [(one,) for one in sorted(operation.arguments)]
        if isinstance(operation.writes, str):
            places += [(operation.writes, one) for one in sorted(operation.fact_types())]
        kinds: JsonObject = {"/".join(place): str(kind_at(operation.input_schema, place)) for place in places}
        found[name] = {
            "operation": operation.name,
            "records": records_of(operation.output_schema),
            "effect": operation.has_effect,
            "kept": [*kept_of(operation.output_schema)],
            "secret": "x-secret" in str(operation.output_schema),
            "kinds": {place: kind for place, kind in kinds.items() if kind != ArgumentKind.VALUE},
            "names": [*sorted(_names(operation.input_schema))],
        }
    return found


def _fixed(follower: Follower, node: AgentNode, step: StepRow, chat: Chat | None) -> Traced:
    """The origins of the inputs that the author has fixed for the tool of this call."""
    values = follower.run.spoken.get(step.key)
    tool = node.tools.get(values.tool) if values is not None else None
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


# Origins from least to most trustworthy. If a value has several ingredients, the least trustworthy one counts.
_TRUST = (UNKNOWN, MODEL, "trigger:", "signal:", TOOL, PERSON, WORKFLOW, REQUESTER)


def with_sources(draft: Draft, step: StepRow, node: AgentNode, began: AgentBegan) -> AgentBegan:
    """The event by which an agent begins, with the origins of its messages."""
    return replace(
        began, sources=message_sources(following(draft, step, draft.workflow), node, began.messages or []) or None
    )


def message_sources(follower: Follower, node: AgentNode, messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The sources of an agent's first messages, each with its least trustworthy origin."""
    contents = [one.get("content") for one in messages]
    found: dict[str, JsonObject] = {}
    for template in (node.instructions, node.input):
        for origin, value in _sources(follower, template, node.id):
            place: JsonObject = {"message": contents.index(value)} if value in contents else {"value": value}
            found[repr((origin, place))] = {"origin": origin, **place}
    return [*found.values()]


def _sources(follower: Follower, template: object, node: str) -> Iterator[tuple[str, Json]]:
    if not isinstance(template, Template):
        return
    ((author,),) = follower.authored([[WORKFLOW]], node)
    yield from ((author, words) for words in template.authored())
    for path in sorted(template.references):
        plain = sorted({one for _, read in template.ingredients() for one in read if one and one.startswith(path)})
        for one in plain or [path]:
            found = value_at(follower.values, one)
            if found is not None:
                yield weakest(follower.path(one, node)), found[1]


def weakest(origins: Origins) -> str:
    """The least trusted of several origins."""
    return min(map(_best, origins), key=_rank, default=UNKNOWN)


def _best(alternatives: Iterable[str]) -> str:
    """The most trustworthy alternative of an ingredient. A field counts as its tool: perhaps only a part is used."""
    several = [one for one in alternatives if one.startswith(_TRUST)]
    return UNKNOWN if UNKNOWN in several else max(several, key=_rank, default=UNKNOWN)


def _rank(origin: str) -> int:
    return next(at for at, begins in enumerate(_TRUST) if origin.startswith(begins))
