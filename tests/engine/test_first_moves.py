"""The first move of a step: what it looks up, reads, shares or sends, and what a pause or a loop leaves of it."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from connectors.port import Before, Call
from runtime.definition.workflow import load_workflow
from runtime.engine import sharing
from runtime.engine.errors import ErrorClass, StepError
from runtime.engine.instructions import Known, LookUp, Over, Perform, ReadBefore, Shared
from runtime.engine.pausing import stopped
from runtime.engine.plan import Evaluated, PlanError, Planner
from runtime.engine.run import Loop, State
from runtime.engine.states import EffectState
from runtime.engine.step import _retry, begin
from runtime.engine.transition import Transition
from runtime.engine.windows import Window
from tests.engine.conftest import NOW, RUN_ID
from tests.engine.governing import CASE, CATALOG, EFFECT, HEAD, MAIL, TICKET, WRITE, Governed, governed
from tests.engine.test_lives import receipt
from tests.engine.test_shared_whole import ACTION, proposal
from tests.engine.test_sharing import OTHER
from tests.runtime.conftest import ALLOW_ALL

pytestmark = pytest.mark.req("P-4")

INSIDE = HEAD + "  - {id: a, do: transform.data.apply, with: {value: 1}}\n"


class Stopping(Governed):
    """A run whose tenant's pauses have moved seven times."""

    def view(self) -> Any:
        return replace(super().view(), stop=7)


def first(text: str, known: Known | None = None, **more: Any) -> tuple[Any, int | None]:
    """The first move of the step ``a``, and the number of pauses by which its append is guarded."""
    run = Stopping(load_workflow(text, "test.yaml", CATALOG), {}, **more)
    run.open()
    run.rule_by(ALLOW_ALL)
    run.claim("a")
    found: list[Any] = []

    def build(transition: Any, step: Any) -> Any:
        work = begin(transition, step, run.workflow, run.policy, known or Known(), run.nonce)
        found.append((work, transition.rows.stop))
        return work

    run.move("a", build)
    ((work, stop),) = found
    return work, stop


@pytest.mark.parametrize(
    ("text", "known", "kind"),
    [
        (INSIDE, Known(), Perform),
        (EFFECT, Known(), Perform),
        (MAIL, Known(), Perform),
        (WRITE, Known(), ReadBefore),
        (WRITE, Known(before=Before({"priority": "3"}, "7")), Perform),
        (WRITE, Known(before=Before({}, "")), Perform),
        (TICKET, Known(), LookUp),
        (TICKET, Known(receipt_checked=True), Perform),
    ],
)
def test_every_first_move_is_guarded_by_the_pauses_that_it_has_seen(text: str, known: Known, kind: Any) -> None:
    work, stop = first(text, known)
    assert (type(work), stop) == (kind, 7)


@pytest.mark.parametrize("text", [EFFECT, INSIDE, WRITE, TICKET])
def test_a_step_that_a_pause_stops_is_parked_only_while_the_pause_lasts(text: str) -> None:
    work, stop = first(text, paused={f"run:{RUN_ID}": {"by": "ana", "reason": "No.", "at": NOW.isoformat()}})
    assert (work, stop) == (Over(), 7)


PAUSES = ("tenant", "workflow:w", "connector:probe", f"run:{RUN_ID}")


@pytest.mark.parametrize(
    ("paused", "by"),
    [
        *(((one,), one) for one in PAUSES),
        *(((*PAUSES[n:], "run:x"), PAUSES[n]) for n in range(4)),
        (("workflow:v", "connector:x", f"run:{OTHER}", "workflow:probe", "connector:w"), None),
        ((), None),
    ],
)
def test_the_widest_pause_stops_a_call_and_whatever_is_paused_guards_its_append(
    paused: tuple[str, ...], by: str | None
) -> None:
    run = Stopping(load_workflow(EFFECT, "test.yaml", CATALOG), {}, paused=dict.fromkeys(reversed(paused)))
    run.open()
    run.claim("a")
    transition = Transition(run.view(), run.workflow.graph)
    step = replace(run.rows["a"], last_error={"setbacks": 1})
    assert stopped(transition, step, CATALOG.operations["probe.effect.apply"], run.nonce) is (by is not None)
    assert transition.rows.stop == 7
    waits = [(wait.kind, wait.context) for wait in transition.run.waits.values()]
    assert waits == ([] if by is None else [("pause", {"paused": by})])


