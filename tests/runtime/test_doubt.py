"""Crashes between intent and outcome, at every place: probed, asked about, never repeated blindly."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from connectors.port import Done, InDoubt, NotSent, Probe, ProbeVerdict
from runtime.requests.steering import cancel_run

PROBED = """
workflow: probed
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
  - {id: b, do: probe.value.read, with: {name: b}}
"""
KEYED = PROBED.replace("probe.effect.apply", "probe.key.put")
ASKED = PROBED.replace("probe.effect.apply, with: {name: a}", "probe.mail.send, with: {text: hello}")
MAIL = "probe.mail.send"
BESIDE = """
workflow: beside
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}, needs: []}
  - {id: b, do: probe.mail.send, with: {text: b}, needs: []}
"""


async def begun(runtime: Any, text: str) -> Any:
    await runtime.tenant()
    await runtime.policy()
    await runtime.person("olga", ("operators",))
    await runtime.publish(text)
    return (await runtime.start(text.split()[1])).run_id


async def receipt(runtime: Any) -> tuple[str, int]:
    only = await runtime.books.receipt()
    return only.status, only.attempt


@pytest.mark.req("Q-8")
@pytest.mark.req("P-10")
async def test_a_crash_after_the_effect_finds_it_there(runtime: Any, late_gate: Any) -> None:
    run_id = await begun(runtime, PROBED)
    await runtime.crash(late_gate, "a")
    assert await runtime.status(run_id) == "running"
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert (len(runtime.outside.effects), runtime.outside.probes) == (1, 1)
    assert await receipt(runtime) == ("succeeded", 1)
    assert (await runtime.books.step("a")).output == {"applied": "found"}
    assert "lease.expired" in await runtime.events(run_id)
    await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.req("Q-8")
async def test_a_crash_before_the_effect_does_it_once(runtime: Any, gate: Any) -> None:
    run_id = await begun(runtime, PROBED)
    await runtime.crash(gate, "a")
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert len(runtime.outside.effects) == 1
    assert await receipt(runtime) == ("succeeded", 2)
    await runtime.history(run_id)


async def test_crash_after_crash_is_still_one_effect(runtime: Any, gate: Any, late_gate: Any) -> None:
    run_id = await begun(runtime, PROBED)
    await runtime.crash(gate, "a")
    await runtime.crash(late_gate, "a")
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    await runtime.history(run_id)


async def test_a_target_that_dedupes_is_sent_the_same_key_again(runtime: Any, late_gate: Any) -> None:
    run_id = await begun(runtime, KEYED)
    await runtime.crash(late_gate, "a")
    await runtime.worker().work_off()
    first, second = runtime.outside.effects
    assert first == second
    assert (await runtime.status(run_id), runtime.outside.probes) == ("succeeded", 0)
    assert await receipt(runtime) == ("succeeded", 2)


async def test_a_target_that_dedupes_but_never_answers_is_asked_about_in_the_end(runtime: Any) -> None:
    runtime.outside.script["a"] = [InDoubt("timeout"), InDoubt("timeout")]
    run_id = await begun(runtime, KEYED)
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "failed_retryable"
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "failed_retryable"  # what was sent may still arrive
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "waiting_approval"
    assert await receipt(runtime) == ("in_doubt", 2)


@pytest.mark.parametrize(
    ("choice", "status", "effects", "settled"),
    [
        ("happened", "succeeded", 1, ("succeeded", 1)),
        ("again", "succeeded", 2, ("succeeded", 2)),
        ("fail", "failed_terminal", 1, ("failed", 1)),
    ],
)
async def test_where_nobody_can_tell_people_say(
    runtime: Any, late_gate: Any, choice: str, status: str, effects: int, settled: tuple[str, int]
) -> None:
    run_id = await begun(runtime, ASKED)
    if choice == "again":
        runtime.outside.may_repeat.add(MAIL)  # it did happen; whoever says "again" means that, and gets it
    await runtime.crash(late_gate, MAIL)
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "waiting_approval"
    question = await runtime.books.approval()
    assert (question.kind, question.status) == ("in_doubt", "requested")
    assert question.terms["approvers"][0]["group"] == "operators"
    answer = await runtime.vote("olga", choice)
    assert answer.counted, answer.sentence
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == status
    assert len(runtime.outside.effects) == effects
    assert await receipt(runtime) == settled
    error = (await runtime.books.step("a")).error
    assert (error or {}).get("sent") is (True if choice == "fail" else None), "what was given up may have been done"
    await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.req("Q-8")
@pytest.mark.req("Q-3")
async def test_a_doubt_that_nobody_answers_in_time_ends_as_a_failure(runtime: Any, late_gate: Any) -> None:
    run_id = await begun(runtime, ASKED)
    await runtime.crash(late_gate, MAIL)
    await runtime.worker().work_off()
    await runtime.trouble.leave_questions_alone(timedelta(days=8))
    await runtime.sweep()
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), (await runtime.books.approval()).status) == ("failed_terminal", "expired")
    assert await receipt(runtime) == ("failed", 1)
    assert len(runtime.outside.effects) == 1
    await runtime.history(run_id)
    await runtime.at_rest()


async def test_a_probe_that_cannot_tell_yet_is_repeated_and_then_people_are_asked(runtime: Any, gate: Any) -> None:
    run_id = await begun(runtime, PROBED)
    await runtime.crash(gate, "a")
    runtime.outside.verdict = Probe(ProbeVerdict.CANNOT_TELL, "too early", retry_after_seconds=7)
    await runtime.worker().work_off()
    for _ in range(12):
        assert await runtime.status(run_id) == "failed_retryable"
        await runtime.wait_is_due()
    assert (await runtime.status(run_id), runtime.outside.probes) == ("waiting_approval", 13)
    card = (await runtime.books.approval()).card
    assert "too early" in str(card)


@pytest.mark.parametrize("rest", [InDoubt("timeout"), NotSent("refused")])
async def test_calls_are_counted_and_probes_are_not(runtime: Any, rest: Any) -> None:
    """Three attempts are three calls, however often it was looked in between whether one of them has happened."""
    runtime.outside.script["a"] = [InDoubt("timeout"), *[rest] * 9]
    run_id = await begun(runtime, PROBED)
    await runtime.worker().work_off()
    for verdict in (ProbeVerdict.CANNOT_TELL, ProbeVerdict.CANNOT_TELL, *[ProbeVerdict.NOT_APPLIED] * 9):
        if await runtime.status(run_id) != "failed_retryable":
            break
        runtime.outside.verdict = Probe(verdict, "looked", retry_after_seconds=7)
        await runtime.wait_is_due()
    assert await runtime.status(run_id) == "failed_terminal"
    assert "(3 attempts were made)" in (await runtime.error(run_id))["message"]
    assert await receipt(runtime) == ("failed", 3)
    await runtime.history(run_id)
    await runtime.at_rest()


async def test_a_timeout_is_doubt_and_how_long_ago_counts_from_the_last_attempt(runtime: Any) -> None:
    asked: list[float] = []

    async def probe(call: Any, *, seconds_since_intent: float) -> Probe:
        asked.append(seconds_since_intent)
        return Probe(ProbeVerdict.APPLIED, "there", Done({}))

    runtime.outside.probe = probe
    runtime.outside.script["a"] = [NotSent("refused"), InDoubt("no answer")]
    run_id = await begun(runtime, PROBED)
    await runtime.worker().work_off()
    await runtime.time_passes()
    await runtime.wait_is_due(long_ago=False)
    assert await receipt(runtime) == ("in_doubt", 2)
    await runtime.wait_is_due(long_ago=False)
    assert await runtime.status(run_id) == "succeeded"
    assert asked == [pytest.approx(0, abs=30)]
    await runtime.history(run_id)


# -- doubt in a run that ends ----------------------------------------------------------------------------------------


async def cancel(runtime: Any, run_id: Any) -> str:
    async with runtime.database.transaction() as connection:
        return str(await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "enough"))


@pytest.mark.req("V-13")
@pytest.mark.parametrize("text", [PROBED, KEYED, ASKED])
async def test_nothing_goes_out_for_a_run_that_is_being_canceled(runtime: Any, gate: Any, text: str) -> None:
    run_id = await begun(runtime, text)
    name = MAIL if text is ASKED else "a"
    runtime.outside.gates[name] = gate
    working = asyncio.create_task(runtime.worker("dying").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    assert await cancel(runtime, run_id) == "running"
    working.cancel()
    await asyncio.wait({working})
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() == 1
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "canceled"
    assert runtime.outside.effects == []
    # Where the target could be asked, the evidence says that nothing happened; else that nobody knows.
    assert (await receipt(runtime))[0] == ("failed" if text is PROBED else "in_doubt")
    await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.req("V-13")
@pytest.mark.parametrize(
    ("outcome", "settled"), [(None, "succeeded"), (NotSent("refused"), "failed"), (InDoubt("timeout"), "in_doubt")]
)
async def test_what_is_under_way_is_recorded_before_the_run_is_canceled(
    runtime: Any, gate: Any, outcome: Any, settled: str
) -> None:
    run_id = await begun(runtime, ASKED)
    if outcome is not None:
        runtime.outside.script[MAIL] = [outcome]
    runtime.outside.gates[MAIL] = gate
    working = asyncio.create_task(runtime.worker("w1").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    await cancel(runtime, run_id)
    gate.opened.set()
    await working
    assert (await runtime.status(run_id), (await receipt(runtime))[0]) == ("canceled", settled)
    await runtime.history(run_id)
    await runtime.at_rest()


async def test_no_question_is_left_open_by_a_run_that_has_failed_meanwhile(runtime: Any) -> None:
    run_id = await begun(runtime, BESIDE)
    runtime.outside.script[MAIL] = [InDoubt("timeout")]
    await runtime.policy(
        "policy: p\nversion: 1\nrules:\n  - {id: mail, match: {operation: probe.mail.*}, outcome: allow}\n"
    )
    await runtime.worker().work_off()
    assert await runtime.steps(run_id) == {"a": "failed_terminal", "b": "canceled"}
    assert await runtime.status(run_id) == "failed_terminal"
    assert await runtime.books.approvals() == []
    assert "approval.requested" not in await runtime.events(run_id)
    await runtime.history(run_id)
    await runtime.at_rest()
