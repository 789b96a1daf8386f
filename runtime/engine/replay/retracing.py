"""Recomputes each recorded origin of a value from the earlier events of the book. Pure.

The book is believed about other runs: the origins of the run's input, and of the results of its child runs. For an
agent that remembered turns which were erased since, no origins are recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, field

from connectors.proposal import kept_action
from core.action import Action
from core.canonical import Json, JsonObject, canonical_bytes
from core.origins.matching import VERSION
from policy.facts import is_traced
from runtime.engine.book import edits
from runtime.engine.book.agent_chat import Chat, ConversationCache, Others, chat_of
from runtime.engine.book.draft import seen_by
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.life.facts import trace_by
from runtime.engine.life.proposal import own_values
from runtime.engine.model import events as e
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.graph import OperationNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import StepRow
from runtime.engine.model.run import Run
from runtime.engine.model.traces import Trace
from runtime.engine.model.workflow import Workflow
from runtime.engine.origins.agent import message_sources
from runtime.engine.origins.follow import Follower, follower_of

_READ = "agent.read"
_CAPPED = "cap:"


class Retracing(Struct):
    """Everything needed to find origins in one run. ``editions`` are its workflow, at first and after each extension.

    ``starters`` gives the possible origins of the run's input at a time: more than one if the directory of that time is
    no longer known. ``others`` are the books of agents whose turns are remembered.
    """

    editions: Sequence[Workflow]
    constants: Mapping[str, object]
    starters: Callable[[datetime], Sequence[str]]
    others: Others = field(default_factory=dict)
    _of_agents: dict[str, list[RecordedEvent]] = field(default_factory=dict)
    _chats: dict[str, tuple[str, Chat]] = field(default_factory=dict)
    _listeners: ConversationCache = field(default_factory=ConversationCache)

    def hear(self, recorded: RecordedEvent) -> None:
        """Read an event of an agent, or of one of its turns or calls."""
        key = StepKey.of(recorded.step or "").agent
        if isinstance(recorded.event, e.AgentBegan) or key in self._of_agents:
            self._of_agents.setdefault(key, []).append(recorded)

    def of_decision(self, run: Run, judged: RecordedEvent, event: e.DecisionMade) -> str | None:
        """The difference between a decision's recorded origins and the recomputed ones; None if there is none."""
        recorded, facts = event.origins, event.facts or {}
        read = {name: value for name, value in facts.items() if is_traced(name)}
        step = run.steps[judged.step or ""]
        if recorded is None and not read:
            of_call = StepKey.of(step.key).is_call
            return "was judged without the origins of its values" if of_call and not _capped(event) else None
        if recorded is None or _matched_by(recorded) > VERSION:
            return "was judged by origins that nobody has found"
        if _matched_by(recorded) < VERSION:
            return None  # by an earlier matcher, which this release does not have
        chat = self._chat(step.key)
        if chat is not None and chat.lost:
            return None
        for starter in self.starters(judged.at):
            trace = self._trace(run, step, event.operation, starter, chat)
            if _equal(trace.recorded, recorded) and all(_equal(_fact(trace, name), one) for name, one in read.items()):
                seen = facts.get(_READ)
                same = seen is None or not trace.of_agent or _equal([*trace.read], seen)
                return None if same else "was judged by other results than its model had seen"
        return "was judged by other origins than its values have"

    def of_agent(self, run: Run, node: AgentNode, recorded: RecordedEvent, event: e.AgentBegan) -> str | None:
        """The difference between an agent's recorded sources and the recomputed ones; None if there is none."""
        for starter in self.starters(recorded.at):
            found = message_sources(self._follower(run, recorded.step or "", starter), node, event.messages or [])
            if _equal([*found], [*(event.sources or [])]):
                return None
        return "began with other sources than its words have"

    def _follower(self, run: Run, key: str, starter: str) -> Follower:
        workflow = self.editions[run.extensions]
        values = seen_by(run, workflow.graph, self.constants, key)
        return follower_of(run, workflow.graph, starter, workflow, values)

    def _trace(self, run: Run, step: StepRow, operation: str, starter: str, chat: Chat | None) -> Trace:
        workflow, call = self.editions[run.extensions], run.spoken.get(step.key)
        leaf = workflow.graph.leaf(step.key, None if call is None else call.tool or None)
        if not isinstance(leaf, OperationNode) or leaf.operation != operation:
            raise ValueError(f"{step.key} does not call {operation}")
        action = self._action(run, step, workflow, leaf)
        return trace_by(self._follower(run, step.key, starter), step, leaf, action, chat)

    def _action(self, run: Run, step: StepRow, workflow: Workflow, leaf: OperationNode) -> Action:
        seen = seen_by(run, workflow.graph, self.constants, step.key)
        seen |= own_values(run, workflow.graph, step, leaf)
        inputs = leaf.inputs.render(seen)
        assert isinstance(inputs, dict), "what is given to an operation has names"
        operation = workflow.operations[leaf.operation]
        inputs = edits.edited(operation, inputs, edits.of_step(run, step.key))
        return kept_action(operation, {**inputs, **operation.params})  # it was checked when it was judged

    def _chat(self, key: str) -> Chat | None:
        """The messages that the model had been shown; the same for all calls of a turn."""
        if "/" not in key:
            return None
        agent, at = StepKey.of(key).agent, StepKey.of(key).in_turn
        known = self._chats.get(agent)
        if known is None or known[0] != at:
            found = chat_of(self._of_agents.get(agent, ()), agent, self.others, self._listeners)
            known = self._chats[agent] = (at, found)
        return known[1]


def _matched_by(origins: JsonObject) -> int:
    version = origins.get("matcher")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        return VERSION + 1
    return version


def _capped(event: e.DecisionMade) -> bool:
    """True if a cap has denied the action before its values were looked at."""
    return any(str(rule).startswith(_CAPPED) for rule in event.rules)


def _fact(trace: Trace, name: str) -> Json:
    found = trace.facts.get(name)
    return None if found is None else [[*one] if isinstance(one, list) else one for one in found]


def _equal(one: Json, other: Json) -> bool:
    return canonical_bytes(one) == canonical_bytes(other)
