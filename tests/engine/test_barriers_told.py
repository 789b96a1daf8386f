"""Barriers, first checkpoints and ends of waits as they are told, and what a lease begins with (P-1, P-5)."""

from __future__ import annotations

from dataclasses import replace as copied
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from core.identity import Directory
from evidence.chain import Actor
from evidence.commitments import blind, commit_fields
from runtime.engine import events as e
from runtime.engine import step as steps
from runtime.engine import transition as moves
from runtime.engine import waits
from runtime.engine.agent_state import Agent
from runtime.engine.instructions import Known, Over, Perform, known_of
from runtime.engine.replaying import unopened
from runtime.engine.states import WaitKind, WaitState
from runtime.engine.transition import Transition, finish, writes_of
from tests.engine.conftest import KEY, NOW, RUN_ID
from tests.engine.governing import ASK, CHILD, EFFECT, HEAD, Governed, governed, loaded
from tests.engine.test_drafts import view_of
from tests.engine.test_folds import run_of, wait
from tests.engine.test_moves_told import ROW, transition
from tests.engine.test_reopened_whole import BESIDE, CHOICE, HEADED

pytestmark = pytest.mark.req("P-1")

NAMES = HEADED + BESIDE.format("a", ", reference: R2") + BESIDE.format("c", ", reference: R3")


def test_every_name_that_a_super_step_gives_its_run_is_told_in_the_order_of_the_steps() -> None:
    run = governed(NAMES)
    for key in ("a", "c"):
        run.claim(key)
    run.attempt("c", lambda t, s: finish(t, s, {}))
    made = run.attempt("a", lambda t, s: finish(t, s, {}))
    told = [(one.event, one.step) for one in made._told if isinstance(one.event, e.RunReferenceSet)]
    assert told == [
        (e.RunReferenceSet([*commit_fields(KEY, key, {"reference": name})], name), key)
        for key, name in (("a", "R2"), ("c", "R3"))
    ]
    assert (made.run.reference, made.run.state.reference) == ("R3", "R3")


@pytest.mark.parametrize("agents", [(), ("one",), ("one", "two")])
def test_a_barrier_concludes_the_agents_of_a_run_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch, agents: tuple[str, ...]
) -> None:
    concluded: list[Any] = []
    monkeypatch.setattr(moves, "conclude", concluded.append)
    made = Transition(view_of(run_of(ROW, agents={name: Agent() for name in agents})), loaded(EFFECT).graph)
    made.succeed(ROW, {}, {})
    assert concluded == ([made] if agents else [])


@pytest.mark.req("P-7")
def test_a_write_that_its_channel_cannot_take_fails_the_run_at_its_last_checkpoint() -> None:
    run = governed(HEADED + BESIDE.format("a", ", set: {n: text}"))
    run.claim("a")
    made = run.attempt("a", lambda t, s: finish(t, s, {}))
    assert [str(one.event.TYPE) for one in made._told] == ["step.succeeded", "run.closed"]
    error: Any = made.run.error
    assert (error["class"], "takes numbers only" in error["message"], run.status) == (
        "expression", True, "failed_terminal",
    )  # fmt: skip


def test_a_run_that_is_canceled_at_its_barrier_has_no_error_of_its_own() -> None:
    run = governed(EFFECT)
    run.claim("a")
    run.attempt("a", lambda t, _: t.cancel(Actor("person", "ann"), "Enough."))
    made = run.attempt("a", lambda t, s: t.succeed(s, {}, {}))
    assert (run.status, made.run.error) == ("canceled", None)
    assert made.run.canceling == {"by": "ann", "reason": "Enough."}


FIRST = HEAD + CHOICE.format("first", 0).replace("needs: [a]", "needs: []") + (
    "  - if: ${{ trigger.none }}\n    id: halts\n    needs: []\n"
    "    then: [{id: z, do: probe.effect.apply, with: {name: x}}]\n"
)  # fmt: skip


@pytest.mark.parametrize("halts", [True, False])
def test_a_first_checkpoint_tells_its_choices_unless_planning_has_failed(halts: bool) -> None:
    workflow = loaded(FIRST)
    view = replace(governed(EFFECT).view(), run=unopened(RUN_ID, KEY, workflow.graph), constants={
        "trigger": {} if halts else {"none": False}
    })  # fmt: skip
    made = Transition(view, workflow.graph)
    error: Any = made.open(e.RunOpened({"name": "w"}), Actor("person", "ann"))
    opened, checkpoint = made._told
    assert (opened.actor.id, made.run.superstep, [*made.run.steps]) == ("ann", 0, [] if halts else ["first_yes"])
    choices = None if halts else [["first", True], ["halts", False]]
    (row,) = made.run.checkpoints
    assert checkpoint.event == e.CheckpointCommitted(0, blind(KEY, row.digest), halts, choices)
    assert (error and error["step"], made.run.state.status) == (
        ("halts", {}) if halts else (None, {"first_no": "skipped", "halts": "succeeded", "z": "skipped"})
    )  # fmt: skip


