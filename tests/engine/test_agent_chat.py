"""Messages of an agent: put together from the book, cut, masked, and compared with the run's digest."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from connectors.port import Call
from runtime.engine.book.agent_chat import Chat, Shown, chat_of, messages
from runtime.engine.book.agent_result import HIDDEN, RESULT_CHARS_MAX, done_message, remembered_agents, result_message
from runtime.engine.book.instructions import Perform
from runtime.engine.book.recorded import Diverged, RecordedEvent
from runtime.engine.life.agent_turns import around
from runtime.engine.model.agent_node import AgentNode, Limits, ModelInput
from runtime.engine.model.agent_state import Agent, CallResult, Stage
from runtime.engine.model.events import AgentAnswered, AgentBegan, StepFailed, StepSucceeded
from runtime.engine.model.graph import Graph, OperationNode, Scope

pytestmark = pytest.mark.req("P-14")
GIVEN: Any = ModelInput()
NODE = AgentNode(
    id="a",
    index=0,
    needs=(),
    model="m",
    instructions=GIVEN,
    input=GIVEN,
    turn=OperationNode(id="a/", index=0, needs=(), operation="model.chat.complete", inputs=GIVEN),
    tools={},
    limits=Limits(1, 1, 1, 1, 1),
)
BEGAN = AgentBegan("m", ["probe.effect.apply"], [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
CALL = {"id": "x", "type": "function", "function": {"name": "t", "arguments": "{}"}}


def told(*events: tuple[str, Any]) -> list[RecordedEvent]:
    return [
        RecordedEvent(event, cast(Any, None), cast(Any, None), step, seq) for seq, (step, event) in enumerate(events)
    ]


def answered(*said: dict[str, Any]) -> AgentAnswered:
    return AgentAnswered(Stage.CALLS, [["probe.effect.apply", ""] for _ in said], [*said])


FIRST = [
    ("a", BEGAN),
    ("a/1", StepSucceeded([], output={"text": "", "tool_calls": [CALL, CALL]})),
    (
        "a/1",
        answered(
            {"id": "1", "tool": "t", "source": "probe.effect.apply", "input": {}, "digest": "d"},
            {"id": "2", "tool": "?", "source": "?", "refused": "There is no such tool."},
        ),
    ),
    ("b", StepSucceeded([], output={"other": "step"})),
]


def test_each_call_has_one_result_in_its_place() -> None:
    for end, came in (
        (StepSucceeded([], output={"n": 1}), CallResult.DONE),
        (StepFailed(detail={"class": "authorization", "code": "policy_denied"}), CallResult.DENIED),
    ):
        chat = chat_of(told(*FIRST, ("a/1/1", end), ("a/2", StepSucceeded([], output={"text": "bye"}))), "a")
        assert [(one.role, one.step, one.outcome) for one in chat.shown] == [
            ("system", "", ""),
            ("user", "", ""),
            ("assistant", "a/1", ""),
            ("tool", "a/1/1", came),
            ("tool", "a/1/2", "refused"),
            ("assistant", "a/2", ""),
        ]
        assert [one.refused for one in chat.shown[3:5]] == [came is CallResult.DENIED, True]
        assert [one.step for one in chat.before("a/2")] == ["", "", "a/1", "a/1/1", "a/1/2"]
        assert [one.step for one in chat.before("a/1")] == ["", ""]


def test_an_agent_that_begins_anew_forgets_what_was() -> None:
    chat = chat_of(told(*FIRST, ("a", BEGAN)), "a")
    assert [one.role for one in chat.shown] == ["system", "user"]
    assert chat.digest == chat_of(told(("a", BEGAN)), "a").digest


def test_a_long_result_is_cut_and_says_so() -> None:
    said = done_message({}, {"text": "x" * 100_000})
    assert len(said) < RESULT_CHARS_MAX + 100
    assert said.endswith("[cut: the result has 100011 characters, and these are the first]")
    assert len(result_message(CallResult.FAILED, "y" * 100_000)) < RESULT_CHARS_MAX + 100
    assert done_message({}, {"text": "x"}) == '{"text":"x"}'


def test_secrets_are_masked() -> None:
    hidden = {"type": "string", "x-secret": True}
    schema: Any = {
        "properties": {"key": hidden, "rows": {"items": {"properties": {"pin": hidden}}}},
        "additionalProperties": hidden,
    }
    output: Any = {"key": "k1", "rows": [{"pin": "p2", "name": "Ada"}], "more": {"x": "m3"}}
    said = done_message(schema, output)
    assert "Ada" in said
    assert said.count(HIDDEN) == 3
    assert not [secret for secret in ("k1", "p2", "m3") if secret in said]


def test_other_messages_than_those_of_the_run_are_not_sent() -> None:
    agent = Agent(Stage.ASKED, 2, digest="another")
    draft: Any = type("Draft", (), {})()
    draft.graph = Graph("w", 1, "", {}, Scope((NODE,)), {"a": NODE}, frozenset())
    draft.run = type("Run", (), {"state": type("State", (), {"agents": {"a": agent}})(), "canceling": None})()
    draft.view = type("View", (), {"run": draft.run})()
    work = Perform(cast(Any, None), cast(Any, None), Call("model.chat.complete", {}, "", 1.0), None)
    chat = chat_of(told(*FIRST), "a")
    with pytest.raises(Diverged, match="counted"):
        turned(draft, chat, work)
    agent.digest = chat.digest
    sent: Any = turned(draft, chat, work)
    assert [one["role"] for one in sent.call.input["messages"]] == ["system", "user", "assistant", "tool", "tool"]


def turned(draft: Any, chat: Chat, work: Perform) -> Any:
    known, step = type("Known", (), {"chat": chat})(), type("Step", (), {"key": "a/2"})()
    leased: Any = type("Leased", (), {"transition": draft, "known": known, "step": step})()
    leaf: Any = None
    return around(leased, leaf, lambda *_: work)


def test_a_limit_is_said_last() -> None:
    (*_, last) = messages(NODE, Chat([Shown("user", "", "u")]), "calls")
    assert last["role"] == "user"
    assert "limit of calls" in last["content"]


@pytest.mark.parametrize(("matching", "hidden"), [({"t": {"secret": False}}, False), ({"t": {"secret": True}}, True)])
@pytest.mark.parametrize("told_of_tools", [True, False])
def test_a_remembered_result_with_secrets_is_hidden_where_nobody_knows_them(
    matching: Any, hidden: bool, told_of_tools: bool
) -> None:
    before = replace(BEGAN, matching=matching if told_of_tools else None)
    past = [("a", before), *FIRST[1:], ("a/1/1", StepSucceeded([], output={"pin": "p2"}))]
    now = replace(BEGAN, remembered=[["r", "a/1"]])
    assert remembered_agents(told(("a", now)), "a") == [("r", "a")]
    chat = chat_of(told(("a", now)), "a", {("r", "a"): told(*past)})
    said = [*messages(NODE, chat, "")]
    assert [one["role"] for one in said] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert (said[3]["content"] == HIDDEN) is (hidden or not told_of_tools)
    assert not chat.lost
    assert [one.step for one in chat.before("a/1")] == ["", "a/1", "a/1", "a/1/1", "a/1/2", ""]
    assert chat_of(told(("a", now)), "a").lost
    assert chat.digest != chat_of(told(("a", BEGAN)), "a").digest
