"""Lines for people, whole: what a change of policy does and what an agent did, with and without each extra."""

from __future__ import annotations

from typing import Any

import pytest

from app.cli.telling import consequence_lines, proposed_by, source_rows, story_lines

NOTHING: dict[str, Any] = {
    "rollback_from": None,
    "rules": [],
    "steps": [],
    "questions": [],
    "more": {"rules": 0, "steps": 0, "questions": 0},
    "unread": 0,
}
STEP = {"workflow": "w@1", "step": "s", "operation": "a.b.c", "before": "always denied", "after": "it depends"}
QUESTION = {"approval": "a1", "run": "r1", "step": "s", "outcome": "deny"}
CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    (NOTHING, []),
    ({**NOTHING, "rollback_from": 7}, ["This goes back from version 7: it is a rollback."]),
    ({**NOTHING, "rollback_from": 0}, ["This goes back from version 0: it is a rollback."]),
    (
        {**NOTHING, "rules": [{"rule": "p/r", "what": "is new"}, {"rule": "p/q", "what": "changes"}]},
        ["rule p/r is new", "rule p/q changes"],
    ),
    ({**NOTHING, "steps": [STEP]}, ["step s of w@1 (a.b.c): always denied → it depends"]),
    (
        {
            **NOTHING,
            "questions": [QUESTION, {**QUESTION, "outcome": "allow"}, {**QUESTION, "outcome": "needs_approval"}],
        },
        [f"open question a1 (run r1, step s) {words}" for words in ("is denied", "is allowed", "is asked anew")],
    ),
    (
        {**NOTHING, "more": {"rules": 1, "steps": 0, "questions": 2}},
        ["and 1 more rules", "and 2 more questions"],
    ),
    (
        {**NOTHING, "unread": 3},
        ["3 open questions were not looked at beforehand; they are judged when it is in force"],
    ),
]


@pytest.mark.parametrize(("told", "lines"), CASES)
def test_each_consequence_has_its_line(told: dict[str, Any], lines: list[str]) -> None:
    assert [*consequence_lines(told)] == lines


