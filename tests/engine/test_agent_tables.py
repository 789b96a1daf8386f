"""An agent's decisions as tables: what a result is told as, what a call becomes, what comes next (P-14)."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from core.canonical import VALUE_BYTES_MAX, digest
from runtime.definition.workflow import load_workflow
from runtime.engine.agent_answers import answered
from runtime.engine.agent_came import RESULT_CHARS_MAX, masked, told_done, told_of
from runtime.engine.agent_node import AgentNode, Given, Limits, Question
from runtime.engine.agent_origins import _names
from runtime.engine.agent_plan import ASKED_BEFORE, Ahead, ahead, due, heard, reached, settled
from runtime.engine.agent_state import Agent, Called, Came, Stage, agent_of, is_turn, number_of
from tests.engine.governing import CATALOG
from tests.support.agents import agent, call, calls, says

pytestmark = pytest.mark.req("P-14")

APPLY, READ, MAIL, ASK = "probe_effect_apply", "probe_value_read", "probe_mail_send", "ask_desk"


@cache
def node_of(more: str = "", text: str = "") -> AgentNode:
    found = load_workflow(text or agent(more=more), "test.yaml", CATALOG).graph.leaf("triage")
    assert isinstance(found, AgentNode)
    return found


NODE = node_of()
SHAPED = node_of("result: {type: object, required: [n], properties: {n: {type: integer}}, additionalProperties: false}")


# -- the result of a call, as the model is told it --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("came", "words"),
    [
        (Came.DENIED, "Policy denied this call. Nothing was done."),
        (Came.REJECTED, "People rejected this call. Nothing was done."),
        (Came.EXPIRED, "Nobody answered in time. Nothing was done."),
        (Came.FAILED, "The call failed."),
        (Came.REFUSED, "The call was refused. Nothing was done."),
        (Came.CANCELED, "The call was canceled."),
    ],
)
def test_a_model_is_told_what_became_of_a_call_and_that_it_may_have_been_done(came: Came, words: str) -> None:
    assert json.loads(told_of(came, "Why.")) == {"status": str(came), "what": words, "reason": "Why."}
    sent = "It was sent, and may have been done. Look before you call it again."
    assert json.loads(told_of(came, "Why.", sent=True)) == {"status": str(came), "what": sent, "reason": "Why."}


@pytest.mark.parametrize(("more", "cut"), [(-1, False), (0, False), (1, True)])
def test_a_result_is_as_long_as_it_may_be_and_no_longer(more: int, cut: bool) -> None:
    length = RESULT_CHARS_MAX + more
    said = told_done({}, "x" * (length - 2))
    whole = f'"{"x" * (length - 2)}"'
    note = f"\n[cut: the result has {length} characters, and these are the first]"
    assert said == (f"{whole[:RESULT_CHARS_MAX]}{note}" if cut else whole)
    whole = whole.replace("x", "é")
    shown = f"{whole[:RESULT_CHARS_MAX]}{note}" if cut else whole
    assert told_done({}, "é" * (length - 2)) == shown, "letters count, not bytes"


SECRET: Any = {"type": "string", "x-secret": True}
MASKED: list[tuple[Any, Any, Any]] = [
    (True, "a", "a"),
    (None, {"a": 1}, {"a": 1}),
    *((SECRET, value, "[secret]") for value in ({"a": 1}, ["a"], None, "", 0)),
    ({"x-secret": False}, "a", "a"),
    ({"x-secret": "true"}, "a", "a"),
    ({"items": SECRET}, ["a", "b"], ["[secret]", "[secret]"]),
    ({"items": SECRET}, {"items": "a"}, {"items": "a"}),
    ({"properties": {"a": SECRET}}, {"a": "1", "b": "2"}, {"a": "[secret]", "b": "2"}),
    ({"additionalProperties": SECRET}, {"a": "1"}, {"a": "[secret]"}),
    ({"properties": {"a": {}}, "additionalProperties": SECRET}, {"a": "1", "b": "2"}, {"a": "1", "b": "[secret]"}),
    ({"properties": {"a": {"$ref": "#/$defs/s"}}}, {"a": "1"}, {"a": "[secret]"}),
    ({"properties": {"a": {"items": {"properties": {"b": SECRET}}}}}, {"a": [{"b": 1, "c": 2}]},
     {"a": [{"b": "[secret]", "c": 2}]}),
    ({"items": {"$ref": "#/$defs/s"}}, ["a"], ["[secret]"]),
    ({"items": {"properties": {"a": {"items": {"$ref": "#/$defs/s"}}}}}, [{"a": ["1", "2"]}],
     [{"a": ["[secret]", "[secret]"]}]),
    ({"additionalProperties": {"properties": {"b": {"$ref": "#/$defs/s"}}}}, {"a": {"b": 1, "c": 2}},
     {"a": {"b": "[secret]", "c": 2}}),
    ({"properties": {"a": None}, "additionalProperties": SECRET}, {"a": "1", "b": "2"}, {"a": "1", "b": "[secret]"}),
    ({"$ref": "#/$defs/of"}, {"a": "1", "b": {"a": "2"}}, {"a": "[secret]", "b": {"a": "[secret]"}}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "shown"), MASKED)
def test_a_value_is_shown_without_what_its_schema_marks_as_secret(schema: Any, value: Any, shown: Any) -> None:
    root: Any = {"$defs": {"s": SECRET, "of": {"properties": {"a": SECRET, "b": {"$ref": "#/$defs/of"}}}}}
    assert masked(root, schema, value) == shown


# -- what an answer is taken apart into -------------------------------------------------------------------------------


def taken(turn: Any, node: AgentNode = NODE, fixed: Any = None, **state: Any) -> dict[str, Any]:
    """Everything that an answer is taken apart into, without what is empty."""
    output = {"text": turn.get("content"), "tool_calls": turn.get("tool_calls")}
    found = answered(node, Agent(stage=Stage.ASKED, turn=1, **state), fixed or {}, output)
    return {name: value for name, value in to_builtins(found).items() if value not in (None, [])}


def marked(source: str, tool: str, given: Any) -> str:
    return digest([source, tool, given])


A, B = {"name": "a", "value": "1"}, {"name": "b"}
OF_A = marked("probe.effect.apply", APPLY, A)


@pytest.mark.parametrize("text", ["I look it up.", "", None])
def test_a_model_that_calls_tools_may_say_why(text: str | None) -> None:
    found = taken({**calls(call(READ, {"name": "a"}, "1")), "content": text})
    assert (found["came"], found.get("calls"), "result" in found) == ("calls", [["probe.value.read", ""]], False)


def test_calls_about_one_thing_come_one_after_the_other_and_all_others_at_once() -> None:
    tickets = "        - probe.ticket.file\n        - probe.ticket.open\n        - probe.value.read\n"
    node = node_of(text=agent().replace("        - probe.value.read\n", tickets))
    found = taken(calls(
        call("probe_ticket_file", {"name": "x"}, "1"), call("probe_ticket_open", {"name": "x"}, "2"),
        call("probe_ticket_file", {"name": "y"}, "3"), call(READ, {"name": "x"}, "4"),
        call(ASK, {"question": "Who?"}, "5"), call(ASK, {"question": "Why?"}, "6"),
        call("probe_ticket_open", {"name": "x"}, "7"), call(ASK, {"question": "Who?"}, "8"),
    ), node)  # fmt: skip
    assert {code for _, code in found["calls"]} == {""}
    assert [one.get("after", 0) for one in found["said"]] == [0, 1, 0, 0, 0, 0, 2, 5]


def test_calls_are_taken_apart_as_they_are_and_in_their_order() -> None:
    made = calls(
        call(APPLY, A, "1"), call(READ, {"name": "a"}, "2"), call(APPLY, {"name": "a", "value": "2"}, "3"),
        call(APPLY, B, "4"), call(APPLY, A, "5"), call(ASK, {"question": "Why?"}, "6"), call(MAIL, {"text": "x"}, "7"),
        call(MAIL, {"text": "y"}, "8"), call(ASK, {"question": "Why?"}, "9"), call("none", {"n": 1}, "10"),
        call(APPLY, {"value": "2"}, "11"),
    )  # fmt: skip
    found = taken(made)
    effect, mail = "probe.effect.apply", "probe.mail.send"
    sources = [effect, "probe.value.read", effect, effect, effect, "ask_desk", mail, mail, "ask_desk", "?", effect]
    codes = [""] * 9 + ["unknown_tool", "arguments"]
    assert found.pop("calls") == [[source, code] for source, code in zip(sources, codes, strict=True)]
    said = found.pop("said")
    assert found == {"came": "calls"}
    assert said[0] == {"id": "1", "tool": APPLY, "source": effect, "input": A, "digest": OF_A}
    assert [one.get("after", 0) for one in said] == [0, 0, 1, 0, 3, 0, 0, 7, 6, 0, 0]
    assert [one.get("ask") for one in said] == [None] * 5 + [True, None, None, True, None, None]
    assert said[9] == {"id": "10", "tool": "none", "source": "?", "refused": "There is no such tool."}
    assert said[10] == {
        "id": "11", "tool": APPLY, "source": effect, "refused": "arguments: 'name' is a required property",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "more", "made", "codes"),
    [
        ({"made": 1}, "limits: {calls: 3}", [A, B, A], ["", "", "limit"]),
        ({"made": 3}, "limits: {calls: 3}", [A], ["limit"]),
        ({"made": 2}, "limits: {calls: 3}", [A], [""]),
        ({"limit": "turns"}, "", [A, B], ["limit", "limit"]),
        ({"barred": [OF_A]}, "", [A, B], ["asked_before", ""]),
        ({"barred": [OF_A]}, "limits: {calls: 1}", [A, B, B], ["asked_before", "", "limit"]),
        ({"barred": [OF_A], "limit": "turns"}, "", [A], ["limit"]),
    ],
)
def test_a_call_beyond_a_limit_or_one_that_was_denied_is_refused(
    state: Any, more: str, made: list[Any], codes: list[str]
) -> None:
    found = taken(calls(*(call(APPLY, given, f"c{n}") for n, given in enumerate(made))), node_of(more), **state)
    assert [code for _, code in found["calls"]] == codes
    words = {
        "limit": "No tools are called any more: the agent has to conclude." if state.get("limit") else (
            f"At most {node_of(more).limits.calls} calls are made."),
        "asked_before": "The same call was denied, rejected or left unanswered before.",
        "": None,
    }  # fmt: skip
    assert [one.get("refused") for one in found["said"]] == [words[code] for code in codes]


@pytest.mark.parametrize(("asks", "codes"), [(0, ["", "", "limit"]), (1, ["", "limit", "limit"]), (2, ["limit"] * 3)])
def test_people_are_asked_as_often_as_the_limit_says_and_other_calls_go_on(asks: int, codes: list[str]) -> None:
    made = [call(ASK, {"question": f"{n}?"}, f"q{n}") for n in range(3)]
    found = taken(calls(*made, call(APPLY, A, "a")), node_of("limits: {asks: 2}"), asks=asks)
    assert [code for _, code in found["calls"]] == [*codes, ""]
    refused = [one["refused"] for one in found["said"] if "refused" in one]
    assert refused == ["People are asked at most 2 times."] * codes.count("limit")


def test_a_question_counts_as_a_call_too() -> None:
    made = [call(ASK, {"question": f"{n}?"}, f"q{n}") for n in range(2)]
    found = taken(calls(call(APPLY, A, "a"), *made), node_of("limits: {calls: 2, asks: 2}"))
    assert [code for _, code in found["calls"]] == ["", "", "limit"]
    assert found["said"][2]["refused"] == "At most 2 calls are made."


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "a\u0000"}, "arguments.name: holds a character that cannot be stored"),
        ({"name": "a", "amount": 2**53}, "The arguments cannot be recorded: it has no canonical JSON form"),
        ({"name": "x" * VALUE_BYTES_MAX}, "arguments: is 262156 bytes long; at most 262144 are accepted"),
        ({"name": 1}, "arguments.name: must be text"),
    ],
)
def test_arguments_that_cannot_be_kept_are_refused_with_the_reason(given: Any, words: str) -> None:
    found = taken(calls(call(APPLY, given, "c")))
    assert found["calls"] == [["probe.effect.apply", "arguments"]]
    assert found["said"][0]["refused"].startswith(words)
    assert "input" not in found["said"][0]


def test_arguments_are_as_large_as_may_be_with_what_is_fixed() -> None:
    made, fixed = calls(call(APPLY, {"name": "a"}, "c")), {APPLY: {"value": "x" * VALUE_BYTES_MAX}}
    said = taken(made, fixed=fixed)["said"][0]
    assert said["refused"] == "The arguments is 262167 bytes long; at most 262144 are kept."


NESTED: list[tuple[Any, set[str]]] = [
    ({}, set()),
    (True, set()),
    ({"properties": True}, set()),
    ({"properties": {"a": {}, "b": {"properties": {"c": {}}}}}, {"a", "b", "c"}),
    ({"items": {"properties": {"a": {}}}}, {"a"}),
    ({"additionalProperties": {"properties": {"a": {}}}}, {"a"}),
    ({"$defs": {"one": {"properties": {"a": {}}}, "two": {"properties": {"b": {}}}}}, {"a", "b"}),
    ({"allOf": [{"properties": {"a": {}}}, True, {"anyOf": [{"properties": {"b": {}}}]}]}, {"a", "b"}),
    ({"required": ["a"], "properties": {"b": {}}}, {"b"}),
]


@pytest.mark.parametrize(("schema", "names"), NESTED)
def test_a_schema_names_properties_at_any_depth(schema: Any, names: set[str]) -> None:
    assert _names(schema) == names


def test_people_are_not_asked_again_what_they_have_left_unanswered() -> None:
    questions = [call(ASK, {"question": words}, words) for words in ("Why?", "How?")]
    found = taken(calls(*questions), barred=[marked("ask_desk", ASK, {"question": "Why?"})])
    assert found["calls"] == [["ask_desk", "asked_before"], ["ask_desk", ""]]


def test_what_the_author_has_fixed_is_in_the_input_and_in_its_digest() -> None:
    fixed = '        - {do: probe.effect.apply, with: {name: "${{ trigger.text }}"}}\n'
    node = node_of(text=agent().replace("        - probe.effect.apply\n", fixed))
    found = taken(calls(call(APPLY, {"value": "1"}, "1")), node, {APPLY: {"name": "a"}, READ: {"name": "z"}})
    assert found["said"] == [
        {"id": "1", "tool": APPLY, "source": "probe.effect.apply", "input": A, "digest": OF_A},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "limit", "result"),
    [
        ("Hi.", "", {"text": "Hi."}),
        ("Hi.", "cost", {"text": "Hi.", "limit": "cost"}),
        (None, "", {"text": ""}),
    ],
)
def test_an_answer_in_words_is_the_result_and_says_which_limit_made_it(
    text: str | None, limit: str, result: Any
) -> None:
    assert taken(says(text or ""), limit=limit) == {"came": "answer", "result": result}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('{"n": 1}', {"n": 1}),
        (' ```json\n{"n": 1}\n``` ', {"n": 1}),
        ('```\n{"n": 1}```', {"n": 1}),
        ('{"n": 1} ```', None),
        ('```{"n": 1}```', None),
        ('```json\n{"n": 1}', None),
        ("", None),
        ('{"n": "1"}', None),
        ("\ud800", None),
    ],
)
def test_an_answer_in_a_shape_is_its_value_or_a_problem(text: str, result: Any) -> None:
    found = taken(says(text), SHAPED, limit="turns")
    if result is not None:
        assert found == {"came": "answer", "result": result}
    else:
        assert (set(found), found["came"]) == ({"came", "problem"}, "misfit")
        assert found["problem"].startswith("the answer")


@pytest.mark.parametrize("text", ['{"n": 9007199254740993}', '{"n": 1, "more": "a\\u0000"}'])
def test_an_answer_that_cannot_be_recorded_is_asked_for_again(text: str) -> None:
    found = taken(says(text), node_of("result: {type: object}"))
    assert (set(found), found["came"]) == ({"came", "problem"}, "misfit")


@pytest.mark.parametrize(
    "output",
    [None, [], "text", {}, {"text": None}, {"tool_calls": []}, {"tool_calls": "x"}, {"text": "", "tool_calls": None}],
)
def test_an_answer_without_calls_is_an_answer(output: Any) -> None:
    found = answered(NODE, Agent(stage=Stage.ASKED, turn=1), {}, output)
    assert (found.came, found.result, found.said, found.problem) == (Stage.ANSWER, {"text": ""}, None, None)


# -- what comes next ---------------------------------------------------------------------------------------------------

LIMITS = Limits(turns=3, calls=4, asks=2, refusals=2, tokens=100, cost="0.5")
AT_A_LIMIT: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"refusals": 1, "turn": 2, "made": 3, "tokens": 99, "cost": "0.49", "asks": 9, "repairs": 9}, ""),
    ({"refusals": 2}, "refusals"),
    ({"refusals": 3}, "refusals"),
    ({"turn": 3}, "turns"),
    ({"turn": 4}, "turns"),
    ({"turn": 5, "first": 4}, ""),
    ({"turn": 6, "first": 4}, "turns"),
    ({"made": 4}, "calls"),
    ({"made": 5}, "calls"),
    ({"tokens": 100}, "tokens"),
    ({"tokens": 101}, "tokens"),
    ({"cost": "0.5"}, "cost"),
    ({"cost": "0.50"}, "cost"),
    ({"cost": "10"}, "cost"),
    ({"unpriced": True}, "cost"),
    ({"refusals": 2, "turn": 3, "made": 4, "tokens": 100, "cost": "1"}, "refusals"),
    ({"turn": 3, "made": 4, "tokens": 100, "cost": "1"}, "turns"),
    ({"made": 4, "tokens": 100, "cost": "1"}, "calls"),
    ({"tokens": 100, "cost": "1"}, "tokens"),
]


@pytest.mark.parametrize(
    ("bound", "cost", "limit"),
    [("10", "9", ""), ("10", "9.999", ""), ("10", "10.0", "cost"), ("2.50", "12", "cost"), (None, "99", "")],
)
def test_what_an_agent_costs_is_a_number(bound: str | None, cost: str, limit: str) -> None:
    assert reached(replace(LIMITS, cost=bound), Agent(turn=1, cost=cost)) == limit


@pytest.mark.parametrize(("state", "limit"), AT_A_LIMIT)
def test_an_agent_is_at_a_limit_once_it_has_come_to_it(state: dict[str, Any], limit: str) -> None:
    assert reached(LIMITS, Agent(**state)) == limit
    free = replace(LIMITS, cost=None)
    assert reached(free, Agent(**state)) == ("" if limit == "cost" else limit)


OVER, OPEN, NEW = Called("d", came="done"), Called("e", came="open"), Called("f")
DENIED, REJECTED = Called("g", came="denied"), Called("h", came="rejected")
FAILS, FAILS_AT, PLAIN = node_of("on_denied: fail"), node_of("on_limit: fail\nlimits: {turns: 1}"), node_of()
CONCLUDES = node_of("limits: {turns: 1}")


def failed(kind: str, code: str, message: str) -> Ahead:
    return Ahead(True, {"class": kind, "code": code, "message": message})


NO_RESULT = failed(
    "transport", "agent_result", "The model gave no result that fits, although it was told what is wrong 2 times."
)
NO_MORE = failed(
    "authorization",
    "agent_denied",
    "A call of the agent was denied or rejected, and `on_denied` says that it fails then.",
)
AT_TURNS = failed("definition", "agent_limit", "The agent has come to its limit of turns.")
NOT_CONCLUDED = failed(
    "definition", "agent_limit", "The agent has come to its limit of cost, and did not conclude when it was told to."
)
NEXT: list[tuple[AgentNode, dict[str, Any], Ahead | None]] = [
    (PLAIN, {"stage": Stage.ANSWER}, Ahead(True)),
    (PLAIN, {"stage": Stage.FAILED}, Ahead(True)),
    (PLAIN, {"stage": Stage.BEGUN}, Ahead(False)),
    (PLAIN, {"stage": Stage.ASKED}, None),
    (PLAIN, {"stage": Stage.OVER}, None),
    (PLAIN, {"stage": Stage.CALLS, "calls": {1: OVER, 2: OPEN}}, None),
    (PLAIN, {"stage": Stage.CALLS, "calls": {1: OVER, 2: NEW}}, None),
    (PLAIN, {"stage": Stage.CALLS, "calls": {1: OVER, 2: DENIED}}, Ahead(False)),
    (FAILS, {"stage": Stage.CALLS, "calls": {1: OPEN, 2: DENIED}}, NO_MORE),
    (FAILS, {"stage": Stage.CALLS, "calls": {1: REJECTED}}, NO_MORE),
    (FAILS, {"stage": Stage.CALLS, "calls": {1: OVER, 2: replace(OVER, came="expired")}}, Ahead(False)),
    (FAILS, {"stage": Stage.ASKED, "calls": {1: DENIED}}, None),
    (PLAIN, {"stage": Stage.MISFIT, "repairs": 2}, Ahead(False)),
    (PLAIN, {"stage": Stage.MISFIT, "repairs": 3}, NO_RESULT),
    (PLAIN, {"stage": Stage.MISFIT, "repairs": 2, "limit": "cost"}, Ahead(False, limit="cost")),
    (PLAIN, {"stage": Stage.MISFIT, "repairs": 3, "limit": "cost"}, NO_RESULT),
    (PLAIN, {"stage": Stage.CALLS, "limit": "cost"}, NOT_CONCLUDED),
    (FAILS_AT, {"stage": Stage.CALLS, "turn": 1}, AT_TURNS),
    (FAILS_AT, {"stage": Stage.MISFIT, "turn": 1}, AT_TURNS),
    (FAILS_AT, {"stage": Stage.CALLS, "turn": 0}, Ahead(False)),
    (CONCLUDES, {"stage": Stage.CALLS, "turn": 1}, Ahead(False, limit="turns")),
    (CONCLUDES, {"stage": Stage.MISFIT, "turn": 1}, Ahead(False, limit="turns")),
    # The first limit that it came to is the one that is told, whichever others it has come to since.
    (CONCLUDES, {"stage": Stage.CALLS, "turn": 1, "limit": "cost"}, NOT_CONCLUDED),
    (FAILS_AT, {"stage": Stage.CALLS, "turn": 1, "limit": "cost"}, NOT_CONCLUDED),
    (CONCLUDES, {"stage": Stage.MISFIT, "turn": 1, "limit": "cost", "repairs": 2}, Ahead(False, limit="cost")),
    (FAILS_AT, {"stage": Stage.MISFIT, "turn": 1, "limit": "cost"}, Ahead(False, limit="cost")),
    (FAILS, {"stage": Stage.MISFIT, "calls": {1: DENIED}}, Ahead(False)),
]


@pytest.mark.parametrize("case", range(len(NEXT)))
def test_an_agent_goes_on_waits_or_ends(case: int) -> None:
    node, state, expected = NEXT[case]
    assert ahead(node, Agent(**{"turn": 1, **state}).copy()) == expected


def test_a_call_that_repeats_what_was_denied_meanwhile_is_refused_once_its_first_is_over() -> None:
    made = {
        1: Called("d", came="denied"), 2: Called("d", after=1), 3: Called("e", after=1), 4: Called("d", after=5),
        5: Called("f", came="open"), 6: Called("d", came="done"), 7: Called("d", came="open"), 8: Called("d"),
    }  # fmt: skip
    agent_ = Agent(stage=Stage.CALLS, turn=1, calls=made, barred=["d"], refusals=1).copy()
    assert settled(agent_) == [*agent_.calls.values()]
    assert {n: one.came for n, one in agent_.calls.items()} == {
        1: "denied", 2: "refused", 3: "", 4: "", 5: "open", 6: "done", 7: "open", 8: "refused",
    }  # fmt: skip
    assert {one.said for one in agent_.calls.values()} == {"", digest(ASKED_BEFORE)}
    assert [n for n, one in agent_.calls.items() if one.said] == [2, 8]
    assert agent_.refusals == 3


def test_calls_begin_when_those_before_them_are_over() -> None:
    made = {1: OVER, 2: Called("a", after=1), 3: Called("b", after=2), 4: NEW, 5: OPEN}
    agent_ = Agent(stage=Stage.CALLS, turn=2, calls=made).copy()
    assert [*due(PLAIN, "triage", agent_)] == ["triage/2/2", "triage/2/4"]
    assert [one.came for one in agent_.calls.values()] == ["done", "open", "", "open", "open"]
    assert (agent_.turn, agent_.stage) == (2, Stage.CALLS)
    assert [*due(PLAIN, "triage", agent_)] == []


def test_a_call_that_was_denied_meanwhile_does_not_begin_and_the_turn_goes_on_without_it() -> None:
    made = {1: Called("d", came="denied", said="s1"), 2: Called("d", after=1), 3: Called("e", after=1)}
    agent_ = Agent(stage=Stage.CALLS, turn=2, calls=made, barred=["d"]).copy()
    assert [*due(PLAIN, "triage", agent_)] == ["triage/2/3"]
    assert ([one.came for one in agent_.calls.values()], agent_.refusals) == (["denied", "refused", "open"], 1)


def test_the_next_turn_begins_with_all_results_and_with_nothing_of_the_turn_before() -> None:
    made = {2: Called("b", came="done", said="s2"), 1: Called("a", came="done", said="s1")}
    agent_ = Agent(stage=Stage.CALLS, turn=1, calls=made, digest="before", made=2).copy()
    assert heard(agent_) == digest(["before", "s1", "s2"])
    assert [*due(CONCLUDES, "triage", agent_)] == ["triage/2"]
    assert agent_ == Agent(
        stage=Stage.ASKED, turn=2, made=2, limit="turns", digest=digest(["before", "s1", "s2"])
    )  # fmt: skip
    assert heard(agent_) == agent_.digest, "where nothing was called, nothing more was heard"
    ends = {n: Called(str(n), came=came, said=f"s{n}") for n, came in enumerate(Came, start=1)}
    said = Agent(stage=Stage.CALLS, calls=dict(reversed(ends.items())), digest="before")
    assert heard(said) == digest(["before", *(f"s{n}" for n in ends)])
    over = Agent(stage=Stage.ANSWER, turn=1).copy()
    assert ([*due(PLAIN, "triage", over)], over.turn) == ([], 1)


def test_keys_say_the_agent_the_turn_and_the_call() -> None:
    keys = ["each[3].triage", "each[3].triage/12", "each[3].triage/12/107"]
    assert {agent_of(key) for key in keys} == {keys[0]}
    assert [number_of(key) for key in keys[1:]] == [(12, 0), (12, 107)]
    assert [is_turn(key) for key in keys] == [False, True, False]
    assert [came for came in ("", *Came) if not Called("d", came=came).over] == ["", Came.OPEN]


def test_a_key_leads_to_the_leaf_of_its_turn_or_of_its_tool() -> None:
    leaves = [NODE.inner(*at) for at in (("3", None), ("3", APPLY), ("3/2", None), ("3/2", APPLY), ("12/1", ASK))]
    assert leaves == [NODE.turn, NODE.turn, NODE.turn, NODE.tools[APPLY].leaf, NODE.tools[ASK].leaf]


def test_what_a_model_gives_is_data_and_its_question_is_marked_as_its_own() -> None:
    given, asked = Given(), Question()
    assert {*given.references, *asked.references} == {"agent.given"}
    assert (given.literals(), asked.literals()) == ({}, {})
    words = {"question": "${{ trigger.secret }}?"}
    found = given.render({"agent.given": words, "other": 1})
    assert found == words
    assert found is not words
    assert asked.render({"agent.given": words}) == "A model asks: ${{ trigger.secret }}?"
