"""The call that a receipt tells, what stands in its way by now, and what a late answer about it changes."""

from __future__ import annotations

from dataclasses import replace as copied
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid5

import pytest
from msgspec.structs import replace

from connectors.port import Before, Call, Done, NotSent, Parked
from core.terms import Stopped
from evidence.chain import Actor
from evidence.commitments import blind
from runtime.engine import late
from runtime.engine.events import ActionLate
from runtime.engine.outside import call_of, correlation_of, moved, own_token, system_of
from runtime.engine.pausing import Pause, key_of, keys_of, parts_of
from runtime.engine.transition import Transition
from tests.engine.conftest import KEY, NOW, RUN_ID
from tests.engine.governing import ASK, CASE, CATALOG, EFFECT, WRITE, Governed, governed
from tests.engine.test_copies import full_run
from tests.engine.test_late import SENT
from tests.engine.test_lives import receipt

pytestmark = pytest.mark.req("V-9")

UPDATE, OPEN = CATALOG.operations["probe.record.update"], CATALOG.operations["probe.case.open"]
ACTION: dict[str, Any] = {"input": {"name": "x"}, "before": None}
READ = {"values": {"priority": "3"}, "version": "7", "facts": {"editor": "eve"}}


def first_key(step: str = "a", suffix: str = "") -> str:
    return str(uuid5(RUN_ID, f"external:{step}{suffix}"))


@pytest.mark.parametrize(
    ("operation", "action", "more"),
    [
        (UPDATE, {}, {}),
        (UPDATE, {"before": READ}, {"before": Before({"priority": "3"}, "7", {"editor": "eve"})}),
        (UPDATE, {"key": "other"}, {"idempotency_key": "other"}),
        (UPDATE, {"correlation": "c2"}, {}),
        (OPEN, {}, {"correlation_key": first_key()}),
        (OPEN, {"correlation": "c2", "key": "other"}, {"correlation_key": "c2", "idempotency_key": "other"}),
        (OPEN, {"correlation": ""}, {"correlation_key": first_key()}),
    ],
)
def test_a_receipt_tells_its_call_as_it_was_intended(operation: Any, action: Any, more: dict[str, Any]) -> None:
    wanted = Call(operation.name, {"name": "x"}, "k8", operation.timeouts.perform.total_seconds())
    assert call_of(operation, receipt(1, action={**ACTION, **action})) == replace(wanted, **more)


def test_the_outside_has_one_key_for_each_time_that_a_step_begins() -> None:
    found = [correlation_of(RUN_ID, "a"), correlation_of(RUN_ID, "a", 0), correlation_of(RUN_ID, "a", 1)]
    assert found == [first_key(), first_key(), first_key("a", "#1")]
    assert correlation_of(UUID(int=9), "a") != first_key() != correlation_of(RUN_ID, "b")


def test_the_token_of_a_step_is_of_its_key_and_of_how_often_it_began() -> None:
    run = governed(EFFECT)
    step = run.rows["a"]
    assert own_token(run.view().run, step) == blind(KEY, "wait:a#0")
    assert own_token(run.view().run, replace(step, again=2)) == blind(KEY, "wait:a#2")
    assert own_token(replace(run.view().run, run_key=b"o" * 32), step) != blind(KEY, "wait:a#0")


WORDS = "It was sent to one. The system now is {}, so it is neither probed nor sent."


@pytest.mark.parametrize(
    ("sent", "systems", "words"),
    [
        ("one", {"probe": "one"}, ""),
        ("one", {"probe": "two"}, WORDS.format("two")),
        ("one", {}, WORDS.format("none")),
        ("one", {"other": "one"}, WORDS.format("none")),
        ("", {"probe": "two"}, ""),
        ("", {}, ""),
        (None, {"probe": "two"}, ""),
    ],
)
def test_a_doubt_is_settled_by_the_system_that_the_action_was_sent_to(
    sent: str | None, systems: dict[str, str], words: str
) -> None:
    run = governed(WRITE)
    transition = Transition(run.view(), run.workflow.graph)
    transition.systems = systems
    row = receipt(1, action=ACTION if sent is None else {**ACTION, "system": sent})
    assert (system_of(row), moved(transition, UPDATE, row)) == (sent or "", words)


@pytest.mark.parametrize(
    ("timeout", "parks", "span"),
    [
        ("", timedelta(days=2), timedelta(days=2)),
        ("", timedelta(seconds=1.5), timedelta(seconds=1.5)),
        ("", None, timedelta(days=14)),
        (", timeout: PT1H", timedelta(days=2), timedelta(hours=1)),
        (", timeout: P3D", timedelta(days=2), timedelta(days=3)),
    ],
)
def test_what_goes_on_outside_has_the_time_of_its_step_or_of_its_declaration(
    timeout: str, parks: timedelta | None, span: timedelta
) -> None:
    run = governed(CASE.replace("}}", f"}}{timeout}}}"), said=(Parked("c1"),))
    timeouts = OPEN.timeouts.model_copy(update={"park": parks})
    run.workflow = copied(run.workflow, operations={OPEN.name: OPEN.model_copy(update={"timeouts": timeouts})})
    (wait,) = [row for commit in run.drive().commits for row in commit.new_waits]
    assert (wait.due_in, wait.correlation_key, wait.context) == (span, first_key(), {"operation": "probe.case.open"})


