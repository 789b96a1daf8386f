"""Replaying a record with the pure kernel: what it derives, what it infers, and where it stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evidence.chain import Actor, EventType
from runtime.governance.finishing import finish
from runtime.kernel.record import Divergence, Fact
from runtime.kernel.replaying import replay
from runtime.kernel.states import WaitKind
from runtime.kernel.transition import Transition

HEAD = "workflow: w\nversion: 1\nreference: r\nchannels: {seen: {reduce: append}}\nsteps:\n"


def beside(count: int) -> str:
    return HEAD + "".join(
        f"  - {{id: p{number}, do: probe.value.read, with: {{name: p{number}}}, needs: [],"
        ' set: {seen: "${{ output.name }}"}}\n'
        for number in range(count)
    )


def settle(transition: Any, step: Any, leaf: Any, output: Any, signal: Any) -> None:
    finish(transition, step, leaf, output, signal=signal)


def began(simulate: Any, count: int) -> Any:
    run = simulate(beside(count))
    for number in range(count):
        run.claim(f"p{number}")
    return run


def park(run: Any, key: str, kind: WaitKind) -> None:
    """As governance parks: the fact first."""

    def move(transition: Any, step: Any) -> None:
        fact = EventType.STEP_RETRY_SCHEDULED if kind is WaitKind.RETRY else EventType.STEP_PARKED
        row = waiting(run, step, kind)
        transition.record(fact, {"wait": str(row.wait_id), "kind": str(kind)}, step=key)
        transition.park(step, row)

    run.attempt(key, move)


def waiting(run: Any, step: Any, kind: WaitKind) -> Any:
    from runtime.kernel.commit import WaitRow
    from runtime.kernel.states import WaitState
    from runtime.kernel.transition import wait_of

    return WaitRow(wait_of(run.view().run_id, step), step.step_id, step.key, kind, WaitState.WAITING, "t")


def equal(run: Any, record_of: Any) -> bool:
    derived = {found.number: found.digest for found in replay(record_of(run, settle))}
    return derived == {number: digest for number, (_, digest) in run.checkpoints.items()}


@pytest.mark.req("P-9")
def test_a_record_gives_the_checkpoints_that_it_gave_before(simulate: Any, record_of: Any) -> None:
    run = simulate(beside(3)).settle_all(max)
    assert len(run.checkpoints) == 2
    assert equal(run, record_of)


@pytest.mark.parametrize("kind", [WaitKind.APPROVAL, WaitKind.RETRY, WaitKind.SIGNAL])
def test_a_question_that_was_withdrawn_with_its_run_is_inferred(simulate: Any, record_of: Any, kind: WaitKind) -> None:
    run = began(simulate, 2)
    run.fail("p0")
    park(run, "p1", kind)
    assert run.status == "failed_terminal"
    assert not any(b"step.parked" in line or b"retry_scheduled" in line for line in run.lines)
    assert equal(run, record_of)


def test_a_step_that_was_canceled_with_its_run_is_inferred(simulate: Any, record_of: Any) -> None:
    run = began(simulate, 3)
    transition = Transition(run.view(), run.workflow.graph)
    transition.cancel(Actor("person", "ann"), "enough")
    run.apply(transition)
    run.succeed("p0")
    for key in ("p1", "p2"):
        run.attempt(key, lambda t, step: t.cancel_step(step))
    assert run.status == "canceled"
    assert equal(run, record_of)


def test_a_lost_lease_changes_nothing(simulate: Any, record_of: Any) -> None:
    run = began(simulate, 2)
    run.attempt("p1", lambda t, step: t.expire_lease(step))
    run.settle_all()
    run.succeed("p0")
    run.settle_all()
    assert run.status == "succeeded"
    assert equal(run, record_of)


def test_a_write_is_evaluated_again_and_not_copied(simulate: Any, record_of: Any) -> None:
    run = simulate(beside(2)).settle_all()
    record = record_of(run, settle)
    steps = {**record.steps, "p1": replace(record.steps["p1"], output={"name": "forged"})}
    derived = [found.state["channels"] for found in replay(replace(record, steps=steps))]
    assert derived[-1] == {"seen": ["p0", "forged"]}


def without(record: Any, kind: EventType, number: int = 0) -> Any:
    found = [fact for fact in record.facts if fact.type is kind][number]
    return replace(record, facts=[fact for fact in record.facts if fact is not found])


CUTS = {
    "a step that never started": (lambda r: without(r, EventType.STEP_STARTED), "step.succeeded"),
    "a checkpoint that is not recorded": (lambda r: without(r, EventType.CHECKPOINT_COMMITTED, 1), "checkpoint"),
    "an opening that is missing": (lambda r: without(r, EventType.RUN_OPENED), "nothing on record|checkpoint"),
    "an output that is missing": (lambda r: replace(r, steps={}), "follow"),
    "a step that nobody knows": (
        lambda r: replace(
            r, facts=[*r.facts, Fact(99, EventType.STEP_STARTED, Actor("w", "w"), "x", {"attempt": 0, "epoch": 1})]
        ),
        "not to run",
    ),
    "an output that the expressions cannot read": (
        lambda r: replace(r, steps={**r.steps, "p0": replace(r.steps["p0"], output={})}), "fails",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CUTS)
def test_a_record_that_cannot_be_followed_says_where(simulate: Any, record_of: Any, what: str) -> None:
    cut, words = CUTS[what]
    record = cut(record_of(simulate(beside(2)).settle_all(), settle))
    with pytest.raises(Divergence, match=words):
        list(replay(record))
