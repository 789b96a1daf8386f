"""An agent's messages, its story and its end, of books made by hand: each message, row and line in full (P-14)."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from connectors.port import Call
from core.canonical import digest
from core.errors import ExpressionError
from evidence.commitments import commit_fields
from runtime.definition.workflow import load_workflow
from runtime.engine.agent_chat import Chat, Shown, chat_of, messages, said_of, schema_of
from runtime.engine.agent_heard import Listeners
from runtime.engine.agent_loop import beginning, conclude, remembered, stop, take_apart
from runtime.engine.agent_memory import pair, recalled, wanted
from runtime.engine.agent_node import AgentNode
from runtime.engine.agent_plan import ASKED_BEFORE
from runtime.engine.agent_state import Agent, Called, Came, Spoken, Stage
from runtime.engine.agent_story import stories
from runtime.engine.agent_turns import own_values, turn
from runtime.engine.commit import ApprovalMove, ApprovalRow, StepRow, WaitRow
from runtime.engine.events import (
    AgentAnswered,
    AgentBegan,
    StepCanceled,
    StepFailed,
    StepRetryScheduled,
    StepStarted,
    StepSucceeded,
)
from runtime.engine.instructions import Known, Over, Perform, ReadChat, StartRun
from runtime.engine.outside import own_token
from runtime.engine.run import State
from runtime.engine.states import StepState, WaitKind, WaitState
from runtime.engine.told import Diverged, Told
from tests.engine.governing import CATALOG
from tests.engine.test_agent_sources import MEMORY, one
from tests.engine.test_agent_tables import NODE, SHAPED, node_of
from tests.support.agents import agent, call

pytestmark = pytest.mark.req("P-14")

APPLY, EFFECT = "probe_effect_apply", "probe.effect.apply"
BEGAN = AgentBegan("m", [EFFECT], [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])


def told(*events: tuple[str, Any]) -> list[Told]:
    return [Told(event, cast(Any, None), cast(Any, None), step, seq) for seq, (step, event) in enumerate(events)]


def said(*made: dict[str, Any], text: str = "") -> StepSucceeded:
    output: dict[str, Any] = {"text": text, "tool_calls": [*made]} if made else {"text": text}
    return StepSucceeded([], output=output)


def asked(*ids: str, refused: dict[str, str] | None = None) -> AgentAnswered:
    words = refused or {}
    values = [{"id": name, "tool": APPLY, "source": EFFECT} for name in ids]
    return AgentAnswered(
        Stage.CALLS,
        [],
        said=[{**one, **({"refused": words[one["id"]]} if one["id"] in words else {})} for one in values],
    )


FAILED: dict[str, Any] = {"class": "transport", "code": "x", "message": "No."}
# -- messages ----------------------------------------------------------------------------------------------------------


def row(one: Shown) -> tuple[Any, ...]:
    return (one.role, one.step, one.value, one.came, one.id)


def test_messages_are_those_of_one_agent_from_its_last_beginning_on_in_the_order_of_its_turns() -> None:
    book = told(
        ("a", BEGAN), ("a/1", said(call("t"))), ("a/1", asked("old")),
        ("a", replace(BEGAN, model="n")), ("ab", replace(BEGAN, messages=[])), ("a/1/1", said()),
        ("a/10", said(text="ten")), ("a/2", StepStarted("set", 0, 1)), ("a/2", said(call("t", {}, "x"))),
        ("a/2", asked("x", "y", "z", "w", refused={"y": "Not this."})),
        ("ab/2", said(text="other")), ("a.b/2", said(text="other")), ("b", said(text="other")),
        ("a/2/1", StepRetryScheduled(UUID(int=1), 1, 1)), ("a/2/1", said(text="done")),
        ("a/2/3", StepFailed(detail=FAILED)), ("a/2/4", StepCanceled()),
        ("a/9", said(text="nine")), ("a/9", AgentAnswered(Stage.MISFIT, [], problem="the answer: no")),
    )  # fmt: skip
    chat = chat_of(book, "a")
    assert [row(one) for one in chat.shown] == [
        ("system", "", "s", "", ""),
        ("user", "", "u", "", ""),
        ("assistant", "a/2", {"text": "", "tool_calls": [call("t", {}, "x")]}, "", ""),
        ("tool", "a/2/1", {"text": "done"}, "done", "x"),
        ("tool", "a/2/2", "Not this.", "refused", "y"),
        ("tool", "a/2/3", FAILED, "failed", "z"),
        ("tool", "a/2/4", None, "canceled", "w"),
        ("assistant", "a/9", {"text": "nine"}, "", ""),
        ("user", "a/9", "the answer: no", "", ""),
        ("assistant", "a/10", {"text": "ten"}, "", ""),
    ]
    assert {(one.source, one.tool) for one in chat.shown if one.role == "tool"} == {(EFFECT, APPLY)}
    assert [one.problem for one in chat.shown if one.problem] == ["the answer: no"]
    results = [
        digest(["done", {"text": "done"}]),
        digest("Not this."),
        digest(["failed", FAILED]),
        digest(["canceled", None]),
    ]
    first = digest(BEGAN.messages)
    second = digest([digest([first, {"text": "", "tool_calls": [call("t", {}, "x")]}]), *results])
    third = digest([second, {"text": "nine"}])
    assert chat.marks == {"a/2": first, "a/9": second, "a/10": third}
    assert (chat.digest, chat.lost, chat.sources) == (digest([third, {"text": "ten"}]), False, [])
    ends = [len(chat.before(turn)) for turn in ("a/2", "a/9", "a/10", "a/11")]
    assert ends == [2, 7, 9, 10]


def test_a_call_that_nobody_began_was_refused_because_it_was_denied_before() -> None:
    chat = chat_of(told(("a", BEGAN), ("a/1", said(call("t"))), ("a/1", asked("x"))), "a")
    assert row(chat.shown[-1]) == ("tool", "a/1/1", ASKED_BEFORE, "refused", "x")
    chat = chat_of(told(("a", BEGAN), ("a/1", said(call("t"))), ("a/1", asked("x", refused={"x": ""}))), "a")
    assert row(chat.shown[-1]) == ("tool", "a/1/1", "", "refused", "x"), "other words were said, if none"


def test_a_result_that_is_told_again_is_the_newest() -> None:
    made, failed = said(call("t")), StepFailed(detail=FAILED)
    book = told(("a", BEGAN), ("a/1", made), ("a/1", asked("x", "y")), ("a/1/1", failed), ("a/1/2", said(text="two")))
    again = [*book, *told(("a/1/1", said(text="one")), ("a/2/1", said(text="of no turn")))]
    assert [row(one)[2:4] for one in chat_of(again, "a").shown[3:]] == [
        ({"text": "one"}, "done"), ({"text": "two"}, "done"),
    ]  # fmt: skip
    assert [row(one)[3] for one in chat_of(book, "a").shown[3:]] == ["failed", "done"]


@pytest.mark.parametrize("came", Came)
def test_a_result_is_known_by_what_became_of_it_and_a_refusal_by_its_words(came: Came) -> None:
    """The book holds these digests, so a later release has to make the same ones."""
    assert said_of(came, {"n": 1}) == digest({"n": 1} if came is Came.REFUSED else [str(came), {"n": 1}])


def test_a_chat_has_the_sources_of_its_beginning_and_the_workers_cache() -> None:
    sources, cache = [{"origin": "workflow", "message": 0}], Listeners()
    chat = chat_of(told(("a", replace(BEGAN, sources=sources))), "a", listeners=cache)
    assert chat.sources == sources
    assert chat.listeners is cache
    assert chat_of([], "a") == Chat(digest=digest([]))


EARLIER = told(
    ("p", replace(BEGAN, messages=[{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
                  matching={"t1": {"operation": "x.y.z", "secret": False}, "t2": {"operation": "x.y.w", "secret": True},
                            "t3": {"people": True}})),
    ("p/4", said(call("t1"))),
    ("p/4", AgentAnswered(Stage.CALLS, [], said=[
        {"id": "1", "tool": "t1", "source": "x.y.z"}, {"id": "2", "tool": "t2", "source": "x.y.w"},
        {"id": "3", "tool": "t3", "source": "desk"}, {"id": "4", "tool": "t4", "source": "?", "refused": "No."}])),
    ("p/4/1", said(text="one")), ("p/4/2", said(text="two")), ("p/4/3", said(text="three")),
    ("p/5", said(text="bye")), ("p/5", AgentAnswered(Stage.ANSWER, [], result={"text": "bye"})),
    ("p/6", said(text="unanswered")),
)  # fmt: skip


def past(*refs: Any, others: Any = None) -> Chat:
    """The messages of an agent that remembers these turns, and has said nothing yet."""
    began = replace(BEGAN, remembered=[*refs])
    return chat_of(told(("a", began)), "a", {("r", "p"): EARLIER} if others is None else others)


def test_remembered_turns_come_after_the_instructions_with_the_input_before_their_agents_first() -> None:
    chat = past(["r", "p/4"], ["r", "p/5"])
    assert [(one.role, one.step, one.value, one.past) for one in chat.shown] == [
        ("system", "", "s", False),
        ("user", "p/4", "U", True),
        ("assistant", "p/4", {"text": "", "tool_calls": [call("t1")]}, True),
        *(("tool", f"p/4/{n}", {"text": text}, True) for n, text in enumerate(("one", "two", "three"), start=1)),
        ("tool", "p/4/4", "No.", True),
        ("assistant", "p/5", {"text": "bye"}, True),
        ("user", "", "u", False),
    ]
    tools = [(one.operation, one.secret, one.source, one.id) for one in chat.shown if one.role == "tool"]
    assert tools == [
        ("x.y.z", False, "x.y.z", "1"), ("x.y.w", True, "x.y.w", "2"), ("", False, "desk", "3"), ("", True, "?", "4"),
    ]  # fmt: skip
    assert chat.digest == digest([*(BEGAN.messages or ()), {"past": [["r", "p/4"], ["r", "p/5"]]}])
    assert (chat.marks, chat.lost) == ({}, False)
    assert [one.step for one in past(["r", "p/5"]).shown] == ["", "p/5", ""], "its first turn is not among them"


@pytest.mark.parametrize(
    ("refs", "others"),
    [
        ([["r", "p/6"]], None),
        ([["r", "p/7"]], None),
        ([["q", "p/4"]], None),
        ([["r", "p/4"]], {("r", "p"): [one for one in EARLIER if one.step != "p"]}),
        ([["r", "p/4"]], {}),
    ],
)
def test_turns_that_cannot_be_told_are_lost_and_the_others_are_shown(refs: list[Any], others: Any) -> None:
    chat = past(*refs, others=others)
    assert (chat.lost, [one.step for one in chat.shown]) == (True, ["", ""])
    if others is None:
        chat = past(*refs, ["r", "p/5"])
        assert (chat.lost, [one.step for one in chat.shown]) == (True, ["", "p/5", ""])


def test_turns_of_two_runs_are_each_of_their_own_run() -> None:
    other = [replace(one, event=said(text="else")) if one.step == "p/5" and one.event == said(text="bye") else one
             for one in EARLIER]  # fmt: skip
    chat = past(["r", "p/5"], ["q", "p/5"], ["r", "p/4"], others={("r", "p"): EARLIER, ("q", "p"): other})
    assert [one.value for one in chat.shown if one.step == "p/5"] == [{"text": "bye"}, {"text": "else"}]
    assert [one.step for one in chat.shown][:5] == ["", "p/5", "p/5", "p/4", "p/4"]


def test_turns_of_two_agents_of_a_run_are_each_of_their_own_agent() -> None:
    other = told(
        ("q", replace(BEGAN, messages=[{"role": "system", "content": "S"}, {"role": "user", "content": "Q"},
                                       {"role": "user", "content": "R"}])),
        ("q/1", said(text="mine")), ("q/1", AgentAnswered(Stage.ANSWER, [], result={"text": "mine"})),
    )  # fmt: skip
    chat = past(["r", "p/5"], ["r", "q/1"], ["r", "p/4"], others={("r", "p"): EARLIER, ("r", "q"): other})
    assert [(one.step, one.value) for one in chat.shown if one.role in ("user", "assistant")] == [
        ("p/5", {"text": "bye"}), ("q/1", "Q"), ("q/1", "R"), ("q/1", {"text": "mine"}), ("p/4", "U"),
        ("p/4", {"text": "", "tool_calls": [call("t1")]}), ("", "u"),
    ]  # fmt: skip


def test_references_are_of_runs_and_agents_and_each_is_wanted_once() -> None:
    refs: list[Any] = [
        ["r", "p/4"],
        ["r", "p/5"],
        ["q", "p/5"],
        ["r", "each[1].s/1"],
        "x",
        ["r"],
        ["r", 1],
        ["r", "p/4", "x"],
    ]
    book = told(("a", replace(BEGAN, remembered=[["z", "z/1"]])), ("b", replace(BEGAN, remembered=[["y", "y/1"]])),
                ("a", replace(BEGAN, remembered=refs)))  # fmt: skip
    assert wanted(book, "a") == [("r", "p"), ("q", "p"), ("r", "each[1].s"), ("", "")]
    assert wanted(told(("a", BEGAN)), "a") == []
    assert wanted([*book, *told(("a", BEGAN))], "a") == [], "it began anew"
    assert [pair(ref) for ref in refs] == [
        ("r", "p/4"), ("r", "p/5"), ("q", "p/5"), ("r", "each[1].s/1"), ("", ""), ("", ""), ("", ""),
        ("", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(("turns", "shown"), [(1, [3]), (2, [2, 3]), (3, [1, 2, 3]), (4, [1, 2, 3])])
def test_the_newest_turns_of_its_channel_are_recalled(turns: int, shown: list[int]) -> None:
    workflow = load_workflow(MEMORY + one("second", turns=turns), "test.yaml", CATALOG)
    node = workflow.graph.leaf("second")
    assert isinstance(node, AgentNode)
    assert recalled(node, {"state.messages": [1, 2, 3]}) == shown
    assert recalled(NODE, {}) == []


def test_each_message_is_sent_as_a_server_takes_it() -> None:
    chat = Chat([
        Shown("system", "", "s"), Shown("user", "", "u"),
        Shown("assistant", "a/1", {"text": None, "tool_calls": [call(APPLY)]}),
        Shown("tool", "a/1/1", {"n": 1}, "done", EFFECT, APPLY, "1"),
        Shown("tool", "a/1/2", {"message": "No."}, "failed", EFFECT, APPLY, "2"),
        Shown("tool", "a/1/3", {"message": "Lost.", "sent": True}, "failed", EFFECT, APPLY, "3"),
        Shown("tool", "a/1/4", "There is none.", "refused", "?", "none", "4"),
        Shown("tool", "a/1/5", {"code": "x"}, "denied", EFFECT, APPLY, "5"),
        Shown("tool", "a/1/6", None, "canceled", EFFECT, APPLY, "6"),
        Shown("tool", "a/1/7", {"message": "Gone.", "sent": True}, "canceled", EFFECT, APPLY, ""),
        Shown("assistant", "a/2", {"text": "Hm.", "tool_calls": []}),
        Shown("assistant", "a/2", {"text": "I look.", "tool_calls": [call(APPLY), call(APPLY, {}, "y")]}),
        Shown("assistant", "a/3", "?"),
        Shown("user", "a/3", "the answer: no", problem="the answer: no"),
    ])  # fmt: skip
    nothing = "Nothing was done."
    assert [*messages(NODE, chat, "")] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [call(APPLY)]},
        {"role": "tool", "tool_call_id": "1", "content": '{"n":1}'},
        {"role": "tool", "tool_call_id": "2",
         "content": '{"reason":"No.","status":"failed","what":"The call failed."}'},
        {"role": "tool", "tool_call_id": "3",
         "content": '{"reason":"Lost.","status":"failed",'
                    '"what":"It was sent, and may have been done. Look before you call it again."}'},
        {"role": "tool", "tool_call_id": "4",
         "content": f'{{"reason":"There is none.","status":"refused","what":"The call was refused. {nothing}"}}'},
        {"role": "tool", "tool_call_id": "5",
         "content": f'{{"reason":"","status":"denied","what":"Policy denied this call. {nothing}"}}'},
        {"role": "tool", "tool_call_id": "6",
         "content": '{"reason":"","status":"canceled","what":"The call was canceled."}'},
        {"role": "tool", "tool_call_id": "",
         "content": '{"reason":"Gone.","status":"canceled",'
                    '"what":"It was sent, and may have been done. Look before you call it again."}'},
        {"role": "assistant", "content": "Hm."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call(APPLY), call(APPLY, {}, "y")]},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Your answer is not the result that is wanted. the answer: no Answer again, with "
                                    "nothing but the JSON."},
    ]  # fmt: skip
    words = "You have come to the limit of turns. Call no more tools: answer now, with what you know."
    last = {"role": "user", "content": words}
    assert [*messages(NODE, chat, "turns")] == [*messages(NODE, chat, ""), last]


def test_a_result_goes_by_the_schema_of_its_tool_and_a_past_one_by_that_of_its_operation() -> None:
    tool = NODE.tools[APPLY].operation
    assert tool is not None
    own, past_one = Shown("tool", "a/1/1", {}, tool=APPLY), Shown("tool", "p/1/1", {}, tool=APPLY, past=True)
    assert schema_of(NODE, own) is tool.output_schema
    assert schema_of(NODE, replace(own, operation="x.y.z", secret=True)) is tool.output_schema
    assert [schema_of(NODE, replace(own, tool=name)) for name in ("ask_desk", "none")] == [{}, {}]
    assert schema_of(NODE, past_one) == {}
    assert schema_of(NODE, replace(past_one, secret=True)) is None
    assert schema_of(NODE, replace(past_one, operation=EFFECT)) is tool.output_schema
    assert schema_of(NODE, replace(past_one, operation=EFFECT, secret=True)) is None, (
        "its secrets are not declared here"
    )
    assert schema_of(NODE, replace(past_one, operation="x.y.z", tool="none")) == {}


# -- stories -----------------------------------------------------------------------------------------------------------


def step(key: str, status: StepState = StepState.SUCCEEDED, **more: Any) -> StepRow:
    return StepRow(UUID(int=7), key, 0, "o", more.pop("superstep", 0), status, **more)


def storied(book: list[Told], *steps: StepRow, agents: Any = None, limits: Any = None) -> list[Any]:
    run = SimpleNamespace(state=SimpleNamespace(agents=agents or {}))
    shown: Any = SimpleNamespace(run=run, limits=limits or {}, steps=lambda: [*steps])
    return [*stories(shown, book)]


def use(tokens_in: int, tokens_out: int, cost: str | None = "0.10") -> dict[str, Any]:
    return {"input_tokens": tokens_in, "output_tokens": tokens_out, "cost_usd": cost}


STORY = told(
    ("x/1", said(text="nobody's")),
    ("b", replace(BEGAN, model="other", tools=[])),
    ("a", BEGAN),
    ("a/2", StepSucceeded([], output={"text": "Bye."}, usage=use(1, 2, "0.05"))),
    ("a/2", AgentAnswered(Stage.ANSWER, [], result={"text": "Bye."})),
    ("a/1", StepRetryScheduled(UUID(int=1), 1, 1, usage=use(10, 20))),
    ("a/1", StepSucceeded([], output={"text": "Hm.", "tool_calls": [call("t", {"n": n}, str(n)) for n in range(6)]},
                          usage=use(100, 200))),
    ("a/1", asked("1", "2", "3", "4", "5", "6", "7", "8", refused={"5": "Not this."})),
    ("a/1/1", StepSucceeded([], output={"n": 1}, usage=use(1000, 2000))),
    ("a/1/2", StepFailed(detail={"class": "authorization", "code": "rejected", "message": "No.", "by": "ana"})),
    ("a/1/3", StepCanceled()),
    ("a/1/4", StepStarted("set", 0, 1)),
    ("a/1/6", StepFailed(detail=None)),
    ("a/1/7", StepFailed(detail={"class": "authorization", "code": "policy_denied", "message": "Never."})),
    ("a/3", StepFailed(detail={**FAILED, "by": "ben"}, usage=use(3, 4, "0.01"))),
)  # fmt: skip


def test_a_story_has_a_row_for_each_agent_turn_and_call() -> None:
    steps = [step("a", StepState.FAILED_TERMINAL), step("a/1"), step("a/1/4", StepState.RUNNING), step("a/1/2"),
             step("a/1/6"), step("a/1/7"), step("a/3", StepState.FAILED_TERMINAL), step("a/1/1"),
             step("a/1/3")]  # fmt: skip
    first, second = storied(STORY, *steps, limits={"a": "turns"})
    turns = first.pop("turns")
    assert first == {
        "step_key": "a", "model": "m", "tools": [EFFECT], "status": "failed_terminal", "limit": "turns", "calls": 8,
        "refusals": 2, "tokens": 340, "cost_usd": "0.26",
    }  # fmt: skip
    made = [turn.pop("calls") for turn in turns]
    assert turns == [
        {"turn": 1, "step_key": "a/1", "status": "succeeded", "came": "calls", "reason": "", "tokens": 330,
         "says": "Hm.", "result": None},
        {"turn": 2, "step_key": "a/2", "status": "", "came": "answer", "reason": "", "tokens": 3, "says": "Bye.",
         "result": {"text": "Bye."}},
        {"turn": 3, "step_key": "a/3", "status": "failed_terminal", "came": "failed", "reason": "No.", "tokens": 7,
         "says": "", "result": None},
    ]  # fmt: skip
    came = [("done", "", "", "succeeded"), ("rejected", "No.", "ana", "succeeded"), ("canceled", "", "", "succeeded"),
            ("open", "", "", "running"), ("refused", "Not this.", "", ""), ("failed", "", "", "succeeded"),
            ("denied", "Never.", "", "succeeded"), ("refused", ASKED_BEFORE, "", "")]  # fmt: skip
    assert made == [
        [{"step_key": f"a/1/{n}", "tool": APPLY, "source": EFFECT, "asked": f'{{"n": {n - 1}}}' if n < 7 else "",
          "came": end, "reason": reason, "by": by, "status": status}
         for n, (end, reason, by, status) in enumerate(came, start=1)],
        [], [],
    ]  # fmt: skip
    assert second == {
        "step_key": "b", "model": "other", "tools": [], "status": "", "limit": "", "calls": 0, "refusals": 0,
        "tokens": 0, "cost_usd": "0", "turns": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "turn", "came"),
    [
        ({1: Called("d", came="open")}, 1, "open"),
        ({1: Called("d")}, 1, "open"),
        ({1: Called("d", came="refused")}, 1, "refused"),
        ({2: Called("d")}, 1, "refused"),
        ({1: Called("d")}, 2, "refused"),
    ],
)
def test_a_call_that_has_no_step_yet_is_open_only_while_its_turn_goes_on(
    calls: dict[int, Called], turn: int, came: str
) -> None:
    book = told(("a", BEGAN), ("a/1", said(call("t"))), ("a/1", asked("1")))
    (story,) = storied(book, agents={"a": Agent(Stage.CALLS, turn, calls=calls, limit="turns")}, limits={"b": "calls"})
    assert [one["came"] for one in story["turns"][0]["calls"]] == [came]
    assert story["limit"] == "", "it is told which limits agents have come to"


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [({"input_tokens": 4}, 4), ({"output_tokens": 5}, 5), ({"cost_usd": "1"}, 0), ({}, 0), (None, 0)],
)
def test_a_turn_has_the_tokens_that_are_told_of_it(usage: Any, tokens: int) -> None:
    for event in (StepSucceeded([], output={}, usage=usage), StepFailed(detail=FAILED, usage=usage)):
        (story,) = storied(told(("a", BEGAN), ("a/1", event)))
        assert (story["tokens"], story["turns"][0]["tokens"]) == (tokens, tokens)


@pytest.mark.parametrize(
    ("costs", "shown"),
    [([], "0"), (["0.1", "0.20"], "0.30"), (["0.1", None], None), ([None], None), (["1E-7", "0"], "0.0000001")],
)
def test_a_story_has_the_sum_of_its_prices_and_none_if_one_is_unknown(costs: list[Any], shown: str | None) -> None:
    turns = [(f"a/{n}", StepSucceeded([], output={}, usage=use(0, 0, cost))) for n, cost in enumerate(costs, start=1)]
    assert storied(told(("a", BEGAN), *turns))[0]["cost_usd"] == shown


def test_an_agent_that_begins_anew_keeps_its_turns_and_what_is_misshapen_is_shown_as_nothing() -> None:
    given = {"pin": "what the author has fixed"}
    values: list[dict[str, Any]] = [{"id": str(n), "tool": "t", "source": "s", "input": given} for n in range(3)]
    answer = AgentAnswered(Stage.CALLS, [], said=values)
    book = told(
        ("a", BEGAN), ("a/1", StepSucceeded([], output="text")), ("a/1", answer),
        ("a", replace(BEGAN, model="n", tools=["s"])),
        ("a/2", StepSucceeded([], output={"tool_calls": ["?", {"function": "?"}, {"function": {}}]})),
        ("a/2", answer),
        ("a/3", said(text="?")), ("a/3", AgentAnswered(Stage.MISFIT, [], problem="Why.", result=3)),
        ("a/4", StepCanceled()),
    )  # fmt: skip
    (story,) = storied(book, agents={"a": Agent(Stage.OVER, 4, first=2)})
    assert (story["model"], story["tools"], story["calls"]) == ("n", ["s"], 6)
    assert [(turn["turn"], turn["came"], turn["reason"], turn["says"], turn["result"]) for turn in story["turns"]] == [
        (1, "calls", "", "", None), (2, "calls", "", "", None), (3, "misfit", "Why.", "?", None),
        (4, "canceled", "", "", None),
    ]  # fmt: skip
    assert {one["asked"] for turn in story["turns"] for one in turn["calls"]} == {""}


# -- the beginning and the end -----------------------------------------------------------------------------------------

SEEN: dict[str, object] = {"trigger.text": "help", "trigger": {"text": "help"}}


def test_an_agent_begins_with_its_words_and_its_input() -> None:
    began = to_builtins(beginning(NODE, SEEN))
    matching = began.pop("matching")
    assert began == {
        "model": "script-given",
        "tools": ["probe.value.read", "probe.effect.apply", "probe.mail.send", "ask_desk"],
        "messages": [
            {"role": "system", "content": "You triage. Say what you changed."},
            {"role": "user", "content": "help"},
        ],
        "fixed": None,
        "sources": None,
        "remembered": None,
    }
    assert list(matching) == ["probe_value_read", APPLY, "probe_mail_send", "ask_desk"]
    assert matching["ask_desk"] == {"people": True}
    assert matching[APPLY] == {
        "operation": EFFECT, "records": None, "secret": False, "kinds": {}, "names": ["amount", "name", "value"],
    }  # fmt: skip


def test_an_agent_is_told_of_its_result_and_given_what_is_fixed() -> None:
    system, user = beginning(SHAPED, SEEN).messages or [{}, {}]
    shape = '{"additionalProperties":false,"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"}'
    words = "Your last answer is nothing but JSON that fits this JSON Schema:"
    assert system == {"role": "system", "content": f"You triage. Say what you changed.\n\n{words}\n{shape}"}
    assert user == {"role": "user", "content": "help"}
    (anything, _) = beginning(dataclasses.replace(NODE, result={}), SEEN).messages or [{}, {}]
    assert anything["content"] == f"You triage. Say what you changed.\n\n{words}\n{{}}"
    fixed = '        - {do: probe.effect.apply, with: {name: "${{ trigger.text }}"}}\n'
    node = node_of(text=agent().replace("        - probe.effect.apply\n", fixed))
    assert beginning(node, SEEN).fixed == {APPLY: {"name": "help"}}
    node = node_of(text=agent().replace("${{ trigger.text }}", "${{ trigger }}"))
    assert (beginning(node, SEEN).messages or [])[1] == {"role": "user", "content": '{"text":"help"}'}
    with pytest.raises(ExpressionError, match="What the agent begins with"):
        beginning(NODE, {**SEEN, "trigger.text": "a\u0000", "trigger": {"text": "a\u0000"}})


@pytest.mark.parametrize(
    ("given", "words"), [("", ""), (" a", " a"), (True, "true"), (None, "null"), (1.5, "1.5"), ([1, "b"], '[1,"b"]')]
)
def test_what_is_no_text_is_told_to_a_model_as_json(given: Any, words: str) -> None:
    seen = {"trigger.text": given, "trigger": {"text": given}}
    assert (beginning(NODE, seen).messages or [])[1] == {"role": "user", "content": words}


@pytest.mark.parametrize("given", ["a\u0000", "\ud800", 2**53])
def test_what_cannot_be_recorded_fails_an_agent_wherever_it_is_used(given: Any) -> None:
    seen = {"trigger.text": given, "trigger": {"text": given}}
    fixed = '        - {do: probe.effect.apply, with: {name: "${{ trigger.text }}"}}\n'
    plain = agent().replace("input: ${{ trigger.text }}", "input: help")
    node = node_of(text=plain.replace("        - probe.effect.apply\n", fixed))
    with pytest.raises(ExpressionError):
        beginning(node, seen)


@pytest.mark.parametrize("given", ["a\u0000b", "ab"])
def test_the_words_of_the_author_hold_values_in_storable_form(given: str) -> None:
    text = agent().replace("You triage. Say what you changed.", "You see ${{ trigger.text }}.")
    seen = {"trigger.text": given, "trigger": {"text": given}}
    (system, *_) = (
        beginning(node_of(text=text.replace("input: ${{ trigger.text }}", "input: help")), seen).messages or []
    )
    assert system == {"role": "system", "content": f"You see {given}.".replace("\u0000", "\N{REPLACEMENT CHARACTER}")}


def test_an_agent_that_ends_well_writes_its_own_turns() -> None:
    node = load_workflow(MEMORY + one("first"), "test.yaml", CATALOG).graph.leaf("first")
    assert isinstance(node, AgentNode)
    state = State({}, agents={"first": Agent(first=3, turn=5)})
    assert remembered(node, state, {"run.id": "r"}, "first") == {
        "messages": [["r", "first/3"], ["r", "first/4"], ["r", "first/5"]]
    }
    assert remembered(node, state, {"run.id": "r"}, "second") == {}
    assert remembered(NODE.turn, state, {"run.id": "r"}, "first") == {}, "nobody else remembers turns"
    assert remembered(NODE, State({}, agents={"triage": Agent()}), {"run.id": "r"}, "triage") == {}


class Noted:
    """A draft that notes what it is told, of a run with one agent ``a``."""

    def __init__(self, *steps: StepRow, **run: Any) -> None:
        names = ("answers", "approvals", "receipts", "waits", "spoken")
        empty: dict[str, Any] = {name: {} for name in names}
        self.run = SimpleNamespace(superstep=4, steps={row.key: row for row in steps}, **{**empty, **run})
        self.noted: list[Any] = []

    def tell(self, event: Any, *, step: str | None = None) -> None:
        self.noted.append((step, type(event).__name__, *to_builtins(event).values()))

    def message(self, kind: str, approval: UUID, name: str) -> None:
        self.noted.append((kind, approval, name))

    def order(self, kind: str, name: str, payload: Any, *, one_at_a_time: str | None = None) -> None:
        self.noted.append((kind, name, payload, one_at_a_time))


def stopped(*steps: StepRow, **run: Any) -> list[Any]:
    draft: Any = Noted(*steps, **run)
    stop(draft, "a")
    return list(draft.noted)


CANCELS = [("a/1/1", "StepCanceled")]


@pytest.mark.parametrize(
    ("row", "receipt", "ends"),
    [
        (step("a/1/1", StepState.WAITING), None, True),
        (step("a/1/1", StepState.WAITING_APPROVAL), None, True),
        (step("a/1/1", StepState.FAILED_RETRYABLE), "failed", True),
        (step("a/1/1", StepState.FAILED_RETRYABLE), "intended", False),
        (step("a/1/1", StepState.WAITING_APPROVAL), "in_doubt", False),
        (step("a/1/1", StepState.WAITING), "succeeded", True),
        (step("a/1/1", StepState.RUNNING, superstep=4), None, False),
        (step("a/1/1", StepState.READY, superstep=4), None, True),
        (step("a/1/1", StepState.READY, superstep=4, idempotency_key="k"), "succeeded", False),
        (step("a/1/1", StepState.READY, superstep=5, idempotency_key="k"), None, True),
        (step("a/1/1", StepState.SUCCEEDED), None, False),
        (step("a/1/1", StepState.FAILED_TERMINAL), None, False),
        (step("a/1/1", StepState.CANCELED), None, False),
        (step("a", StepState.WAITING), None, False),
        (step("ab/1/1", StepState.WAITING), None, False),
        (step("b", StepState.WAITING), None, False),
    ],
)
def test_the_end_of_an_agent_cancels_what_waits_and_lets_be_what_works_or_is_in_doubt(
    row: StepRow, receipt: str | None, ends: bool
) -> None:
    other = SimpleNamespace(step_key="a/1/2", status="in_doubt")
    own = {} if receipt is None else {UUID(int=1): SimpleNamespace(step_key=row.key, status=receipt)}
    assert stopped(row, receipts={UUID(int=2): other, **own}) == (CANCELS if ends else [])


def question(number: int, key: str, status: str) -> tuple[Any, Any]:
    row: Any = ApprovalRow(UUID(int=number), UUID(int=7), key, "action", "", "", "", {}, "", {}, None, cast(Any, None))
    return row, ApprovalMove(UUID(int=number), status)


def test_the_end_of_an_agent_withdraws_its_open_questions_and_ends_what_goes_on_elsewhere() -> None:
    rows = [question(1, "a/1/1", "requested"), question(2, "a/1/1", "rejected"), question(3, "b", "requested"),
            question(4, "a/1/2", "requested")]  # fmt: skip
    kinds = [*WaitKind]
    waits = {
        UUID(int=10 + n): WaitRow(UUID(int=10 + n), UUID(int=7), key, kind, status, "t")
        for n, (kind, status, key) in enumerate([
            *((kind, WaitState.WAITING, "a/1/1") for kind in kinds),
            *((kind, WaitState.COMPLETED, "a/1/1") for kind in kinds),
            (WaitKind.TASK, WaitState.WAITING, "b"),
        ])
    }  # fmt: skip
    found = stopped(
        step("a/1/1", StepState.WAITING),
        approvals={row.approval_id: row for row, _ in rows}, answers={move.approval_id: move for _, move in rows},
        waits=waits,
    )  # fmt: skip
    assert found[:2] == [
        (None, "ApprovalDecided", str(UUID(int=1)), "canceled", None, None), ("card", UUID(int=1), "canceled"),
    ]  # fmt: skip
    assert found[-1:] == CANCELS
    ended = {}
    for canceled, order in zip(found[2:-1:2], found[3:-1:2], strict=True):
        assert canceled[:2] == ("a/1/1", "WaitCanceled")
        ended[canceled[3]] = (canceled[2], order)
    at = {kind: str(UUID(int=10 + n)) for n, kind in enumerate(kinds)}
    assert ended == {
        "child": (at[WaitKind.CHILD], ("cancel", at[WaitKind.CHILD], {"wait": at[WaitKind.CHILD]}, None)),
        "external": (at[WaitKind.EXTERNAL], ("cancel", at[WaitKind.EXTERNAL], {"wait": at[WaitKind.EXTERNAL]}, None)),
        "task": (at[WaitKind.TASK], (
            "task", f"{at[WaitKind.TASK]}:canceled", {"task": at[WaitKind.TASK]}, at[WaitKind.TASK])),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "key", "apart"),
    [
        (Stage.ASKED, "triage/1", True),
        (Stage.ASKED, "triage/2", True),
        (Stage.OVER, "triage/1", False),
        (Stage.CALLS, "triage/1", False),
        (Stage.ASKED, "other/1", False),
    ],
)
def test_an_answer_is_taken_apart_while_it_is_waited_for(stage: Stage, key: str, apart: bool) -> None:
    graph = load_workflow(agent(), "test.yaml", CATALOG).graph
    draft: Any = Noted(spoken={"triage": Spoken("triage", input={APPLY: {"name": "x"}})})
    draft.graph, draft.run.state = graph, State({}, agents={"triage": Agent(stage, int(key[-1]))})
    if key.startswith("other"):
        draft.graph = SimpleNamespace(leaf=lambda key: NODE)
    take_apart(draft, key, {"text": "", "tool_calls": [call(APPLY, {"value": "1"}, "1")]})
    if not apart:
        assert draft.noted == []
        return
    ((at, kind, came, calls, said_, *_),) = draft.noted
    assert (at, kind, came, calls) == (key, "AgentAnswered", "calls", [[EFFECT, ""]])
    assert said_[0]["input"] == {"name": "x", "value": "1"}


# -- ends and turns ----------------------------------------------------------------------------------------------------

BOTH = load_workflow(MEMORY + one("first") + one("second"), "test.yaml", CATALOG).graph
W1, W2 = UUID(int=51), UUID(int=52)


def concluding(stage: Stage = Stage.ANSWER, **changes: Any) -> list[Any]:
    """Everything that is told when two agents come to a barrier, of which the first one is still in its turn."""
    rows = {name: StepRow(UUID(int=7), name, 0, "agent", 1, StepState.WAITING) for name in ("first", "second")}
    waits = {
        number: WaitRow(number, UUID(int=7), key, WaitKind.AGENT, WaitState.WAITING, "t")
        for number, key in ((W1, "first"), (W2, "second"))
    }
    spoken = {"first": Spoken("first", result={"n": 1}), "second": Spoken("second", result={"n": 2})}
    agents = {"first": Agent(Stage.ASKED, 1), "second": Agent(stage, 1)}
    given = {"waits": waits, "spoken": spoken, "canceling": None, "state": State({}, agents=agents), **changes}
    steps = given.pop("steps", rows)
    draft: Any = Noted(*steps.values(), **given)
    draft.graph, draft.view = BOTH, SimpleNamespace(run=SimpleNamespace(run_key=b"k" * 32))
    conclude(draft)
    return list(draft.noted)


def ended_with(result: Any) -> list[Any]:
    committed = [*commit_fields(b"k" * 32, f"/wait/{W2}", result)]
    return [
        ("second", "WaitCompleted", str(W2), "agent", committed, result),
        ("second", "StepResumed", f"resume:{W2}"),
    ]


def test_an_agent_that_is_done_ends_its_own_wait_with_its_own_result() -> None:
    assert concluding() == ended_with({"output": {"n": 2}})
    assert concluding(spoken={}) == ended_with({"output": None})
    error = {"class": "transport", "message": "No."}
    failed = {"second": Spoken("second", error=cast(Any, error))}
    assert concluding(Stage.FAILED, spoken=failed) == ended_with({"error": error})
    refused = concluding(
        Stage.MISFIT, state=State({}, agents={"second": Agent(Stage.MISFIT, 3, repairs=3)}), spoken=failed
    )
    assert refused[0][-1]["error"]["code"] == "agent_result", "its own end comes before the error of a turn"


def test_an_agent_that_cannot_end_yet_ends_nothing() -> None:
    gone = StepRow(UUID(int=7), "second", 0, "agent", 1, StepState.WAITING)
    own = WaitRow(W2, UUID(int=7), "second", WaitKind.AGENT, WaitState.WAITING, "t")
    assert concluding(canceling={"by": "x"}) == []
    assert concluding(Stage.ASKED) == []
    assert concluding(Stage.BEGUN) == []
    assert concluding(steps={}) == []
    assert concluding(steps={"second": replace(gone, status=StepState.READY)}) == []
    assert concluding(waits={}) == []
    assert concluding(waits={W2: replace(own, kind=WaitKind.TASK)}) == []
    assert concluding(waits={W2: replace(own, status=WaitState.TIMED_OUT)}) == []


def test_an_agent_that_is_over_stops_its_calls() -> None:
    calls = {"second/1/1": step("second/1/1", StepState.WAITING), "first/1/1": step("first/1/1", StepState.WAITING)}
    assert concluding(Stage.OVER, steps=calls) == [("second/1/1", "StepCanceled")]
    agents = {"first": Agent(Stage.OVER, 1), "second": Agent(Stage.ANSWER, 1)}
    assert concluding(state=State({}, agents=agents)) == ended_with({"output": {"n": 2}})


def test_the_look_ahead_changes_no_agent() -> None:
    made = {1: Called("d", came="denied"), 2: Called("d", after=1), 3: Called("e", came="open")}
    agents = {"second": Agent(Stage.CALLS, 1, calls=made, barred=["d"])}
    before = to_builtins(agents, str_keys=True)
    assert concluding(state=State({}, agents=agents)) == []
    assert to_builtins(agents, str_keys=True) == before


def turning(agent_: Agent | None, chat: Chat | None, work: Any, key: str = "triage/2") -> tuple[Any, list[Any]]:
    failed: list[Any] = []
    graph = load_workflow(agent(), "test.yaml", CATALOG).graph
    agents = {} if agent_ is None else {"triage": agent_}
    transition: Any = SimpleNamespace(
        graph=graph, run=SimpleNamespace(state=State({}, agents=agents)), fail=lambda row, error: failed.append(error)
    )
    known: Any = Known(chat=chat)
    proposal: Any = SimpleNamespace(transition=transition, known=known, step=step(key))
    return turn(proposal, lambda p: work), failed


def test_a_turn_is_sent_with_the_messages_that_its_run_has_counted() -> None:
    chat = Chat([Shown("system", "", "s"), Shown("user", "", "u")], "d")
    work = Perform(step("triage/2"), cast(Any, None), Call("model.chat.complete", {"x": 1}, "k", 1.0), None)
    found, _ = turning(Agent(Stage.ASKED, 2, digest="d"), chat, work)
    said_first = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert found == replace(work, call=replace(work.call, input={
        "model": "script-given", "messages": said_first, "tools": [tool.tool.offer() for tool in NODE.tools.values()],
    }))  # fmt: skip
    for limit in ("turns", "calls"):
        found, _ = turning(Agent(Stage.ASKED, 2, digest="d", limit=limit), chat, work)
        assert set(found.call.input) == {"model", "messages"}
        assert [one["role"] for one in found.call.input["messages"]] == ["system", "user", "user"]
        assert f"limit of {limit}" in found.call.input["messages"][2]["content"]
    with pytest.raises(Diverged, match="are not those that its run has counted"):
        turning(Agent(Stage.ASKED, 2, digest="e"), chat, work)


def test_a_turn_reads_its_messages_first_and_is_not_asked_without_those_that_were_erased() -> None:
    lost = Chat([], "d", lost=True)
    found, failed = turning(Agent(Stage.ASKED, 2, digest="d"), None, Over())
    assert (found, failed) == (ReadChat(step("triage/2"), "triage", Known()), [])
    asks: Any = StartRun(step("triage/2"), W1, "other", None, {}, True)
    found, failed = turning(Agent(Stage.ASKED, 2, digest="d"), lost, asks)
    words = "Turns of an earlier agent are not there any more: they were erased."
    assert (found, failed) == (Over(), [{"class": "consistency", "code": "not_remembered", "message": words}])
    assert turning(Agent(Stage.ASKED, 2, digest="other"), Chat([], "d"), asks) == (asks, [])
    work = Perform(step("triage/2"), cast(Any, None), Call("model.chat.complete", {"x": 1}, "k", 1.0), None)
    assert turning(None, Chat([], "d"), work) == (work, []), "nobody asks for an agent that is not there"


def test_policy_judges_a_turn_by_the_number_and_the_digest_of_what_was_said() -> None:
    graph = load_workflow(agent(), "test.yaml", CATALOG).graph
    run: Any = SimpleNamespace(
        state=State({}, agents={"triage": Agent(Stage.ASKED, 5, first=3, digest="abc")}),
        spoken={
            "triage": Spoken("triage", input={"t": {"fixed": 1}}),
            "triage/5/1": Spoken("triage/5/1", "t", {"n": 1}),
            "triage/5/2": Spoken("triage/5/2", "t"),
        },
        run_key=b"k" * 32,
    )
    leaf: Any = SimpleNamespace(inputs=SimpleNamespace(references={"agent.given"}))
    words = "The messages of 2 turns before, SHA-256 abc"
    given = own_values(run, graph, step("triage/5"), leaf)["agent.given"]
    tools = [tool.tool.offer() for tool in NODE.tools.values()]
    assert given == {"model": "script-given", "tools": tools, "messages": [{"role": "user", "content": words}]}
    run.state.agents["triage"].limit = "cost"
    given = own_values(run, graph, step("triage/5"), leaf)["agent.given"]
    assert given == {"model": "script-given", "messages": [{"role": "user", "content": words}]}
    assert [own_values(run, graph, step(key), leaf) for key in ("triage/5/1", "triage/5/2")] == [
        {"agent.given": {"n": 1}}, {"agent.given": {}},
    ]  # fmt: skip
    leaf.inputs.references = {"wait.token", "trigger.x"}
    assert own_values(run, graph, step("a"), leaf) == {"wait.token": own_token(run, step("a"))}
    leaf.inputs.references = {"wait.token", "agent.given"}
    handed = {"wait.token": own_token(run, step("triage/5/1")), "agent.given": {"n": 1}}
    assert own_values(run, graph, step("triage/5/1"), leaf) == handed
    leaf.inputs.references = set()
    assert own_values(run, graph, step("a"), leaf) == {}