@pytest.mark.parametrize("said", [Done({}), NotSent("away")])
def test_what_is_not_begun_or_is_over_is_waited_for_no_more(said: Any) -> None:
    run = governed(CASE, said=(said,)).drive()
    expected = [wait for wait in run.view().run.waits.values() if wait.kind == "external"]
    assert [str(wait.status) for wait in expected] == ["canceled"] * len(expected)
    assert not [wait for wait in run.waits.values() if wait.kind == "external" and wait.status == "waiting"]


@pytest.mark.req("P-11")
def test_the_widest_pause_that_stops_a_call_is_told_and_all_that_stop_it_are_asked() -> None:
    assert keys_of("w", "probe", RUN_ID) == ["tenant", "workflow:w", "connector:probe", f"run:{RUN_ID}"]
    assert [key_of(kind) for kind in Stopped] == [*Stopped]
    assert parts_of("workflow:a:b") == (Stopped.WORKFLOW, "a:b")
    assert parts_of("tenant") == (Stopped.TENANT, "")
    run = governed(EFFECT)
    kept = {"by": "ana", "reason": "calm", "at": NOW.isoformat()}
    run.paused = dict.fromkeys(("tenant", f"run:{RUN_ID}", "connector:probe", "workflow:other"), kept)
    for key in ("tenant", "connector:probe", f"run:{RUN_ID}"):
        again = governed(EFFECT)
        again.paused = {**run.paused}
        assert again.drive().waits["a"].context == {"paused": key}
        del run.paused[key]


def test_a_pause_says_what_by_whom_why_and_since_when_in_utc() -> None:
    east = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=5)))
    kept = {"by": "ana", "reason": "calm", "at": east.isoformat()}
    assert Pause.of("connector:probe", kept) == Pause(Stopped.CONNECTOR, "probe", "ana", "calm", east)
    assert str(Pause.of("connector:probe", kept)) == "connector probe is paused since 2026-01-01 22:04 UTC by ana: calm"
    assert str(Pause.of("tenant", kept)) == "tenant is paused since 2026-01-01 22:04 UTC by ana: calm"


@pytest.mark.req("P-11")
def test_a_pause_uses_up_nothing_of_a_step() -> None:
    run = governed(EFFECT, said=(NotSent("away"),)).drive()
    before = run.rows["a"]
    run.paused = {"tenant": {"by": "ana", "reason": "calm", "at": NOW.isoformat()}}
    run.due().drive()
    after = run.rows["a"]
    assert (after.status, after.attempt, after.last_error) == ("waiting", before.attempt, before.last_error)
    assert before.last_error is not None


@pytest.mark.req("Q-8")
def test_a_late_answer_is_told_once_for_each_lease_and_call() -> None:
    run = governed(EFFECT).drive()
    (row,) = run.whole().run.receipts.values()
    event = ActionLate(row.receipt_id, 1, 1, late.LateAnswer.UNANSWERED, SENT)
    transition = Transition(late.without_rows(run.whole()), run.workflow.graph)
    late.tell(transition, event, Actor("worker", "w"))
    other, last = SENT.replace("90Z", "91Z"), SENT.replace("90Z", "92Z")
    late.tell(transition, replace(event, epoch=3, sent=last), Actor("worker", "w"))
    told = [(epoch, sent) for epoch in (1, 2, 3) for sent in (SENT, other, last)]
    assert [late.is_told(transition, replace(event, epoch=epoch, sent=sent)) for epoch, sent in told] == [
        True, False, False, False, False, False, False, False, True,
    ]  # fmt: skip


def asked_twice() -> Governed:
    """An action that was asked about, and another one that the same step was asked about before."""
    run = governed(WRITE, ASK).drive().answer("ana", "ben")
    run.rule_by(ASK.replace("of: 2", "of: 1"))
    return run.drive().answer("ana").drive()


@pytest.mark.req("Q-8")
def test_the_cards_of_the_action_itself_are_shown_anew_and_the_bundle_of_a_run_that_is_over() -> None:
    run = asked_twice()
    whole = run.whole()
    (row,) = whole.run.receipts.values()
    own = [str(asked.approval_id) for asked in whole.run.approvals.values() if asked.action_digest == row.action_digest]
    assert (len(whole.run.approvals), len(own), run.status) == (2, 1, "succeeded")
    transition = Transition(late.without_rows(whole), run.workflow.graph)
    late.tell(transition, ActionLate(row.receipt_id, 1, 3, late.LateAnswer.UNANSWERED, SENT), Actor("worker", "w"))
    ordered = transition.commit().commands
    assert [(one.kind, one.ordering_key) for one in ordered] == [
        ("card", f"approval:{own[0]}"),
        ("bundle", f"bundle:{RUN_ID}"),
    ]


def test_a_late_answer_is_appended_without_the_rows_that_are_stored_already() -> None:
    view = replace(governed(EFFECT).view(), run=full_run())
    left = late.without_rows(view)
    assert left == replace(view, run=replace(full_run(), votes=[], checkpoints=[], ledger=[], mutations=[]))
