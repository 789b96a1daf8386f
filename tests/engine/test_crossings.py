"""The barrier of a super-step: what of each step becomes state, what begins next, and what is refused (P-1 to P-3)."""

from __future__ import annotations

import dataclasses
from hashlib import sha256
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from core.canonical import canonical_bytes
from core.errors import ExpressionError, InputError
from evidence.chain import Actor
from evidence.commitments import blind
from runtime.definition.workflow import load_workflow
from runtime.engine.agent_state import Agent, Called, Spoken, Stage
from runtime.engine.commit import LedgerRow, StepRow, VoteRow, WaitRow, step_id_of
from runtime.engine.crossing import (
    STATE_BYTES_MAX,
    Crossing,
    begin,
    checkpoint_of,
    cross,
    fold_writes,
    initial_values,
    step_order,
)
from runtime.engine.events import CheckpointCommitted
from runtime.engine.facts import NO_AGENT, call_of, others_of
from runtime.engine.fold import fold
from runtime.engine.graph import Channel, Graph, Reducer
from runtime.engine.plan import Evaluated
from runtime.engine.replaying import unopened
from runtime.engine.run import Failed, Run, State
from runtime.engine.states import RunState, StepState, WaitKind, WaitState
from runtime.engine.told import Told
from runtime.engine.transition import Transition
from runtime.engine.windows import Window
from tests.engine.conftest import KEY, NOW, RUN_ID
from tests.engine.governing import CATALOG, EFFECT, HEAD, governed
from tests.engine.test_folds import ERROR, READY, RETRIES, A, V, W, approval, run_of
from tests.support.agents import agent

pytestmark = pytest.mark.req("P-2")

WIDE = HEAD.replace("steps:", "channels: {n: {initial: 0}, m: {ledger: true}, seen: {reduce: append}}\nsteps:") + (
    "  - {id: a, do: probe.value.read, with: {name: x}, set: {seen: a}, needs: [],"
    " on_failure: [{id: i, do: probe.value.read, with: {name: '${{ error.code }}'}}],"
    " on_timeout: [{id: j, do: probe.value.read, with: {name: late}}]}\n"
    "  - {id: b, do: probe.value.read, with: {name: x}, needs: []}\n"
    "  - {id: c, do: probe.value.read, with: {name: '${{ steps.b.output.value }}'}, needs: [a, b]}\n"
)
GRAPH: Graph = load_workflow(WIDE, "test.yaml", CATALOG).graph
AGENTS: Graph = load_workflow(agent(), "test.yaml", CATALOG).graph
DONE, OVER = StepState.SUCCEEDED, StepState.FAILED_TERMINAL


def step(key: str, status: StepState = DONE, superstep: int = 3, **more: Any) -> StepRow:
    at = GRAPH.leaves[key].index if key in GRAPH.leaves else 0
    return StepRow(step_id_of(RUN_ID, key), key, at, "probe.value.read", superstep, status, **more)


def held(*rows: StepRow, **more: Any) -> Run:
    run = run_of(*rows, **more)
    run.state.channels = {**run.state.channels, "n": 0, "m": None, "seen": []}
    return run


def crossed(run: Run, graph: Graph = GRAPH) -> Crossing:
    """The result of a barrier, which leaves the run as it was."""
    before = to_builtins(run, str_keys=True)
    found = cross(run, graph, Evaluated(graph, {"trigger": {}, "run.id": "r"}, run.superstep + 1))
    assert to_builtins(run, str_keys=True) == before
    state = found.state.to_json()
    assert found.checkpoint.state == state
    assert found.checkpoint.digest == sha256(canonical_bytes(state)).hexdigest()
    assert found.checkpoint.superstep == run.superstep + 1
    return found


def begun(found: Crossing) -> list[str]:
    return [row.key for row in found.begun]