def test_a_target_is_read_with_the_input_and_under_the_key_of_the_call_itself() -> None:
    work, _ = first(WRITE)
    key = work.call.idempotency_key
    sent, _ = first(WRITE, Known(before=Before({"priority": "3"}, "7")))
    assert work.call == Call("probe.record.update", {"name": "x", "fields": {"priority": "1"}}, key, 30.0)
    assert sent.call.idempotency_key == key


# -- sharing -----------------------------------------------------------------------------------------------------------


def expected(life: EffectState, same: bool, erased: bool, goes_on: bool | None) -> str | None:
    """The verb of a step for an effect that is known by its key; ``goes_on`` None: it is another step's."""
    if goes_on is False:
        return None
    match life:
        case EffectState.FAILED:
            return "_failed"
        case _ if not same and not erased:
            return "fail"
        case EffectState.LEFT:
            return "_take_over"
        case EffectState.SUCCEEDED:
            return "_reuse"
        case _:
            return "_join"


@pytest.mark.req("Q-15")
@pytest.mark.parametrize("life", EffectState)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("text", [TICKET, CASE])
@pytest.mark.parametrize(("same", "erased"), [*product((True, False), repeat=2)])
def test_each_life_of_an_effect_is_shared_in_its_way(
    life: EffectState, own: bool, text: str, same: bool, erased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = receipt(1, action={"input": {"name": "x"}}, target=ACTION.target if same else "ticket/y", run_id=OTHER)
    p, done = proposal(text, shared=Shared(row, life, erased=erased)), list[str]()
    for name in ("_failed", "_take_over", "_join", "_reuse"):
        monkeypatch.setattr(sharing, name, lambda *_, name=name: done.append(name))
    monkeypatch.setattr(Transition, "fail", lambda *_: done.append("fail"))
    monkeypatch.setattr(sharing, "is_own", lambda *_: own)
    work = sharing.share(p, ACTION)
    durable = text is CASE and life in (EffectState.BEGUN, EffectState.LEFT, EffectState.SUCCEEDED)
    wanted = expected(life, same, erased, durable if own else None)
    assert done == ([] if wanted is None else [wanted])
    assert (work is None) is (wanted in (None, "_failed"))


# -- loops -------------------------------------------------------------------------------------------------------------

IF = HEAD + "  - {if: '${{ true }}', then: [{id: x, do: probe.effect.apply, with: {name: x}}]}\n"
LOOP = HEAD + (
    "  - id: each\n    foreach: ${{ [1, 2, 3] }}\n    as: one\n    max_parallel: 2\n"
    "    steps:\n      - {id: x, do: probe.effect.apply, with: {name: x}}\n"
)


@pytest.mark.req("V-5")
def test_an_iteration_that_is_over_takes_nothing_of_those_that_go_on() -> None:
    graph = load_workflow(LOOP, "test.yaml", CATALOG).graph
    state = State({})
    state.loops["each"] = Loop("one", 3, 2, {0: 1, 1: 2})
    state.status = {"each[1].x": "succeeded", "y": "succeeded"}
    state.outputs = {"each[1].x": 1, "each[0].y": 2, "each[10].x": 3, "y": 4}
    names = ("steps.each[0].x", "steps.each[1].x", "votes.each[1].x", "votes.each[0].x", "steps.each[10].x", "state.c")
    state.shaped = {name: ["m"] for name in names}
    state.open = ["each[0].x"]
    planner = Planner(state, Evaluated(graph, {}, 3), {"each": Window(0, (1, 2, 3))})
    assert planner.advance(graph.root, "") is False
    assert [*state.shaped] == ["steps.each[0].x", "votes.each[0].x", "steps.each[10].x", "state.c"]
    assert state.outputs == {"each[0].y": 2, "each[10].x": 3, "y": 4}
    assert state.loops == {"each": Loop("one", 3, 3, {0: 1, 2: 3})}
    assert (state.status, state.open) == ({"y": "succeeded"}, ["each[0].x", "each[2].x"])
    assert [planned.key for planned in planner.ready] == ["each[2].x"]


class Chooses:
    """Every condition and every collection is this value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def choose(self, *_: Any) -> Any:
        return self._value


@pytest.mark.req("V-5")
@pytest.mark.parametrize("value", [0, 1, 1.5, "true", "", None, {}, True, False, [], [1]])
def test_a_condition_is_true_or_false_and_a_collection_a_list(value: Any) -> None:
    for text, kind, words in ((IF, bool, "true or false"), (LOOP, list, "a list")):
        graph, state, choices = load_workflow(text, "test.yaml", CATALOG).graph, State({}), cast(Any, Chooses(value))
        planner = Planner(state, choices, {})
        if isinstance(value, kind):
            planner.advance(graph.root, "")
            continue
        with pytest.raises(PlanError, match=f"gave {type(value).__name__}, not {words}"):
            planner.advance(graph.root, "")


# -- barriers ----------------------------------------------------------------------------------------------------------

COUNTS = HEAD + (
    "  - {id: a, do: probe.effect.apply, with: {name: x}}\n"
    "  - if: ${{ run.checkpoint == NUMBER }}\n"
    "    then: [{id: yes, do: probe.effect.apply, with: {name: y}}]\n"
    "    else: [{id: no, do: probe.effect.apply, with: {name: z}}]\n"
)


@pytest.mark.parametrize(("number", "taken"), [(0, "no"), (1, "yes"), (2, "no")])
def test_a_condition_sees_the_checkpoint_that_its_barrier_makes(number: int, taken: str) -> None:
    run = governed(COUNTS.replace("NUMBER", str(number))).drive()
    assert [key for key in run.rows if key != "a"] == [taken]


def test_a_run_fails_at_its_own_step_whatever_step_the_error_names() -> None:
    run = governed(EFFECT)
    error: dict[str, Any] = {"class": "transport", "code": "x", "message": "No.", "step": "inner"}
    run.claim("a")
    ended = run.attempt("a", lambda transition, step: transition.fail(step, error)).run
    assert (ended.status, ended.error) == ("failed_terminal", {**error, "step": "a"})


# -- retries -----------------------------------------------------------------------------------------------------------

USAGE: dict[str, Any] = {"input_tokens": 7, "output_tokens": 3, "cost_usd": "0.01"}
SLA = "the SLA leaves no time for another attempt"


@pytest.mark.req("X-19")
@pytest.mark.parametrize(
    ("attempt", "at_least", "left", "seconds", "spent"),
    [
        (0, 0.0, None, 10.0, ""),
        (1, 0.0, None, 20.0, ""),
        (0, 45.0, None, 45.0, ""),
        (1, 45.0, None, 45.0, ""),
        (1, 15.0, None, 20.0, ""),
        (2, 0.0, None, 0.0, "3 attempts were made"),
        (3, 0.0, None, 0.0, "4 attempts were made"),
        (0, 0.0, 11.0, 10.0, ""),
        (0, 0.0, 10.0, 0.0, SLA),
        (0, 0.0, 9.0, 0.0, SLA),
        (1, 45.0, 45.0, 0.0, SLA),
        (2, 0.0, 9.0, 0.0, SLA),
    ],
)
@pytest.mark.parametrize("usage", [USAGE, None])
def test_an_attempt_is_tried_again_after_its_delay_or_fails_with_what_it_cost(
    attempt: int, at_least: float, left: float | None, seconds: float, spent: str, usage: Any
) -> None:
    told: list[Any] = []
    deadline = None if left is None else NOW + timedelta(seconds=left)
    transition: Any = SimpleNamespace(
        view=SimpleNamespace(now=NOW, deadline_at=deadline),
        fail=lambda *given: told.append(("fails", *given[1:])),
        retry_later=lambda *given: told.append(("waits", *given[1:])),
    )
    delays = SimpleNamespace(attempts=3, delay_seconds=lambda number, *, chance: number * 10.0 * (chance * 2))
    step, operation = cast(Any, SimpleNamespace(attempt=attempt)), cast(Any, SimpleNamespace(retry=delays))
    error = StepError(ErrorClass.TRANSPORT, "x", "No.")
    _retry(transition, step, operation, error, at_least=at_least, chance=0.5, usage=usage)
    known = {"class": "transport", "code": "x", "message": f"No. ({spent})" if spent else "No."}
    assert told == [("fails", known, usage) if spent else ("waits", timedelta(seconds=seconds), known, usage)]
