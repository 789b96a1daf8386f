"""Policy before every effect: what denies, what counts, what is retried, and what is never done twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from connectors.port import NotSent, Refused, Usage
from tests.support.runtime_again import approved_by
from tests.support.runtime_governance import ALLOW, EFFECT

TWO = EFFECT + "  - {id: b, do: probe.effect.apply, with: {name: b}}\n"
ANOTHER = ALLOW.replace("version: 1", "version: 2")
BY_AMOUNT = """
policy: amount
version: 1
rules:
  - {id: all, match: {connector: probe}, outcome: allow}
  - {id: large, match: {operation: probe.effect.apply}, when: action.fields.amount > 100, outcome: deny}
"""


# -- fail-closed -----------------------------------------------------------------------------------------------------


async def denied(runtime: Any, run_id: Any, reason: str, rule: str) -> None:
    """Nothing was sent, the run has failed, and the reason is in the decision, the step and the audit."""
    assert await runtime.status(run_id) == "failed_terminal"
    assert (runtime.outside.effects, runtime.outside.crowd) == ([], 0)
    decision = await runtime.books.decision(run=run_id)
    assert decision.outcome == "deny"
    assert reason in " ".join(decision.reasons)
    assert rule in [found.get("id") or found.get("rule") for found in [*decision.rules, *decision.errors]]
    step = await runtime.books.step("a", run=run_id)
    assert step.error["code"] == "policy_denied"
    assert reason in step.error["message"]
    assert await runtime.books.receipts() == []
    events = await runtime.events(run_id)
    assert "decision.made" in events
    assert "action.intended" not in events
    await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.req("U-4")
@pytest.mark.req("Q-16")
@pytest.mark.parametrize(
    ("policy", "reason", "rule"),
    [
        (None, "There is no policy for it, so nothing is allowed.", "policy:none"),
        (BY_AMOUNT, "Rule large could not be evaluated", "large"),
        (ALLOW.replace("connector: probe", "connector: http"), "allows probe.effect.apply", None),
        (ALLOW.replace("outcome: allow", "outcome: deny, because: It is Sunday."), "It is Sunday.", "all"),
    ],
)
async def test_whatever_does_not_allow_denies(runtime: Any, policy: str | None, reason: str, rule: str | None) -> None:
    run_id = await runtime.go(EFFECT, policy=policy)
    if rule is None:
        decision = await runtime.books.decision()
        assert (decision.outcome, decision.rules, runtime.outside.effects) == ("deny", [], [])
        assert reason in (await runtime.books.step()).error["message"]
    else:
        await denied(runtime, run_id, reason, rule)


@pytest.mark.req("U-4")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("UPDATE policies SET source = 'rules: ['", "not the one that was published"),
        (r"UPDATE policies SET source = E'policy: empty\nversion: 1\nrules: []'", "not the one that was published"),
        ("UPDATE policies SET source = source || '# edited'", "not the one that was published"),
        ("DELETE FROM policies", "not in the database"),
        ("UPDATE tenants SET policy_digests = ARRAY[repeat('0', 64)]", "not in the database"),
    ],
)
async def test_a_policy_that_cannot_be_read_denies(runtime: Any, damage: str, reason: str) -> None:
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(EFFECT)
    started = await runtime.start("effect")
    runtime.definitions = type(runtime.definitions)(runtime.catalog)  # a process that has not seen it before
    await runtime.execute(damage)
    await runtime.worker().work_off()
    await denied(runtime, started.run_id, reason, "policy:unreadable")


async def test_an_input_that_has_no_digest_fails_the_step_instead_of_repeating_it(runtime: Any) -> None:
    run_id = await runtime.go(EFFECT.replace("{name: a}", '{name: a, amount: "${{ 1152921504606846976 }}"}'))
    assert await runtime.status(run_id) == "failed_terminal"
    assert runtime.outside.effects == []


# -- caps ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-12")
@pytest.mark.req("Q-22")
@pytest.mark.parametrize("where", ["tenant", "workflow", "both"])
async def test_a_run_makes_no_more_writes_than_it_may(runtime: Any, where: str) -> None:
    tenant = {"tenant": 1, "workflow": None, "both": 5}[where]
    caps = "" if where == "tenant" else "caps: {max_writes_per_run: 1}\n"
    await runtime.tenant(max_writes_per_run=tenant)
    await runtime.policy(ALLOW)
    await runtime.publish(TWO.replace("steps:", f"{caps}steps:"))
    started = await runtime.start("effect")
    await runtime.worker().work_off()
    assert await runtime.status(started.run_id) == "failed_terminal"
    assert len(runtime.outside.effects) == 1
    decision = await runtime.books.decision(step="b")
    assert decision.rules[0]["id"] == "cap:max_writes_per_run"
    assert decision.reasons == ["This run has made 1 writes; at most 1 are allowed."]
    await runtime.history(started.run_id)


# -- retries ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-19")
@pytest.mark.req("X-19")
async def test_what_was_certainly_not_sent_is_tried_again_later(runtime: Any) -> None:
    runtime.outside.script["a"] = [NotSent("connection refused"), NotSent("429", retry_after_seconds=90)]
    run_id = await runtime.go(EFFECT)
    for attempt, seconds, status, code in ((1, 5, "failed_retryable", "not_sent"), (2, 90, "waiting", "busy")):
        assert await runtime.status(run_id) == status
        step = await runtime.books.step()
        assert (step.status, step.attempt, step.lease_owner) == (status, attempt, None)
        assert step.error["code"] == code
        assert step.eligible_in.total_seconds() == pytest.approx(seconds, abs=3)
        wait = await runtime.books.wait(open=True)
        assert (wait.kind, wait.due_in.total_seconds()) == ("retry", pytest.approx(seconds, abs=3))
        assert await runtime.books.slots_taken() == 0
        assert await runtime.sweep() == 0
        await runtime.trouble.let_busy_pass(timedelta(hours=1))
        await runtime.wait_is_due()
    assert await runtime.status(run_id) == "succeeded"
    receipt = await runtime.books.receipt()
    assert (receipt.status, receipt.attempt) == ("succeeded", 3)
    assert len(runtime.outside.effects) == 1
    assert (await runtime.books.step()).eligible_in is None
    await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.req("Q-19")
async def test_attempts_come_to_an_end(runtime: Any) -> None:
    runtime.outside.script["a"] = [NotSent("refused")] * 9
    run_id = await runtime.go(EFFECT)
    await runtime.wait_is_due()
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "failed_terminal"
    assert len(runtime.outside.script["a"]) == 6
    error = (await runtime.books.run()).error
    assert error["message"] == "refused (3 attempts were made)"
    await runtime.at_rest()


@pytest.mark.req("Q-19")
async def test_no_retry_is_planned_past_the_sla(runtime: Any) -> None:
    runtime.outside.script["a"] = [NotSent("refused")]
    run_id = await runtime.go(EFFECT.replace("steps:", "sla: PT4S\nsteps:"))
    assert await runtime.status(run_id) == "failed_terminal"
    assert "the SLA leaves no time" in (await runtime.books.run()).error["message"]


@pytest.mark.req("Q-18")
async def test_a_refusal_is_final(runtime: Any) -> None:
    runtime.outside.script["a"] = [Refused("400", "no such field")]
    run_id = await runtime.go(TWO)
    assert await runtime.status(run_id) == "failed_terminal"
    assert await runtime.steps(run_id) == {"a": "failed_terminal"}
    receipt = await runtime.books.receipt()
    assert (receipt.status, receipt.error["code"]) == ("failed", "400")
    assert await runtime.books.waits() == []
    await runtime.history(run_id)


async def test_a_retry_under_another_policy_that_decides_the_same_is_the_same_action(runtime: Any) -> None:
    runtime.outside.script["a"] = [NotSent("refused")]
    run_id = await runtime.go(EFFECT, policy=ALLOW)
    await runtime.policy(ANOTHER)
    await runtime.wait_is_due()
    receipt = await runtime.books.receipt()
    assert (receipt.status, receipt.attempt) == ("succeeded", 2)
    await runtime.history(run_id)


@pytest.mark.req("Q-14")
async def test_a_retry_that_a_policy_asks_about_is_another_action_under_the_same_key(runtime: Any) -> None:
    runtime.outside.script["a"] = [NotSent("refused"), NotSent("refused")]
    run_id = await runtime.go(EFFECT, policy=ALLOW)
    await runtime.person("lea", ("leads",))
    await runtime.policy(approved_by("leads", 2))
    await runtime.wait_is_due()
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    await runtime.policy(ALLOW)
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "succeeded"
    receipts = await runtime.books.receipts()
    assert [receipt.status for receipt in receipts] == ["failed", "failed", "succeeded"]
    assert receipts[0].action_digest == receipts[2].action_digest != receipts[1].action_digest
    key = runtime.outside.effects[0].idempotency_key
    assert [receipt.key for receipt in receipts] == [key] * 3
    await runtime.history(run_id)


@pytest.mark.req("Q-21")
@pytest.mark.parametrize("outcome", [NotSent, Refused])
async def test_what_a_failed_call_cost_is_recorded(runtime: Any, outcome: Any) -> None:
    usage = Usage("openai", "gpt-4o-mini", 12, 3, "0.0001")
    words = ("busy",) if outcome is NotSent else ("bad_request", "no")
    runtime.outside.script["a"] = [outcome(*words, usage=usage)]
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(EFFECT)
    run_id = (await runtime.start("effect")).run_id
    await runtime.worker().work_off()
    told = [event.data.get("usage") for event in await runtime.books.events(run_id)]
    assert [found for found in told if found] == [
        {"provider": "openai", "model": "gpt-4o-mini", "input_tokens": 12, "output_tokens": 3, "cost_usd": "0.0001"}
    ]