@pytest.mark.req("P-1")
def test_steps_are_in_the_order_of_the_graph_then_of_their_rounds_then_of_their_names() -> None:
    keys = ["z", "l[2].z", "l[10].z", "l[2].k[3].z", "l[2].k[12].z", "a/2", "a/10", "a/2/1", "a/2/11", "a/2/3"]
    rows = [replace(step(key, superstep=9 - n), index=0) for n, key in enumerate(keys)]
    rows.append(replace(step("first"), index=-1))
    assert [row.key for row in sorted(rows, key=step_order)] == [
        "first", "z", "a/2", "l[2].z", "a/2/1", "a/2/3", "l[2].k[3].z", "a/2/11", "l[2].k[12].z", "a/10", "l[10].z",
    ]  # fmt: skip


def test_what_a_step_leaves_is_taken_in_once() -> None:
    writes = {"seen": "x", "m": 7, "n": 2, "$reference": "R9"}
    rows = [step("b", output={"value": 5}), step("a", output={"value": 4}, writes=writes)]
    found = crossed(held(*rows, agents={"a": Agent(), "b": Agent(), "z": Agent()}))
    state = found.state
    assert (state.channels, state.reference) == ({"n": 2, "m": 7, "seen": ["x"]}, "R9")
    assert (state.status, state.outputs) == ({"a": "succeeded", "b": "succeeded"}, {"b": {"value": 5}})
    assert [*state.agents] == ["z"]
    assert (found.ledger, found.references) == ((LedgerRow("m", 3, "a", 7),), (("a", "R9"),))
    assert (begun(found), found.finished, found.ending, found.failed) == (["c"], False, False, None)
    again = held(*rows, agents={"a": Agent()})
    again.state.status = {"a": "succeeded"}
    found = crossed(again)
    assert (found.state.channels["seen"], found.state.reference, found.ledger) == ([], None, ())
    assert [*found.state.agents] == ["a"]


def test_a_ledger_has_what_each_step_wrote_and_not_what_became_of_it() -> None:
    graph = dataclasses.replace(GRAPH, channels={"m": Channel("m", Reducer.SUM, ledger=True), "n": Channel("n")})
    rows = [step("a", writes={"m": 2, "n": 1}), step("b", writes={"m": 3})]
    found = crossed(held(*rows, channels={"m": 10}), graph)
    assert found.ledger == (LedgerRow("m", 3, "a", 2), LedgerRow("m", 3, "b", 3))
    assert found.state.channels["m"] == 5


def test_in_a_loop_an_output_is_kept_if_it_is_read_and_a_failure_names_the_round() -> None:
    text = HEAD + (
        "  - id: each\n    foreach: ${{ trigger.items }}\n    as: item\n    steps:\n"
        "      - {id: one, do: probe.value.read, with: {name: x}, on_failure:"
        " [{id: two, do: probe.value.read, with: {name: '${{ error.step }}'}}]}\n"
        "      - {id: three, do: probe.value.read, with: {name: '${{ steps.one.output.value }}'}}\n"
    )
    graph = load_workflow(text, "test.yaml", CATALOG).graph
    choices = Evaluated(graph, {"trigger": {"items": ["a", "b"]}}, 0)
    state = begin(unopened(RUN_ID, KEY, graph), graph, choices, State({}), 0).state
    key = "each[0].one"
    done = crossed(held(step(key, output={"value": 1}), state=state.copy()), graph)
    assert done.state.outputs == {key: {"value": 1}}
    fails = crossed(held(step(key, OVER, last_error=ERROR), state=state.copy()), graph)
    assert fails.state.failures == {key: Failed("on_failure", {"step": key, **ERROR})}


def test_a_reference_of_no_letters_is_one() -> None:
    found = crossed(held(step("a", writes={"$reference": ""}), step("b"), reference="R"))
    assert (found.state.reference, found.references) == ("", (("a", ""),))


@pytest.mark.parametrize("name", [None, 3, {"a": 1}])
def test_a_reference_that_is_no_text_names_nothing(name: Any) -> None:
    found = crossed(held(step("a", writes={"$reference": name}), step("b")))
    assert (found.state.reference, found.references) == (None, ())


