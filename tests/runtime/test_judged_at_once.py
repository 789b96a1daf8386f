"""A policy is judged at once over the open questions: what it changes is void and asked anew, all else stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.keep.reviewing import review_question
from runtime.requests.steering import cancel_run
from tests.support.runtime_again import ALLOW, ASKED, DENY, PROBED, STEPS, UPDATED, approved_by, begun

UNRELATED = "  - {id: b, match: {operation: probe.secret.send}, outcome: deny}\n"


async def asked(runtime: Any, text: str = PROBED, policy: str = "") -> Any:
    run_id = await begun(runtime, text, policy or approved_by("leads", 1, of=2))
    await runtime.worker().work_off()
    return run_id


async def statuses(runtime: Any) -> list[str]:
    return [approval.status for approval in await runtime.books.approvals()]


@pytest.mark.parametrize("text", [PROBED, UPDATED])
async def test_a_question_that_is_decided_the_same_stays_with_its_votes(runtime: Any, text: str) -> None:
    run_id = await asked(runtime, text)
    assert (await runtime.vote("lea", "approve")).counted
    events = await runtime.events(run_id)
    await runtime.policy(approved_by("leads", 2, of=2) + UNRELATED)
    await runtime.sweep()
    assert await runtime.events(run_id) == events
    assert (await runtime.vote("leo", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    assert await statuses(runtime) == ["approved"]
    await runtime.history(run_id)


@pytest.mark.parametrize(
    "policy",
    [
        approved_by("security", 2),
        approved_by("leads", 2, of=1),
        approved_by("leads", 2, of=2).replace("id: ask", "id: other"),
        approved_by("leads", 2, of=2).replace("approvers", "tier: high, unresolved: ask, approvers"),
    ],
)
async def test_one_that_is_decided_otherwise_is_void_before_anybody_votes_and_asked_anew(
    runtime: Any, policy: str
) -> None:
    run_id = await asked(runtime)
    first = await runtime.question()
    await runtime.policy(policy)
    await runtime.sweep()
    assert await statuses(runtime) == ["superseded"]
    kinds = {(command.kind, command.payload.get("approval")) for command in await runtime.books.commands()}
    assert {("voided", str(first)), ("card", str(first))} <= kinds
    await runtime.worker().work_off()
    assert await statuses(runtime) == ["superseded", "requested"]
    assert not (await runtime.vote("lea", "approve", on=first)).counted
    assert runtime.outside.effects == []
    await runtime.history(run_id)


async def test_one_that_is_denied_now_ends_at_once(runtime: Any) -> None:
    run_id = await asked(runtime)
    await runtime.policy(DENY)
    await runtime.sweep()
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), await statuses(runtime)) == ("failed_terminal", ["superseded"])
    assert (await runtime.error(run_id))["code"] == "policy_denied"
    await runtime.at_rest()


async def test_one_that_is_allowed_now_goes_on_without_people(runtime: Any) -> None:
    run_id = await asked(runtime)
    await runtime.policy(ALLOW.replace("version: 1", "version: 2"))
    await runtime.sweep()
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    await runtime.history(run_id)


async def test_a_gate_and_a_doubt_are_no_policys_matter(runtime: Any) -> None:
    gate = STEPS.replace("{id: a, do: %s}", "{id: a, approve: {summary: Go?, approvers: {group: leads}}}")
    await asked(runtime, gate, ALLOW)
    await runtime.publish(ASKED.replace("workflow: w", "workflow: doubt"))
    await runtime.start("doubt", ref="2")
    await runtime.crash(runtime.gate_type(), "probe.mail.send")
    await runtime.worker().work_off()
    assert await statuses(runtime) == ["requested", "requested"]
    await runtime.policy(DENY)
    await runtime.sweep()
    assert await statuses(runtime) == ["requested", "requested"]


async def test_no_tenant_waits_for_the_questions_of_another(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime.store import sweeps

    monkeypatch.setattr(sweeps, "BATCH", 4)
    await asked(runtime)
    for number in range(2, 8):
        await runtime.start("w", ref=str(number))
    await runtime.tenant("other")
    await runtime.policy(approved_by("leads", 1), tenant="other")
    await runtime.publish(PROBED, tenant="other")
    await runtime.start("w", tenant="other")
    await runtime.worker().work_off()
    for tenant in ("acme", "other"):
        await runtime.policy(DENY, tenant=tenant)
    await runtime.sweep()
    open_ = [approval.tenant for approval in await runtime.books.approvals(open=True)]
    assert open_ == ["acme"] * 5  # two of each tenant's share were judged
    while await runtime.sweep():
        pass
    assert await runtime.books.approvals(open=True) == []
    row = await runtime.one("SELECT count(judge_after) FROM tenants")
    assert row[0] == 0


BESIDE = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, needs: [], do: probe.effect.apply, with: {name: a}}
  - {id: b, needs: [], do: probe.value.read, with: {name: b}}
"""


async def test_one_of_a_run_that_is_being_canceled_is_left_to_its_end(runtime: Any, gate: Any) -> None:
    """The question ends with the run, once what is under way has ended: nobody is told of another policy."""
    await runtime.tenant()
    reads = "  - {id: b, match: {operation: probe.value.read}, outcome: allow}\n"
    await runtime.policy(approved_by("leads", 1).replace("connector: probe", "operation: probe.effect.apply") + reads)
    await runtime.publish(BESIDE)
    run_id = (await runtime.start("w")).run_id
    runtime.outside.gates["b"] = gate
    async with runtime.working():
        await asyncio.wait_for(gate.reached.wait(), 60)
        await runtime.until(lambda: runtime.books.approvals(open=True))
        question = await runtime.question()
        async with runtime.faces.transaction("acme") as connection:
            await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "enough")
        await runtime.policy(DENY)
        events = await runtime.events(run_id)
        assert not (await review_question(runtime.database, runtime.definitions, question)).voided
        await runtime.sweep()
        assert (await runtime.events(run_id), await statuses(runtime)) == (events, ["requested"])
        gate.opened.set()
        await runtime.until(lambda: runtime.books.runs(status="canceled"))
    assert await statuses(runtime) == ["canceled"]
    assert {command.kind for command in await runtime.books.commands()} == {"card", "bundle"}
    assert not (await review_question(runtime.database, runtime.definitions, question)).voided, "it is over"
