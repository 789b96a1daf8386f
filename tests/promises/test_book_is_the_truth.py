"""State is what the book tells, in the order in which it tells it, and nothing else (promises 5 and 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from msgspec import to_builtins

from connectors.port import Done, InDoubt, Parked, Probe, ProbeVerdict
from core.canonical import canonical_bytes
from core.errors import ConsistencyError
from evidence.chain import Actor
from evidence.receipts import LateAnswer
from runtime.definition.workflow import load_workflow
from runtime.engine.book.recorded import Diverged, read_line
from runtime.engine.life.doubt import PROBES_MAX
from runtime.engine.life.pausing import Pause
from runtime.engine.life.transition import Transition, writes_of
from runtime.engine.model.agent_state import Agent, Called, Stage
from runtime.engine.model.events import ActionLate
from runtime.engine.replay.replay import Divergence, Replay, replay, unopened
from tests.engine.governing import CASE, CATALOG, EFFECT, HEAD, Governed, governed
from tests.support.engine_scenes import book_of, driven
from tests.support.engine_stage import KEY, NOW, RUN_ID

PAUSE = {"tenant": Pause.of("tenant", {"by": "ana", "reason": "calm", "at": NOW.isoformat()})}


def paused_and_resumed(run: Governed) -> Governed:
    """Its next attempt meets a pause, which is over when it is looked at again."""
    run.paused = PAUSE
    run.drive()
    run.paused = {}
    return run.due()


def replayed(run: Governed, **constants: Any) -> dict[int, str]:
    """The checkpoints as the book gives them anew; ``constants`` replace what the run was started with."""
    graph = run.workflow.graph
    known = {**run.view().constants, **constants}
    found = replay(Replay(unopened(RUN_ID, KEY, graph), book_of(run), [graph], known, writes_of))
    return {each.number: each.digest for each in found}


AGAIN: dict[str, Callable[[], Governed]] = {
    "an effect that went out after a pause": lambda: driven(paused_and_resumed(governed(EFFECT))),
    "a case that is over before its wait has begun": lambda: driven(governed(CASE, said=(Done({"n": 1}, "c1"),))),
    "a case that comes back": lambda: governed(CASE, said=(Parked("c1"),)).drive(),
}


@pytest.mark.req("P-9")
@pytest.mark.parametrize("scene", AGAIN)
def test_a_replay_gives_the_checkpoints_that_were_recorded(scene: str) -> None:
    """Waits that give a step no value, such as a pause or one that never ended, are not heard."""
    run = AGAIN[scene]()
    assert replayed(run) == {number: digest for number, (_, digest) in run.checkpoints.items()}


CHOICE = HEAD + (
    "  - if: ${{ trigger.go }}\n"
    "    then: [{id: a, do: probe.value.read, with: {name: x}}]\n"
    "    else: [{id: b, do: probe.value.read, with: {name: y}}]\n"
)


@pytest.mark.req("P-9")
def test_a_replay_evaluates_what_the_first_checkpoint_chose() -> None:
    run = Governed(load_workflow(CHOICE, "test.yaml", CATALOG), {"go": True})
    run.open()
    assert replayed(run) == {number: digest for number, (_, digest) in run.checkpoints.items()}
    with pytest.raises(Divergence, match="planned otherwise"):
        replayed(run, trigger={"go": False})


@pytest.mark.parametrize("data", [[], "ann", None, 5])
def test_a_line_whose_data_is_no_object_breaks_the_chain(data: Any) -> None:
    line = {"type": "step.resumed", "ts": "2026-01-01T00:00:00.000000Z", "step": "a", "data": data}
    whole = canonical_bytes({**line, "actor": {"kind": "x", "id": "y"}, "v": 2})
    with pytest.raises(Diverged):
        read_line(whole, {}, KEY, 3)


NEXT = EFFECT + "  - {id: b, do: probe.effect.apply, with: {name: '${{ string(steps.a.output.value) }}'}}\n"


def test_a_late_answer_to_what_was_never_intended_is_no_fact() -> None:
    run = governed(EFFECT).drive()
    transition = Transition(run.whole(), run.workflow.graph)
    unknown = ActionLate(UUID(int=7), 1, 1, LateAnswer.SUCCEEDED, "2026-01-01T00:00:00Z")
    with pytest.raises(ConsistencyError):
        transition.tell(unknown, step="a", actor=Actor("worker", "w"))


def test_what_is_tried_and_not_appended_leaves_the_run_as_it_was() -> None:
    run = governed(NEXT)
    run.claim("a")
    view = run.view()
    before = to_builtins(view.run.state, str_keys=True)
    transition = Transition(view, run.workflow.graph)
    transition.succeed(run.rows["a"], {"value": 1}, {})
    transition.commit()
    assert transition.run.state.outputs == {"a": {"value": 1}}
    assert to_builtins(view.run.state, str_keys=True) == before


def test_what_an_agent_tries_and_does_not_append_leaves_it_as_it_was() -> None:
    agent = Agent(Stage.CALLS, 1, calls={1: Called("d")}, barred=["x"])
    tried = agent.copy()
    tried.barred.append("y")
    tried.calls[1].came = "done"
    tried.calls[2] = Called("e")
    assert agent == Agent(Stage.CALLS, 1, calls={1: Called("d")}, barred=["x"])


@pytest.mark.req("X-15")
def test_a_worker_goes_on_from_its_own_append_as_from_the_book() -> None:
    """Its view of the run after an append is the one that another worker reads."""
    run = governed(EFFECT)
    run.claim("a")
    after = run.attempt("a", lambda t, step: t.succeed(step, {"value": 1}, {})).after()
    read = run.view()
    assert (after.version, after.gate, after.head) == (read.version, read.gate, read.head)
    assert (after.run.status, after.run.state.outputs) == (read.run.status, read.run.state.outputs)


@pytest.mark.req("P-10")
@pytest.mark.parametrize("pauses", [0, 3])
def test_a_pause_gives_a_doubt_no_further_looks(pauses: int) -> None:
    run = governed(EFFECT, said=(InDoubt("lost"),)).drive()
    looks = 0
    while run.status != "waiting_approval":
        run.due()
        if looks in range(1, pauses + 1):
            run = paused_and_resumed(run)
        run.said = [Probe(ProbeVerdict.CANNOT_TELL, "busy", retry_after_seconds=9)]
        run.drive()
        looks += 1
    assert looks == PROBES_MAX