def test_writes_are_taken_in_in_the_order_of_the_steps_and_only_those_of_this_super_step() -> None:
    rows = [step("b", writes={"seen": "b", "$reference": "B"}), step("a", writes={"seen": "a", "$reference": "A"})]
    found = crossed(held(*rows))
    assert (found.state.channels["seen"], found.state.reference) == (["a", "b"], "B")
    assert found.references == (("a", "A"), ("b", "B"))
    found = crossed(held(replace(rows[0], superstep=2), rows[1]))
    assert (found.state.channels["seen"], found.state.status) == (["a"], {"a": "succeeded"})


@pytest.mark.parametrize("status", [one for one in StepState if one not in (DONE, OVER)])
def test_a_step_that_is_not_over_leaves_nothing(status: StepState) -> None:
    row = step("a", status, output={"value": 1}, writes={"seen": "a"}, last_error=ERROR)
    found = crossed(held(row, step("b"), parked={"a": "wait:1"}))
    assert (found.state.channels["seen"], found.state.status, found.state.failures) == (
        [], {"b": "succeeded"}, {},
    )  # fmt: skip
    assert (found.failed, found.ending, found.state.parked) == (None, False, {"a": "wait:1"})


@pytest.mark.parametrize(
    ("error", "branch", "seen"),
    [
        ({**ERROR, "by": "x"}, "on_failure", ERROR),
        ({"class": "timeout", "message": "Late."}, "on_timeout", {"class": "timeout", "code": "", "message": "Late."}),
        (None, "on_failure", {"class": "", "code": "", "message": ""}),
    ],
)
def test_a_failure_that_is_handled_is_seen_by_its_branch_and_by_nothing_else(
    error: Any, branch: str, seen: dict[str, Any]
) -> None:
    found = crossed(held(step("a", OVER, last_error=error), step("b"), agents={"a": Agent(), "b": Agent()}))
    assert found.state.failures == {"a": Failed(branch, {"step": "a", **seen})}
    assert (begun(found), found.failed, found.ending) == (["i" if branch == "on_failure" else "j"], None, False)
    assert found.state.agents == {}
    known = held(step("a", OVER, last_error=error), step("b"))
    known.state.failures = {"a": Failed("on_timeout", {"step": "a", "code": "first"})}
    assert crossed(known).state.failures == {"a": Failed("on_timeout", {"step": "a", "code": "first"})}


def test_a_failure_that_nothing_handles_ends_the_run_and_the_first_in_order_is_named() -> None:
    rows = [step("c", OVER, last_error=ERROR), step("b", OVER, last_error=ERROR), step("a", writes={"m": 1})]
    found = crossed(held(*rows, agents={"b": Agent()}))
    assert (found.ending, found.failed, found.finished, found.begun) == (True, rows[1], False, ())
    assert (found.state.failures, found.ledger) == ({}, (LedgerRow("m", 3, "a", 1),))
    assert [*found.state.agents] == ["b"]
    earlier = crossed(held(replace(rows[1], superstep=2), step("a")))
    assert (earlier.ending, earlier.failed) == (False, None)


def test_a_run_that_is_being_canceled_ends_at_its_barrier_with_what_was_done() -> None:
    rows = [step("a", writes={"m": 1, "$reference": "A"}), step("b")]
    found = crossed(held(*rows, canceling={"by": "x"}))
    assert (found.ending, found.failed, found.begun) == (True, None, ())
    assert (found.ledger, found.references) == ((LedgerRow("m", 3, "a", 1),), (("a", "A"),))
    failing = crossed(held(step("b", OVER, last_error=ERROR), canceling={"by": "x"}))
    assert (failing.ending, (failing.failed or rows[0]).key) == (True, "b")


