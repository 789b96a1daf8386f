"""The people who shaped an action, by the references of its expressions: a table (promise 12)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from connectors.catalog import Source, catalog_of
from core.identity import Directory, Entry, Role
from core.terms import GroupQuorum, Terms, Tier
from runtime.definition.workflow import load_workflow
from runtime.engine.book import contributors
from runtime.engine.book.contributors import (
    added_by,
    contributors_of,
    everybody,
    mark,
    marks_of,
    named,
    parted,
)
from runtime.engine.book.questions import shaped_by
from runtime.engine.model.graph import Graph
from runtime.engine.model.rows import StepRow, WaitRow
from runtime.engine.model.run import State
from runtime.engine.model.states import StepState, WaitKind, WaitState
from runtime.engine.replay.replay import unopened
from tests.support.engine_stage import KEY, OPERATIONS, RUN_ID

# Whose mark lies on what, by one letter each.
SHAPED = {
    "run": "R",
    "steps.form": "F",
    "steps.read": "D",
    "state.amount": "A",
    "state.items": "I",
    "run.reference": "N",
    "votes.ok": "V",
    "votes.fails": "W",
    "added.extra": "E",
    "steps.each[3].inner": "L",
    "steps.each[4].inner": "O",
}
HEAD = """
workflow: w
version: 1
reference: r
channels: {amount: {initial: 1}, items: {initial: []}, other: {initial: 0}}
steps:
  - {id: read, do: probe.value.read, with: {name: "${{ trigger.name }}"}}
  - {id: form, task: {title: t, form: {type: object, properties: {x: {type: string}}}, assign: {group: g}}}
  - {id: ok, approve: {summary: s, approvers: {group: g}}}
"""
ACT = "{{id: act, do: probe.value.read, with: {{name: {0}}}}}"


def marked(letter: str) -> str:
    return mark(Role.SIGNAL_SENDER, f"person:{letter}", "somewhere")


def graph_of(steps: str) -> Graph:
    catalog = catalog_of([Source("test", OPERATIONS)])
    return load_workflow(HEAD + steps, "test.yaml", catalog).graph


def state_of(**shaped: str) -> State:
    return State({}, shaped={name: [marked(letter) for letter in letters] for name, letters in shaped.items()})


def used(graph: Graph, key: str = "act") -> str:
    found = marks_of(state_of(**SHAPED), graph, key)
    return "".join(sorted(parted(one)[2].removeprefix("person:") for one in found))


def act(expression: str) -> str:
    return f"  - {ACT.format(expression)}\n"


def within(head: str, expression: str = "x") -> str:
    return f"  - {head}\n    steps:\n      - {ACT.format(expression)}\n"


BRANCHES = "  - {{id: fails, do: probe.value.read, with: {{name: {0}}}, on_failure: [{1}]}}\n"
TABLE: dict[str, tuple[str, str]] = {
    "what is written in the workflow": (act("x"), "R"),
    "the trigger": (act('"${{ trigger.name }}"'), "R"),
    "a form": (act('"${{ steps.form.output.x }}"'), "FR"),
    "a form within a longer text": (act('"about ${{ steps.form.output.x }}!"'), "FR"),
    "a part of a nested value": (act('{deep: [1, {a: "${{ state.amount }}"}]}'), "AR"),
    "a channel": (act('"${{ state.amount }}"'), "AR"),
    "several": (act('"${{ string(state.amount) + steps.form.output.x + steps.read.output.name }}"'), "ADFR"),
    "whether a step is over": (act('"${{ steps.form.status }}"'), "FR"),
    "a gate's answer": (act('"${{ steps.ok.output.reason }}"'), "RV"),
    "that a gate was passed": (act('"${{ steps.ok.status }}"'), "R"),
    "the run's reference": (act('"${{ run.reference }}"'), "NR"),
    "other parts of the run": (act('"${{ run.workflow }}"'), "R"),
    "what it sets": ('  - {id: act, do: probe.value.read, set: {other: "${{ state.amount }}"}}\n', "AR"),
    "how it names the run": ('  - {id: act, do: probe.value.read, reference: "${{ steps.form.output.x }}"}\n', "FR"),
    "a condition": ("  - if: ${{ state.amount > 1 }}\n    then:\n      - " + ACT.format("x") + "\n", "AR"),
    "the other side of a condition": (
        "  - if: ${{ state.amount > 1 }}\n    then: [{do: probe.value.read, id: idle}]\n    else:\n      - "
        + ACT.format("x")
        + "\n",
        "AR",
    ),
    "conditions within conditions": (
        "  - if: ${{ state.amount > 1 }}\n    then:\n      - if: ${{ steps.form.output.x == 'y' }}\n        then:\n"
        "          - " + ACT.format("x") + "\n",
        "AFR",
    ),
    "a loop over items": (within("id: each\n    foreach: ${{ state.items }}\n    as: one"), "IR"),
    "a loop while": (within("id: each\n    while: ${{ state.amount < 3 }}"), "AR"),
    "a failure": (BRANCHES.format('"${{ state.amount }}"', ACT.format("x")), "R"),
    "what was said of a failure": (BRANCHES.format('"x"', ACT.format('"${{ error.message }}"')), "RW"),
    "whether it is done after a failure": (
        BRANCHES.format('"x"', "{if: \"${{ error.code == 'x' }}\", then: [" + ACT.format("x") + "]}"),
        "RW",
    ),
    "a step that was added": ("  - {id: extra, do: probe.value.read, needs: []}\n" + act("x"), "R"),
}


@pytest.mark.parametrize("case", TABLE)
def test_an_action_is_shaped_by_whatever_its_expressions_read(case: str) -> None:
    steps, expected = TABLE[case]
    assert used(graph_of(steps)) == expected


def test_of_an_iteration_only_its_own_steps_are_read() -> None:
    inner = "{id: inner, do: probe.value.read}"
    text = "  - id: each\n    foreach: ${{ trigger.items }}\n    as: one\n    steps:\n      - " + inner + "\n      - "
    graph = graph_of(text + ACT.format('"${{ steps.inner.output.name }}"') + "\n")
    assert used(graph, "each[3].act") == "LR"
    assert used(graph, "each[4].act") == "OR"


def test_of_loops_within_loops_each_round_reads_its_own_steps_and_those_around_it() -> None:
    """And no others: neither those of another round, nor those of a loop within."""
    read = '"${{ string(steps.far.output.n) + steps.mid.output.name + steps.near.output.name }}"'
    text = f"""
  - id: outer
    foreach: ${{{{ trigger.rows }}}}
    as: row
    steps:
      - {{id: mid, do: probe.value.read}}
      - id: inner
        foreach: ${{{{ row }}}}
        as: cell
        steps:
          - {{id: near, do: probe.value.read}}
          - {ACT.format(read)}
