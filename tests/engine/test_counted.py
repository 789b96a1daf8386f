"""Counting in a run: its writes under their caps, and the counters that a rule has read guard its append (Q-12)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Done, NotSent, Probe, ProbeVerdict
from runtime.engine.model.rows import Commit
from tests.engine.governing import ASK, HEAD, Governed, governed
from tests.support.engine_scenes import driven

pytestmark = pytest.mark.req("Q-12")

READS = """
policy: reads
version: 1
rules:
  - {{id: r, match: {{connector: probe}}, when: "{0}", outcome: allow}}
"""
THREE = HEAD + "".join(f"  - {{id: {name}, do: probe.effect.apply, with: {{name: {name}}}}}\n" for name in "abc")
CAPPED = "caps: {{max_writes_per_run: {0}}}\nsteps:\n"


def decided(run: Governed) -> Commit:
    """The append that the first decision is told in."""
    return next(commit for commit in run.commits if any(b'"decision.made"' in line for line in commit.lines))


@pytest.mark.parametrize(
    ("when", "counted", "recounted"),
    [
        ("counters.writes_in_run < 5", True, False),
        ("counters.same_in_run < 5", True, False),
        ("counters.refused_in_run < 5", False, True),
        ("counters.asked_in_run < 5", False, True),
        ("counters.writes_in_run < 5 && counters.asked_in_run < 5", True, True),
        ("run.reference == 'r'", False, False),
    ],
)
def test_an_append_is_guarded_by_the_counters_that_its_decision_rests_on(
    when: str, counted: bool, recounted: bool
) -> None:
    run = driven(governed(THREE, READS.format(when)))
    commit = decided(run)
    assert (commit.counted, commit.recounted, commit.writes_max) == (counted, recounted, 1 if counted else None)
    assert (run.status, commit.stop) == ("succeeded", 0)


def capped(run: Governed, most: int | None) -> Governed:
    """The run of a tenant that lets each run make so many writes."""

    class Capped(Governed):
        def view(self) -> Any:
            return replace(super().view(), writes_max=most)

    run.__class__ = Capped
    return run


@pytest.mark.parametrize(
    ("of_workflow", "of_tenant", "sent"),
    [(None, None, 3), (3, None, 3), (2, None, 2), (None, 2, 2), (2, 1, 1), (1, 2, 1), (0, 3, 0), (4, 3, 3)],
)
def test_a_run_makes_as_many_writes_as_the_lower_cap_lets_it(
    of_workflow: int | None, of_tenant: int | None, sent: int
) -> None:
    text = THREE if of_workflow is None else THREE.replace("steps:\n", CAPPED.format(of_workflow), 1)
    run = driven(capped(governed(text), of_tenant))
    assert (len(run.sent), run.status) == (sent, "succeeded" if sent == 3 else "failed_terminal")
    if sent < 3:
        error: Any = run.rows["abc"[sent]].last_error
        assert error["message"] == f"This run has made {sent} writes; at most {sent} are allowed."
    caps = [commit.writes_max for commit in run.commits if commit.stop is not None]
    assert {*caps} == {min((cap for cap in (of_workflow, of_tenant) if cap is not None), default=None)}


def test_what_is_sent_again_is_no_further_write() -> None:
    """At its cap the run may still repeat the write that certainly did not happen."""
    run = governed(THREE.replace("steps:\n", CAPPED.format(1), 1)).drive(dies=True).dead()
    run.said = [Probe(ProbeVerdict.NOT_APPLIED, "none"), Done({})]
    run.drive()
    assert (run.rows["a"].status, len(run.sent)) == ("succeeded", 2)
    assert driven(run).status == "failed_terminal", "another write is one more"


@pytest.mark.parametrize(("policy", "asked"), [(ASK, 1), (READS.format("counters.asked_in_run < 1"), 0)])
def test_a_question_is_counted_when_it_is_put(policy: str, asked: int) -> None:
    run = governed(THREE, policy).drive()
    assert run.view().run.asked == asked


ONCE = """
policy: once
version: 1
rules:
  - id: once
    match: {connector: probe}
    when: counters.same_in_run < 1
    outcome: allow
    otherwise: deny
"""
EQUAL = HEAD + "".join(f"  - {{id: {name}, do: probe.effect.apply, with: {{name: x}}}}\n" for name in "ab")


def test_an_equal_call_of_another_step_counts_and_one_s_own_does_not() -> None:
    """A step that tries again is judged again, by a count without itself."""
    run = driven(governed(EQUAL, ONCE, said=(NotSent("away"),)))
    assert (run.rows["a"].status, run.status) == ("failed_retryable", "failed_retryable")
    driven(run.due())
    assert (run.rows["a"].status, len(run.sent)) == ("succeeded", 2)
    assert ((run.rows["b"].last_error or {})["code"], run.status) == ("policy_denied", "failed_terminal")