def test_turns_and_calls_of_agents_leave_nothing_of_their_own() -> None:
    rows = [step("triage/1", output={"text": "x"}, writes={"seen": 1}), step("triage/1/1", OVER, last_error=ERROR)]
    run = held(*rows, StepRow(step_id_of(RUN_ID, "triage"), "triage", 0, "agent", 1, StepState.WAITING))
    run.state.agents = {"triage": Agent(Stage.CALLS, 1, calls={1: Called("d", came="failed", said="s")})}
    run.state.parked = {"triage": "wait:1"}
    found = crossed(run, AGENTS)
    assert (found.state.status, found.state.outputs, found.state.failures) == ({}, {}, {})
    assert (found.failed, found.ending, begun(found)) == (None, False, ["triage/2"])


def test_what_begins_has_its_place_its_operation_and_the_epoch_from_which_it_goes_on() -> None:
    run = held(step("a"), step("b", output={"value": 1}), anew={"c": 6}, reopened=2, parked={"c": "x", "d": "y"})
    found = crossed(run)
    assert found.begun == (replace(step("c", READY, 4), lease_epoch=6, again=2),)
    assert found.state.parked == {"d": "y"}
    plain = crossed(held(step("a"), step("b", output={"value": 1}), reopened=2))
    assert [(row.lease_epoch, row.again, row.superstep) for row in plain.begun] == [(0, 0, 4)]


def test_a_call_of_an_agent_begins_with_the_operation_of_its_tool() -> None:
    run = run_of(StepRow(step_id_of(RUN_ID, "triage"), "triage", 0, "agent", 1, StepState.WAITING))
    run.state.channels = {"found": None}
    run.state.parked = {"triage": "wait:1"}
    run.state.agents = {
        "triage": Agent(Stage.CALLS, 2, calls={1: Called("d"), 2: Called("e"), 3: Called("f", after=1)})
    }
    run.spoken = {"triage/2/1": Spoken("triage/2/1", "probe_effect_apply", {"name": "a"}),
                  "triage/2/2": Spoken("triage/2/2", "ask_desk", {})}  # fmt: skip
    found = crossed(run, AGENTS)
    assert [(row.key, row.operation) for row in found.begun] == [
        ("triage/2/1", "probe.effect.apply"), ("triage/2/2", "task"),
    ]  # fmt: skip
    assert found.state.open == begun(found)


LOOPS: Graph = load_workflow(
    HEAD
    + "  - id: each\n    foreach: ${{ trigger.items }}\n    as: item\n    max_parallel: 2\n    steps:\n"
    + "      - {id: one, do: probe.value.read, with: {name: x}}\n"
    + "      - {id: two, do: probe.effect.apply, with: {name: x}, needs: []}\n",
    "test.yaml",
    CATALOG,
).graph


def test_what_begins_in_a_loop_has_the_place_and_the_operation_of_its_leaf() -> None:
    choices = Evaluated(LOOPS, {"trigger": {"items": ["a", "b"]}}, 0)
    found = begin(unopened(RUN_ID, KEY, LOOPS), LOOPS, choices, State({}), 0)
    assert [(row.key, row.index, row.operation) for row in found.begun] == [
        (f"each[{number}].{name}", LOOPS.leaves[name].index, LOOPS.leaves[name].operation)
        for number in (0, 1)
        for name in ("one", "two")
    ]
    assert len({row.index for row in found.begun}) == 2
    assert {row.step_id for row in found.begun} == {step_id_of(RUN_ID, row.key) for row in found.begun}


def test_what_has_joined_comes_after_what_begins() -> None:
    run = held(step("a"), step("b", output={"value": 1}), step("x/1/1", READY, 4), step("w/1/1", READY, 4))
    run.state.open = []
    assert crossed(run).state.open == ["c", "w/1/1", "x/1/1"]


def test_what_has_joined_is_open_and_no_longer_parked() -> None:
    joins = step("b", READY, 4)
    run = held(step("a"), joins, step("c", RETRIES, 2), parked={"b": "wait:1", "c": "wait:2"})
    run.state.open = []
    found = crossed(run)
    assert found.joined == (joins,)
    assert (found.state.open, found.state.parked) == (["b"], {"c": "wait:2"})
    assert crossed(held(step("a"), replace(joins, superstep=5))).joined == ()


