"""An action in doubt that is sent again is judged by the policy of that moment, whatever causes it (promise 1)."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest

from connectors.port import InDoubt, Probe, ProbeVerdict
from tests.support.people import leave_group
from tests.support.runtime_again import ALLOW, DENY, PROBED, STEPS, UPDATED, approved_by, begun, in_doubt

UNRELATED = (
    ALLOW.replace("version: 1", "version: 2") + "  - {id: b, match: {operation: probe.secret.send}, outcome: deny}\n"
)


async def the_receipt(runtime: Any) -> Any:
    return await runtime.books.receipt()


async def decisions(runtime: Any) -> list[tuple[str, int | None]]:
    """The outcome of each decision with the version of its policy, in order."""
    made = await runtime.books.decisions()
    return [(decision.outcome, int(one.rpartition("@")[2])) for decision in made for one in decision.policies]


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("retry", "in_doubt", "sent again: the target dedupes"),
        ("probe", "failed", "probe: not applied"),
        ("person", "in_doubt", "a person said to do it again"),
    ],
)
async def test_a_deny_published_meanwhile_stops_it(runtime: Any, how: str, status: str, words: str) -> None:
    run_id = await in_doubt(runtime, how)
    await runtime.policy(DENY)
    await runtime.wait_is_due()
    assert runtime.outside.effects == []
    assert await runtime.status(run_id) == "failed_terminal"
    assert await decisions(runtime) == [("allow", 1), ("deny", 3)]
    error = await runtime.error(run_id)
    assert (error["class"], error["code"], error["step"]) == ("authorization", "policy_denied", "a")
    assert "Emergency." in error["message"]
    receipt = await the_receipt(runtime)
    assert (receipt.status, receipt.attempt) == (status, 1)
    assert words in receipt.resolution
    assert "not sent again, because policy denies it now" in receipt.resolution
    await runtime.history(run_id)
    await runtime.at_rest()


async def test_a_denial_of_a_repetition_takes_the_branch_of_any_denial(runtime: Any) -> None:
    branch = "probe.effect.apply, with: {name: a}, on_failure: [{id: f, do: probe.value.read, with: {name: f}}]"
    run_id = await begun(runtime, STEPS % branch)
    await runtime.crash(runtime.gate_type(), "a")
    await runtime.policy(DENY + "  - {id: read, match: {operation: probe.value.read}, outcome: allow}\n")
    await runtime.worker().work_off()
    assert (await runtime.steps(run_id))["a"] == "failed_terminal"
    assert runtime.outside.effects == []
    assert any(key.endswith("f") for key in await runtime.steps(run_id))


@pytest.mark.parametrize("how", ["retry", "probe", "person"])
async def test_an_allow_is_recorded_for_every_time_it_is_sent(runtime: Any, how: str) -> None:
    run_id = await in_doubt(runtime, how)
    first = await the_receipt(runtime)
    await runtime.policy(UNRELATED)
    await runtime.wait_is_due()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    assert await decisions(runtime) == [("allow", 1), ("allow", 2)]
    receipt = await the_receipt(runtime)
    same = attrgetter("id", "action_digest", "key", "action")
    assert same(receipt) == same(first)
    assert receipt.attempt == 2
    await runtime.history(run_id)
    await runtime.at_rest()


async def test_a_policy_that_is_gone_allows_no_repetition(runtime: Any) -> None:
    run_id = await in_doubt(runtime, "probe")
    await runtime.execute("UPDATE tenants SET policy_digests = '{}'")
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("failed_terminal", [])


async def test_a_write_that_was_counted_is_within_the_cap_when_it_is_sent_again(runtime: Any) -> None:
    run_id = await begun(runtime, PROBED)
    await runtime.execute("UPDATE tenants SET max_writes_per_run = 1")
    await runtime.crash(runtime.gate_type(), "a")
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


# -- a policy that changes while the worker is about it ----------------------------------------------------------------


async def test_a_deny_that_comes_during_the_probe_stops_it(runtime: Any) -> None:
    """The worker's own view of the run is still right then; only the guard of its commit knows of the policy."""
    run_id = await in_doubt(runtime, "probe")

    async def probe(call: Any, *, seconds_since_intent: float) -> Probe:
        await runtime.policy(DENY)
        return Probe(ProbeVerdict.NOT_APPLIED, "It is not there.")

    runtime.outside.probe = probe
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert await runtime.status(run_id) == "failed_terminal"
    assert await decisions(runtime) == [("allow", 1), ("deny", 3)]
    await runtime.history(run_id)


