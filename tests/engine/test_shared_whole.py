"""Sharing an effect, rule by rule: if it is the same, if it is done, who had joined it, and what is left of it."""

from __future__ import annotations

from dataclasses import replace as copied
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from connectors.port import Done, Parked, Usage
from connectors.proposal import build_action
from runtime.engine.events import ActionRecalled, ActionSucceeded
from runtime.engine.instructions import Known, Over, Shared
from runtime.engine.intend import Proposal
from runtime.engine.lives import performed
from runtime.engine.sharing import _joined, _same, is_done, share
from runtime.engine.states import EffectState
from runtime.engine.transition import Transition
from tests.engine.governing import CASE, EFFECT, TICKET, Governed, governed
from tests.support.engine_lives import of_others, receipt, run_of, wait
from tests.support.engine_sharing import OTHER, SHARED_CASE, begun, error_of, known_as, later, left

pytestmark = pytest.mark.req("Q-15")


@pytest.mark.parametrize(
    ("status", "operation", "waits", "done"),
    [
        ("succeeded", "probe.effect.apply", (), True),
        ("failed", "probe.effect.apply", (), False),
        ("intended", "probe.effect.apply", (), False),
        ("in_doubt", "probe.effect.apply", (), False),
        ("succeeded", "probe.effect.apply", (wait(1, "completed", left=True),), True),
        ("succeeded", "probe.case.open", (), True),
        ("succeeded", "probe.case.open", (wait(1, "completed"),), True),
        ("succeeded", "probe.case.open", (wait(1, "completed", left=True),), False),
        ("succeeded", "probe.case.open", (wait(1, "completed", left=True, parked=False),), True),
        ("succeeded", "probe.case.open", (wait(1, "completed", "retry", left=True),), True),
        ("succeeded", "probe.case.open", (wait(1, "completed", left=True, step="b"),), True),
        ("succeeded", "probe.case.open", (wait(1, "completed", left=True), wait(2, "waiting")), False),
        ("succeeded", "probe.case.open", (wait(1, "completed"), wait(2, "completed", left=True)), False),
        ("failed", "probe.case.open", (wait(1, "completed"),), False),
    ],
)
def test_what_happened_is_done_unless_its_step_began_anew_after_its_end(
    status: str, operation: str, waits: Any, done: bool
) -> None:
    run = governed(CASE)
    transition = Transition(replace(run.view(), run=run_of(*waits)), run.workflow.graph)
    step, found = run.rows["a"], {**run.workflow.operations, **governed(EFFECT).workflow.operations}[operation]
    place: Any = (transition, step, None, found, run.workflow, run.policy, None, run.nonce)
    assert is_done(Proposal(*place), receipt(1, status)) is done


def own(run: Governed, shared: Shared, **more: Any) -> Shared:
    """The effect as one that this run has performed itself."""
    return replace(shared, receipt=replace(shared.receipt, run_id=run.view().run_id, **more))


def test_only_a_durable_effect_of_the_step_itself_goes_on_without_it() -> None:
    done = governed(TICKET, said=(Done({"n": 1}),)).drive()
    ((effect, life, held),) = performed(done.whole().run).values()
    run = governed(TICKET)
    run.shared = own(run, Shared(effect, life, held))
    run.drive()
    assert (run.status, len(run.sent), "recalled" in run.told) == ("succeeded", 1, False)
    case = governed(SHARED_CASE)
    case.shared = own(case, known_as(begun()))
    assert (case.drive().status, case.sent) == ("waiting", [])
    fresh = governed(SHARED_CASE, said=(Parked("c1"),))
    fresh.shared = own(fresh, known_as(begun()), step_key="b")
    assert (fresh.drive().status, fresh.sent) == ("waiting", [])
    assert later(known_as(done), TICKET).told == ["recalled"]


FILED = governed(TICKET).workflow.operations["probe.ticket.open"]
ACTION = build_action(FILED, {"name": "x"})


