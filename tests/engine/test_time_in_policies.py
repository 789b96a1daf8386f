"""Rules read the time of the judgement: in a zone, at the question and again at the intent, and again in a replay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.errors import DefinitionError
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.engine.book.recorded import read_line
from runtime.engine.life.transition import writes_of
from runtime.engine.model.events import DecisionMade
from runtime.engine.replay.replay import Divergence, Replay, replay, unopened
from tests.engine.governing import CATALOG, EFFECT, Governed, governed
from tests.support.engine_stage import KEY, NOW, RUN_ID

pytestmark = pytest.mark.req("promise 1")
FREEZE = """
policy: freeze
version: 1
rules:
  - id: weekend
    match: {connector: probe}
    when: >-
      (now.getDayOfWeek('Europe/Berlin') == 5 && now.getHours('Europe/Berlin') >= 16)
      || now.getDayOfWeek('Europe/Berlin') in [6, 0]
    outcome: deny
    because: No changes from Friday 16:00.
  - {id: acts, match: {connector: probe}, outcome: allow}
"""
ASKS = FREEZE.replace("outcome: allow}", "outcome: needs_approval, approvers: [{group: owners}]}")


def at(text: str) -> timedelta:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) - NOW


def begun(policy: str, when: str) -> Governed:
    run = governed(EFFECT)
    run.policy = PolicySet.of(Definitions(CATALOG).compile_policy(policy, "policy.yaml"))
    run.later = at(when)
    return run.drive()


def decisions(run: Governed) -> list[Any]:
    book = [read_line(line, run.values.get(n, {}), KEY) for n, line in enumerate(run.lines)]
    return [each for each in book if isinstance(each.event, DecisionMade)]


@pytest.mark.parametrize(
    ("when", "out"),
    [
        ("2026-10-23T13:59:59", True),  # Friday, 15:59:59 in summer
        ("2026-10-23T14:00:00", False),
        ("2026-10-25T00:30:00", False),  # the night in which the clock goes back
        ("2026-10-25T22:59:59", False),  # Sunday, 23:59:59 in winter
        ("2026-10-25T23:00:00", True),
        ("2026-10-30T14:30:00", True),  # a week later it is 15:30 at that time
        ("2026-10-30T15:00:00", False),
        ("2026-03-27T15:00:00", False),  # Friday, 16:00 in winter
        ("2026-03-29T21:59:59", False),  # Sunday, 23:59:59 in summer
        ("2026-03-29T22:00:00", True),
    ],
)
def test_no_changes_from_friday_afternoon_across_the_changes_of_the_clock(when: str, out: bool) -> None:
    run = begun(FREEZE, when)
    assert (run.status, len(run.sent)) == ("succeeded" if out else "failed_terminal", int(out))
    (told,) = decisions(run)
    assert told.event.facts["now"] == told.at.isoformat(timespec="microseconds").replace("+00:00", "Z")


@pytest.mark.parametrize(("acts_at", "out"), [("2026-10-23T13:59:00", True), ("2026-10-23T14:00:00", False)])
def test_what_was_approved_before_friday_afternoon_is_judged_again_when_it_goes_out(acts_at: str, out: bool) -> None:
    run = begun(ASKS, "2026-10-23T12:00:00").answer("ana")
    run.later = at(acts_at)
    run.drive()
    assert (run.status, len(run.sent)) == ("succeeded" if out else "failed_terminal", int(out))


def again(run: Governed, facts: Any = None) -> None:
    """Replay the run's book, with these facts in its decision instead of those recorded."""
    book = [read_line(line, run.values.get(n, {}), KEY) for n, line in enumerate(run.lines)]
    for told in book:
        if facts is not None and isinstance(told.event, DecisionMade):
            told.event.facts.update(facts)
    graph = run.workflow.graph
    [*replay(Replay(unopened(RUN_ID, KEY, graph), book, [graph], run.view().constants, writes_of))]


def test_a_replay_judges_by_the_recorded_time_which_is_that_of_the_line() -> None:
    run = begun(FREEZE, "2026-10-23T13:00:00")
    again(run)
    with pytest.raises(Divergence, match="another time"):
        again(run, {"now": "2026-10-23T14:00:00Z"})


@pytest.mark.parametrize(
    ("zone", "remedy"),
    [("Europe/Berln", "Europe/Berlin"), ("europe/berlin", "Europe/Berlin"), ("", "IANA"), ("Mars/One", "IANA")],
)
def test_a_zone_that_nobody_knows_is_an_error_of_the_check(zone: str, remedy: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        begun(FREEZE.replace("getHours('Europe/Berlin')", f"getHours('{zone}')"), "2026-10-23T13:00:00")
    (problem,) = caught.value.problems
    assert (problem.line, "there is no time zone" in problem.message) == (7, True)
    assert remedy in problem.remedy


def test_the_compiler_knows_the_type() -> None:
    with pytest.raises(DefinitionError, match="no matching overload"):
        begun(FREEZE.replace("in [6, 0]", "in ['6']"), "2026-10-23T13:00:00")
    with pytest.raises(DefinitionError, match="no matching overload"):
        begun(FREEZE.replace("now.getDayOfWeek('Europe/Berlin') in [6, 0]", "now > '2026'"), "2026-10-23T13:00:00")