SETS = HEADED.replace("n: {reduce: sum, initial: 0}", "n: {initial: 0}, m: {initial: 0}") + (
    "  - {id: a, wait: {signal: s, correlate: k},"
    " set: {n: '${{ output }}', m: '${{ [signal.payload, signal.by, signal.kind] }}'}}\n"
)


@pytest.mark.parametrize("output", [None, 0, "", {"x": 1}])
@pytest.mark.parametrize("payload", [None, 0, {"x": 1}])
def test_what_a_step_writes_sees_its_output_and_what_ended_its_wait_even_if_that_is_nothing(
    output: Any, payload: Any
) -> None:
    signal: Any = {"payload": payload, "by": "person:ann", "kind": "task"}
    graph = loaded(SETS).graph
    state = unopened(RUN_ID, KEY, graph).state
    writes = {"n": output, "m": [payload, "person:ann", "task"]}
    assert writes_of(graph, state, {}, "a", {"output": output, "signal": signal}) == writes
    run = governed(SETS)
    run.claim("a")
    run.attempt("a", lambda t, s: finish(t, s, output, {"cost_usd": "1"}, signal=signal))
    row = run.rows["a"]
    assert (row.writes, row.usage) == (writes, {"cost_usd": "1"})


# -- the ends of waits -------------------------------------------------------------------------------------------------

TIMED_OUT: Any = {"class": "timeout", "code": "timed_out", "message": "It took longer than the step's timeout."}
OUTSIDE: Any = {"class": "transport", "code": "c", "message": "m"}
LEAF = loaded(EFFECT).graph.leaves["a"]
ENDS: list[tuple[WaitKind, WaitState, Any, Any]] = [
    (WaitKind.TASK, WaitState.TIMED_OUT, None, TIMED_OUT),
    (WaitKind.TASK, WaitState.TIMED_OUT, {"output": 1}, TIMED_OUT),
    (WaitKind.EXTERNAL, WaitState.TIMED_OUT, None, {**TIMED_OUT, "sent": True}),
    (WaitKind.CHILD, WaitState.TIMED_OUT, None, {**TIMED_OUT, "sent": True}),
    (WaitKind.SHARED, WaitState.TIMED_OUT, None, TIMED_OUT),
    (WaitKind.APPROVAL, WaitState.TIMED_OUT, {"error": OUTSIDE}, OUTSIDE),
    (WaitKind.TASK, WaitState.COMPLETED, {"error": OUTSIDE, "output": 1}, OUTSIDE),
    (WaitKind.TASK, WaitState.COMPLETED, {"output": {"x": 1}, "by": "person:ann"}, None),
    (WaitKind.SIGNAL, WaitState.COMPLETED, {"output": 0}, None),
    (WaitKind.TIMER, WaitState.COMPLETED, None, None),
]


@pytest.mark.req("P-5")
@pytest.mark.parametrize(("kind", "status", "result", "error"), ENDS)
@pytest.mark.parametrize("canceling", [None, {"by": "x", "reason": ""}])
def test_the_end_of_a_wait_is_the_end_of_its_step(
    monkeypatch: pytest.MonkeyPatch, kind: WaitKind, status: WaitState, result: Any, error: Any, canceling: Any
) -> None:
    finished: list[Any] = []
    monkeypatch.setattr(waits, "finish", lambda *given, **more: finished.append((given[2:], more)))
    made = transition(canceling=canceling)
    over = wait(kind=kind, status=status, result=result)
    assert waits.ended(made, ROW, LEAF, over) == Over()
    told = [(one.event.TYPE, getattr(one.event, "detail", None)) for one in made._told]
    if canceling is not None:
        assert (told, finished) == ([("step.canceled", None)], [])
    elif error is not None:
        assert (told, finished) == ([("step.failed", error)], [])
    else:
        output, by = (result or {}).get("output"), (result or {}).get("by")
        assert finished == [((output,), {"signal": {"payload": output, "by": by, "kind": str(kind)}})]


# -- what a lease begins with ------------------------------------------------------------------------------------------


