"""The order of planning: sequences, needs, conditions and loops, on commits read back from storage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.errors import ConsistencyError
from runtime.engine.book.plan import LOOP_ITEMS_MAX, Recorded
from runtime.engine.model.run import State

NOTHING: Any = None
HEAD = "workflow: w\nversion: 1\nreference: r\n"


def step(name: str, *, needs: str = "", value: str = "x") -> str:
    line = f'  - {{id: {name}, do: probe.value.read, with: {{name: {name}, value: "{value}"}}'
    return line + (f", needs: [{needs}]" if needs is not None and needs != "" else "") + "}\n"


def free(name: str) -> str:
    return f"  - {{id: {name}, do: probe.value.read, with: {{name: {name}}}, needs: []}}\n"


def test_a_sequence_runs_one_after_the_other(simulate: Any) -> None:
    run = simulate(HEAD + "steps:\n" + step("a") + step("b") + step("c")).settle_all()
    assert (run.executed, run.status) == (["a", "b", "c"], "succeeded")


@pytest.mark.req("V-5")
def test_a_diamond_runs_its_sides_together_and_joins(simulate: Any) -> None:
    run = simulate(
        HEAD + "steps:\n" + step("a") + step("b", needs="a") + step("c", needs="a") + step("d", needs="b, c")
    )
    run.claim("a")
    run.succeed("a")
    assert run.ready() == ["b", "c"]
    run.claim("b")
    run.succeed("b")
    assert run.ready() == ["c"]
    run.settle_all()
    assert (run.executed, run.status) == (["a", "b", "c", "d"], "succeeded")


def test_steps_beside_the_first_wait_for_the_start_of_the_run(simulate: Any) -> None:
    run = simulate(HEAD + "steps:\n" + free("a") + free("b") + free("c"))
    assert run.ready() == ["a"]
    assert [(row.key, row.starts_run) for row in run.line.values()] == [("a", True)]
    run.claim("a")
    assert run.ready() == ["b", "c"]
    assert [row.key for row in run.line.values() if row.starts_run] == ["a"]


CONDITION = (
    HEAD
    + """steps:
  - if: ${{ trigger.big }}
    then:
      - {id: yes1, do: probe.value.read, with: {name: a}}
      - {id: yes2, do: probe.value.read, with: {name: a}}
    else:
      - {id: no1, do: probe.value.read, with: {name: a}}
  - id: last
    do: probe.value.read
    with: {name: "${{ steps.yes1.status == 'skipped' ? 'small' : 'big' }}"}
"""
)


@pytest.mark.req("X-11")
@pytest.mark.req("Q-7")
@pytest.mark.parametrize(("big", "path", "last"), [(True, ["yes1", "yes2"], "big"), (False, ["no1"], "small")])
def test_a_condition_takes_one_path(simulate: Any, big: bool, path: list[str], last: str) -> None:
    run = simulate(CONDITION, {"big": big}).settle_all()
    assert run.executed == [*path, "last"]
    assert run.rows["last"].output["name"] == last
    assert run.status == "succeeded"


@pytest.mark.parametrize(("outer", "inner", "path"), [(1, 1, "ab"), (1, 0, "ac"), (0, 1, "d")])
def test_conditions_nest_and_what_is_skipped_can_be_asked_for(simulate: Any, outer: int, inner: int, path: str) -> None:
    text = (
        HEAD
        + """steps:
  - if: ${{ trigger.outer == 1 }}
    then:
      - {id: a, do: probe.value.read, with: {name: a}}
      - if: ${{ trigger.inner == 1 }}
        then: [{id: b, do: probe.value.read, with: {name: b}}]
        else: [{id: c, do: probe.value.read, with: {name: c}}]
    else:
      - {id: d, do: probe.value.read, with: {name: d}}
  - {id: end, do: probe.value.read, with: {name: "${{ steps.b.status + steps.c.status + steps.d.status }}"}}
"""
    )
    run = simulate(text, {"outer": outer, "inner": inner}).settle_all()
    assert "".join(run.executed[:-1]) == path
    expected = "".join("succeeded" if name in path else "skipped" for name in "bcd")
    assert run.rows["end"].output["name"] == expected


@pytest.mark.req("X-11")
def test_a_condition_that_fails_fails_the_run_and_takes_no_branch(simulate: Any) -> None:
    run = simulate(CONDITION.replace("trigger.big", "trigger.missing"), {})
    assert run.rows == {}
    assert run.error["class"] == "expression"
    run = simulate(
        HEAD + "steps:\n" + step("first") + CONDITION.split("steps:\n")[1].replace("trigger.big", "trigger.no")
    )
    run.claim("first")
    run.succeed("first")
    assert (run.status, run.executed, run.open_steps) == ("failed_terminal", ["first"], {})
    assert run.verified()


def test_a_fault_beside_the_first_step_leaves_nothing_to_run(simulate: Any) -> None:
    text = HEAD + "steps:\n" + free("a") + "  - if: ${{ trigger.no }}\n    needs: []\n    then:\n    " + step("b")
    run = simulate(text)
    assert (run.rows, run.state.open, run.ready()) == ({}, [], [])
    assert run.error["step"] == "if_1"


LOOP = (
    HEAD
    + """channels: {seen: {reduce: append}, total: {reduce: sum, initial: 0}}
steps:
  - id: each
    foreach: ${{ trigger.items }}
    as: thing
    max_parallel: MAX
    steps:
      - id: one
        do: probe.value.read
        with: {name: "${{ string(index) }}", value: "${{ thing }}"}
      - id: two
        do: probe.value.read
        with: {name: "${{ steps.one.output.name }}", value: "${{ item }}"}
        set: {seen: "${{ output.value }}", total: "${{ output.value }}"}
  - {id: after, do: probe.value.read, with: {name: "${{ string(steps.each.output.count) }}"}}