def test_a_graph_is_finished_when_nothing_is_open() -> None:
    over = held(step("c"), step("a", superstep=1), step("b", superstep=1))
    over.state.status = {"a": "succeeded", "b": "succeeded"}
    assert (crossed(over).finished, crossed(over).begun) == (True, ())
    over.steps["x/1/1"] = step("x/1/1", READY, 4)
    found = crossed(over)
    assert (found.finished, found.state.open) == (False, ["x/1/1"])
    first = begin(held(), GRAPH, Evaluated(GRAPH, {"trigger": {}}, 0), State({"n": 0}), 0)
    assert (begun(first), first.finished, first.checkpoint.superstep) == (["a", "b"], False, 0)
    assert {row.superstep for row in first.begun} == {0}


def test_who_shaped_a_result_is_followed_if_there_is_anything_to_follow() -> None:
    form: Any = {"output": 1, "by": "person:pat"}
    said = WaitRow(W, V, "a", WaitKind.TASK, WaitState.COMPLETED, "t", result=form)
    run = held(step("a", writes={"n": 1, "$reference": "R"}), step("b"))
    run.waits[W] = said
    marks = ["form_filler a person:pat"]
    assert crossed(run).state.shaped == {"steps.a": marks, "state.n": marks, "run.reference": marks}
    assert crossed(held(step("a"), step("b"))).state.shaped == {}
    failing = held(step("a", OVER, last_error=ERROR), step("b"))
    failing.approvals[A], failing.votes = approval(), [VoteRow(A, "ann", "reject", "No.", [], "cli")]
    assert crossed(failing).state.shaped == {"votes.a": ["form_filler a person:ann"]}
    plain = held(step("a"), step("b"), shaped={"run": ["updater  person:x"]})
    assert crossed(plain).state.shaped == {"run": ["updater  person:x"]}


def barrier(run: Run, **change: Any) -> Run:
    """Fold a barrier that has come to what ``cross`` gives, but for what is named."""
    found = replace(crossed(run), **change)
    event = CheckpointCommitted(found.checkpoint.superstep, blind(KEY, found.checkpoint.digest))
    return fold(run, Told(event, Actor("engine", "e"), NOW), GRAPH, found)


def test_a_barrier_keeps_the_windows_of_other_loops_and_replaces_its_own() -> None:
    old, new = Window(0, ("a",)), Window(2, ("b", "c"))
    run = held(step("a"), step("b"), windows={"x": old, "y": old})
    assert barrier(run, windows={"y": new, "z": new}).windows == {"x": old, "y": new, "z": new}


@pytest.mark.parametrize("canceling", [None, {"by": "x"}])
def test_a_barrier_leaves_nothing_of_what_was_to_begin_anew_or_of_agents_that_are_over(canceling: Any) -> None:
    rows = [step("a", writes={"m": 1}), step("b"), step("c", READY, 5)]
    spoken = {key: Spoken(key, "t", {}) for key in ("x", "x/1/1", "y", "y/1/1", "y/2/1")}
    agents = {"x": Agent(Stage.OVER, 1), "y": Agent(Stage.CALLS, 2)}
    run = held(*rows, canceling=canceling, anew={"gone": 3}, spoken=spoken, agents=agents)
    barrier(run)
    assert (run.anew, {*run.spoken}) == ({}, {"y", "y/2/1"})
    assert ([*run.past], run.superstep) == (["a", "b"], 4)
    assert [row.value for row in run.ledger] == [1]
    assert run.checkpoints[-1].superstep == 4


def test_a_barrier_counts_what_begins_and_what_has_joined() -> None:
    gone = step("w/1/1", StepState.CANCELED, 4)
    run = barrier(held(step("a"), step("b", output={"value": 1}), step("x/1/1", READY, 4), gone, open=[]))
    assert (run.state.open, run.executing, run.width) == (["c", "x/1/1"], 2, 2)
    assert ([*run.steps], {*run.past}) == (["x/1/1", "c"], {"a", "b", "w/1/1"})
    ended = barrier(held(step("a"), step("b"), canceling={"by": "x"}, executing=7))
    assert (ended.executing, ended.status) == (7, RunState.RUNNING), "its end says so"


