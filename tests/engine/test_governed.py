"""Governed steps without a database: the life of a step, from its claim to its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from connectors.port import Done, InDoubt, NotSent, Parked, Probe, ProbeVerdict, Refused
from evidence.chain import Actor
from runtime.engine.book.instructions import OtherRun, known_of
from runtime.engine.life import waits
from runtime.engine.life.step import begin
from tests.engine.governing import (
    ASK,
    CASE,
    CHILD,
    DEDUPES,
    DENY,
    EFFECT,
    GATE,
    HEAD,
    MAIL,
    TICKET,
    WRITE,
    governed,
)
from tests.support.engine_stage import NOW
from tests.support.runtime_stage import ALLOW_ALL


@pytest.mark.req("U-4")
@pytest.mark.parametrize(
    ("policy", "status", "sent"),
    [(ALLOW_ALL, "succeeded", 1), (DENY, "failed_terminal", 0), (None, "failed_terminal", 0)],
)
def test_what_policy_says_is_what_is_done(policy: str | None, status: str, sent: int) -> None:
    run = governed(WRITE, policy).drive()
    assert (run.status, len(run.sent)) == (status, sent)
    assert run.verified()


@pytest.mark.req("U-5")
def test_an_approved_action_goes_out_once_and_a_rejected_one_never() -> None:
    run = governed(WRITE, ASK).drive()
    assert (run.status, run.sent) == ("waiting_approval", [])
    run.answer("ana", "ben").drive()
    assert (run.status, len(run.sent), run.verified()) == ("succeeded", 1, True)


@pytest.mark.req("U-5")
@pytest.mark.parametrize("people", [(), ("ana",), ("ana", "ana"), ("ana", "stranger")])
def test_a_decision_that_its_votes_do_not_carry_lets_nothing_out(people: tuple[str, ...]) -> None:
    run = governed(WRITE, ASK).drive().answer(*people).drive()
    assert run.sent == []


def test_an_approval_is_void_when_its_time_is_over_or_policy_has_changed() -> None:
    run = governed(WRITE, ASK).drive().answer("ana", "ben")
    run.later += timedelta(days=2)
    run.drive()
    assert (run.status, run.sent) == ("waiting_approval", [])
    run.answer("ana", "ben").rule_by(DENY).drive()
    assert (run.status, run.sent) == ("failed_terminal", [])


@pytest.mark.req("Q-18")
@pytest.mark.parametrize(
    ("said", "status", "receipt"),
    [
        (Done({}), "succeeded", "succeeded"),
        (Refused("422", "no"), "failed_terminal", "failed"),
        (Refused("403", "no"), "failed_terminal", "failed"),
        (NotSent("away"), "failed_retryable", "failed"),
        (None, "failed_retryable", "failed"),
        (InDoubt("no answer"), "failed_retryable", "in_doubt"),
        (Parked("p1"), "failed_terminal", "succeeded"),
    ],
)
def test_an_outcome_is_what_its_class_says(said: Any, status: str, receipt: str) -> None:
    run = governed(EFFECT, said=(said,)).drive()
    assert (run.status, run.told, len(run.sent)) == (status, ["intended", receipt], 1)
    assert run.verified()


@pytest.mark.req("Q-19")
def test_attempts_end() -> None:
    run = governed(EFFECT, said=(NotSent("away"),) * 3).drive().due().drive().due().drive()
    assert (run.status, len(run.sent)) == ("failed_terminal", 3)


@pytest.mark.req("P-10")
@pytest.mark.parametrize(
    ("verdict", "status", "sent"),
    [
        (ProbeVerdict.APPLIED, "succeeded", 1),
        (ProbeVerdict.NOT_APPLIED, "succeeded", 2),
        (ProbeVerdict.CANNOT_TELL, "waiting_approval", 1),
    ],
)
def test_a_dead_worker_s_action_is_looked_for(verdict: ProbeVerdict, status: str, sent: int) -> None:
    run = governed(EFFECT).drive(dies=True).dead()
    run.said = [Probe(verdict, "evidence"), *([Done({})] if sent == 2 else [])]
    run.drive()
    assert (run.status, len(run.sent)) == (status, sent)


@pytest.mark.parametrize(("text", "sent"), [(DEDUPES, 2), (MAIL, 1)])
def test_what_cannot_be_asked_is_sent_again_only_where_the_target_dedupes(text: str, sent: int) -> None:
    run = governed(text).drive(dies=True).dead().drive()
    assert len(run.sent) == sent
    assert run.status == ("succeeded" if sent == 2 else "waiting_approval")


@pytest.mark.parametrize(("choice", "sent"), [("happened", 1), ("again", 2)])
def test_people_settle_a_doubt(choice: str, sent: int) -> None:
    run = governed(MAIL, ASK).drive().answer("ana", "ben").drive(dies=True).dead().drive()
    run.answer("ana", "ben", choice=choice).drive()
    assert (run.status, len(run.sent)) == ("succeeded", sent)


def test_an_answer_to_a_doubt_is_acted_on_once() -> None:
    run = governed(MAIL, ASK).drive().answer("ana", "ben").drive(dies=True).dead().drive()
    run.answer("ana", "ben", choice="again").drive(dies=True).dead().drive()
    assert (run.status, len(run.sent)) == ("waiting_approval", 2)
    run.answer("ana", "ben", choice="again").drive()
    assert (run.status, len(run.sent)) == ("succeeded", 3)


@pytest.mark.req("V-9")
def test_a_durable_action_parks_and_its_end_completes_it() -> None:
    run = governed(CASE, said=(Parked("case-1"),)).drive()
    assert (run.status, len(run.sent)) == ("waiting", 1)
    run.over("a", lambda t, s, wait: waits.complete(t, s, wait, {"output": {"ok": 1}}, Actor("token", "t"))).drive()
    assert run.status == "succeeded"


@pytest.mark.req("V-12")
def test_a_durable_action_that_takes_too_long_is_ended_outside() -> None:
    run = governed(CASE, said=(Parked("case-1"),)).drive().over("a", waits.time_out).drive()
    assert run.status == "failed_terminal"
    assert "cancel" in [command.kind for command in run.commands.values()]


@pytest.mark.req("Q-15")
def test_a_key_that_is_shared_is_looked_up_first() -> None:
    assert governed(TICKET, said=(Done({}),)).drive().status == "succeeded"


@pytest.mark.parametrize(("people", "status"), [(("ana", "ben"), "succeeded"), (("ana",), "failed_terminal")])
def test_a_gate_goes_on_by_its_votes_alone(people: tuple[str, ...], status: str) -> None:
    assert governed(GATE).drive().answer(*people).drive().status == status


@pytest.mark.req("X-13")
@pytest.mark.parametrize(
    ("other", "status"),
    [
        (OtherRun("succeeded", {"v": 1}), "succeeded"),
        (OtherRun("failed_terminal", error={"class": "transport", "message": "no"}), "failed_terminal"),
        (OtherRun(problem="there is none"), "failed_terminal"),
        (OtherRun("waiting"), "waiting"),
    ],
)
def test_a_child_is_as_its_run(other: OtherRun, status: str) -> None:
    assert governed(CHILD, said=(other,)).drive().status == status


def test_a_run_that_is_canceled_sends_nothing_more() -> None:
    run = governed(EFFECT).drive(dies=True)
    run.attempt("a", lambda t, _: t.cancel(Actor("person", "p"), "enough"))
    run.dead().said = [Probe(ProbeVerdict.NOT_APPLIED, "it is not there")]
    run.drive()
    assert (run.status, len(run.sent)) == ("canceled", 1)


FORM = "{type: object, properties: {ok: {type: boolean}}}"
WAITS = [
    "wait: {for: PT1H}",
    'wait: {until: "2026-01-02T00:00:00Z"}',
    "wait: {signal: paid, correlate: x}",
    f"task: {{title: Look, form: {FORM}, assign: {{group: owners}}}}",
]


@pytest.mark.req("X-7")
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize(
    ("result", "status"), [({"output": {"ok": True}}, "succeeded"), ({"error": {"message": "no"}}, "failed_terminal")]
)
def test_a_wait_ends_with_what_it_is_told(wait: str, result: dict[str, Any], status: str) -> None:
    run = governed(f"{HEAD}  - {{id: a, {wait}}}\n").drive()
    assert run.status == "waiting"
    run.over("a", lambda t, s, open_: waits.complete(t, s, open_, result, Actor("person", "ana"))).drive()
    assert (run.status, run.verified()) == (status, True)


@pytest.mark.req("V-12")
@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_that_takes_too_long_fails_its_step(wait: str) -> None:
    run = governed(f"{HEAD}  - {{id: a, {wait}}}\n").drive().over("a", waits.time_out).drive()
    assert run.status == "failed_terminal"


@pytest.mark.req("V-13")
@pytest.mark.parametrize("wait", WAITS)
def test_a_canceled_run_waits_for_nothing(wait: str) -> None:
    run = governed(f"{HEAD}  - {{id: a, {wait}}}\n").drive()
    run.attempt("a", lambda t, _: t.cancel(Actor("person", "p"), "enough"))
    assert (run.status, run.ready()) == ("canceled", [])


@pytest.mark.parametrize("key", ["tenant", "workflow:w", "connector:probe"])
def test_what_is_paused_goes_out_when_it_is_resumed(key: str) -> None:
    """Nothing is used up meanwhile (promise 11)."""
    run = governed(EFFECT)
    run.paused = {key: {"by": "p", "reason": "stop", "at": NOW.isoformat()}}
    assert (run.drive().status, run.sent) == ("waiting", [])
    run.paused = {}
    run.over("a", lambda t, s, wait: t.resume(s, wait)).drive()
    assert (run.status, len(run.sent)) == ("succeeded", 1)


@pytest.mark.req("X-14")
def test_a_continuation_is_over_when_the_other_run_is_there() -> None:
    text = HEAD + "  - {id: a, continue_with: {workflow: other}}\n"
    assert governed(text, said=(OtherRun("queued"),)).drive().status == "succeeded"


@pytest.mark.req("V-13")
def test_a_wait_that_was_answered_ends_nothing_in_a_run_that_is_being_canceled() -> None:
    run = governed(f"{HEAD}  - {{id: a, wait: {{signal: paid, correlate: x}}}}\n").drive()
    run.over("a", lambda t, s, open_: waits.complete(t, s, open_, {"output": {}}, Actor("token", "t")))
    run.claim("a")
    run.attempt("a", lambda t, _: t.cancel(Actor("person", "p"), "enough"))
    known = known_of(run.view().run, "a")
    run.move("a", lambda t, step: begin(run.held_by(t, step, known)))
    assert (run.status, run.rows["a"].status) == ("canceled", "canceled")
