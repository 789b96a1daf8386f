"""Agents for random graphs: drawn tools and limits, and models and targets that answer as a function of who asks."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any, cast

from connectors.catalog import Source, load_catalog
from core.canonical import derived_id
from evidence.receipts import Resolution
from runtime.engine.book.agent_chat import chat_of
from runtime.engine.book.agent_result import remembered_agents, result_of_error
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model import events as e
from runtime.engine.model.agent_node import AgentNode, AgentTool, Limits, ModelInput, Remember
from runtime.engine.model.agent_state import CHAT
from runtime.engine.model.graph import ChildNode, OperationNode, TaskNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.states import WaitKind
from runtime.engine.model.tools import of_operation, of_people, of_workflow

_OPERATIONS = """
operations:
  - name: probe.thing.change
    handler: probe:change
    side_effects: external_call
    risk: low
    summary: "Change {name}"
    target: "thing/{name}"
    input_schema:
      type: object
      required: [name]
      properties: {name: {type: string}, value: {type: integer}, by: {type: string}}
      additionalProperties: false
    output_schema: {type: object}
    idempotency: {key: [name]}
    in_doubt: ask
"""
OPERATION = load_catalog([Source("drawn.yaml", _OPERATIONS)]).get("probe.thing.change")
RESULT: dict[str, Any] = {"type": "object", "required": ["v"], "properties": {"v": {"type": "integer"}}}
FORM: dict[str, Any] = {"type": "object", "properties": {"v": {"type": "integer"}}}
_COMMON: dict[str, Any] = {"index": 0, "needs": ()}
FAILURES = {
    "denied": {"class": "authorization", "code": "policy_denied", "message": "a rule said no"},
    "expired": {"class": "timeout", "code": "expired", "message": "nobody answered"},
    "absent": {"class": "transport", "code": "not_found", "message": "it is not there"},
}


class Words:
    """A template of fixed words, or of words that read a channel."""

    def __init__(self, value: Any, reads: str = "") -> None:
        self.value, self.reads = value, reads
        self.references = frozenset({reads} if reads else ())

    def literals(self) -> dict[str, Any]:
        return {}

    def render(self, values: Mapping[str, Any]) -> Any:
        return f"{self.value} {values[self.reads]}" if self.reads else self.value


def drawn(number: Callable[[int], int], **common: Any) -> AgentNode:
    """One agent, with some of the tools there are. ``number`` draws below a bound; ``common`` are a leaf's own."""
    fixed = number(2)
    change = of_operation(OPERATION, fixed=("by",) if fixed else ())
    ask, run = of_people("ask_desk", "A question", FORM), of_workflow("check@1", "", None)
    many = [
        AgentTool(change, OperationNode(id="c", **_COMMON, operation=OPERATION.name, inputs=ModelInput()),
                  Words({"by": "us"} if fixed else {}), OPERATION),
        AgentTool(ask, TaskNode(id="a", **_COMMON, title=Words("A question"), description=None, form=FORM,
                                group="desk", timeout=None), Words({})),
        AgentTool(run, ChildNode(id="r", **_COMMON, workflow="check", version=1, inputs=ModelInput(), timeout=None,
                                 abandons=False), Words({})),
    ]  # fmt: skip
    limits = Limits(
        turns=1 + number(4),
        calls=1 + number(7),
        asks=number(3),
        refusals=1 + number(4),
        tokens=20 + 20 * number(5),
        cost="0.05" if not number(4) else None,
    )
    return AgentNode(
        **common,
        model="m",
        instructions=Words("Do it."),
        input=Words("Seen", "state.n"),
        turn=OperationNode(id="t", **_COMMON, operation=CHAT, inputs=ModelInput()),
        tools={one.tool.name: one for one in many[: 1 + number(3)]},
        limits=limits,
        result=RESULT,
        fails_at_limit=not number(3),
        fails_if_denied=not number(4),
        remember=Remember("turns", 1 + number(3)) if number(2) else None,
    )


def usage_of(seed: int, key: str, visit: int) -> dict[str, Any]:
    """The use of one attempt of a turn; now and then without a price."""
    chance = _random(seed, key, f"usage{visit}")
    used: dict[str, Any] = {"input_tokens": chance.randrange(9), "output_tokens": chance.randrange(9)}
    return used if chance.random() < 0.1 else {**used, "cost_usd": chance.choice(["0.01", "0.1", "0.005", "0"])}


def says(seed: int, key: str) -> dict[str, Any]:
    """The model's answer in this turn: several calls, of which some cannot be read; a result, or what is none."""
    chance = _random(seed, key, "says")
    turn = StepKey.of(key).turn
    if chance.random() < 0.15 * turn:
        return {"text": json.dumps({"v": chance.randrange(9)}) if chance.random() < 0.7 else "Done."}
    return {"text": "", "tool_calls": [_call(chance, at) for at in range(1 + chance.randrange(4))]}


def _call(chance: Random, at: int) -> dict[str, Any]:
    name = chance.choice(["probe_thing_change"] * 6 + ["ask_desk"] * 2 + ["check_1", "rm", "probe_thing_change "])
    given: dict[str, Any] = {"name": chance.choice("ab"), "value": chance.randrange(2)}
    if name == "ask_desk":
        given = {"question": chance.choice(["Why?", "Who?"])}
    text = "{" if chance.random() < 0.05 else json.dumps(given)
    return {"id": chance.choice(["x", f"c{at}"]), "type": "function", "function": {"name": name, "arguments": text}}