@pytest.mark.parametrize(
    ("parked", "status"),
    [
        (["approval"], RunState.WAITING_APPROVAL),
        (["wait"], RunState.WAITING),
        (["retry"], RunState.FAILED_RETRYABLE),
        (["retry", "wait", "approval"], RunState.WAITING_APPROVAL),
        (["wait", "approval", "wait"], RunState.WAITING_APPROVAL),
        (["retry", "wait"], RunState.WAITING),
    ],
)
@pytest.mark.parametrize("held_open", [False, True])
def test_a_run_in_which_nothing_goes_on_waits_for_people_first(
    parked: list[str], status: RunState, held_open: bool
) -> None:
    waits = {f"p{number}": f"{kind}:w{number}" for number, kind in enumerate(parked)}
    over = step("c"), step("a", superstep=1), step("b", superstep=1)
    run = held(*over, held_open=held_open, parked=waits, open=[])
    run.state.status = {"a": "succeeded", "b": "succeeded"}
    assert barrier(run).status is status
    done = held(*over, held_open=held_open, open=[])
    done.state.status = {"a": "succeeded", "b": "succeeded"}
    assert barrier(done).status is (RunState.WAITING if held_open else RunState.RUNNING)
    goes_on = held(step("a"), step("b", output={"value": 1}), parked=waits, open=[])
    assert barrier(goes_on).status is RunState.RUNNING


# -- checkpoints and channels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("more", "fits"), [(-1, True), (0, True), (1, False)])
def test_a_state_is_as_large_as_it_may_be_and_no_larger(more: int, fits: bool) -> None:
    empty = len(canonical_bytes(State({"c": ""}).to_json()))
    state = State({"c": "x" * (STATE_BYTES_MAX - empty + more)})
    if fits:
        assert checkpoint_of(7, state).superstep == 7
        return
    with pytest.raises(InputError) as raised:
        checkpoint_of(7, state)
    assert (raised.value.where, raised.value.message) == (
        "state", f"the run's state is {STATE_BYTES_MAX + 1} bytes long; at most {STATE_BYTES_MAX} are kept",
    )  # fmt: skip


def test_a_state_is_measured_in_bytes() -> None:
    empty = len(canonical_bytes(State({"c": ""}).to_json()))
    letters = (STATE_BYTES_MAX - empty) // 2
    assert checkpoint_of(7, State({"c": "é" * letters})).superstep == 7
    with pytest.raises(InputError, match="bytes long"):
        checkpoint_of(7, State({"c": "é" * (letters + 1)}))


def test_every_channel_has_a_first_value_also_one_that_is_made_later() -> None:
    start: Any = object()
    channels = [Channel("a"), Channel("b", initial=0), Channel("c", start=start), Channel("d", initial=[])]
    assert initial_values({one.name: one for one in channels}) == {"a": None, "b": 0, "c": None, "d": []}


