"""Messages that an agent's model has heard before it answers: each with its origin, without secrets (P-14)."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.operation import Operation
from core.identity import Directory, Entry
from core.origins.conversation import Heard
from runtime.engine.agent_came import HIDDEN, came_of
from runtime.engine.agent_chat import Chat, Shown
from runtime.engine.agent_node import AgentTool
from runtime.engine.agent_origins import heard_of, read_of
from runtime.engine.following import starter_of, starters_of
from runtime.engine.tools import of_operation, of_people, of_workflow
from tests.engine.test_agent_chat import GIVEN, NODE
from tests.engine.test_tools import SECRET, operation

pytestmark = pytest.mark.req("P-14")

OPENS = operation({}, "safe.pin.read").model_copy(
    update={
        "output_schema": {
            "type": "object",
            "x-records": "/rows",
            "properties": {"pin": SECRET, "name": {"type": "string"}},
        }
    }
)
FORM: Any = {"type": "object", "properties": {"answer": {"type": "string"}}}


def tool(made: Any, of: Operation | None = None) -> AgentTool:
    leaf: Any = None
    return AgentTool(made, leaf, GIVEN, of)


TOOLS = {
    "safe": tool(of_operation(OPENS), OPENS),
    "ask": tool(of_people("ask", "Ask", FORM)),
    "check": tool(of_workflow("check@1", "Check", None)),
}
FROM = "tool:safe.pin.read"
PIN, PLAIN = {"pin": "1234", "name": "Ada"}, {"pin": HIDDEN, "name": "Ada"}


def agent() -> Any:
    """An agent with an operation that has a secret, people and a workflow as its tools."""
    return dataclasses.replace(NODE, tools=TOOLS)


def heard(*seen: Shown, sources: Any = (), origins: Any = None, lost: bool = False) -> list[Any]:
    run = SimpleNamespace(state=SimpleNamespace(origins=origins or {}))
    follower: Any = SimpleNamespace(run=run)
    chat = Chat([*seen], sources=[*sources], lost=lost)
    return [*heard_of(follower, agent(), chat, seen)]


def result(name: str, value: Any, came: str = "done", source: str = "safe.pin.read", **more: Any) -> Shown:
    return Shown("tool", more.pop("step", "a/1/1"), value, came, source, name, **more)


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (Shown("assistant", "a/1", {"text": "x"}), [Heard("model", {"text": "x"}, "a/1", answer=True)]),
        (Shown("user", "a/1", "Again.", problem="Again."), []),
        (result("safe", PIN), [Heard(FROM, PLAIN, "a/1/1", "/rows")]),
        (result("safe", PIN, "failed"), []),
        (result("safe", PIN, "refused"), []),
        (result("none", PIN), [None]),
        (result("none", PIN, "refused"), []),
        (result("ask", {"answer": "Ada"}), [Heard("person", {"answer": "Ada"})]),
        (result("check", {"v": 1}), [Heard("unknown", {"v": 1})]),
        (Shown("assistant", "b/1", {"text": "x"}, past=True), [Heard("model", {"text": "x"}, "b/1", answer=True)]),
        (Shown("user", "b/1", "Do it.", past=True), [Heard("unknown", "Do it.")]),
        (result("safe", PIN, past=True, operation="safe.pin.read", secret=True), [Heard("unknown", PLAIN)]),
        (result("other", PIN, past=True, operation="x.y.z", secret=True), [Heard("unknown", HIDDEN)]),
        (result("other", PIN, past=True, operation="x.y.z"), [Heard("unknown", PIN)]),
    ],
)
def test_each_message_is_heard_with_its_origin_and_without_secrets(shown: Shown, wanted: list[Any]) -> None:
    assert heard(shown) == wanted


def test_the_beginning_is_heard_as_it_was_told_and_lost_turns_are_heard_as_something_unknown() -> None:
    sources = [{"origin": "workflow", "message": 0}, {"origin": "tool:x.y.z", "value": "v"}]
    first = (Shown("system", "", "I am."), Shown("user", "", "Do it: v."))
    told = [Heard("workflow", "I am."), Heard("tool:x.y.z", "v")]
    assert heard(*first, sources=sources) == told
    assert heard(*first, sources=sources, lost=True) == [None, *told]


def test_a_conversation_is_heard_in_its_order_the_earlier_agents_before_the_own_turns() -> None:
    """Its first messages are told by their number among the agent's own, whatever stands between them."""
    sources = [{"origin": "requester", "message": 1}, {"origin": "workflow", "message": 0}]
    seen = (
        Shown("system", "", "I am."),
        Shown("user", "b/1", "Do that.", past=True),
        Shown("assistant", "b/1", {"text": "b"}, past=True),
        result("other", "Not without Eve.", "refused", step="b/1/1", past=True, operation="x.y.z", secret=True),
        result("safe", PIN, step="b/1/2", past=True, operation="safe.pin.read", secret=True),
        Shown("user", "", "Do it."),
        Shown("assistant", "a/1", {"text": "a"}),
        result("safe", "Not now.", "refused"),
        result("safe", PIN, step="a/1/2"),
        Shown("user", "a/2", "No JSON.", problem="No JSON."),
    )
    told = [
        Heard("requester", "Do it."),
        Heard("workflow", "I am."),
        Heard("unknown", "Do that."),
        Heard("model", {"text": "b"}, "b/1", answer=True),
        Heard("unknown", "Not without Eve."),
        Heard("unknown", PLAIN),
        Heard("model", {"text": "a"}, "a/1", answer=True),
        Heard(FROM, PLAIN, "a/1/2", "/rows"),
    ]
    assert heard(*seen, sources=sources) == told
    assert heard(*seen, sources=sources, lost=True) == [None, *told]