async def test_a_deny_that_comes_while_the_target_is_read_stops_a_first_intent(runtime: Any) -> None:
    run_id = await begun(runtime, UPDATED)
    read = runtime.outside.read_before

    async def read_before(call: Any) -> Any:
        await runtime.policy(DENY)
        return await read(call)

    runtime.outside.read_before = read_before
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert await runtime.status(run_id) == "failed_terminal"
    assert await decisions(runtime) == [("deny", 3)]


# -- approvals -------------------------------------------------------------------------------------------------------


async def approved_and_crashed(runtime: Any) -> Any:
    run_id = await begun(runtime, PROBED, approved_by("leads", 1))
    await runtime.worker().work_off()
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.crash(runtime.gate_type(), "a")
    return run_id


@pytest.mark.parametrize("policy", [None, approved_by("leads", 2), UNRELATED])
async def test_an_approval_covers_a_repetition_under_the_same_terms(runtime: Any, policy: str | None) -> None:
    run_id = await approved_and_crashed(runtime)
    if policy is not None:
        await runtime.policy(policy)
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    assert len(await runtime.books.approvals()) == 1
    assert len(await decisions(runtime)) == 3
    await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.parametrize(("group", "of"), [("security", 1), ("leads", 2)])
async def test_other_terms_ask_anew_and_the_new_approval_lets_out_the_same_action(
    runtime: Any, group: str, of: int
) -> None:
    run_id = await approved_and_crashed(runtime)
    first = await the_receipt(runtime)
    await runtime.policy(approved_by(group, 2, of))
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("waiting_approval", [])
    question = await runtime.books.approval(open=True)
    assert (question.kind, question.action_digest) == ("action", first.action_digest)
    assert [group, of] == [question.terms["approvers"][0][name] for name in ("group", "of")]
    assert "It was sent before" in question.card["evidence"]
    for person in ["sam"] if group == "security" else ["lea", "leo"]:
        assert (await runtime.vote(person, "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    receipt = await the_receipt(runtime)
    assert (receipt.id, receipt.action["approval"]) == (first.id, str(question.id))
    await runtime.history(run_id)
    await runtime.at_rest()


async def test_a_person_s_again_is_no_approval_by_those_whom_policy_asks_for(runtime: Any) -> None:
    run_id = await in_doubt(runtime, "person", effect=True)
    await runtime.policy(approved_by("security", 2))
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("waiting_approval", 1)
    assert not (await runtime.vote("olga", "approve")).counted
    assert (await runtime.vote("sam", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 2)
    await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.parametrize("how", ["retry", "probe", "person"])
async def test_a_repetition_that_people_reject_is_not_sent_and_stays_in_doubt(runtime: Any, how: str) -> None:
    run_id = await in_doubt(runtime, how)
    await runtime.policy(approved_by("security", 2))
    await runtime.wait_is_due()
    assert (await runtime.vote("sam", "reject")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("failed_terminal", [])
    receipt = await the_receipt(runtime)
    assert receipt.status == "in_doubt"
    assert "policy asks for an approval before it is sent" in receipt.resolution
    await runtime.history(run_id)
    await runtime.at_rest()


async def test_what_arrives_while_people_think_is_found_before_it_is_sent_again(runtime: Any) -> None:
    run_id = await in_doubt(runtime, "probe")
    await runtime.policy(approved_by("security", 2))
    await runtime.worker().work_off()
    runtime.outside.verdict = Probe(ProbeVerdict.APPLIED, "There it is.")
    assert (await runtime.vote("sam", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("succeeded", [])
    assert (await runtime.books.approval()).status == "superseded"
    await runtime.history(run_id)


async def test_a_policy_that_changes_again_voids_the_new_approval(runtime: Any) -> None:
    run_id = await in_doubt(runtime, "probe")
    await runtime.policy(approved_by("security", 2))
    await runtime.worker().work_off()
    assert (await runtime.vote("sam", "approve")).counted
    await runtime.policy(approved_by("leads", 4))
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("waiting_approval", [])
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    statuses = [approval.status for approval in await runtime.books.approvals()]
    assert statuses == ["superseded", "approved"]
    await runtime.history(run_id)


async def test_without_operators_the_next_doubt_asks_those_who_approved_last(runtime: Any) -> None:
    run_id = await in_doubt(runtime, "person", effect=True)
    await runtime.policy(approved_by("security", 2))
    await runtime.worker().work_off()
    assert (await runtime.vote("sam", "approve")).counted
    runtime.outside.script["probe.mail.send"] = [InDoubt("no answer")]
    await runtime.worker().work_off()
    await leave_group(runtime.database, "acme", "olga", "operators")
    await runtime.wait_is_due()
    question = await runtime.books.approval(open=True)
    assert (question.kind, question.terms["approvers"][0]["group"]) == ("in_doubt", "security")
    assert (await runtime.vote("sam", "again")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 2)
    await runtime.history(run_id)
    await runtime.at_rest()