@pytest.mark.parametrize(
    ("told", "system", "same"),
    [
        ({}, "", True),
        ({}, "desk", True),
        ({"system": "desk"}, "desk", True),
        ({"system": "desk"}, "other", False),
        ({"system": "desk"}, "", False),
        ({"system": ""}, "desk", True),
        ({"input": {"name": "y"}}, "", False),
        ({"input": {}}, "", False),
        ({"input": {"name": "x", "value": "1"}}, "", False),
        ({"target": "ticket/y"}, "", False),
    ],
)
def test_an_effect_is_the_same_if_its_input_its_target_and_its_system_are(told: Any, system: str, same: bool) -> None:
    target = told.pop("target", ACTION.target)
    row = receipt(1, target=target, action={"input": {"name": "x"}, **told})
    assert _same(row, replace(ACTION, system=system)) is same


@pytest.mark.parametrize(
    ("waits", "joined"),
    [
        ((), None),
        ((of_others(1, kind="shared"),), 101),
        ((of_others(1, "completed", "shared"), of_others(2, "completed", "shared")), 102),
        ((of_others(1, kind="shared"), of_others(2, kind="shared", left=True)), 101),
        ((of_others(1, kind="shared"), of_others(2)), 101),
        ((of_others(1, kind="shared", step="b"),), None),
        ((wait(1, kind="shared"),), None),
    ],
)
def test_a_step_had_joined_the_effect_that_it_waited_for_last(waits: Any, joined: int | None) -> None:
    assert _joined(proposal(TICKET, *waits)) == (None if joined is None else str(UUID(int=joined)))


def proposal(text: str, *waits: Any, shared: Shared | None = None) -> Any:
    run = governed(text)
    run.claim("a")
    view = replace(run.view(), run=replace(run.view().run, waits=run_of(*waits).waits))
    leaf: Any = run.workflow.graph.leaf("a")
    place: Any = (run.workflow.operations[leaf.operation], run.workflow, run.policy, Known(shared=shared), run.nonce)
    return Proposal(Transition(view, run.workflow.graph), run.rows["a"], leaf, *place)


NO = {"class": "transport", "code": "422", "message": "no"}
GIVEN_UP = {
    "class": "consistency", "code": "effect_failed", "message": "The step that performed this shared effect failed.",
}  # fmt: skip
SAID = {"error": {"class": "timeout", "code": "late", "message": "It is late."}}


@pytest.mark.parametrize(
    ("joined", "error", "held", "told"),
    [
        (101, NO, None, NO),
        (101, None, None, GIVEN_UP),
        (102, NO, None, None),
        (None, NO, None, None),
        (101, {**NO, "code": "not_sent"}, None, None),
        (101, NO, wait(9, "completed", result=SAID), SAID["error"]),
        (101, None, wait(9, "completed", result=SAID), SAID["error"]),
        (101, NO, wait(9, "completed", result={"error": "late"}), NO),
        (101, None, wait(9, "completed", result=None), GIVEN_UP),
        (102, None, wait(9, "completed", result=SAID), None),
    ],
)
def test_what_failed_fails_only_for_who_had_joined_it_and_not_if_nothing_was_sent(
    joined: int | None, error: Any, held: Any, told: Any
) -> None:
    row = receipt(101, "failed", run_id=OTHER, error=error, action={"input": {"name": "x"}}, target=ACTION.target)
    waits = () if joined is None else (of_others(joined - 100, "completed", "shared"),)
    p = proposal(TICKET, *waits, shared=Shared(row, EffectState.FAILED, held))
    work = share(p, ACTION)
    rows = {**p.transition.run.steps, **p.transition.run.past}
    assert (work is None, rows["a"].last_error) == (told is None, told)


@pytest.mark.parametrize(
    ("life", "over", "code"),
    [
        (EffectState.BEGUN, False, "effect_conflict"),
        (EffectState.BEGUN, True, "effect_conflict"),
        (EffectState.INTENDED, True, "effect_conflict"),
        (EffectState.SUCCEEDED, True, "effect_conflict"),
        (EffectState.FAILED, False, None),
        (EffectState.FAILED, True, None),
    ],
)
def test_another_action_is_a_conflict_while_the_first_goes_on_or_is_done_and_none_once_it_failed(
    life: EffectState, over: bool, code: str | None
) -> None:
    row = receipt(101, "intended", run_id=OTHER, action={"input": {"name": "y"}}, target="ticket/y")
    p = proposal(TICKET, shared=Shared(row, life, over=over))
    work = share(p, ACTION)
    rows = {**p.transition.run.steps, **p.transition.run.past}
    assert (work is None, (rows["a"].last_error or {}).get("code")) == (code is None, code)


