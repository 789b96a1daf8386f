"""Barriers and checkpoints: who is folded when, what a parked step holds up, and how a run ends."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import ConsistencyError
from evidence.chain import Actor
from evidence.commitments import blind
from runtime.engine.life.transition import Transition
from runtime.engine.model.states import RunState, WaitKind

HEAD = (
    "workflow: w\nversion: 1\nreference: r\nchannels: {seen: {reduce: append}, n: {reduce: sum, initial: 0}}\nsteps:\n"
)
ACTOR = Actor("person", "ann")


def wide(count: int) -> str:
    """A first step, ``count`` beside each other that write their name, and a last one."""
    lines = ["  - {id: s, do: probe.value.read, with: {name: s}}"]
    lines += [
        f"  - {{id: p{number}, do: probe.value.read, with: {{name: p{number}}}, needs: [s],"
        ' set: {seen: "${{ output.name }}", n: "${{ 1 }}"}}'
        for number in range(count)
    ]
    needs = ", ".join(f"p{number}" for number in range(count))
    lines.append(f"  - {{id: z, do: probe.value.read, with: {{name: z}}, needs: [{needs}]}}")
    return HEAD + "\n".join(lines) + "\n"


def begun(simulate: Any, count: int) -> Any:
    run = simulate(wide(count))
    run.claim("s")
    run.succeed("s")
    return run


@pytest.mark.req("P-1")
@pytest.mark.req("P-2")
@pytest.mark.req("V-8")
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_writes_are_folded_in_step_order_whatever_settles_first(simulate: Any, order: tuple[int, ...]) -> None:
    run = begun(simulate, 3)
    for number in range(3):
        run.claim(f"p{number}")
    for settled, number in enumerate(order):
        assert run.state.channels["seen"] == [], f"folded after {settled} of 3"
        run.succeed(f"p{number}")
    assert run.state.channels == {"seen": ["p0", "p1", "p2"], "n": 3}
    run.settle_all()
    assert run.status == "succeeded"


def test_iterations_are_folded_by_their_number_not_by_their_name(simulate: Any) -> None:
    text = HEAD + (
        "  - id: each\n    foreach: ${{ trigger.items }}\n    max_parallel: 12\n    steps:\n"
        '      - {id: one, do: probe.value.read, with: {name: "${{ string(item) }}"}, set: {seen: "${{ item }}"}}\n'
    )
    run = simulate(text, {"items": list(range(12))}).settle_all(max)
    assert run.state.channels["seen"] == list(range(12))


@pytest.mark.req("P-3")
def test_each_barrier_writes_one_numbered_checkpoint_with_its_digest(simulate: Any) -> None:
    run = begun(simulate, 2).settle_all()
    assert list(run.checkpoints) == [0, 1, 2, 3]
    contents = [json.loads(content) for content, _ in run.checkpoints.values()]
    assert [content.get("open") for content in contents] == [["s"], ["p0", "p1"], ["z"], None]
    events = [json.loads(line) for line in run.lines]
    recorded = [event["data"]["digest"] for event in events if event["type"] == "checkpoint.committed"]
    assert recorded == [blind(b"k" * 32, digest) for _, digest in run.checkpoints.values()]
    assert run.verified()


@pytest.mark.req("P-4")
@pytest.mark.req("P-5")
def test_a_parked_step_holds_nobody_up_and_joins_the_next_superstep(simulate: Any) -> None:
    run = begun(simulate, 3)
    for number in range(3):
        run.claim(f"p{number}")
    run.park("p1")
    run.succeed("p0")
    run.resume("p1")  # before the barrier of the super-step that it left
    assert run.ready() == []
    run.succeed("p2")
    assert run.state.channels["seen"] == ["p0", "p2"]
    assert run.ready() == ["p1"]
    run.settle_all()
    assert run.state.channels["seen"] == ["p0", "p2", "p1"]
    assert run.status == "succeeded"


@pytest.mark.parametrize("kind", [WaitKind.APPROVAL, WaitKind.RETRY])
def test_a_run_in_which_all_wait_holds_nothing(simulate: Any, kind: WaitKind) -> None:
    run = begun(simulate, 2)
    run.claim("p0")
    run.claim("p1")
    run.park("p0", kind)
    assert run.status == "running"
    transition = run.park("p1", kind)
    assert run.status == ("waiting_approval" if kind is WaitKind.APPROVAL else "failed_retryable")
    assert run.executing == 0
    assert set(run.state.parked) == {"p0", "p1"}
    assert (transition.rows.unqueued, run.line) == (["p1"], {})
    assert all(row.lease_owner is None or row.status != "running" for row in run.rows.values())
    run.resume("p1")
    assert run.status == "running"
    run.settle_all()
    assert run.state.parked.keys() == {"p0"}
    run.resume("p0")
    run.settle_all()
    assert (run.status, run.state.channels["seen"]) == ("succeeded", ["p1", "p0"])


def test_a_failed_step_fails_the_run_when_the_others_are_done(simulate: Any) -> None:
    run = begun(simulate, 3)
    for number in range(3):
        run.claim(f"p{number}")
    run.fail("p1")
    assert run.status == "running"
    run.succeed("p2")
    run.succeed("p0")
    assert (run.status, run.run.error["step"]) == ("failed_terminal", "p1")
    assert run.open_steps == {}
    assert run.verified()


@pytest.mark.parametrize("first", ["fail", "park"])
def test_what_would_wait_in_a_run_that_fails_waits_for_nothing(simulate: Any, first: str) -> None:
    run = begun(simulate, 2)
    run.claim("p0")
    run.claim("p1")
    (run.fail if first == "fail" else run.park)("p0")
    (run.park if first == "fail" else run.fail)("p1")
    assert run.status == "failed_terminal"
    assert run.open_steps == {}
    if first == "fail":
        (wait,) = run.waits.values()
        assert wait.status == "canceled"
    assert [json.loads(line)["type"] for line in run.lines][-2:] == ["step.canceled", "run.closed"]
    assert run.ready() == []
    assert run.verified()


def test_the_answer_that_comes_last_can_fail_the_run(simulate: Any) -> None:
    run = begun(simulate, 2)
    run.claim("p0")
    run.park("p0")
    run.claim("p1")
    run.succeed("p1")
    assert run.status == "waiting_approval"
    run.fail("p0")
    assert (run.status, run.open_steps) == ("failed_terminal", {})


@pytest.mark.req("P-2")
def test_a_write_that_does_not_fit_fails_the_run_and_leaves_the_last_checkpoint(simulate: Any) -> None:
    run = simulate(HEAD + '  - {id: a, do: probe.value.read, with: {name: a}, set: {n: "${{ output.name }}"}}\n')
    run.claim("a")
    run.succeed("a")
    assert run.status == "failed_terminal"
    assert "state.n" in run.run.error["message"]
    assert run.view().run.state.channels["n"] == 0


@pytest.mark.parametrize("output", [{"name": 2**60}, {"name": float("inf")}])
def test_a_result_that_has_no_canonical_form_fails_the_run_instead_of_repeating_it(simulate: Any, output: Any) -> None:
    run = simulate(
        HEAD
        + "  - {id: a, do: probe.value.read, with: {name: a}}\n"
        + '  - {id: b, do: probe.value.read, with: {name: "${{ steps.a.output.name }}"}}\n'
    )
    run.claim("a")
    run.succeed("a", output)
    assert (run.status, run.open_steps, run.executed) == ("failed_terminal", {}, ["a"])
    assert run.run.error["code"] == "unusable_output"
    assert run.verified()


# -- canceling -------------------------------------------------------------------------------------------------------


def cancel(run: Any) -> Transition:
    transition = Transition(run.view(), run.workflow.graph)
    transition.cancel(ACTOR, "no longer wanted")
    run.apply(transition)
    return transition


@pytest.mark.req("V-13")
def test_a_run_with_nothing_under_way_is_canceled_at_once(simulate: Any) -> None:
    run = simulate(wide(2))
    cancel(run)
    assert (run.status, run.open_steps) == ("canceled", {})
    run = begun(simulate, 2)
    run.claim("p0")
    run.park("p0")
    run.claim("p1")
    run.succeed("p1")
    cancel(run)
    assert (run.status, run.open_steps) == ("canceled", {})
    assert run.verified()
    with pytest.raises(ConsistencyError, match="nothing left to cancel"):
        cancel(run)


@pytest.mark.req("V-13")
@pytest.mark.parametrize("ending", ["succeed", "park"])
def test_what_is_under_way_is_waited_for_before_a_run_is_canceled(simulate: Any, ending: str) -> None:
    run = begun(simulate, 4)
    for number in (0, 1, 2):
        run.claim(f"p{number}")
    run.park("p0")
    run.resume("p0")  # ready, in the next super-step
    run.succeed("p1")
    transition = cancel(run)
    assert run.status == "running"
    assert run.rows["p3"].status == "canceled"
    assert transition.rows.unqueued == ["p3"]  # on its way through a queue it would hold a slot
    assert run.executing == 1
    cancel(run)  # somebody else wants it too: the first reason stands
    getattr(run, ending)("p2")
    assert (run.status, run.open_steps) == ("canceled", {})
    assert run.run.canceling["by"] == "ann"
    assert run.verified()


# -- slots and going on ----------------------------------------------------------------------------------------------


def going_on(transition: Transition, ends: list[str]) -> None:
    """Take new steps one after the other in one transaction; each but the last ends at once, as named."""
    held = "s"
    for end in ends:
        step = transition.take("w", held)
        assert step is not None
        held = step.key
        if end == "fail":
            transition.fail(step, {"class": "authorization", "code": "policy_denied", "message": "no"})


@pytest.mark.req("Q-12")
@pytest.mark.parametrize(("ends", "handed"), [(["go"], "p0"), (["fail", "go"], "p1"), (["fail", "fail"], None)])
def test_a_slot_goes_on_with_its_worker_to_the_step_that_executes(
    simulate: Any, step_id: Any, ends: list[str], handed: str | None
) -> None:
    run = simulate(wide(2))
    run.claim("s")
    view = run.view()
    transition = Transition(view, run.workflow.graph)
    transition.succeed(view.run.steps["s"], {}, {})
    going_on(transition, ends)
    commit = run.apply(transition)
    goes_on = [("s", handed, step_id(handed), 1)] if handed else []
    assert [(key, step.key, step.step_id, step.lease_epoch) for key, step in commit.handed] == goes_on
    assert commit.unqueued == ([] if handed else ["s"])
    if handed is None:
        assert (run.status, run.open_steps) == ("failed_terminal", {})


def test_a_lost_lease_gives_the_step_back_and_its_epochs_go_on(simulate: Any) -> None:
    run = simulate(wide(1))
    run.claim("s")
    run.attempt("s", lambda t, step: t.expire_lease(step))
    assert run.ready() == ["s"]
    assert run.claim("s").lease_epoch == 2
    run.succeed("s")
    run.settle_all()
    assert run.status == "succeeded"


def test_a_closed_run_can_only_be_read(simulate: Any) -> None:
    run = simulate(wide(1)).settle_all()
    with pytest.raises(ConsistencyError):
        Transition(run.view(), run.workflow.graph).close(RunState.FAILED_TERMINAL)


# -- determinism -----------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> tuple[str, int]:
    """A random DAG of up to six steps, of which some are in a condition or a loop."""
    count = draw(st.integers(2, 6))
    lines = []
    for number in range(count):
        needs = sorted(draw(st.sets(st.integers(0, number - 1), max_size=2))) if number else []
        listed = ", ".join(f"n{need}" for need in needs)
        shape = draw(st.sampled_from(["leaf", "leaf", "if", "loop"]))
        sets = 'set: {seen: "${{ output.name }}", n: "${{ 1 }}"}'
        body = f"do: probe.value.read, with: {{name: b{number}}}, {sets}"
        if shape == "leaf":
            lines.append(f"  - {{id: n{number}, needs: [{listed}], {body}}}")
        elif shape == "if":
            lines.append(f"  - {{id: n{number}, needs: [{listed}], if: '${{{{ size(state.seen) % 2 == 0 }}}}',")
            lines.append(f"     then: [{{id: t{number}, {body}}}], else: [{{id: e{number}, {body}}}]}}")
        else:
            parallel = draw(st.integers(1, 3))
            lines.append(
                f"  - {{id: n{number}, needs: [{listed}], foreach: '${{{{ [1, 2, 3] }}}}', max_parallel: {parallel},"
            )
            lines.append(f"     steps: [{{id: l{number}, {body}}}]}}")
    text = HEAD.replace("{reduce: append}", "{reduce: append, initial: []}") + "\n".join(lines) + "\n"
    return text, count


@pytest.mark.req("P-1")
@pytest.mark.req("P-2")
@pytest.mark.req("X-21")
@settings(max_examples=25, deadline=None)
@given(graph=graphs(), data=st.data())
def test_the_state_does_not_depend_on_who_was_faster(
    simulate_any: Any, graph: tuple[str, int], data: st.DataObject
) -> None:
    text, _ = graph
    orderly = simulate_any(text).settle_all()
    racing = simulate_any(text)
    while not racing.finished:
        running = [key for key, row in racing.rows.items() if row.status == "running"]
        moves = [*(("claim", key) for key in racing.ready()), *(("succeed", key) for key in sorted(running))]
        verb, key = data.draw(st.sampled_from(moves))
        getattr(racing, verb)(key)
    assert racing.status == orderly.status == "succeeded"
    assert racing.checkpoints == orderly.checkpoints
    assert racing.open_steps == {}


@settings(max_examples=25, deadline=None)
@given(graph=graphs(), data=st.data())
def test_a_run_always_comes_to_an_end_whatever_waits_and_crashes(
    simulate_any: Any, graph: tuple[str, int], data: st.DataObject
) -> None:
    run = simulate_any(graph[0])
    hurdles = data.draw(st.integers(0, 8))
    while not run.finished:
        running = sorted(key for key, row in run.rows.items() if row.status == "running")
        parked = sorted(k for k, row in run.rows.items() if row.status in ("waiting_approval", "failed_retryable"))
        moves = [("claim", key) for key in run.ready()] + [("succeed", key) for key in running]
        moves += [("resume", key) for key in parked]
        if hurdles:
            moves += [(verb, key) for key in running for verb in ("park", "retry", "crash")]
        assert moves, f"stuck in {run.status} with {run.open_steps} and {run.executing} executing"
        verb, key = data.draw(st.sampled_from(moves))
        hurdles -= verb in ("park", "retry", "crash")
        if verb == "crash":
            run.attempt(key, lambda t, step: t.expire_lease(step))
        elif verb == "retry":
            run.park(key, WaitKind.RETRY)
        else:
            getattr(run, verb)(key)
    assert (run.status, run.open_steps) == ("succeeded", {})
    assert run.verified()
