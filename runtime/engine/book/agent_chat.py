"""The messages of an agent, put together from the book, which holds each message once: with the step it comes from.

``Chat.shown`` lists all messages in the order in which the model was shown them, each with the step it comes from. A
result also has the operation, what became of the call, and whether the call was refused. ``Chat.before`` is the part
that the model had been shown when it answered in a turn: the origins of a call's values are found in that part. The key
of a call holds its agent's key, its turn and its number (``model.keys``). Messages of earlier agents whose turns this
agent remembers are ``past``: they come after the first message, each turn with its results. ``Chat.digest`` is the
running digest, which must be the one that the run's state holds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from core.canonical import Json, JsonObject, digest
from core.origins.conversation import Listener, Passage, digest_of
from core.origins.matching import Matcher
from runtime.engine.book.agent_plan import ASKED_BEFORE
from runtime.engine.book.agent_result import HIDDEN, done_message, pair, result_message, result_of_error
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model import events as e
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.agent_state import CallResult
from runtime.engine.model.keys import StepKey

REPAIR = "Your answer is not the result that is wanted. {problem} Answer again, with nothing but the JSON."
CONCLUDE = "You have come to the limit of {limit}. Call no more tools: answer now, with what you know."
RESULT = "Your last answer is nothing but JSON that fits this JSON Schema:\n{schema}"


class Shown(Struct, frozen=True):
    """One message that a model was shown: its role, and for a result its call.

    ``step`` is the step that it comes from, "" for the agent's beginning. For a result, ``outcome`` is what became of
    the call, ``source`` the operation, question or workflow, ``id`` the model's own id of the call, ``value`` the whole
    output or error as it was recorded. For a turn, ``value`` is the model's output. ``refused`` says that nothing was
    done. ``past`` says that the message belongs to an earlier agent. A past result has its ``operation``; ``secret``
    says that its output has secrets.
    """

    role: str
    step: str
    value: Json
    outcome: str = ""
    source: str = ""
    tool: str = ""
    id: str = ""
    problem: str = ""
    past: bool = False
    operation: str = ""
    secret: bool = False

    @property
    def refused(self) -> bool:
        """True for the result of a call that was not done: no value can come from it."""
        return self.role == "tool" and self.outcome != CallResult.DONE


class Conversation(Struct, frozen=True):
    """A conversation up to a turn: its digest, and the matcher that has read it."""

    turn: str
    mark: str
    listener: Listener
    shown: str

    @property
    def matcher(self) -> Matcher:
        """The matcher. It knows nothing of later messages until the next turn is asked for."""
        return self.listener.matcher


class ConversationCache(Struct):
    """A cache of the conversations of the agents that were used last, by run and agent."""

    _conversations: OrderedDict[tuple[UUID, str], Conversation] = field(default_factory=OrderedDict)

    def known(
        self, run: UUID, agent: str, turn: str, mark: str, read: Callable[[], Sequence[Passage | None]]
    ) -> Conversation:
        """The conversation up to a turn. ``mark`` is the running digest of the messages before its answer.

        ``read`` returns the conversation; it is called once a turn.
        """
        before = self._conversations.pop((run, agent), None)
        if before is None or (before.turn, before.mark) != (turn, mark):
            conversation = [*read()]
            goes_on = before is not None and before.listener.knows_the_beginning_of(conversation)
            listener = before.listener if before is not None and goes_on else Listener()
            listener.listen(conversation)
            before = Conversation(turn, mark, listener, digest_of(conversation))
        self._conversations[run, agent] = before
        while len(self._conversations) > KEPT_MAX:
            self._conversations.popitem(last=False)
        return before


class Chat(Struct):
    """The messages of an agent from its first turn on, and their running digest. ``sources``: of the first ones.

    ``marks`` are the running digests before the answer of each turn, by its key. ``listeners`` is the worker's cache,
    so that the conversation is not matched anew for each call. ``lost`` says that remembered turns are missing, because
    the values of their run were erased.
    """

    shown: list[Shown] = field(default_factory=list)
    digest: str = ""
    sources: list[JsonObject] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)
    listeners: ConversationCache = field(default_factory=ConversationCache)
    lost: bool = False

    def before(self, turn: str) -> list[Shown]:
        """The messages that the model had been shown when it answered in this turn, by the key of its step."""
        answers = [(number, one) for number, one in enumerate(self.shown) if one.role == "assistant" and not one.past]
        ends = [number for number, one in answers if one.step == turn]
        return self.shown[: ends[0]] if ends else self.shown


class _Turn(Struct):
    key: str
    output: Json
    answered: e.AgentAnswered | None = None
    results: dict[int, tuple[CallResult, Json]] = field(default_factory=dict)


# The events of other agents, by run and key of the agent, as the books of those runs hold them.
Others: TypeAlias = Mapping[tuple[str, str], Iterable[RecordedEvent]]


def chat_of(
    recorded: Iterable[RecordedEvent],
    key: str,
    others: Others | None = None,
    listeners: ConversationCache | None = None,
) -> Chat:
    """The messages of the agent with this key, from the events of its run in their order.

    ``others`` are the agents whose turns it remembers (``remembered_agents``), ``listeners`` is the worker's cache.
    """
    began, turns = _read(recorded, key)
    chat = Chat([Shown(str(one["role"]), "", one.get("content")) for one in began.messages or ()])
    chat.digest, chat.sources = beginning_digest(began), began.sources or []
    if listeners is not None:
        chat.listeners = listeners
    if began.remembered:
        past = [*_past(chat, began.remembered, others or {})]
        chat.shown[1:1] = past
    for number in sorted(turns):
        _add(chat, turns[number])
    return chat


def beginning_digest(began: e.AgentBegan) -> str:
    """The running digest of an agent that begins: of its messages, and of the references to what it remembers."""
    return digest([*(began.messages or ()), *([{"past": began.remembered}] if began.remembered else ())])


def _read(recorded: Iterable[RecordedEvent], key: str) -> tuple[e.AgentBegan, dict[int, _Turn]]:
    """Read the event by which an agent last began, and its turns since then."""
    began, turns = e.AgentBegan("", []), dict[int, _Turn]()
    for each in recorded:
        step, event = each.step or "", each.event
        if step == key and isinstance(event, e.AgentBegan):
            began, turns = event, {}
        elif step.startswith(f"{key}/"):
            at = StepKey.of(step)
            turn, call = at.turn, at.call
            if call and turn in turns and (result := _result(event)) is not None:
                turns[turn].results[call] = result
            elif not call and isinstance(event, e.StepSucceeded):
                turns[turn] = _Turn(step, event.output)
            elif not call and isinstance(event, e.AgentAnswered):
                turns[turn].answered = event
    return began, turns


def _past(chat: Chat, refs: Iterable[Json], others: Others) -> Iterator[Shown]:
    """The messages of remembered turns. The input of their agent comes before its first turn."""
    read: dict[tuple[str, str], tuple[e.AgentBegan, dict[int, _Turn]]] = {}
    for run, step in map(pair, refs):
        at = (run, StepKey.of(step).agent)
        if at not in read:
            read[at] = _read(others.get(at, ()), at[1])
        began, turns = read[at]
        turn = turns.get(StepKey.of(step).turn)
        if turn is None or turn.answered is None or not began.messages:
            chat.lost = True
            continue
        if turn is turns[min(turns)]:
            yield from (Shown("user", step, one.get("content"), past=True) for one in began.messages[1:])
        one, matching = Chat(), cast("Mapping[str, Mapping[str, Json]]", began.matching or {})
        _add(one, turn)
        for shown in one.shown:
            tool = matching.get(shown.tool) or {}
            secret = bool(tool.get("secret", not tool))
            yield replace(shown, past=True, operation=str(tool.get("operation", "")), secret=secret)


def _result(event: e.Event) -> tuple[CallResult, Json] | None:
    match event:
        case e.StepSucceeded(output=output):
            return CallResult.DONE, output
        case e.StepFailed(detail=detail):
            return result_of_error(detail or {}), detail
        case e.StepCanceled():
            return CallResult.CANCELED, None
        case _:
            return None


def _add(chat: Chat, turn: _Turn) -> None:
    """Add an answer and the results of its calls. A call without a result counts as refused."""
    chat.marks[turn.key] = chat.digest
    chat.shown.append(Shown("assistant", turn.key, turn.output))
    chat.digest = digest([chat.digest, turn.output])
    answered = turn.answered
    if answered is None:
        return
    if answered.problem:
        chat.shown.append(Shown("user", turn.key, answered.problem, problem=answered.problem))
    results, digests = [], []
    for number, call in enumerate(answered.said or (), start=1):
        refused = call.get("refused")
        outcome, value = turn.results.get(number, (CallResult.REFUSED, ASKED_BEFORE if refused is None else refused))
        step = f"{turn.key}/{number}"
        place = (str(call.get("source", "")), str(call.get("tool", "")), str(call["id"]))
        results.append(Shown("tool", step, value, str(outcome), *place))
        digests.append(result_digest(outcome, value))
    if digests:
        chat.shown += results
        chat.digest = digest([chat.digest, *digests])


def result_digest(outcome: CallResult, value: Json) -> str:
    """The digest of a call's result, as it goes into the running digest."""
    return digest(value) if outcome is CallResult.REFUSED else digest([str(outcome), value])


