"""Rows when the next thing has happened: their times, who said it where, and who has them locked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from approvals.model import Choice, VoteChannel
from connectors.port import NotSent, Refused
from runtime.keep.scheduler import Scheduler
from runtime.requests.postponing import PutOff, put_off
from runtime.requests.steering import cancel_run
from runtime.requests.voting import VoteRequest, Voting
from runtime.store import claims
from runtime.store.views import load
from tests.support.rows import ago, change, put, read
from tests.support.runtime_put_off import ASKS

# Rows are changed by hand.
pytestmark = pytest.mark.tampers

EFFECT = """
workflow: effect
version: 1
reference: ${{ run.id }}
retention: P3D
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
  - {id: b, do: probe.effect.apply, with: {name: b}}
"""
ASK = """
policy: ask
version: 1
rules:
  - {id: all, match: {connector: probe}, outcome: needs_approval, approvers: [{group: owners, of: 3}]}
"""
TIMES = "SELECT started_at, finished_at, purge_at FROM runs"


async def times(runtime: Any) -> tuple[Any, ...]:
    """The times of the one run: its start, its end, the end of its retention."""
    (found,) = await read(runtime.database, TIMES)
    return found


@pytest.mark.req("X-20")
async def test_a_run_has_started_with_its_first_step_and_never_again(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    run_id = (await runtime.start("effect")).run_id
    assert await times(runtime) == (None, None, None)
    runtime.outside.script["a"] = [NotSent("not now")]
    await runtime.worker().work_off()
    assert (await times(runtime))[0] > ago(hours=1)
    long_ago = ago(days=2)
    await change(runtime.database, "UPDATE runs SET started_at = $1", long_ago)
    await runtime.wait_is_due()
    assert (await runtime.status(run_id), (await times(runtime))[0]) == ("succeeded", long_ago)


@pytest.mark.req("V-13")
@pytest.mark.parametrize("begun", [False, True])
async def test_a_run_that_is_canceled_has_started_only_if_a_step_of_it_had(runtime: Any, begun: bool) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    run_id = (await runtime.start("effect")).run_id
    if begun:
        runtime.outside.script["a"] = [NotSent("not now")]
        await runtime.worker().work_off()
    before = (await times(runtime))[0]
    async with runtime.faces.transaction("acme") as connection:
        assert await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no") == "canceled"
    started, finished, purge = await times(runtime)
    assert (started, finished > ago(hours=1), purge - finished) == (before, True, timedelta(days=3))
    assert (started is not None) is begun


@pytest.mark.req("X-18", "X-20")
async def test_a_run_that_is_gone_on_with_has_no_end_until_it_ends_again(runtime: Any) -> None:
    runtime.outside.script["b"] = [Refused("no", "not today"), NotSent("not now")]
    run_id = await runtime.go(EFFECT)
    began, finished, purge = await times(runtime)
    assert (await runtime.status(run_id), purge - finished) == ("failed_terminal", timedelta(days=3))
    lines = (await runtime.books.run(run_id)).audit_count
    await put(runtime.database, "bundles", "acme", run_id=run_id, lines=lines)
    await runtime.retry(run_id)
    assert await times(runtime) == (began, None, None)
    await runtime.worker().work_off()
    assert await times(runtime) == (began, None, None)
    await runtime.wait_is_due()
    again, finished_again, purge_again = await times(runtime)
    assert (again, finished_again > finished, purge_again - finished_again) == (began, True, timedelta(days=3))


@pytest.mark.req("V-2", "V-12")
async def test_a_wait_that_is_put_off_goes_on_and_keeps_its_time(runtime: Any) -> None:
    await runtime.go(ASKS % "")
    waits = "SELECT status, due_at, completed_at FROM waits"
    ((_, due_at, _),) = await read(runtime.database, waits)
    key = (await runtime.books.wait()).correlation_key
    until = due_at + timedelta(days=1)
    await put_off(runtime.faces, runtime.definitions, PutOff("acme", key, runtime.actor, until=until))
    ((status, moved, completed),) = await read(runtime.database, waits)
    assert (status, until <= moved < until + timedelta(seconds=1), completed) == ("waiting", True, None)
    await runtime.signal(key, {"papers": 1})
    ((status, kept, completed),) = await read(runtime.database, waits)
    assert (status, kept, completed > ago(hours=1)) == ("completed", moved, True)


@pytest.mark.req("Q-16")
async def test_a_vote_says_how_and_why_it_was_given_last(runtime: Any) -> None:
    await runtime.go(EFFECT, policy=ASK)
    for person in ("olga", "otto", "ida"):
        await runtime.person(person, ("owners",))
    question = await runtime.question()
    for choice, reason, channel in (("approve", "fine", VoteChannel.CLI), ("reject", "not fine", VoteChannel.SLACK)):
        given = VoteRequest("acme", question, "olga", Choice(choice), reason, channel)
        assert (await Voting(runtime.faces, runtime.definitions).vote(given)).counted
        vote = "SELECT person_id, choice, reason, channel FROM votes"
        assert await read(runtime.database, vote) == [("olga", choice, reason, str(channel))]


@pytest.mark.req("Q-12")
async def test_starts_that_are_counted_from_a_time_to_come_are_counted_from_it_still(runtime: Any) -> None:
    """The database's clock went back: nobody is given the starts of that time once more."""
    await runtime.tenant(max_runs_per_min=60)
    await runtime.policy()
    await runtime.publish(EFFECT)
    await runtime.start("effect")
    ahead = ago(hours=-1)
    await change(runtime.database, "UPDATE tenants SET starts_left = 5, starts_left_at = $1", ahead)
    async with runtime.database.connection() as connection:
        assert len(await claims.claim_next(connection, "w", timedelta(seconds=30))) == 1
    ((left, counted_from),) = await read(runtime.database, "SELECT starts_left, starts_left_at FROM tenants")
    assert (left, counted_from) == (pytest.approx(4), ahead)


