"""Faults that a reviewer planted and no test saw: each test here fails if the guard that it names is taken away."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from approvals.model import Choice, VoteChannel
from runtime.requests.directory import DatabaseDirectory
from runtime.requests.voting import VoteRequest, Voting
from runtime.store import outbox

WRITES = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.record.update, with: {name: a, fields: {priority: "1"}}}
"""
DENIES = """
policy: denies
version: 2
rules:
  - {id: nothing, match: {connector: probe}, outcome: deny, because: Not any more.}
"""
TWO_OWNERS = """
policy: two
version: 1
rules:
  - id: two
    match: {connector: probe}
    outcome: needs_approval
    approvers: [{group: owners, of: 2}, {group: managers, of: 1}]
    expires: PT8H
    because: Two owners and a manager look at it.
"""
LEASE = timedelta(seconds=60)


@pytest.mark.req("Q-16")
async def test_intend_without_the_policy_guard(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy changes between decision and intent: the decision is void, and nothing goes out (promise 1)."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(WRITES)
    run_id = (await runtime.start("w")).run_id
    reading, read = runtime.gate_type(), runtime.outside.read_before

    async def read_before(call: Any) -> Any:
        await reading.hold()
        return await read(call)

    monkeypatch.setattr(runtime.outside, "read_before", read_before)
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(reading.reached.wait(), 60)
    await runtime.policy(DENIES)  # the worker goes on with the policy that it has read
    reading.opened.set()
    await working
    assert runtime.outside.effects == []
    assert (await runtime.status(run_id), (await runtime.error(run_id))["code"]) == ("failed_terminal", "policy_denied")
    assert [decision.outcome for decision in await runtime.books.decisions()] == ["deny"]
    assert "action.intended" not in await runtime.events(run_id)


@pytest.mark.req("Q-17")
async def test_a_vote_counted_twice(runtime: Any) -> None:
    """One person by two identities, who has joined another group in between: one person, one vote."""
    await runtime.tenant()
    await runtime.policy(TWO_OWNERS)
    await runtime.publish(WRITES)
    for person in ("ana", "ben"):
        await runtime.person(person, ("owners",))
    run_id = (await runtime.start("w")).run_id
    await runtime.worker().work_off()
    approval, voting = await runtime.question(), Voting(runtime.faces, runtime.definitions)
    in_slack = await DatabaseDirectory(runtime.faces, runtime.definitions, "acme", None).person_of_slack_user(
        "T1", "UANA"
    )
    assert in_slack is not None

    async def vote(person: str, channel: VoteChannel) -> Any:
        return await voting.vote(VoteRequest("acme", approval, person, Choice.APPROVE, "yes", channel))

    assert (await vote(in_slack.id, VoteChannel.SLACK)).code == "counted"
    assert (await vote("ana", VoteChannel.CLI)).code == "already_counted"
    await runtime.person("ana", ("managers",))
    assert (await vote("ana", VoteChannel.HTTP)).code == "counted"  # it says more now, and replaces the first
    assert [vote.person for vote in await runtime.books.votes()] == ["ana"]
    assert (await runtime.books.approval(id=approval)).status == "requested"
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("waiting_approval", [])
    (asked,) = (await runtime.history(run_id)).approvals.values()
    votes = [(vote["voter"], vote["choice"], vote["channel"]) for vote in asked.votes]
    assert (votes, asked.status) == ([("ana", "approve", channel) for channel in ("slack", "http")], "requested")
    assert (await vote("ben", VoteChannel.CLI)).status == "approved"
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


@pytest.mark.req("O-4")
@pytest.mark.parametrize("other", ["two", "one"])
@pytest.mark.parametrize("status", ["dispatched", "pending", "failed"])
async def test_a_message_ended_without_its_lease(runtime: Any, status: str, other: str) -> None:
    """A dispatcher whose lease of a command ran out does not end what another has, or what it has leased anew."""
    await runtime.go(WRITES)
    await runtime.trouble.drop_messages_except("bundle")

    async def lease(owner: str) -> Any:
        async with runtime.database.transaction() as connection:
            return await outbox.lease_message(connection, owner, LEASE, ("", ""), [])

    async def end(message: Any) -> bool:
        async with runtime.database.transaction() as connection:
            return await outbox.end_message(connection, message, status, None, timedelta(0))

    late = await lease("one")
    await runtime.trouble.expire_message_leases()
    assert await runtime.sweep() == 1
    assert not await end(late)  # nobody has it
    now = await lease(other)
    assert now.command_id == late.command_id
    before = await runtime.fingerprint()
    assert not await end(late)
    assert await runtime.fingerprint() == before
    assert await end(now)