def approved() -> Governed:
    run = governed(EFFECT, ASK).drive().answer("ana", "ben")
    run.claim("a")
    return run


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(("changes", "why"), [({"now": NOW + timedelta(days=9)}, "stale"), ({}, "votes_lost")])
def test_an_answer_that_no_longer_counts_is_void_with_the_reason_and_asked_for_anew(changes: Any, why: str) -> None:
    run = approved()
    view = replace(run.view(), **(changes or {"directory": Directory.of("d9", [])}))
    made = Transition(view, run.workflow.graph)
    known = known_of(view.run, "a")
    assert known.given is not None
    seen: list[Known] = []
    propose = steps._propose
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_propose", lambda p: seen.append(p.known) or propose(p))
        steps.begin(made, run.rows["a"], run.workflow, run.policy, known, run.nonce)
    assert made._told[0].event == e.ApprovalSuperseded(known.given.approval_id, why, view.directory.digest)
    assert [one.given for one in seen] == [None]


@pytest.mark.parametrize("again", [0, 1])
def test_a_lease_knows_the_workflow_that_declares_its_operations(again: int) -> None:
    run = governed(EFFECT)
    run.claim("a")
    made = Transition(run.view(), run.workflow.graph)
    row = replace(run.rows["a"], again=again)
    assert isinstance(steps.begin(made, row, run.workflow, run.policy, Known(), run.nonce), Perform)
    assert made.workflow is run.workflow


@pytest.mark.req("P-14")
def test_an_order_to_start_a_run_is_traced_by_what_the_model_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[Any] = []
    monkeypatch.setattr(steps, "handed_on", lambda *given: handed.append(given) or Over())
    run = governed(CHILD)
    run.claim("a")
    made, chat = Transition(run.view(), run.workflow.graph), "chat"
    known: Any = Known(chat=chat)  # type: ignore[arg-type]
    steps.begin(made, run.rows["a"], run.workflow, run.policy, known, run.nonce)
    ((first, order, *rest),) = handed
    assert (first, order.workflow, rest) == (made, "other", [run.workflow, run.policy, "chat"])


AFTER = HEADED + "  - {id: n, set: {n: 1}, reference: R2}\n  - {id: a, do: probe.OP, with: {name: x}}\n"
READS = (
    "policy: reads\nversion: 1\nrules:\n"
    "  - {id: r2, match: {connector: probe}, when: run.reference == 'R2', outcome: allow}\n"
)


def taken(operation: str, *, reference: str = "r") -> Any:
    """The first move of a step that is taken in the append in which the step before it has named the run."""
    text = AFTER.replace("OP", operation)
    run = governed(text if reference == "r" else text.replace(", reference: R2", ""), READS)
    run.claim("n")
    view = run.view()
    made = Transition(replace(view, run=replace(view.run, reference=reference)), run.workflow.graph)
    row = run.rows["n"]
    assert steps.begin(made, row, run.workflow, run.policy, Known(), run.nonce) == Over()
    following = made.take("w", "n")
    assert following is not None
    return steps.begin(made, following, run.workflow, run.policy, Known(), run.nonce)


@pytest.mark.req("Q-11")
def test_a_step_that_is_taken_at_once_goes_by_the_name_that_its_run_has_just_got() -> None:
    looked, same = taken("ticket.file"), taken("ticket.file", reference="R2")
    assert looked.idempotency_key == same.idempotency_key, "the effect of a reference is one, whoever begins it"
    assert looked.idempotency_key != taken("ticket.file", reference="R3").idempotency_key
    assert isinstance(taken("effect.apply"), Perform), "policy reads the name that the run has now"


@pytest.mark.parametrize("before", [None, "R1", "R2"])
def test_a_step_names_its_run_whatever_its_name_was_before(before: str | None) -> None:
    graph = loaded(AFTER.replace("OP", "effect.apply")).graph
    state = unopened(RUN_ID, KEY, graph).state
    state.reference = before
    assert writes_of(graph, state, {}, "n", {"output": None}) == {"n": 1, "$reference": "R2"}


def test_a_step_that_only_writes_has_no_output() -> None:
    run = governed(AFTER.replace("OP", "effect.apply")).drive("n")
    assert (run.rows["n"].status, run.rows["n"].output, run.rows["n"].writes) == (
        "succeeded", None, {"n": 1, "$reference": "R2"},
    )  # fmt: skip


def test_an_action_is_for_the_system_of_the_connector_that_performs_it() -> None:
    run = governed(EFFECT)
    moved = run.workflow.operations["probe.effect.apply"].model_copy(update={"connector": "desk"})
    run.workflow = copied(run.workflow, operations={"probe.effect.apply": moved})
    run.systems = {"desk": "desk.example", "probe": "probe.example"}
    run.drive()
    (row,) = run.whole().run.receipts.values()
    assert row.action["system"] == "desk.example"