CALL = {
    "step_key": "t/1/1",
    "tool": "look",
    "source": "crm.look",
    "asked": '{"a": 1}',
    "came": "done",
    "reason": "",
    "by": "",
    "status": "succeeded",
}
TURN: dict[str, Any] = {
    "turn": 1,
    "step_key": "t/1",
    "status": "succeeded",
    "came": "calls",
    "reason": "",
    "tokens": 5,
    "says": "",
    "result": None,
    "calls": [],
}
AGENT: dict[str, Any] = {
    "step_key": "t",
    "model": "m",
    "tools": ["look"],
    "status": "running",
    "limit": "",
    "calls": 1,
    "refusals": 0,
    "tokens": 5,
    "cost_usd": "0.10",
    "turns": [TURN],
}
FIRST = "m  running: 1 turn, 1 call, 0 refused, 5 tokens, 0.10 USD"
SECOND = "  turn 1  calls, 5 tokens"
STORIES: list[tuple[dict[str, Any], list[str]]] = [
    (AGENT, [FIRST, SECOND]),
    (
        {**AGENT, "turns": [], "calls": 0, "refusals": 2, "tokens": 1, "cost_usd": None, "limit": "turns"},
        ["m  running: 0 turns, 0 calls, 2 refused, 1 token, at an unknown price", "  it came to its limit of turns"],
    ),
    (
        {**AGENT, "turns": [{**TURN, "came": "", "tokens": 1, "reason": "it was slow"}]},
        [FIRST, "  turn 1  succeeded, 1 token: it was slow"],
    ),
    ({**AGENT, "turns": [{**TURN, "says": "Let me see."}]}, [FIRST, SECOND, "    the model says: Let me see."]),
    (
        {**AGENT, "turns": [{**TURN, "says": "Done.", "result": {"b": 1, "a": "é"}}]},
        [FIRST, SECOND, '    result: {"a":"é","b":1}'],
    ),
    ({**AGENT, "turns": [{**TURN, "result": False}]}, [FIRST, SECOND, "    result: false"]),
    ({**AGENT, "cost_usd": "0"}, ["m  running: 1 turn, 1 call, 0 refused, 5 tokens, 0 USD", SECOND]),
    ({**AGENT, "turns": [{**TURN, "came": "answer", "says": "Done.", "result": {}}]},
     [FIRST, "  turn 1  answer, 5 tokens", "    result: {}"]),
    ({**AGENT, "turns": [{**TURN, "reason": "x" * 161, "says": "y" * 161}]},
     [FIRST, f"{SECOND}: {'x' * 160}… (161 characters)", f"    the model says: {'y' * 160}… (161 characters)"]),
    ({**AGENT, "turns": [{**TURN, "result": "z" * 161}, {**TURN, "turn": 2, "tokens": 0}]},
     [FIRST.replace("1 turn,", "2 turns,"), SECOND, f'    result: "{"z" * 159}… (163 characters)',
      "  turn 2  calls, 0 tokens"]),
]  # fmt: skip
CALLS: list[tuple[dict[str, Any], str]] = [
    ({}, 't/1/1  crm.look {"a": 1} → done'),
    ({"source": "?"}, 't/1/1  look {"a": 1} → done'),
    ({"came": "open", "status": "waiting_approval"}, 't/1/1  crm.look {"a": 1} → open (waiting approval)'),
    ({"came": "open", "status": ""}, 't/1/1  crm.look {"a": 1} → open'),
    ({"came": "denied", "status": "failed", "reason": "Not b."}, 't/1/1  crm.look {"a": 1} → denied: Not b.'),
    ({"came": "rejected", "by": "ann", "reason": "No."}, 't/1/1  crm.look {"a": 1} → rejected by ann: No.'),
    ({"asked": "x" * 160}, f"t/1/1  crm.look {'x' * 160} → done"),
    ({"asked": "x" * 161}, f"t/1/1  crm.look {'x' * 160}… (161 characters) → done"),
    ({"reason": "x" * 161}, f't/1/1  crm.look {{"a": 1}} → done: {"x" * 160}… (161 characters)'),
    ({"source": "x" * 161}, f't/1/1  {"x" * 160}… (161 characters) {{"a": 1}} → done'),
    ({"came": "open", "status": "failed", "by": "ann"}, 't/1/1  crm.look {"a": 1} → open (failed) by ann'),
]


@pytest.mark.parametrize(("agent", "lines"), STORIES)
def test_a_story_is_told_turn_by_turn(agent: dict[str, Any], lines: list[str]) -> None:
    assert [*story_lines(agent)] == lines


@pytest.mark.parametrize(("call", "line"), CALLS)
def test_a_call_is_told_with_what_came_of_it(call: dict[str, Any], line: str) -> None:
    told = [*story_lines({**AGENT, "turns": [{**TURN, "calls": [{**CALL, **call}]}]})]
    assert told == [FIRST, SECOND, f"    {line}"]


def test_sources_and_proposers_are_named() -> None:
    one = {"field": "a", "words": "stands in", "of": "", "ours": True, "value": "v"}
    assert [*source_rows([one, {**one, "of": "mail.read", "ours": False}])] == [
        {"field": "a", "source": "stands in", "quoted": "v"},
        {"field": "a", "source": "NOT OURS: stands in mail.read", "quoted": "v"},
    ]
    agent = {"step": "t", "model": "m", "turn": 2, "requester": "ann", "read": ["a", "b"], "says": "Yes."}
    assert proposed_by(agent) == {
        "proposed_by": "the agent of step t (m), turn 2, for ann",
        "has_read": "a, b",
        "the_model_says": "Yes.",
    }
    assert proposed_by(None) == proposed_by({}) == {}
