"""One effect is one, whoever begins it and however often it is tried (promises 2 and 4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import InDoubt, Probe, ProbeVerdict
from runtime.definition.workflow import load_workflow
from runtime.engine.book.instructions import LookUp, Over, Perform
from runtime.engine.life.proposal import Leased
from runtime.engine.life.step import begin
from runtime.engine.life.transition import Transition
from runtime.work.lease import Lease, LostLease
from tests.engine.agents import by_name, piloted
from tests.engine.governing import CATALOG, Governed, ruled
from tests.support.agents import agent, calls, says
from tests.support.engine_agent_sources import OWN, apply

NAMED = """
workflow: w
version: 1
reference: r
channels: {n: {}}
steps:
  - {id: n, set: {n: 1}, reference: R2}
  - {id: a, do: probe.OPERATION, with: {name: x}}
"""
READS = """
policy: reads
version: 1
rules:
  - {id: named, match: {connector: probe}, when: run.reference == 'R2', outcome: allow}
"""


def taken_at_once(operation: str, *, before: str = "r", named: str = "R2") -> Any:
    """The first move of a step that is taken in the append in which the step before it has named the run."""
    text = NAMED.replace("OPERATION", operation).replace("R2", named)
    run = Governed(load_workflow(text, "test.yaml", CATALOG), {})
    run.open().claim("n")
    view, policy = run.view(), ruled(READS)
    moves = Transition(replace(view, run=replace(view.run, reference=before)), run.workflow.graph)
    assert begin(Leased(moves, run.rows["n"], run.workflow, policy, run.nonce)) == Over()
    following = moves.take("w", "n")
    assert following is not None
    return begin(Leased(moves, following, run.workflow, policy, run.nonce))


@pytest.mark.req("Q-11")
def test_the_effect_of_a_reference_is_one_whoever_begins_it() -> None:
    at_once, later = taken_at_once("ticket.file"), taken_at_once("ticket.file", before="R2")
    assert isinstance(at_once, LookUp)
    assert at_once.idempotency_key == later.idempotency_key
    assert at_once.idempotency_key != taken_at_once("ticket.file", named="R3").idempotency_key


@pytest.mark.req("Q-11")
def test_policy_reads_the_reference_that_the_run_has_now() -> None:
    assert isinstance(taken_at_once("effect.apply"), Perform)
    assert isinstance(taken_at_once("effect.apply", before="R2", named="R3"), Over)


@pytest.mark.req("P-14")
def test_a_repeat_of_an_agents_call_is_judged_by_all_that_its_model_was_shown() -> None:
    """The requester's own words let it out the second time as they did the first time."""
    made = calls(apply("alpha")), says("Done.")
    run = piloted(agent(), *made, policy=OWN, trigger={"text": "Set 'alpha'."}, outside=lambda *_: InDoubt("lost"))
    run.outside, run.said = by_name, [Probe(ProbeVerdict.NOT_APPLIED, "none")]
    run.due("triage/1/1")
    run.go_on()
    assert (run.book_of_questions(), run.status) == ([], "succeeded")
    assert run.told.count("intended") == run.sent.count("probe.effect.apply") == 2


@pytest.mark.parametrize("good", [True, False])
async def test_a_call_that_is_late_by_its_own_limit_has_lost_no_lease(good: bool) -> None:
    """A lost lease would end in a doubt, although the outcome is known."""
    lease = Lease(timedelta(minutes=1))
    lease.renewed(lease.now())

    async def late() -> None:
        if not good:
            lease.lost()
        raise TimeoutError

    with pytest.raises(TimeoutError if good else LostLease):
        await lease.call(late)
