"""Approvals as they are read to be shown and to be decided on: whole, of one tenant among two."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from approvals.model import ApprovalKind, ApprovalStatus, Choice, VoteChannel
from approvals.ports import MessageRef
from core.errors import NotFoundError
from runtime.store import approvals
from runtime.store.views import load
from tests.support.rows import ago, change, put, uid

# Rows are changed by hand.
pytestmark = [pytest.mark.tampers, pytest.mark.req("U-5")]

EFFECT = """
workflow: effect
version: 1
reference: r
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""
ASK = """
policy: ask
version: 1
rules:
  - id: all
    match: {connector: probe}
    outcome: needs_approval
    approvers: [{group: owners, of: 3}]
    expires: PT8H
"""


async def asked(runtime: Any) -> Any:
    """A question with two of three votes, in a tenant beside which another has people of the same ids."""
    await runtime.go(EFFECT, policy=ASK)
    await runtime.tenant("beta")
    for person in ("olga", "otto", "ida"):
        await runtime.person(person, ("owners",))
        await put(runtime.database, "people", "beta", person_id=person, name=f"Another {person}")
    question = await runtime.question()
    await runtime.vote("otto", "approve")
    await runtime.vote("olga", "approve")
    return question


async def test_an_approval_is_read_whole_and_its_voters_have_the_names_of_their_own_tenant(runtime: Any) -> None:
    question = await asked(runtime)
    place = "UPDATE approvals SET channel = 'C1', message_ts = '7.1', reason = 'so far', escalated = true"
    await change(runtime.database, place)
    await change(runtime.database, "UPDATE people SET name = upper(person_id) WHERE tenant_id = 'acme'")
    paused = {"tenant": {"by": "ann", "reason": "calm", "at": "2026-01-01T00:00:00Z"}}
    await change(runtime.database, "UPDATE tenants SET paused = $1 WHERE tenant_id = 'acme'", paused)
    run = (await runtime.books.runs())[0]
    digest = await runtime.books.directory_digest("acme")
    async with runtime.database.connection() as connection:
        shown = await approvals.read(connection, question)
        assert await approvals.run_of(connection, question) == run.id
    decided, view = await decide(runtime, question)
    assert (view.run_id, view.kept_at, view.paused) == (run.id, view.version, paused)
    for stored in (shown, decided):
        found = stored.approval
        assert (found.id, found.tenant_id, found.run_id, found.step_key) == (question, "acme", run.id, "a")
        assert (found.kind, found.status, found.escalated) == (ApprovalKind.ACTION, ApprovalStatus.REQUESTED, True)
        assert [(vote.voter, vote.name, vote.choice, vote.reason, vote.channel) for vote in found.votes] == [
            ("otto", "OTTO", Choice.APPROVE, "because", VoteChannel.CLI),
            ("olga", "OLGA", Choice.APPROVE, "because", VoteChannel.CLI),
        ]
        assert {vote.digest for vote in found.votes} == {found.action_digest}
        assert [sorted(vote.groups) for vote in found.votes] == [["group:owners"]] * 2
        assert (found.requester, [one.principal for one in found.contributors]) == ("requester", ["requester"])
        assert found.expires_at - stored.created_at == pytest.approx(timedelta(hours=8), abs=timedelta(seconds=5))
        assert (stored.choice, stored.reason, stored.consumed) == (None, "so far", False)
        assert (stored.workspace_id, stored.message, stored.paused) == ("main", MessageRef("C1", "7.1"), paused)
        assert (stored.directory_digest, stored.now > ago(minutes=5)) == (digest, True)
    assert (shown.card["title"], shown.card["step"], decided.card) == ("Set a to ?", "a", {})
    assert shown.approval.nonce == decided.approval.nonce != ""


async def decide(runtime: Any, question: Any, tenant: str = "acme", *, lock: bool = False) -> Any:
    async with runtime.faces.transaction(tenant) as connection:
        graphs = runtime.definitions.graphs
        return await approvals.read_to_decide(connection, tenant, question, graphs, lock=lock)


async def test_an_approval_of_another_tenant_is_none(runtime: Any) -> None:
    question = await asked(runtime)
    for lock in (False, True):
        assert (await decide(runtime, question, lock=lock))[0].approval.id == question
        with pytest.raises(NotFoundError, match=f"There is no approval {question}"):
            await decide(runtime, question, "beta", lock=lock)
    for read in (approvals.read, approvals.run_of):
        async with runtime.faces.transaction("beta") as connection:
            with pytest.raises(NotFoundError, match="There is no approval"):
                await read(connection, question)
    async with runtime.faces.transaction("beta") as connection:
        assert await approvals.approval(connection, "beta", question) is None
        assert await approvals.approvals_page(connection, "beta", 9) == []
    async with runtime.database.connection() as connection:
        with pytest.raises(NotFoundError, match=f"There is no approval {uid(1)}"):
            await approvals.read(connection, uid(1))


async def test_an_approval_that_was_used_is_read_as_such(runtime: Any) -> None:
    question = await asked(runtime)
    await runtime.vote("ida", "approve")
    await runtime.worker().work_off()
    async with runtime.database.connection() as connection:
        stored = await approvals.read(connection, question)
        row = await approvals.approval(connection, "acme", question)
        (listed,) = await approvals.approvals_page(connection, "acme", 9)
    assert (stored.approval.status, stored.choice, stored.reason, stored.consumed) == (
        ApprovalStatus.APPROVED, "approve", "because", True,
    )  # fmt: skip
    assert row == listed
    wanted = {"status": "approved", "choice": "approve", "kind": "action", "tier": "medium", "requester": "requester"}
    assert {name: row[name] for name in wanted} == wanted
    assert (row["card"]["title"], row["action_digest"]) == ("Set a to ?", stored.approval.action_digest)


async def test_a_face_reads_a_run_of_its_own_tenant_and_keeps_nothing_beside_its_book(runtime: Any) -> None:
    """An append of a face never has the folded run with it, however long ago that was kept last."""
    await asked(runtime)
    run, graphs = (await runtime.books.runs())[0], runtime.definitions.graphs
    async with runtime.database.connection() as connection:
        whole = await load(connection, run.id, graphs, whole=True)
        engines = await load(connection, run.id, graphs)
    assert (engines.version, engines.kept_at, engines.head) == (whole.version, 0, whole.head)
    for lock in (False, True):
        async with runtime.faces.transaction("acme") as connection:
            view = await load(connection, run.id, graphs, lock=lock, tenant="acme")
        assert (view.version, view.kept_at, view.head) == (whole.version, whole.version, whole.head)
        assert view == replace(engines, kept_at=whole.version, now=view.now)
        async with runtime.faces.transaction("beta") as connection:
            with pytest.raises(NotFoundError, match=f"There is no run {run.id}"):
                await load(connection, run.id, graphs, lock=lock, tenant="beta")
