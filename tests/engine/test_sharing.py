"""Sharing an effect, without a database: who comes later joins it, takes it over, reuses it, or begins a new life."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Done, NotSent, Refused
from runtime.engine.life import waits
from runtime.engine.model.states import EffectState, WaitKind
from tests.engine.governing import DENY, HEAD, TICKET, governed
from tests.support.engine_sharing import PEOPLE, SHARED_CASE, begun, ended, error_of, known_as, later, left

pytestmark = pytest.mark.req("Q-15")

OTHER_CASE = HEAD + "  - {id: a, do: probe.case.share, with: {name: y}}\n"


def test_what_is_done_is_reused_and_nothing_is_sent() -> None:
    run = later(known_as(governed(TICKET, said=(Done({"number": "T1"}),)).drive()), TICKET)
    assert (run.status, run.sent, run.told) == ("succeeded", [], ["recalled"])
    assert run.rows["a"].output == {"number": "T1"}


def test_what_is_begun_is_joined_and_its_end_is_everybodys() -> None:
    first = begun()
    run = later(known_as(first), SHARED_CASE)
    (wait,) = run.waits.values()
    assert (run.status, run.sent, wait.kind) == ("waiting", [], WaitKind.SHARED)
    first.over("a", lambda t, s, open_: waits.complete(t, s, open_, {"output": {"papers": 1}}, PEOPLE)).drive()
    run.shared = known_as(first)
    run.over("a", lambda t, s, open_: waits.complete(t, s, open_, {"output": {}}, PEOPLE)).drive()
    assert (run.status, run.sent, run.rows["a"].output) == ("succeeded", [], {"papers": 1})


@pytest.mark.parametrize("state", [EffectState.INTENDED, EffectState.IN_DOUBT])
@pytest.mark.parametrize(("over", "status", "code"), [(False, "waiting", None), (True, "failed_terminal", "stuck")])
def test_what_nobody_knows_is_waited_for_while_somebody_looks(
    state: EffectState, over: bool, status: str, code: str | None
) -> None:
    first = governed(TICKET, said=(Done({}),)).drive(dies=True)
    run = later(replace(known_as(first, over=over), life=state), TICKET)
    assert (run.status, run.sent) == (status, [])
    assert error_of(run) == (None if code is None else "effect_in_doubt")


def test_what_goes_on_outside_is_waited_for_also_where_its_run_is_over() -> None:
    assert later(known_as(begun(), over=True), SHARED_CASE).status == "waiting"


def test_what_was_left_is_taken_over_on_its_first_key() -> None:
    shared = known_as(left())
    assert shared.life is EffectState.LEFT
    run = later(shared, SHARED_CASE)
    (wait,) = run.waits.values()
    assert shared.wait is not None
    assert (wait.kind, wait.correlation_key) == (WaitKind.EXTERNAL, shared.wait.correlation_key)
    assert (run.status, run.sent, run.told) == ("waiting", [], ["recalled"])
    run.over("a", lambda t, s, open_: waits.complete(t, s, open_, {"output": {"papers": 1}}, PEOPLE)).drive()
    assert (run.status, run.rows["a"].output) == ("succeeded", {"papers": 1})


@pytest.mark.parametrize("first", [begun, left, lambda: ended({"output": {}})])
def test_another_action_under_the_same_key_is_a_conflict(first: Any) -> None:
    run = later(known_as(first()), OTHER_CASE)
    assert (run.status, error_of(run), run.sent) == ("failed_terminal", "effect_conflict", [])


def test_another_target_system_is_a_conflict_too() -> None:
    shared = known_as(begun())
    elsewhere = replace(shared.receipt, action={**shared.receipt.action, "system": "elsewhere"})
    assert error_of(later(replace(shared, receipt=elsewhere), SHARED_CASE)) == "effect_conflict"


@pytest.mark.parametrize("said", [NotSent("away"), Refused("422", "no")])
def test_what_failed_begins_a_new_life_for_who_comes_later(said: Any) -> None:
    first = governed(TICKET, said=(said,)).drive()
    run = later(known_as(first), TICKET)
    assert (run.status, len(run.sent)) == ("succeeded", 1)


def test_what_failed_fails_for_who_had_joined_it() -> None:
    first = governed(TICKET, said=(Refused("422", "no"),)).drive()
    failed = known_as(first)
    run = later(replace(failed, life=EffectState.INTENDED), TICKET)
    assert run.status == "waiting"
    run.shared = failed
    run.over("a", lambda t, s, open_: waits.complete(t, s, open_, {"output": {}}, PEOPLE)).drive()
    assert (run.status, error_of(run), run.sent) == ("failed_terminal", "422", [])


def test_an_end_that_was_told_as_an_error_is_the_error_of_all() -> None:
    first = begun()
    run = later(known_as(first), SHARED_CASE)
    said = {"error": {"class": "transport", "code": "closed", "message": "no"}}
    first.over("a", lambda t, s, open_: waits.complete(t, s, open_, said, PEOPLE)).drive()
    run.shared = known_as(first)
    assert run.shared.life is EffectState.FAILED
    run.over("a", lambda t, s, open_: waits.complete(t, s, open_, {"output": {}}, PEOPLE)).drive()
    assert (run.status, error_of(run), run.sent) == ("failed_terminal", "closed", [])


def test_nobody_who_had_joined_fails_because_nothing_was_sent() -> None:
    first = governed(TICKET, said=(NotSent("away"),)).drive()
    failed = known_as(first)
    run = later(replace(failed, life=EffectState.INTENDED), TICKET)
    run.shared = failed
    run.over("a", lambda t, s, open_: waits.complete(t, s, open_, {"output": {}}, PEOPLE)).drive()
    assert (run.status, len(run.sent)) == ("succeeded", 1)


@pytest.mark.parametrize(
    ("changes", "erased", "code"),
    [
        ({}, True, "output_removed"),
        ({"resolution": "happened", "output": None}, False, "output_unknown"),
        ({"error": {"class": "transport", "code": "unusable", "message": "m"}}, False, "unusable"),
    ],
)
def test_a_result_that_is_of_no_use_fails_whoever_reuses_it(changes: Any, erased: bool, code: str) -> None:
    shared = known_as(governed(TICKET, said=(Done({"n": 1}),)).drive(), erased=erased)
    run = later(replace(shared, receipt=replace(shared.receipt, **changes)), TICKET)
    assert (run.status, error_of(run), run.sent) == ("failed_terminal", code, [])


@pytest.mark.req("Q-16")
@pytest.mark.parametrize("first", [begun, left, lambda: ended({"output": {}})])
def test_who_may_not_do_it_does_not_share_it(first: Any) -> None:
    run = governed(SHARED_CASE, DENY)
    run.shared = known_as(first())
    run.drive()
    assert (run.status, error_of(run), run.told) == ("failed_terminal", "policy_denied", [])