def messages(node: AgentNode, chat: Chat, limit: str) -> Iterator[JsonObject]:
    """Give the messages as an OpenAI-compatible server takes them."""
    for one in chat.shown:
        match one.role:
            case "assistant":
                yield _answer(one.value)
            case "tool":
                yield {"role": "tool", "tool_call_id": one.id, "content": _result_content(node, one)}
            case _ if one.problem:
                yield {"role": "user", "content": REPAIR.format(problem=one.problem)}
            case _:
                yield {"role": one.role, "content": one.value}
    if limit:
        yield {"role": "user", "content": CONCLUDE.format(limit=limit)}


def _answer(output: Json) -> JsonObject:
    answer: Mapping[str, Json] = output if isinstance(output, dict) else {}
    calls = answer.get("tool_calls")
    message: JsonObject = {"role": "assistant", "content": answer.get("text") or ""}
    return {**message, "tool_calls": calls} if calls else message


def _result_content(node: AgentNode, one: Shown) -> str:
    if one.outcome == CallResult.DONE:
        schema = schema_of(node, one)
        return HIDDEN if schema is None else done_message(schema, one.value)
    error = one.value if isinstance(one.value, dict) else {"message": one.value}
    return result_message(CallResult(one.outcome), str(error.get("message") or ""), sent="sent" in error)


def schema_of(node: AgentNode, one: Shown) -> JsonObject | None:
    """The schema by which a result is shown. None if it has secrets, and this agent does not know which.

    A past result goes by its operation, because tools of two agents may have the same name.
    """
    if not one.past:
        tool = node.tools.get(one.tool)
        return {} if tool is None or tool.operation is None else tool.operation.output_schema
    known = [tool.operation for tool in node.tools.values() if tool.operation is not None]
    schema = next((each.output_schema for each in known if each.name == one.operation), {})
    return None if one.secret and "x-secret" not in str(schema) else schema


# The number of agents whose conversations a worker caches.
KEPT_MAX = 8
