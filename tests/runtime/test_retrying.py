"""Going on with a failed run: what is done stays done, the rest begins anew, and the evidence says both."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from connectors.port import Probe, ProbeVerdict, Refused
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from evidence.verify import verify_bundle
from tests.support.runtime_retrying import Evidence

pytestmark = pytest.mark.req("X-18")

STEPS = """
workflow: steps
version: 1
channels: {log: {reduce: append, ledger: true}}
steps:
  - {id: one, do: probe.effect.apply, with: {name: one}, set: {log: one}}
  - {id: two, do: probe.effect.apply, with: {name: two}, set: {log: two}}
  - {id: three, do: probe.effect.apply, with: {name: three}, set: {log: three}}
"""
ASKS = """
policy: asks
version: 2
rules:
  - {id: ask, match: {operation: probe.effect.apply}, outcome: needs_approval, approvers: [{group: owners}]}
"""


@pytest.fixture
def evidence(runtime: Any, tmp_path: Path) -> Evidence:
    return Evidence(runtime, tmp_path)


async def failed(runtime: Any, evidence: Evidence, text: str = STEPS, name: str = "two") -> UUID:
    """A run whose second step was refused."""
    runtime.outside.script[name] = [Refused("no", "not today")]
    run: UUID = await runtime.go(text)
    assert await runtime.status(run) == "failed_terminal"
    await evidence.write()
    return run


async def test_a_failed_run_goes_on_from_its_failed_step(runtime: Any, evidence: Evidence) -> None:
    run = await failed(runtime, evidence)
    assert await runtime.retry(run) == "running"
    await runtime.worker().work_off()
    assert await runtime.status(run) == "succeeded"
    assert [call.input["name"] for call in runtime.outside.effects] == ["one", "two", "three"]
    assert (await runtime.state(run))["channels"] == {"log": ["one", "two", "three"]}
    two = await runtime.books.receipt(run=run, step="two")
    assert (two.status, two.attempt) == ("succeeded", 2)
    await runtime.history(run)
    await runtime.at_rest()


async def test_the_second_edition_of_the_bundle_names_the_first(runtime: Any, evidence: Evidence) -> None:
    run = await failed(runtime, evidence)
    (first,) = await runtime.books.bundles()
    await runtime.retry(run, "the record is mended", Actor("person", "olga"))
    await runtime.worker().work_off()
    await evidence.write()
    one, other = evidence.all()
    assert all(verify_bundle(path).ok for path in (one, other)), verify_bundle(other).to_text()
    (line,) = [line for line in await runtime.books.events(run) if line.type == "run.reopened"]
    assert line.data["bundle"] == first.sha256
    assert line.actor == {"kind": "person", "id": "olga"}
    assert "the record is mended" not in str(line.data)


async def test_who_retries_has_shaped_what_comes_after(runtime: Any, evidence: Evidence) -> None:
    run = await failed(runtime, evidence)
    for person in ("olga", "nora"):
        await runtime.person(person, ("owners",))
    await runtime.policy(ASKS)
    await runtime.retry(run, actor=Actor("person", "olga"))
    await runtime.worker().work_off()
    assert not (await runtime.vote("olga", "approve")).counted
    assert (await runtime.vote("nora", "approve")).counted


async def test_an_approval_that_still_binds_is_not_asked_again(runtime: Any, evidence: Evidence) -> None:
    await runtime.tenant()
    await runtime.policy(ASKS)
    await runtime.person("olga", ("owners",))
    await runtime.publish(STEPS)
    run = (await runtime.start("steps")).run_id
    runtime.outside.script["one"] = [Refused("no", "not today")]
    await runtime.worker().work_off()
    await runtime.vote("olga", "approve")
    await runtime.worker().work_off()
    assert await runtime.status(run) == "failed_terminal"
    await evidence.write()
    await runtime.retry(run)
    await runtime.worker().work_off()
    assert runtime.outside.landed().total() == 1, "nobody was asked about the first step again"
    assert len(await runtime.books.approvals(step="one")) == 1
    assert await runtime.status(run) == "waiting_approval"


async def test_a_rejection_is_asked_again_and_the_card_says_that_it_was_one(runtime: Any, evidence: Evidence) -> None:
    await runtime.tenant()
    await runtime.policy(ASKS)
    await runtime.person("olga", ("owners",))
    await runtime.publish(STEPS)
    run = (await runtime.start("steps")).run_id
    await runtime.worker().work_off()
    await runtime.vote("olga", "reject")
    await runtime.worker().work_off()
    assert await runtime.status(run) == "failed_terminal"
    await evidence.write()
    await runtime.person("ben")
    await runtime.retry(run, actor=Actor("person", "ben"))
    await runtime.worker().work_off()
    asked = await runtime.books.approval(open=True)
    assert asked.card["evidence"].startswith("It was rejected before, on ")
    assert asked.card["evidence"].endswith("UTC by Olga (asked by requester): because.")
    assert runtime.outside.effects == []


async def test_what_was_canceled_with_it_begins_anew_and_what_had_gone_on_outside_too(
    runtime: Any, evidence: Evidence
) -> None:
    text = (
        "workflow: both\nversion: 1\nsteps:\n"
        "  - {id: case, needs: [], do: probe.case.open, with: {name: case}}\n"
        "  - {id: late, needs: [], wait: {signal: go, correlate: x}}\n"
        "  - {id: two, needs: [], do: probe.effect.apply, with: {name: two}}\n"
    )
    run = await failed(runtime, evidence, text)
    first = runtime.outside.effects[0]
    assert [of for of, _ in runtime.outside.canceled] == [first.correlation_key]
    await runtime.retry(run)
    await runtime.worker().work_off()
    second = runtime.outside.effects[-1]
    cases = [call for call in runtime.outside.effects if call.operation == "probe.case.open"]
    assert len({call.idempotency_key for call in cases}) == len({call.correlation_key for call in cases}) == 2
    assert (await runtime.signal(first.correlation_key, {})).code != "delivered"
    await runtime.signal(cases[-1].correlation_key, {"papers": 1})
    await runtime.signal("go:x", {})
    await runtime.go_on()
    assert (await runtime.status(run), second.operation) == ("succeeded", second.operation)
    await runtime.at_rest()


async def test_a_child_that_failed_is_started_anew(runtime: Any, evidence: Evidence) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(STEPS)
    await runtime.publish("workflow: above\nversion: 1\nsteps: [{id: c, run: steps}]\n")
    runtime.outside.script["two"] = [Refused("no", "not today")]
    above = (await runtime.start("above")).run_id
    await runtime.worker().work_off()
    child = (await runtime.books.run(workflow="steps")).id
    assert await runtime.status(above) == "failed_terminal"
    with pytest.raises(ConsistencyError, match="has moved on"):
        await runtime.retry(child)
    await evidence.write()
    await runtime.retry(above)
    await runtime.go_on()
    assert await runtime.status(above) == "succeeded"
    assert [run.status for run in await runtime.books.runs(workflow="steps")] == ["failed_terminal", "succeeded"]


@pytest.mark.parametrize("ends", ["running", "succeeded", "doubt", "no evidence", "no reason", "nothing to retry"])
async def test_what_cannot_be_retried_says_why(runtime: Any, evidence: Evidence, ends: str, gate: Any) -> None:
    words = {
        "running": "only one that has failed", "succeeded": "only one that has failed",
        "doubt": "Nobody knows whether", "no evidence": "is not stored yet", "no reason": "is empty",
        "nothing to retry": "would fail again at once",
    }[ends]  # fmt: skip
    if ends == "running":
        run = await runtime.go("workflow: w\nversion: 1\nsteps: [{wait: {for: PT1H}}]\n")
    elif ends == "succeeded":
        run = await runtime.go(STEPS)
    elif ends == "nothing to retry":
        run = await runtime.go(
            "workflow: w\nversion: 1\nsteps: [{set: {}, id: a, do: probe.effect.apply, with: {name: a}},"
            " {if: '${{ trigger.none == 1 }}', then: [{wait: {for: PT1H}}]}]\n"
        )
    elif ends == "doubt":
        run = await doubtful(runtime)
    else:
        runtime.outside.script["two"] = [Refused("no", "not today")]
        run = await runtime.go(STEPS)
    if ends != "no evidence":
        await evidence.write()
    with pytest.raises((ConsistencyError, InputError), match=words):
        await runtime.retry(run, "" if ends == "no reason" else "please")


async def doubtful(runtime: Any) -> UUID:
    """A run that failed beside an action of which nobody knows whether it happened."""
    text = "workflow: doubt\nversion: 1\nsteps:\n  - {id: m, do: probe.effect.apply, with: {name: m}}\n"
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(text)
    run: UUID = (await runtime.start("doubt")).run_id
    gate = runtime.gate_type()
    runtime.outside.gates["m"] = gate
    runtime.outside.verdict = Probe(ProbeVerdict.CANNOT_TELL, "nobody knows")
    await runtime.crash(gate, "m")
    await runtime.person("olga", ("operators",))
    await runtime.worker().work_off()
    await runtime.vote("olga", "again")
    await runtime.policy("policy: none\nversion: 9\nrules: [{id: n, match: {connector: probe}, outcome: deny}]\n")
    await runtime.worker().work_off()
    return run
