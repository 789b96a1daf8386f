"""An agent whose model plays a script, driven in memory by the engine's own instructions, without a database.

Between two appends the run is read back from its lines; ``settled`` holds each run that is over to its book.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from msgspec.structs import replace

from connectors.port import Done, Usage
from evidence.chain import Actor
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow
from runtime.engine.book.agent_chat import ConversationCache, chat_of
from runtime.engine.book.agent_result import remembered_agents
from runtime.engine.book.instructions import Perform, ReadChat, StartRun, open_wait
from runtime.engine.book.recorded import RecordedEvent, read_line
from runtime.engine.life import waits
from runtime.engine.life.step import begin
from runtime.engine.life.transition import writes_of
from runtime.engine.model.agent_state import CHAT
from runtime.engine.model.keys import StepKey
from runtime.engine.replay.agent_story import stories
from runtime.engine.replay.past import past_of
from runtime.engine.replay.replay import Replay, replay, unopened
from tests.engine.governing import CATALOG, Governed
from tests.support.agents import ALLOW
from tests.support.engine_stage import KEY, RUN_ID

USED = Usage("p", "m", 7, 3, "0.01")


def by_name(operation: str, given: Any) -> Any:
    """The answer of the outside where a test does not say: what was asked for, by its name."""
    return Done({"of": operation, **given}, f"e-{given.get('name', '')}")


@dataclass
class Piloted(Governed):
    """A run with agents. ``turns`` are the next answers of their models, ``seen`` is what these were shown."""

    turns: list[Any] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    outside: Callable[[str, Any], Any] = by_name
    effects: list[Any] = field(default_factory=list)
    trigger_type: str = "http"
    listeners: ConversationCache = field(default_factory=ConversationCache)
    others: dict[tuple[str, str], list[RecordedEvent]] = field(default_factory=dict)
    used: Usage | None = USED
    said_within: list[Any] = field(default_factory=list)

    def view(self) -> Any:
        return replace(super().view(), trigger_type=self.trigger_type)

    def book(self) -> list[RecordedEvent]:
        return [read_line(line, self.values.get(n, {}), KEY, n) for n, line in enumerate(self.lines)]

    def chat(self, agent: str) -> Any:
        """Everything that the agent's model is shown now."""
        told = [one for one in self.book() if one.step == agent or (one.step or "").startswith(f"{agent}/")]
        book = self.book()
        own = {
            at: [one for one in book if StepKey.of(one.step or "").agent == at[1]]
            for at in remembered_agents(told, agent)
        }
        return chat_of(told, agent, {**own, **self.others}, self.listeners)

    def carry_out(self, key: str, work: Any) -> Any:
        if isinstance(work, ReadChat):
            known = replace(work.known, chat=self.chat(work.agent))
            return self.move(key, lambda t, s: begin(self.held_by(t, s, known)))
        if isinstance(work, Perform) and not self.said:
            self.said = [self._answer(work)]
        if isinstance(work, StartRun) and self.said_within:
            self.said = [self.said_within.pop(0)]
        return super().carry_out(key, work)

    def _answer(self, work: Perform) -> Any:
        given: Any = work.call.input
        if work.operation.name != CHAT:
            self.effects += [(work.operation.name, given)] if work.operation.has_effect else []
            return self.outside(work.operation.name, given)
        self.messages.append(orjson.loads(orjson.dumps(given)))
        turn = self.turns.pop(0)
        if not isinstance(turn, dict):
            return turn
        output = {"text": turn.get("content") or "", "model": "m"}
        made = turn.get("tool_calls")
        return Done({**output, "tool_calls": made} if made else output, usage=self.used)

    def go_on(self) -> Piloted:
        """Drive whatever is ready until nothing is."""
        while not self.finished and (ready := self.ready()):
            self.drive(ready[0])
        return self

    def complete(self, key: str, output: Any, by: str = "person:pat") -> Piloted:
        """End the wait of a step with this output, as the outside or a person does."""
        result = {"output": output, "by": by}
        self.over(key, lambda t, s, wait: waits.complete(t, s, wait, result, Actor("person", by)))
        return self.go_on()

    def runs_out(self, key: str) -> Piloted:
        """The wait of a step comes to its timeout."""
        self.over(key, waits.time_out)
        return self.go_on()

    def reject(self, key: str = "a", person: str = "ana", reason: str = "Not now.") -> Piloted:
        super().reject(key, person, reason)
        return self.go_on()

    def expire(self, key: str = "a") -> Piloted:
        super().expire(key)
        return self.go_on()

    def waits_for(self, key: str) -> Any:
        return open_wait(self.view().run, key)

    @property
    def seen(self) -> list[list[dict[str, Any]]]:
        """The messages of each call of the model."""
        return [each["messages"] for each in self.messages]

    def results(self) -> dict[str, Any]:
        """By the id of each call, the one result that the model was last told."""
        found: dict[str, Any] = {}
        for message in self.seen[-1]:
            if message["role"] == "tool":
                assert message["tool_call_id"] not in found, "a call has one result"
                found[message["tool_call_id"]] = message["content"]
        return found

    def statuses(self) -> dict[str, str]:
        return {key: str(row.status) for key, row in sorted(self.rows.items())}

    def said_of(self, kind: str) -> list[dict[str, Any]]:
        """The public data of all events of this kind, in their order."""
        lines = [orjson.loads(line) for line in self.lines]
        return [line["data"] for line in lines if line["type"] == kind]

    def stories(self) -> list[Any]:
        book = self.book()
        past = past_of(unopened(RUN_ID, KEY, self.workflow.graph), book, [self.workflow.graph])
        return [*stories(past, book)]

    def replayed(self) -> dict[int, str]:
        """The checkpoints as the book gives them anew."""
        graph = self.workflow.graph
        first = unopened(RUN_ID, KEY, graph)
        found = replay(Replay(first, self.book(), [graph], self.view().constants, writes_of))
        return {each.number: each.digest for each in found}

    def settled(self, status: str = "succeeded") -> Piloted:
        """The run is over as it should be, nothing is left open, and its book says all of it again."""
        assert (self.status, self.verified()) == (status, True), self.error
        assert self.replayed() == {number: digest for number, (_, digest) in self.checkpoints.items()}
        return self


def piloted(
    text: str,
    *turns: Any,
    policy: str | None = ALLOW,
    trigger: dict[str, Any] | None = None,
    made: type[Piloted] = Piloted,
    **more: Any,
) -> Piloted:
    """A run of a workflow with agents, driven as far as it goes."""
    workflow = load_workflow(text, "test.yaml", CATALOG)
    run = made(workflow, trigger if trigger is not None else {"text": "help"}, turns=list(turns), **more)
    run.open()
    compiled = None if policy is None else Definitions(CATALOG).compile_policy(policy, "policy.yaml")
    run.policy = PolicySet.of(compiled)
    run.go_on()
    return run
