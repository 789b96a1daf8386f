"""Moves that are refused, in their whole words: retries, cancels, extensions, questions that nobody could answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Done, Refused
from core.errors import ConsistencyError
from core.identity import NOBODY, Directory, Entry
from core.terms import GroupQuorum, GroupSource, Terms, Tier
from runtime.engine.events import PreflightFailed, RunExtended
from runtime.engine.instructions import Known, Over, Resolve
from runtime.engine.preflight import Check, answerable, callable_now, put_off
from runtime.engine.reopening import anew, refusal
from runtime.engine.run import Failed
from runtime.engine.states import RunState
from runtime.engine.transition import Transition
from tests.engine.governing import EFFECT, GATE, Governed, governed
from tests.engine.test_copies import step
from tests.engine.test_lives import receipt, run_of
from tests.engine.test_reopening import ANN, TWO, failed
from tests.engine.test_reopening import again as reopened
from tests.engine.test_whole_books import HANDLED, canceled, driven

pytestmark = pytest.mark.req("X-18")

OPEN = "The run is {}; only one that has failed can be retried."
DOUBT = "Nobody knows whether the action of {} happened, so it may not be done again."


@pytest.mark.parametrize(
    ("status", "words", "remedy"),
    [
        ("queued", OPEN.format("queued"), "Let it go on, or cancel it."),
        ("running", OPEN.format("running"), "Let it go on, or cancel it."),
        ("waiting", OPEN.format("waiting"), "Let it go on, or cancel it."),
        ("waiting_approval", OPEN.format("waiting_approval"), "Let it go on, or cancel it."),
        ("failed_retryable", OPEN.format("failed_retryable"), "Let it go on, or cancel it."),
        ("succeeded", OPEN.format("succeeded"), "Start another run."),
        ("canceled", OPEN.format("canceled"), "Start another run."),
        ("failed_terminal", None, None),
    ],
)
def test_only_a_run_that_has_failed_is_retried(status: str, words: str | None, remedy: str | None) -> None:
    run = run_of()
    run.status = RunState(status)
    found = refusal(run)
    assert (found and found.message, found and found.remedy) == (words, remedy)


@pytest.mark.parametrize(
    ("receipts", "steps"),
    [
        ((receipt(1, "failed"), receipt(2, "succeeded", "b")), None),
        ((receipt(1, "intended"),), "a"),
        ((receipt(1, "in_doubt"),), "a"),
        ((receipt(1, "in_doubt", "b"), receipt(2, "intended", "a"), receipt(3, "intended", "b")), "a, b"),
        ((receipt(1, "failed", "a"), receipt(2, "in_doubt", "c")), "c"),
    ],
)
def test_nothing_is_retried_while_an_action_is_in_doubt(receipts: Any, steps: str | None) -> None:
    run = run_of(*receipts)
    run.status = RunState.FAILED_TERMINAL
    found = refusal(run)
    assert (found and found.message) == (None if steps is None else DOUBT.format(steps))
    assert (found and found.remedy) == (
        None if steps is None else "Look outside, then start another run for what is left."
    )


def test_what_failed_or_was_canceled_and_is_not_done_otherwise_begins_anew() -> None:
    run = run_of()
    run.steps = {
        "failed": step("failed", "failed_terminal", lease_epoch=3),
        "canceled": step("canceled", "canceled"),
        "handled": step("handled", "failed_terminal"),
        "handling": step("handling", "failed_terminal"),
        "done": step("done", "succeeded"),
        "bot/1": step("bot/1", "canceled"),
        "open": step("open", "waiting"),
    }
    run.past = {"gone": step("gone", "canceled", lease_epoch=2), "failed": step("failed", "succeeded")}
    run.state.status = {"handled": "failed", "done": "succeeded"}
    run.state.failures = {"handling": Failed("on_failure", {})}
    run.state.parked, run.state.open = {"canceled": "wait:1"}, ["failed"]
    assert anew(run) == {"gone": 2, "failed": 3, "canceled": 0}


EXTENDED = RunExtended(1, ["b"], ["#b"], {}, {})
OVER = "The run is over, or being canceled; nothing can be added to it."


@pytest.mark.req("V-6")
@pytest.mark.parametrize(
    ("made", "move", "words"),
    [
        (lambda: driven(governed(EFFECT)), lambda t: t.extend(EXTENDED, ANN), OVER),
        (lambda: failed(EFFECT, Refused("404", "gone")), lambda t: t.extend(EXTENDED, ANN), OVER),
        (lambda: canceled(governed(EFFECT).drive(dies=True)), lambda t: t.extend(EXTENDED, ANN), OVER),
        (
            lambda: driven(governed(EFFECT)),
            lambda t: t.cancel(ANN, "x"),
            "The run is succeeded; there is nothing left to cancel.",
        ),
        (
            lambda: failed(EFFECT, Refused("404", "gone")),
            lambda t: t.cancel(ANN, "x"),
            "The run is failed_terminal; there is nothing left to cancel.",
        ),
        (
            lambda: canceled(governed(EFFECT)),
            lambda t: t.cancel(ANN, "x"),
            "The run is canceled; there is nothing left to cancel.",
        ),
    ],
)
def test_a_run_that_is_over_is_neither_extended_nor_canceled(
    made: Callable[[], Governed], move: Callable[[Transition], object], words: str
) -> None:
    run = made()
    transition = Transition(run.view(), run.workflow.graph)
    with pytest.raises(ConsistencyError) as raised:
        move(transition)
    assert raised.value.message == words
    assert not transition.commit().lines


def test_a_retry_that_would_fail_at_once_is_refused_with_its_cause() -> None:
    text = TWO.replace("steps:", "channels: {n: {initial: 0}}\nsteps:").replace("{name: y}", "{name: y}, needs: [a]")
    text += "  - if: ${{ trigger.none }}\n    needs: [a]\n    then: [{id: c, do: probe.value.read, with: {name: x}}]\n"
    run = failed(text, Done({}), Done({}))
    assert run.status == "failed_terminal"
    with pytest.raises(ConsistencyError) as raised:
        reopened(run)
    why = 'if_2: Key not found in map : "none" in `trigger.none`'
    assert raised.value.message == f"The run would fail again at once: {why}"
    assert raised.value.remedy == "Mend the workflow or the input, and start another run."


def test_a_failure_that_its_branch_handled_is_not_retried() -> None:
    run = driven(governed(HANDLED + "  - {id: z, do: probe.effect.apply, with: {name: z}}\n", said=(
        Refused("404", "gone"), Done({}), Done({}), Refused("404", "gone"),
    )))  # fmt: skip
    assert (run.status, anew(run.whole().run)) == ("failed_terminal", {"z": 1})


SLACK = Terms(Tier.HIGH, (GroupQuorum("S1", 2, GroupSource.SLACK_GROUP), GroupQuorum("owners")))
OWNERS = Terms(Tier.HIGH, (GroupQuorum("owners", 2),))
ONE = Directory.of("d1", [Entry("ana", "Ana", groups=frozenset({"owners"}))])


def asked(
    terms: Terms, people: Directory, known: Known, trigger: str = "test", marks: frozenset[str] = frozenset()
) -> tuple[Any, Transition]:
    run = governed(GATE)
    run.claim("a")
    view = replace(run.view(), directory=people, trigger_type=trigger)
    transition = Transition(view, run.workflow.graph)
    return answerable(transition, run.rows["a"], terms, marks, known), transition


@pytest.mark.req("Q-14")
def test_slack_is_asked_who_is_in_its_groups_before_anybody_is_asked() -> None:
    work, transition = asked(SLACK, ONE, Known())
    assert isinstance(work, Resolve)
    assert (work.groups, work.step.key, work.known) == (SLACK.approvers[:1], "a", Known())
    assert not transition.commit().lines
    few = Known(slack={SLACK.approvers[0].key: frozenset({"U1"})})
    assert isinstance(asked(SLACK, ONE, few)[0], Over)


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(("people", "guard"), [(ONE, "d1"), (NOBODY, None)])
@pytest.mark.parametrize("trigger", ["test", "http", "cli", "schedule", "workflow", "counterseal"])
def test_a_question_that_nobody_could_answer_fails_its_step_and_says_so(
    people: Directory, guard: str | None, trigger: str
) -> None:
    work, transition = asked(OWNERS, people, Known(), trigger)
    assert isinstance(work, Over)
    commit = transition.commit()
    assert commit.people == guard
    error: Any = (
        transition.run.steps["a"].last_error if "a" in transition.run.steps else transition.run.past["a"].last_error
    )
    assert (error["class"], error["code"]) == ("authorization", "nobody_may_decide")
    assert error["message"].startswith("Nobody was asked. ")
    why = error["message"].removeprefix("Nobody was asked. ")
    told = [(one.kind, one.payload) for one in commit.commands if one.kind == "proposal"]
    words = "the change of policy that you proposed is not in force, because nobody can be asked. "
    assert told == ([("proposal", {"person": "someone", "text": words + why})] if trigger == "counterseal" else [])
    wanted = Transition(transition.view, transition.graph)
    wanted.run.superstep = transition.run.superstep
    wanted.order("proposal", "a", {})
    ordered = [one.command_id for one in commit.commands if one.kind == "proposal"]
    assert ordered in ([], [wanted.rows.commands[0].command_id])


@pytest.mark.req("Q-14")
def test_enough_people_are_enough() -> None:
    two = Directory.of("d2", [Entry(name, name, groups=frozenset({"owners"})) for name in ("ana", "ben")])
    assert asked(OWNERS, two, Known())[0] is None
    assert isinstance(asked(OWNERS, ONE, Known())[0], Over)


LINKED = Directory.of("d3", [
    Entry(name, name, groups=frozenset({"owners"}), principals=(f"slack:U{at}",))
    for at, name in enumerate(("ana", "ben", "col"), 1)
])  # fmt: skip


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(
    ("accounts", "shaped", "answerable"),
    [
        (("U1", "U2"), (), True),
        (("U1", "U2"), ("col",), True),
        (("U1", "U2"), ("ana",), False),
        (("U1", "U2", "U3"), ("ana",), True),
        (("U1",), (), False),
        ((), (), False),
        (None, (), False),
    ],
)
def test_those_in_a_slack_group_may_answer_but_for_whoever_shaped_what_is_asked(
    accounts: Any, shaped: tuple[str, ...], answerable: bool
) -> None:
    known = Known(slack={} if accounts is None else {SLACK.approvers[0].key: frozenset(accounts)})
    marks = frozenset(f"updater  person:{name}" for name in shaped)
    work, transition = asked(SLACK, LINKED, known, marks=marks)
    assert isinstance(work, Over) is not answerable, "it is not looked up once more"
    assert bool(transition.commit().lines) is not answerable


def test_slack_that_is_away_is_asked_again_in_a_minute_and_no_attempt_is_used_up() -> None:
    run = governed(GATE)
    run.claim("a")
    run.attempt("a", put_off)
    row = run.rows["a"]
    assert (row.status, row.attempt, row.eligible_in and row.eligible_in.total_seconds()) == ("failed_retryable", 0, 60)
    words = "Slack cannot be asked who is in a group that is to decide, so nobody was asked yet; it is tried again."
    assert row.last_error == {"class": "transport", "code": "slack_away", "message": words}


@pytest.mark.req("Q-14")
@pytest.mark.parametrize("problem", [None, Refused("unreachable", "No\x00table.")])
def test_what_the_settings_do_not_allow_is_not_asked_about(problem: Refused | None) -> None:
    run = governed(EFFECT)
    run.claim("a")
    transition = Transition(run.view(), run.workflow.graph)
    seen: list[Any] = []

    def ready(*given: Any) -> Refused | None:
        seen.append(given)
        return problem

    transition.ready = ready
    operation = run.workflow.operations["probe.effect.apply"]
    assert callable_now(transition, run.rows["a"], operation, {"name": "x"}) is (problem is None)
    assert seen == [("probe", "probe.effect.apply", {"name": "x"})]
    error = {**transition.run.steps, **transition.run.past}["a"].last_error
    words = "Nobody was asked, because probe.effect.apply could not be performed: No\N{REPLACEMENT CHARACTER}table."
    assert error == (problem and {"class": "transport", "code": "unreachable", "message": words})


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(
    ("systems", "check"),
    [({}, "connector"), ({"desk": ""}, "target"), ({"desk": "x"}, "target"), ({"probe": "x"}, "connector")],
)
def test_a_call_is_checked_at_the_connector_that_performs_it_and_at_its_target(
    systems: dict[str, str], check: str
) -> None:
    run = governed(EFFECT)
    run.claim("a")
    made = Transition(run.view(), run.workflow.graph)
    seen: list[Any] = []
    made.systems, made.ready = systems, lambda *given: seen.append(given) or Refused("away", "No.")
    operation = run.workflow.operations["probe.effect.apply"].model_copy(update={"connector": "desk"})
    assert not callable_now(made, run.rows["a"], operation, {"name": "x"})
    assert seen == [("desk", "probe.effect.apply", {"name": "x"})]
    assert made._told[0].event == PreflightFailed(Check(check), "probe.effect.apply")