@pytest.mark.parametrize("life", [EffectState.BEGUN, EffectState.LEFT])
def test_who_shares_an_effect_waits_for_it_by_its_own_key_whatever_the_step_had_before(life: EffectState) -> None:
    p = proposal(SHARED_CASE, shared=replace(known_as(begun()), life=life))
    step = p.transition.run.steps["a"] = replace(p.step, idempotency_key="of an earlier life")
    p = replace(p, step=step)
    share(p, build_action(p.operation, {"name": "x"}))
    (held,) = p.transition.run.waits.values()
    key = p.known.shared.receipt.idempotency_key
    assert (held.context["shared"], held.context["operation"]) == (key, "probe.case.share")


@pytest.mark.parametrize("life", [*EffectState])
def test_only_what_was_begun_or_done_goes_on_without_the_step_that_began_it(life: EffectState) -> None:
    shared = replace(known_as(begun()), life=life)
    p = proposal(SHARED_CASE)
    mine = replace(shared.receipt, run_id=p.transition.view.run_id, step_key="a")
    p = replace(p, known=Known(shared=replace(shared, receipt=mine)))
    goes_on = life in (EffectState.BEGUN, EffectState.LEFT, EffectState.SUCCEEDED)
    assert (share(p, build_action(p.operation, {"name": "x"})) is not None) == goes_on