@pytest.mark.req("O-8")
async def test_a_step_that_the_queue_did_not_accept_is_freed_as_soon_as_one_whose_sender_died(runtime: Any) -> None:
    class Picky:
        needs_dispatch = True

        async def sent(self, messages: list[tuple[str, str, str]]) -> list[str]:
            return [messages[0][0]]

    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    for ref in ("1", "2"):
        await runtime.start("effect", ref=ref)
    scheduler = Scheduler(runtime.database, Picky(), "s", claimed_within=timedelta(seconds=600))
    assert await scheduler.admit() == 1
    ends = "SELECT expires_at - now() < interval '90 s' FROM queue WHERE status = 'sent' ORDER BY expires_at"
    assert await read(runtime.database, ends) == [(True,), (False,)]


@pytest.mark.parametrize("seen", [False, True])
async def test_a_run_is_locked_also_where_it_is_read_on_from_an_earlier_view(runtime: Any, seen: bool) -> None:
    runtime.outside.script["a"] = [NotSent("not now")]
    run_id = await runtime.go(EFFECT)
    async with runtime.database.transaction() as one, runtime.database.transaction() as two:
        before = await load(one, run_id, runtime.definitions.graphs)
        view = await load(one, run_id, runtime.definitions.graphs, lock=True, before=before if seen else None)
        assert view.version == before.version
        with pytest.raises(asyncpg.LockNotAvailableError):
            await two.fetchrow("SELECT FROM runs WHERE run_id = $1 FOR UPDATE NOWAIT", run_id)


@pytest.mark.req("Q-20")
async def test_a_vote_that_comes_too_late_is_on_record(runtime: Any) -> None:
    await runtime.go(EFFECT, policy=ASK)
    await runtime.person("olga", ("owners",))
    await change(runtime.database, "UPDATE approvals SET expires_at = $1", ago(minutes=1))
    answer = await runtime.vote("olga", "approve")
    assert (answer.counted, answer.code) == (False, "expired")
    told = await runtime.books.tenant_events("acme", type="approval.vote_refused")
    assert [(event.data["code"], event.actor["id"]) for event in told] == [("expired", "olga")]