"""
    graph = graph_of("  - {id: far, do: probe.value.read}\n" + text)
    keys = ["far", "outer[1].mid", "outer[2].mid", "outer[1].inner[3].near", "outer[1].inner[4].near",
            "outer[2].inner[3].near", "inner[3].near", "near", "mid", "outer[1].inner[3].mid"]  # fmt: skip
    state = state_of(**{f"steps.{key}": "abcdefghij"[at] for at, key in enumerate(keys)})

    def shaped(key: str) -> str:
        return "".join(sorted(parted(one)[2].removeprefix("person:") for one in marks_of(state, graph, key)))

    assert shaped("outer[1].inner[3].act") == "abdhij"
    assert shaped("outer[2].inner[3].act") == "acfhi"
    assert shaped("outer[2].inner[4].act") == "achi"


@pytest.mark.parametrize("around", ["", "each[3].", "outer[1].inner[2]."])
def test_a_step_of_a_loop_is_known_by_its_own_name(around: str) -> None:
    state = state_of(**{"added.extra": "E"})
    assert (added_by(state, f"{around}extra"), added_by(state, f"{around}other")) == ("person:E", "")
    graph = graph_of("  - {id: extra, do: probe.value.read}\n")
    run = unopened(RUN_ID, KEY, graph)
    key = f"{around}extra"
    run.waits = {
        UUID(int=1): WaitRow(
            UUID(int=1), UUID(int=2), key, WaitKind.TASK, WaitState.COMPLETED, "n", result={"by": "person:ana"}
        )
    }
    contributors.settled(run, run.state, [StepRow(UUID(int=2), key, 0, "task", 0, StepState.SUCCEEDED)], graph)
    assert run.state.shaped == {f"steps.{key}": ["form_filler extra person:ana"]}
    row = StepRow(UUID(int=2), key, 0, "agent", 0, StepState.SUCCEEDED)
    run = unopened(RUN_ID, KEY, graph)
    run.state.shaped = state_of(**SHAPED).shaped
    contributors.settled(run, run.state, [row], graph)
    whole = {marked("R")}
    assert {*run.state.shaped[f"steps.{key}"]} == everybody(state_of(**SHAPED)) - whole


def test_a_count_of_a_loop_is_shaped_by_its_items_and_an_added_step_by_who_added_it() -> None:
    loop = "  - id: each\n    foreach: ${{ state.items }}\n    as: one\n    steps: [{do: probe.value.read, id: idle}]\n"
    assert used(graph_of(loop + act('"${{ string(steps.each.output.count) }}"'))) == "IR"
    extra = "  - {id: extra, do: probe.value.read}\n"
    assert used(graph_of(extra + act('"${{ steps.extra.output.name }}"'))) == "ER"
    assert used(graph_of(extra), "extra") == "ER"


def test_whoever_led_to_a_failure_shapes_what_is_done_about_it() -> None:
    graph = graph_of(BRANCHES.format('"x"', ACT.format("x")))
    assert used(graph) == "R"
    state = state_of(**{"steps.fails": "X"})
    assert marks_of(state, graph, "act") == {marked("X")}


def test_of_a_graph_whose_expressions_are_unknown_everything_counts_as_used() -> None:
    graph = graph_of(act("x"))
    unknown = Graph(graph.name, 1, "", graph.channels, graph.root, graph.leaves, graph.read)
    assert marks_of(state_of(**SHAPED), unknown, "act") == everybody(state_of(**SHAPED))


def test_where_nobody_else_had_a_part_nothing_is_looked_up() -> None:
    assert marks_of(State({}), graph_of(act('"${{ state.amount }}"')), "act") == frozenset()
    assert "shaped" not in State({}).to_json()


def test_marks_are_kept_with_the_state_and_are_never_taken_away() -> None:
    state = state_of(**SHAPED)
    again = State.from_json(state.to_json())
    assert again == state
    copied = state.copy()
    contributors.within(copied, "form", [marked("Z")])
    assert state.shaped["steps.form"] == [marked("F")]
    contributors.within(copied, "form", [marked("Y"), marked("A"), marked("F")])
    assert state.shaped["steps.form"] == [marked("F")]
    assert copied.shaped["steps.form"] == [marked(letter) for letter in "AFYZ"], "sorted, whoever came first"
    contributors.forget(copied, "each[3].")
    assert "steps.each[3].inner" not in copied.shaped
    assert "steps.each[4].inner" in copied.shaped


def test_everybody_is_all_but_who_gave_reasons_at_other_gates() -> None:
    assert {marked("V"), marked("W")}.isdisjoint(everybody(state_of(**SHAPED)))
    assert len(everybody(state_of(**SHAPED))) == len(SHAPED) - 2


PEOPLE = Directory.of("d", [Entry("rita", "Rita"), Entry("ben", "Ben Ortiz", principals=("servicenow:b.ortiz",))])
LEADS = Terms(Tier.HIGH, (GroupQuorum("leads"),))


def test_a_card_says_who_did_what_and_what_is_to_be_known_of_their_vote() -> None:
    run = unopened(RUN_ID, KEY, graph_of(""))
    run.requested_by = "rita"
    marks = [mark(Role.UPDATER, "servicenow:B.Ortiz "), mark(Role.FORM_FILLER, "person:who", "documents")]
    terms = Terms(Tier.HIGH, LEADS.approvers, allow=(Role.UPDATER,))
    assert [(one.name, one.did, one.note) for one in shaped_by(run, marks, terms, PEOPLE)] == [
        ("Rita", "requested this", ""),
        ("Ben Ortiz", "changed the record", "may decide all the same"),
        ("person:who", "filled in a form (documents)", "nobody whom the directory knows"),
    ]
    assert shaped_by(run, [], LEADS, PEOPLE) == ()
    run.requested_by = "nobody"
    (alone,) = shaped_by(run, [], LEADS, PEOPLE)
    assert (alone.name, alone.note) == ("nobody", "nobody whom the directory knows")


def test_contributors_are_named_once_for_each_part() -> None:
    run: Any = unopened(RUN_ID, KEY, graph_of(""))
    run.requested_by = "rita"
    marks = [mark(Role.FORM_FILLER, "person:ben", step) for step in ("one", "two")]
    assert [(one.role, one.principal, one.person) for one in contributors_of(run, marks)] == [
        (Role.REQUESTER, "rita", None),
        (Role.FORM_FILLER, "person:ben", None),
    ]
    assert named(marks) == ("form_filler:person:ben",)
    own = [mark(Role.FORM_FILLER, "rita", "one"), mark(Role.UPDATER, "rita")]
    assert [(one.role, one.principal) for one in contributors_of(run, own)] == [
        (Role.REQUESTER, "rita"),
        (Role.FORM_FILLER, "rita"),
        (Role.UPDATER, "rita"),
    ]


ENDED = graph_of(
    "  - {id: t, task: {title: t, form: {type: object, properties: {x: {type: string}}}, assign: {group: g}}}\n"
)