CAME = wait(9, "completed", "task", result={"output": {"n": 2}, "by": "person:ana"})
REUSED: dict[str, tuple[dict[str, Any], dict[str, Any], Any, Any, Any]] = {
    "its own output": ({"output": {"n": 1}}, {}, None, {"n": 1}, None),
    "what the wait for its end came to": ({"output": {"n": 1}}, {"wait": CAME}, {"by": "person:ana"}, {"n": 2}, None),
    "an end that nobody is named for": (
        {}, {"wait": replace(CAME, result={"output": 3})}, {"by": None}, 3, None,
    ),
    "an end without an output": (
        {"output": {"n": 1}}, {"wait": replace(CAME, result={"by": "token:t"})}, {"by": "token:t"}, None, None,
    ),
    "an end without a result": ({"output": {"n": 1}}, {"wait": replace(CAME, result=None)}, {"by": None}, None, None),
    "an error, whatever came later": ({"error": NO}, {"wait": CAME}, {"by": "person:ana"}, None, "422"),
    "an error, even if it was erased": ({"error": NO}, {"erased": True}, None, None, "422"),
    "an end, even if it was erased": ({}, {"wait": CAME, "erased": True}, {"by": "person:ana"}, {"n": 2}, None),
    "nothing that was erased": ({"output": None}, {"erased": True}, None, None, "output_removed"),
    "nothing that was erased and that people said": (
        {"output": None, "resolution": "by ana"}, {"erased": True}, None, None, "output_removed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REUSED)
def test_whoever_reuses_an_effect_is_given(what: str) -> None:
    row, known, said, output, code = REUSED[what]
    of = receipt(101, "succeeded", run_id=OTHER, action={"input": {"name": "x"}}, target=ACTION.target, **row)
    p = proposal(TICKET, shared=Shared(of, EffectState.SUCCEEDED, **known))
    assert share(p, ACTION) == Over()
    rows = {**p.transition.run.steps, **p.transition.run.past}
    told = [one.event for one in p.transition._told if isinstance(one.event, ActionRecalled)]
    assert told == [ActionRecalled(of.receipt_id, OTHER, said)]
    assert ((rows["a"].last_error or {}).get("code"), rows["a"].output) == (code, output)


@pytest.mark.req("X-20")
def test_what_retention_has_emptied_is_no_conflict_and_has_no_result() -> None:
    done = known_as(governed(TICKET, said=(Done({"n": 1}),)).drive(), erased=True)
    emptied = replace(done, receipt=replace(done.receipt, action={"input": {}}, output=None))
    run = later(emptied, TICKET)
    words = "This effect was done before; retention has removed its result."
    assert error_of(run) == "output_removed"
    assert (run.rows["a"].last_error or {})["message"] == words
    assert error_of(later(replace(emptied, erased=False), TICKET)) == "effect_conflict"


@pytest.mark.parametrize(
    ("resolution", "output", "code"),
    [
        (None, {}, None),
        (None, None, None),
        ("by ana", {"n": 1}, None),
        ("by ana", None, "output_unknown"),
        ("by ana", {}, "output_unknown"),
        ("", {}, "output_unknown"),
    ],
)
def test_what_people_say_has_happened_is_reused_if_its_output_is_known(resolution: Any, output: Any, code: Any) -> None:
    shared = known_as(governed(TICKET, said=(Done({"n": 1}),)).drive())
    row = replace(shared.receipt, resolution=resolution, output=output)
    run = later(replace(shared, receipt=row), TICKET)
    assert (error_of(run), run.rows["a"].output) == (code, None if code else output)


def test_what_is_reused_has_its_usage_too() -> None:
    used = Usage("p", "m", 7, 3, "0.01")
    run = later(known_as(governed(TICKET, said=(Done({"n": 1}, usage=used),)).drive()), TICKET)
    assert (run.rows["a"].usage or {})["cost_usd"] == "0.01"


def parking(shared: Shared, text: str) -> timedelta | None:
    """The time for which a step waits for an effect whose declaration parks its own steps for two days only."""
    run = governed(text)
    operation = run.workflow.operations["probe.case.share"]
    timeouts = operation.timeouts.model_copy(update={"park": timedelta(days=2)})
    run.workflow = copied(
        run.workflow, operations={operation.name: operation.model_copy(update={"timeouts": timeouts})}
    )
    run.shared = shared
    return run.drive().waits["a"].due_in


@pytest.mark.parametrize(
    ("timeout", "joins", "takes"),
    [("", timedelta(days=14), timedelta(days=14)), (", timeout: PT1H", timedelta(hours=1), timedelta(hours=1))],
)
def test_who_joins_and_who_takes_over_wait_as_long_as_their_own_step_says(timeout: str, joins: Any, takes: Any) -> None:
    text = SHARED_CASE.replace("}}", f"}}{timeout}}}")
    assert (parking(known_as(begun()), text), parking(known_as(left()), text)) == (joins, takes)
    going = replace(known_as(governed(TICKET).drive(dies=True)), life=EffectState.INTENDED)
    assert later(going, TICKET).waits["a"].due_in is None


def test_who_joins_is_bound_to_the_receipt_and_the_key_that_it_joined() -> None:
    shared = known_as(begun())
    for made, kind in ((shared, "shared"), (known_as(left()), "external")):
        (held,) = later(made, SHARED_CASE).waits.values()
        key = made.receipt.idempotency_key
        assert held.kind == kind
        assert held.context == {
            "operation": "probe.case.share", "shared": key, "receipt": str(made.receipt.receipt_id),
        }  # fmt: skip
    assert later(shared, SHARED_CASE).waits["a"].correlation_key == f"shared:{shared.receipt.idempotency_key}"


UNFIT = {"class": "transport", "code": "unusable_output", "message": "m", "sent": True}
COST = {"cost_usd": "0.01"}


@pytest.mark.parametrize(
    ("text", "told", "left"),
    [
        (EFFECT, {"usage": COST}, ("succeeded", {"n": 1}, COST, None)),
        (EFFECT, {}, ("succeeded", {"n": 1}, None, None)),
        (EFFECT, {"unusable": UNFIT}, ("failed_terminal", None, None, UNFIT)),
        (CASE, {}, ("waiting", None, None, None)),
        (CASE, {"unusable": UNFIT}, ("failed_terminal", None, None, UNFIT)),
    ],
)
def test_an_own_effect_is_recalled_with_all_that_is_recorded_of_it(text: str, told: Any, left: Any) -> None:
    """The worker dies between the outcome and the end of its step."""
    run = governed(text).drive(dies=True)
    (row,) = run.view().run.receipts.values()
    event = ActionSucceeded(row.receipt_id, {"n": 1}, "e1", **told)
    run.attempt("a", lambda t, s: t.tell(event, step=s.key))
    step = run.dead().drive().rows["a"]
    assert (step.status, step.output, step.usage, step.last_error) == left
    assert (len(run.sent), run.told) == (1, ["intended", "succeeded", "recalled"])
