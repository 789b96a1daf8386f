"""Given approvals are looked at again before anything is done by them: who has voted, and how long ago (promise 12)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from connectors.port import NotSent
from tests.support.people import add_person, deactivate, leave_group, remove_person

PAY = """
workflow: pay
version: 1
steps:
  - {id: pay, do: probe.effect.apply, with: {name: pay}}
"""
GATED = """
workflow: pay
version: 1
steps:
  - {id: ok, approve: {summary: Pay?, approvers: {group: owners}}}
  - {id: pay, needs: [ok], do: probe.effect.apply, with: {name: pay}}
"""
ASK = """
policy: ask
version: 1
rules:
  - id: paying
    match: {operation: probe.effect.apply}
    outcome: needs_approval
    approvers: [{group: owners, of: 1}]
    fresh_for: FRESH
    because: It is money.
"""
LOSSES: dict[str, Callable[..., Awaitable[None]]] = {
    "left the directory": remove_person,
    "lost the group": lambda engine, tenant, person: leave_group(engine, tenant, person, "owners"),
    "was deactivated": deactivate,
}


async def approved(runtime: Any, text: str = PAY, fresh: str = "P1D", of: int = 1) -> UUID:
    """A run whose question ana has approved, and nobody has gone on with yet."""
    await runtime.tenant()
    await runtime.policy(ASK.replace("FRESH", fresh).replace("of: 1", f"of: {of}") if text == PAY else ALLOW)
    await runtime.publish(text)
    for person in ("ana", "ben", "cara"):
        await runtime.person(person, ("owners",))
    run_id: UUID = (await runtime.start("pay")).run_id
    await runtime.worker().work_off()
    assert (await runtime.vote("ana", "approve")).counted
    return run_id


ALLOW = """
policy: allow
version: 1
rules: [{id: all, match: {connector: probe}, outcome: allow, because: It is a test.}]
"""


async def superseded(runtime: Any, run_id: UUID) -> list[Any]:
    return [event.data for event in await runtime.books.events(run_id, type="approval.superseded")]


@pytest.mark.req("Q-3")
@pytest.mark.parametrize("text", [PAY, GATED])
@pytest.mark.parametrize("loss", LOSSES)
async def test_the_vote_of_somebody_who_may_vote_no_more_lets_nothing_out(runtime: Any, loss: str, text: str) -> None:
    run_id = await approved(runtime, text)
    first = (await runtime.books.approvals())[0].id
    await LOSSES[loss](runtime.database, "acme", "ana")
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert await runtime.status(run_id) == "waiting_approval"
    assert [one.status for one in await runtime.books.approvals()] == ["superseded", "requested"]
    assert await runtime.question() != first
    assert (await runtime.vote("ben", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


async def test_what_was_found_is_told_with_the_directory_that_it_was_found_by(runtime: Any) -> None:
    run_id = await approved(runtime)
    await remove_person(runtime.database, "acme", "ana")
    await runtime.worker().work_off()
    digest = await runtime.books.directory_digest("acme")
    (void,) = await superseded(runtime, run_id)
    assert (void["why"], void["directory"]) == ("votes_lost", digest)
    assert (await runtime.vote("ben", "approve")).counted
    await runtime.worker().work_off()
    (intended,) = [event.data for event in await runtime.books.events(run_id, type="action.intended")]
    assert intended["directory"] == digest


async def test_votes_that_are_enough_without_those_who_left_still_count(runtime: Any) -> None:
    run_id = await approved(runtime, of=2)
    assert (await runtime.vote("ben", "approve")).status == "approved"
    await add_person(runtime.database, "acme", "dora", ("owners",))
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


async def test_a_vote_of_somebody_who_left_is_no_part_of_a_quorum(runtime: Any) -> None:
    await approved(runtime, of=2)
    await remove_person(runtime.database, "acme", "ana")
    second = await runtime.vote("ben", "approve")
    assert (second.counted, second.status) == (True, "requested")
    assert (await runtime.vote("cara", "approve")).status == "approved"
    await runtime.worker().work_off()
    assert len(runtime.outside.effects) == 1


async def test_somebody_who_turns_out_to_be_the_requester_has_not_approved(runtime: Any) -> None:
    """The directory learns of an account only after the vote: by then the two are one person."""
    run_id = await approved(runtime)
    await remove_person(runtime.database, "acme", "ana")
    await add_person(runtime.database, "acme", "ana", ("owners",), principals=["servicenow:Requester"])
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("waiting_approval", [])


@pytest.mark.parametrize("text", [PAY])
async def test_an_approval_that_is_too_old_is_asked_anew(runtime: Any, text: str) -> None:
    run_id = await approved(runtime, text, fresh="PT0.5S")  # in whole seconds that is none: everything is too old
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert [one.status for one in await runtime.books.approvals()] == ["superseded", "requested"]
    (void,) = await superseded(runtime, run_id)
    assert void["why"] == "stale"


async def test_an_approval_that_is_fresh_is_used(runtime: Any) -> None:
    run_id = await approved(runtime)
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


async def test_another_attempt_at_an_approved_action_needs_votes_that_still_count(runtime: Any) -> None:
    runtime.outside.script["pay"] = [NotSent("busy")]
    run_id = await approved(runtime)
    await runtime.worker().work_off()
    await remove_person(runtime.database, "acme", "ana")
    await runtime.wait_is_due()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("waiting_approval", [])
    assert (await runtime.vote("ben", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


async def test_an_action_in_doubt_is_sent_again_by_votes_that_still_count(runtime: Any) -> None:
    run_id = await approved(runtime)
    await runtime.crash(runtime.gate_type(), "pay")
    await remove_person(runtime.database, "acme", "ana")
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("waiting_approval", [])
    assert (await runtime.vote("ben", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


@pytest.mark.parametrize("text", [PAY, GATED])
async def test_somebody_who_leaves_after_the_votes_were_counted_and_before_the_intent_is_seen(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    run_id = await approved(runtime, text)
    read = runtime.definitions.directory

    async def leaves_then(*of: Any) -> Any:
        found = await read(*of)
        if "ana" in found.entries:
            await remove_person(runtime.database, "acme", "ana")
        return found

    monkeypatch.setattr(runtime.definitions, "directory", leaves_then)
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("waiting_approval", [])