def test_the_result_of_a_run_within_has_the_origins_that_it_told() -> None:
    told = {"a/1/1": [[["v"], [["person"]]], [["w", "x"], [["requester"], ["model"]]]]}
    assert heard(result("check", {"v": 1, "w": {"x": 2}}), origins=told) == [Heard("person", 1), Heard("model", 2)]


@pytest.mark.parametrize(
    ("shown", "read"),
    [
        (result("safe", PIN), ("safe.pin.read",)),
        (result("safe", PIN, "failed"), ()),
        (result("ask", {}, source="ask"), ()),
        (result("none", PIN), ()),
        (result("check", {"v": 1}, source="check@1"), ()),
        (result("safe", PIN, past=True), ()),
        (result("other", PIN, past=True, operation="x.y.z"), ("x.y.z",)),
        (result("other", PIN, "denied", past=True, operation="x.y.z"), ()),
        (result("ask", {}, source="ask", past=True), ()),
    ],
)
def test_an_operation_is_read_once_its_result_was_shown(shown: Shown, read: tuple[str, ...]) -> None:
    assert read_of(agent(), [shown, replace(shown)]) == read


def test_what_an_earlier_agent_read_and_what_this_one_read_are_both_read() -> None:
    past = [result("other", PIN, past=True, operation=name) for name in ("x.y.z", "a.b.c")]
    assert read_of(agent(), [*past, result("safe", PIN)]) == ("a.b.c", "safe.pin.read", "x.y.z")


PEOPLE = Directory.of("d", [
    Entry("ann", "Ann", principals=("email:ann@x.org",)), Entry("bob", "Bob", active=False),
    Entry("bot", "Bot", owner="ann", principals=("email:bot@x.org",)),
])  # fmt: skip


@pytest.mark.parametrize(
    ("trigger", "requester", "origin"),
    [
        ("http", "ann", "requester"),
        ("cli", "ann", "requester"),
        ("http", "bob", "requester"),
        ("http", "stranger", "requester"),
        ("http", "bot", "trigger:http"),
        ("cli", "bot", "trigger:cli"),
        ("http", "email:bot@x.org", "trigger:http"),
        ("http", "email:ann@x.org", "requester"),
        ("servicenow", "ann", "trigger:servicenow"),
        ("schedule", "ann", "trigger:schedule"),
        ("workflow", "ann", ""),
        ("workflow", "bot", ""),
    ],
)
def test_only_what_a_person_sent_themselves_is_the_requesters(trigger: str, requester: str, origin: str) -> None:
    assert starter_of(trigger, requester, PEOPLE) == origin
    assert not origin or origin in starters_of(trigger)


@pytest.mark.parametrize(
    ("error", "came"),
    [
        ({"class": "canceled", "message": "m"}, "canceled"),
        ({"class": "canceled", "code": "policy_denied"}, "canceled"),
        ({"class": "authorization", "code": "policy_denied"}, "denied"),
        ({"class": "authorization", "code": "rejected"}, "rejected"),
        ({"class": "timeout", "code": "expired"}, "expired"),
        ({"class": "timeout", "code": "timed_out"}, "expired"),
        ({"class": "timeout", "code": "in_doubt"}, "failed"),
        ({"class": "transport"}, "failed"),
        ({}, "failed"),
    ],
)
def test_a_call_came_to_what_its_error_says(error: Any, came: str) -> None:
    assert came_of(error) == came