"""
)


@pytest.mark.req("X-12")
def test_a_loop_keeps_nothing_of_items_that_are_done(simulate: Any) -> None:
    run = simulate(LOOP.replace("MAX", "2"), {"items": [1, 2, 3]})
    while "each[2].one" not in run.ready():
        key = min(run.ready())
        run.claim(key)
        run.succeed(key)
    held = {name for kept in (run.state.status, run.state.outputs) for name in kept}
    assert not {name for name in held if name.startswith(("each[0].", "each[1]."))}


@pytest.mark.req("X-12")
@pytest.mark.parametrize("parallel", [1, 2, 20])
def test_a_loop_does_every_item_with_at_most_so_many_at_once(simulate: Any, parallel: int) -> None:
    run = simulate(LOOP.replace("MAX", str(parallel)), {"items": list(range(12))})
    widest = 0
    while not run.finished:
        widest = max(widest, len(run.state.open))
        for key in run.ready():
            run.claim(key)
        for key in [key for key, row in run.rows.items() if row.status == "running"]:
            run.succeed(key)
    assert run.status == "succeeded"
    assert widest == min(parallel, 12)
    assert run.state.channels == {"seen": list(range(12)), "total": 66}
    assert run.rows["after"].output["name"] == "12"
    # What an iteration knew is dropped when it is over: the state does not grow with what is done.
    assert set(run.state.status) == {"each", "after"}
    assert run.state.loops == {}


def test_an_empty_loop_is_done_at_once(simulate: Any) -> None:
    run = simulate(LOOP.replace("MAX", "3"), {"items": []}).settle_all()
    assert (run.executed, run.status) == (["after"], "succeeded")


@pytest.mark.req("X-12")
def test_a_wait_inside_an_iteration_resumes_inside_it(simulate: Any) -> None:
    run = simulate(LOOP.replace("MAX", "2"), {"items": [10, 20, 30]})
    run.claim("each[0].one")
    run.claim("each[1].one")
    run.park("each[0].one")
    run.succeed("each[1].one")
    assert run.ready() == ["each[1].two"]
    run.settle_all()
    # The third item has taken the free place; the first one holds its own while it waits.
    assert run.executed[-2:] == ["each[2].one", "each[2].two"]
    assert run.status == "waiting_approval"
    run.resume("each[0].one")
    run.settle_all()
    assert run.executed[-3:] == ["each[0].one", "each[0].two", "after"]
    assert run.state.channels["seen"] == [20, 30, 10]
    assert run.status == "succeeded"


def test_loops_nest(simulate: Any) -> None:
    text = (
        HEAD
        + """channels: {seen: {reduce: append}}
steps:
  - id: outer
    foreach: ${{ trigger.rows }}
    as: row
    max_parallel: 2
    steps:
      - id: inner
        foreach: ${{ row }}
        as: cell
        max_parallel: 2
        steps:
          - id: leaf
            do: probe.value.read
            with: {name: "${{ string(index) }}", value: "${{ cell }}"}
            set: {seen: "${{ [output.value, row] }}"}
"""
    )
    run = simulate(text, {"rows": [[1, 2], [], [3]]}).settle_all()
    assert sorted(run.executed) == ["outer[0].inner[0].leaf", "outer[0].inner[1].leaf", "outer[2].inner[0].leaf"]
    assert run.state.channels["seen"] == [[1, [1, 2]], [2, [1, 2]], [3, [3]]]
    assert json.loads(run.checkpoints[run.run.superstep][0])["status"] == {"outer": "succeeded"}


@pytest.mark.parametrize(
    ("items", "message"), [(list(range(LOOP_ITEMS_MAX + 1)), "10001 items"), ("text", "list"), ({"a": 1}, "list")]
)
def test_a_loop_over_too_much_or_over_no_list_fails_the_run(simulate: Any, items: Any, message: str) -> None:
    run = simulate(LOOP.replace("MAX", "1"), {"items": items})
    assert run.rows == {}
    assert message in run.error["message"]


EACH = HEAD + (
    "steps:\n  - foreach: ${{ trigger.items }}\n    as: item\n    max_parallel: 9\n    steps:\n"
    "      - {id: one, do: probe.value.read, with: {name: x}}\n"
)


@pytest.mark.req("P-9")
@pytest.mark.parametrize(
    ("made", "asked", "words"),
    [
        ([["a", True], ["each", [1, 2]]], ["a", "each"], ""),
        ([["a", False]], ["a"], ""),
        ([["b", True]], ["a"], "planning asks for a; recorded next is ['b', True]"),
        ([["b", True]], ["a.b"], "planning asks for a.b; recorded next is ['b', True]"),
        ([["b.a", True]], ["b"], "planning asks for b; recorded next is ['b.a', True]"),
        ([["each", [1]], ["a", True]], ["a", "each"], "planning asks for a; recorded next is ['each', [1]]"),
        ([["a", True]], ["a", "each"], "planning asks for each; recorded next is None"),
        ([["a", True, 1]], ["a"], "planning asks for a; recorded next is ['a', True, 1]"),
        (["a"], ["a"], "planning asks for a; recorded next is 'a'"),
    ],
)
def test_recorded_choices_answer_whoever_they_were_made_for(made: list[Any], asked: list[str], words: str) -> None:
    recorded, none = Recorded(made), State({})
    if words:
        with pytest.raises(ConsistencyError) as raised:
            _ = [recorded.choose(none, NOTHING, key) for key in asked]
        assert raised.value.message == words
    else:
        assert [recorded.choose(none, NOTHING, key) for key in asked] == [value for _, value in made]