WRITES: list[tuple[Reducer, Any, Any, Any]] = [
    (Reducer.MERGE, None, {"a": 1}, {"a": 1}),
    (Reducer.MERGE, {"a": 1}, {}, {"a": 1}),
    (Reducer.UNION, None, [], []),
    (Reducer.UNION, ["a", "a"], "b", ["a", "b"]),
    (Reducer.UNION, [], [["b"], ["b"], {"c": [1]}, {"c": [1]}], [["b"], {"c": [1]}]),
    (Reducer.APPEND, None, ["a"], [["a"]]),
    (Reducer.SUM, None, 2, 2),
    (Reducer.SUM, 0, 2, 2),
    (Reducer.MAX, None, -2, -2),
    (Reducer.MAX, 0, -2, 0),
    (Reducer.MIN, None, 2, 2),
    (Reducer.MIN, 0, 2, 0),
    (Reducer.SUM, 0.0, 0.5, 0.5),
    (Reducer.SUM, 1, 0.0, 1.0),
    (Reducer.MAX, 1, 1.5, 1.5),
    (Reducer.MIN, 1.5, 0, 0),
]
NO_LISTS: tuple[Any, ...] = ("", {}, 0)
REFUSED: list[tuple[Reducer, Any, Any, str]] = [
    (Reducer.MERGE, {}, [], "merges objects only"),
    (Reducer.MERGE, [], {}, "merges objects only"),
    (Reducer.MERGE, {}, None, "merges objects only"),
    *((one, value, write, "takes numbers only")
      for one in (Reducer.SUM, Reducer.MAX, Reducer.MIN)
      for value, write in ((1, "1"), ("1", 1), (1, True), (False, 1), (1, None), ([], 1))),
    *((one, value, "x", "holds no list to add to") for one in (Reducer.APPEND, Reducer.UNION) for value in NO_LISTS),
]  # fmt: skip


@pytest.mark.parametrize(("reducer", "value", "write", "after"), WRITES)
def test_a_channel_takes_what_its_reducer_takes(reducer: Reducer, value: Any, write: Any, after: Any) -> None:
    channels = {"c": Channel("c", reducer), "d": Channel("d")}
    assert fold_writes(channels, {"c": value, "d": 1}, {"c": write}) == {"c": after, "d": 1}


@pytest.mark.parametrize(("reducer", "value", "write", "words"), REFUSED)
def test_a_channel_refuses_what_its_reducer_cannot_take(reducer: Reducer, value: Any, write: Any, words: str) -> None:
    with pytest.raises(ExpressionError, match=words) as raised:
        fold_writes({"c": Channel("c", reducer)}, {"c": value}, {"c": write})
    assert raised.value.where == "state.c"


@pytest.mark.parametrize(("keep", "after"), [(None, [1, 2, 3]), (1, [3]), (2, [2, 3]), (3, [1, 2, 3]), (4, [1, 2, 3])])
def test_a_bounded_list_keeps_its_newest_items(keep: int | None, after: list[int]) -> None:
    for reducer in (Reducer.APPEND, Reducer.UNION):
        assert fold_writes({"c": Channel("c", reducer, keep)}, {"c": [1, 2]}, {"c": 3}) == {"c": after}
    assert fold_writes({"c": Channel("c", keep=1)}, {"c": [1, 2]}, {"c": "text"}) == {"c": "text"}


# -- a copy, and equal calls -------------------------------------------------------------------------------------------


def test_a_copy_of_an_agent_shares_nothing_that_is_changed_in_place() -> None:
    first = Agent(Stage.CALLS, 1, calls={1: Called("d")}, barred=["x"])
    copy = first.copy()
    copy.barred.append("y")
    copy.calls[1].came = "done"
    copy.calls[2] = Called("e")
    assert (first, copy.barred) == (Agent(Stage.CALLS, 1, calls={1: Called("d")}, barred=["x"]), ["x", "y"])


def test_equal_calls_are_those_of_other_steps_with_the_same_operation_and_input() -> None:
    view = governed(EFFECT).view()
    made: Any = Transition(view, governed(EFFECT).workflow.graph)
    one: Any = type("Action", (), {"operation": "o", "input": {"a": 1, "b": 2}})
    same: Any = type("Action", (), {"operation": "o", "input": {"b": 2, "a": 1}})
    other: Any = type("Action", (), {"operation": "p", "input": {"a": 1, "b": 2}})
    assert (call_of(one), len(call_of(one))) == (call_of(same), 32)
    assert call_of(one) != call_of(other)
    for steps, count in (([], 0), (["a"], 0), (["b"], 1), (["a", "b", "c"], 2)):
        made.run.same = {call_of(one): steps, call_of(other): ["x"]}
        assert others_of(made, step("a"), one) == count
    assert (NO_AGENT.step, NO_AGENT.turn, NO_AGENT.model, NO_AGENT.read) == ("", 0, "", ())
