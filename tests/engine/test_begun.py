"""The first moves of a leased step: what it knows of its past decides what it does next (promises 1 and 2)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from connectors.port import Call, Done, NotSent, Parked, Probe, ProbeVerdict
from evidence.chain import Actor
from runtime.engine.book.instructions import Inquire, Known, LookUp, Over, Perform, ReadBefore, known_of
from runtime.engine.life import waits
from runtime.engine.life.step import begin
from runtime.engine.life.transition import Transition
from tests.engine.governing import ASK, CASE, EFFECT, MAIL, TICKET, WRITE, Governed, governed
from tests.support.engine_scenes import again, canceled
from tests.support.engine_stage import RUN_ID

pytestmark = pytest.mark.req("Q-14")


def told(run: Governed, since: int) -> list[str]:
    return [str(line).split('"type":"')[1].split('"')[0] for line in run.lines[since:]]


def first(run: Governed, **more: Any) -> tuple[Any, list[str]]:
    """The first move of a leased step, and the lines that tell it."""
    since = len(run.lines)
    known = replace(known_of(run.view().run, "a"), **more)
    return run.move("a", lambda t, s: begin(run.held_by(t, s, known))), told(run, since)


def test_an_approval_that_its_votes_do_not_carry_fails_the_step() -> None:
    run = governed(EFFECT, ASK).drive().answer("ana")
    run.claim("a")
    work, lines = first(run)
    assert isinstance(work, Over)
    assert lines == ["approval.superseded", "step.failed", "checkpoint.committed", "run.closed"]
    words = "An approval was recorded, but the votes in the run's book do not meet its terms."
    assert run.rows["a"].last_error == {"class": "authorization", "code": "not_approved", "message": words}


def test_in_a_canceled_run_an_approval_that_its_votes_do_not_carry_only_cancels_the_step() -> None:
    run = governed(EFFECT, ASK).drive().answer("ana")
    run.claim("a")
    canceled(run)
    work, lines = first(run)
    assert isinstance(work, Over)
    assert [line for line in lines if line.startswith("step.")] == ["step.canceled"]
    assert (run.status, run.rows["a"].status) == ("canceled", "canceled")


@pytest.mark.parametrize("choice", ["again", "happened"])
def test_people_are_asked_again_about_a_doubt_if_their_votes_do_not_carry_the_answer(choice: str) -> None:
    run = governed(MAIL).drive(dies=True).dead().drive()
    assert run.status == "waiting_approval"
    run.answer(choice=choice)
    run.claim("a")
    work, lines = first(run)
    assert isinstance(work, Over)
    assert (lines[0], run.status, len(run.sent)) == ("approval.superseded", "waiting_approval", 1)
    assert "approval.requested" in lines


def of_another(run: Governed, status: str) -> Any:
    """The receipt of this action as another run has it."""
    (row,) = governed(TICKET, said=(Done({}),)).drive().whole().run.receipts.values()
    return replace(row, run_id=UUID(int=9), status=status)


@pytest.mark.req("Q-15")
@pytest.mark.parametrize("status", ["intended", "in_doubt", "succeeded", "failed"])
def test_a_step_looks_into_its_own_doubt_and_never_into_anothers(status: str) -> None:
    run = governed(TICKET)
    run.claim("a")
    work, lines = first(run, receipt=of_another(run, status))
    assert isinstance(work, LookUp)
    assert lines == []


@pytest.mark.parametrize("text", [EFFECT, WRITE])
def test_a_doubt_is_looked_into_before_anything_is_proposed(text: str) -> None:
    run = governed(text).drive(dies=True).dead()
    run.claim("a")
    work, lines = first(run)
    assert isinstance(work, Inquire)
    assert lines == ["action.in_doubt"]


def test_the_wait_of_a_lost_intent_is_given_up_with_its_lease() -> None:
    run = governed(CASE).drive(dies=True).dead()
    run.claim("a")
    work, lines = first(run)
    assert isinstance(work, Inquire)
    assert lines[0] == "wait.canceled"


def test_a_canceled_run_proposes_nothing() -> None:
    run = governed(EFFECT)
    run.claim("a")
    canceled(run)
    work, lines = first(run)
    assert isinstance(work, Over)
    assert lines[0] == "step.canceled"


SENT = {"probe": "desk.example"}


@pytest.mark.parametrize(("systems", "system"), [({}, None), (SENT, "desk.example"), ({"other": "x"}, None)])
def test_what_is_intended_names_the_system_that_it_is_sent_to(systems: dict[str, str], system: str | None) -> None:
    run = governed(EFFECT)
    run.systems = systems
    run.drive()
    (row,) = run.whole().run.receipts.values()
    assert row.action.get("system") == system


@pytest.mark.req("Q-15")
@pytest.mark.parametrize(
    ("changes", "same"),
    [({}, True), ({"tenant_id": "other"}, False), ({"workflow": "other"}, True), ({"run_id": UUID(int=3)}, True)],
)
def test_a_key_of_the_tenant_is_the_same_in_all_its_runs_and_in_no_other_tenant(changes: Any, same: bool) -> None:
    assert (key_of(TICKET, changes) == key_of(TICKET, {})) is same


def key_of(text: str, changes: Any) -> str:
    run = governed(text)
    run.claim("a")
    view = run.view()
    reference = changes.pop("reference", None) if changes else None
    view = replace(view, **changes)
    if reference is not None:
        view = replace(view, run=replace(view.run, reference=reference))
    work: Any = begin(run.held_by(Transition(view, run.workflow.graph), run.rows["a"], Known()))
    return str(work.idempotency_key)


@pytest.mark.req("Q-11")
@pytest.mark.parametrize(("reference", "same"), [("r", True), ("r2", False)])
def test_a_key_of_a_reference_is_that_of_its_runs_reference(reference: str, same: bool) -> None:
    text = TICKET.replace("ticket.open", "ticket.file")
    assert (key_of(text, {"reference": reference}) == key_of(text, {})) is same


def test_an_approval_lets_out_exactly_what_was_approved() -> None:
    run = governed(EFFECT, ASK).drive().answer("ana", "ben")
    run.claim("a")
    given = known_of(run.view().run, "a").given
    assert given is not None
    for changed in ({"digest": "0" * 64}, {"kind": "gate"}):
        other = governed(EFFECT, ASK).drive().answer("ana", "ben")
        other.claim("a")
        work, lines = first(other, given=replace(given, **changed))
        assert isinstance(work, Over), changed
        assert ("approval.requested" in lines, "action.intended" in lines) == (True, False)
    work, lines = first(run)
    assert isinstance(work, Perform)
    assert lines == ["decision.made", "action.intended"]


def attempted(status: str, **more: Any) -> tuple[Any, list[str]]:
    """The first move after an approved attempt that ended so."""
    run = governed(EFFECT, ASK, said=(NotSent("away"),)).drive().answer("ana", "ben").drive().due()
    run.claim("a")
    row = known_of(run.view().run, "a").receipt
    assert row is not None
    return first(run, receipt=replace(row, status=status, **more))


@pytest.mark.parametrize(
    ("more", "lets_out"),
    [
        ({}, True),
        ({"action_digest": "0" * 64}, False),
        ({"step_key": "b"}, False),
        ({"run_id": UUID(int=9)}, False),
    ],
)
def test_an_approval_lets_out_once_more_only_what_certainly_failed(more: Any, lets_out: bool) -> None:
    work, lines = attempted("failed", **more)
    assert isinstance(work, Perform) is lets_out
    assert ("approval.requested" in lines) is not lets_out


def test_a_look_that_finds_it_absent_sends_it_again_by_the_same_receipt() -> None:
    run = governed(EFFECT).drive(dies=True).dead()
    run.said = [Probe(ProbeVerdict.NOT_APPLIED, "none"), Done({"n": 2})]
    run.drive()
    (row,) = run.whole().run.receipts.values()
    assert (run.status, row.attempt, row.run_id) == ("succeeded", 2, RUN_ID)


@pytest.mark.req("X-18")
def test_what_has_happened_once_by_an_approval_is_asked_about_before_it_happens_again() -> None:
    run = governed(CASE, ASK, said=(Parked("c1"), Parked("c2"))).drive().answer("ana", "ben").drive()
    run.over("a", lambda t, s, wait: waits.complete(t, s, wait, {"error": {"code": "no"}}, Actor("token", "t"))).drive()
    assert run.status == "failed_terminal"
    again(run)
    run.kept, run.read = None, 0
    run.drive()
    assert (run.status, len(run.sent), len(run.book_of_questions())) == ("waiting_approval", 1, 2)


@pytest.mark.req("P-11")
@pytest.mark.parametrize(("text", "work"), [(WRITE, ReadBefore), (TICKET, LookUp), (EFFECT, Perform)])
def test_an_append_before_any_call_is_guarded_by_the_tenants_number(text: str, work: type[Any]) -> None:
    run = governed(text)
    run.claim("a")
    found, _ = first(run)
    assert isinstance(found, work)
    assert run.commits[-1].stop == run.view().stop == 0


def test_what_comes_first_holds_the_step_its_operation_and_the_whole_call() -> None:
    run = governed(WRITE)
    run.claim("a")
    operation = run.workflow.operations["probe.record.update"]
    found, _ = first(run)
    call = Call(
        operation.name, {"name": "x", "fields": {"priority": "1"}}, found.call.idempotency_key, 30.0, declared=operation
    )
    assert found == ReadBefore(run.rows["a"], operation, call, Known())
    shared = governed(TICKET)
    shared.claim("a")
    looked, _ = first(shared)
    assert looked == LookUp(shared.rows["a"], key_of(TICKET, {}), Known())
    effect = governed(EFFECT)
    effect.claim("a")
    sent, _ = first(effect)
    (row,) = effect.view().run.receipts.values()
    operation = effect.workflow.operations["probe.effect.apply"]
    call = Call(operation.name, {"name": "x"}, row.idempotency_key, 30.0, declared=operation)
    assert sent == Perform(effect.view().run.steps["a"], operation, call, row)