def fate(seed: int, key: str, visit: int) -> tuple[str, str, WaitKind, str, int, int]:
    """The fate of a turn or a call: what it does, how it fails, how it waits, how that ends, when, and a value."""
    chance, roll, turn = _random(seed, key, f"fate{visit}"), 0.0, StepKey.of(key).is_turn
    roll, value, delay = chance.random(), chance.randrange(9), chance.randrange(3)
    # The line to one agent in six is bad: it may well be over before the doubts about its calls are.
    if not turn and visit <= 2 and not _random(seed, StepKey.of(key).agent, "line").randrange(6) and roll < 0.4:
        return "park", "doubt", WaitKind.RETRY, "complete", 2 + 2 * delay, value
    if visit > 2 or roll < (0.85 if turn else 0.4):
        return "succeed", "", WaitKind.RETRY, "", 0, value
    if roll < (0.88 if turn else 0.65):
        return "fail", "absent" if turn else chance.choice([*FAILURES]), WaitKind.RETRY, "", 0, 0
    if roll < (0.95 if turn else 0.75):
        return "park", "", WaitKind.APPROVAL, chance.choice(["complete", "reject"]), delay, value
    if turn or roll < 0.85:
        return "park", "" if turn or roll < 0.8 else "doubt", WaitKind.RETRY, "complete", delay, value
    return "park", "", chance.choice([WaitKind.TASK, WaitKind.CHILD]), chance.choice(["complete", "time out"]), delay, 0


def doubt(transition: Any, key: str) -> None:
    """Tell that a call was sent, and that nobody knows what became of it."""
    run = transition.run
    receipt = derived_id(run.run_id, f"receipt:{key}")
    said: dict[str, Any] = {
        "key": key,
        "digest": "0" * 64,
        "target": "thing/a",
        "proposed": {"operation": OPERATION.name},
    }
    transition.tell(e.ActionIntended(receipt, "0" * 64, OPERATION.name, 1, "d", None, **said), step=key)
    transition.tell(e.ActionInDoubt(receipt, "The line broke."), step=key)


def decided(transition: Any, key: str) -> None:
    """Tell that people have said that it happened, if it was in doubt."""
    for receipt in [row for row in transition.run.receipts.values() if row.step_key == key]:
        if receipt.status == "in_doubt":
            transition.tell(e.ActionDoubtResolved(receipt.receipt_id, Resolution.APPLIED, "a person"), step=key)


def hears(recorded: list[Any], key: str, run_id: str, state: Any) -> int:
    """Check the messages that a turn is about to be asked with; the number of results that are among them."""
    agent = StepKey.of(key).agent
    others = {pair: recorded for pair in remembered_agents(recorded, agent) if pair[0] == run_id}
    chat = chat_of(recorded, agent, others)
    assert (chat.lost, chat.digest) == (False, state.agents[agent].digest)
    shown, results = [one for one in chat.shown if not one.past], 0
    for number, one in enumerate(shown):
        output: Any = one.value
        made = (output.get("tool_calls") or []) if one.role == "assistant" else []
        after = shown[number + 1 : number + 1 + len(made)]
        assert [call["id"] for call in made] == [each.id for each in after], "each call has one result"
        assert {each.role for each in after} <= {"tool"}
        results += len(made)
    assert results == sum(one.role == "tool" for one in shown)
    return results


def came_to(recorded: Iterable[RecordedEvent]) -> Iterator[str]:
    """Name what came of agents, of their turns and of their calls, as often as it did."""
    agents, doubtful, over = set[str](), set[str](), set[str]()
    for each in recorded:
        key, event = each.step or "", each.event
        match event:
            case e.AgentBegan():
                agents.add(key)
                yield "agent"
                yield from ["agent remembers"] if event.remembered else []
            case e.AgentAnswered():
                codes = [str(call[1]) for call in cast("list[list[Any]]", event.calls)]
                yield from ("call asked before" if code == "asked_before" else "call refused" for code in codes if code)
                yield from ("call after another" for said in event.said or () if "after" in said)
            case e.StepStarted() if StepKey.of(key).is_turn:
                yield "agent begins a turn"
            case e.StepRetryScheduled() if StepKey.of(key).is_turn:
                yield "turn tried again"
            case e.StepSucceeded() | e.StepFailed() if StepKey.of(key).is_turn:
                yield "turn over" if isinstance(event, e.StepSucceeded) else "turn failed"
            case e.ActionInDoubt():
                doubtful.add(key)
                yield "call in doubt"
            case e.StepSucceeded() | e.StepFailed() | e.StepCanceled() if "/" in key:
                came = result_of_error(event.detail or {}) if isinstance(event, e.StepFailed) else "done"
                yield f"call {'canceled' if isinstance(event, e.StepCanceled) else came}"
                yield from ["doubt outlives its agent"] if key in doubtful and StepKey.of(key).agent in over else []
            case e.StepSucceeded() | e.StepFailed() if key in agents:
                over.add(key)
                yield from ["agent failed"] if isinstance(event, e.StepFailed) else []


def _random(seed: int, key: str, what: str) -> Random:
    return Random(zlib.crc32(f"{seed}:{key}:{what}".encode()))
