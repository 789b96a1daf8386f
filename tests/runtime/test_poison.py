"""A step that has stopped one process stops no second: when its lease ran out it is rehearsed aside, and then begun."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from app.helpers import Helpers
from connectors.port import Connectors
from core.budgets import TooCostly, most
from runtime.engine.model.rows import Claim
from runtime.store import claims
from runtime.work.driving import Drive
from runtime.work.holding import Tools, claim_of
from runtime.work.lease import Lease
from runtime.work.rehearsal import rehearse
from tests.support.for_all import ForAll

LEASE = timedelta(seconds=30)
ONE = """
workflow: one
version: 1
reference: ${{ run.id }}
channels: {said: {initial: ''}}
steps:
  - {set: {said: 'yes'}}
  - {id: a, do: probe.effect.apply, with: {name: "${{ state.said }}"}}
"""


class Rehearsals:
    """A helper that is ended, or comes to its end, and what it was asked."""

    def __init__(self, ended: int = 0) -> None:
        self.ended = ended
        self.asked: list[str] = []

    async def __call__(self, tenant: str, run_id: UUID, claim: Claim, owner: str) -> None:
        self.asked.append(claim.key)
        if len(self.asked) <= self.ended:
            raise TooCostly("beginning this step was ended")


async def taken(runtime: Any, rehearsals: Rehearsals, *, lives: bool) -> bool:
    """Some worker takes the next step. If it does not live, it is gone before it begins, as one that a step stops."""
    began = Lease.now()
    async with runtime.database.connection() as connection:
        records = await claims.claim_next(connection, "w", LEASE)
    connectors = ForAll(runtime.connectors)
    tools = Tools(runtime.database, runtime.definitions, connectors, "w", LEASE, rehearse=rehearsals)
    for record in records if lives else ():
        await Drive(tools).run(record, began)
    return bool(records)


async def over(runtime: Any) -> None:
    """The lease runs out, and the sweeper sees it."""
    await runtime.trouble.expire_leases()
    await runtime.sweep()


async def begun(runtime: Any) -> UUID:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(ONE)
    run: UUID = (await runtime.start("one")).run_id
    return run


async def test_a_step_that_stops_its_worker_is_rehearsed_and_fails_when_that_is_ended_twice(runtime: Any) -> None:
    run_id, rehearsals = await begun(runtime), Rehearsals(ended=most("helper_ends"))
    assert await taken(runtime, rehearsals, lives=False)
    assert rehearsals.asked == [], "nobody is suspected before"
    for _ in range(most("helper_ends")):
        await over(runtime)
        assert await taken(runtime, rehearsals, lives=True)
    assert len(rehearsals.asked) == most("helper_ends")
    assert (await runtime.status(run_id), runtime.outside.effects) == ("failed_terminal", [])
    assert (await runtime.error(run_id))["code"] == "too_costly"
    await over(runtime)
    assert not await taken(runtime, rehearsals, lives=True), "it is not leased again"
    await runtime.at_rest()


@pytest.mark.parametrize("ended", range(most("helper_ends")))
async def test_whoever_was_only_there_goes_on_after_its_rehearsal(runtime: Any, ended: int) -> None:
    run_id, rehearsals = await begun(runtime), Rehearsals(ended)
    await taken(runtime, rehearsals, lives=False)
    for _ in range(ended + 1):
        await over(runtime)
        await taken(runtime, rehearsals, lives=True)
    assert await runtime.status(run_id) == "succeeded"
    assert len(rehearsals.asked) == ended + 1
    assert len(runtime.outside.effects) == 1
    await runtime.at_rest()


async def test_a_rehearsal_does_what_beginning_does_and_tells_nobody(runtime: Any) -> None:
    run_id = await begun(runtime)
    async with runtime.database.connection() as connection:
        (record,) = await claims.claim_next(connection, "w", LEASE)
    before = await runtime.books.run(run_id)
    claim, owner = claim_of(record)
    asked: list[str] = []

    class Spy:
        async def of(self, connection: Any, tenant: str, stop: int) -> Connectors:
            asked.append(tenant)
            found: Connectors = runtime.connectors
            return found

    await rehearse(runtime.database, runtime.definitions, Spy(), run_id, claim, owner, LEASE)
    assert (asked, runtime.outside.effects) == (["acme"], [])
    assert await runtime.books.run(run_id) == before


async def test_a_helper_is_ended_at_its_processor_time_and_a_problem_is_none_of_its() -> None:
    long = "workflow: x\n" + "# y\n" * 5_000
    async with aclosing(Closing(seconds=most("helper_seconds"))) as patient, aclosing(Closing(seconds=0)) as strict:
        await patient.read("acme", "workflow", long, "refused.yaml", {})
        await patient.read("acme", "policy", long, "refused too.yaml", {})
        await strict.read("acme", "workflow", "workflow: x", "small.yaml", {})
        with pytest.raises(TooCostly, match=r"reading long\.yaml was ended"):
            await strict.read("acme", "workflow", long, "long.yaml", {})


class Closing(Helpers):
    """Helpers that end with their test."""

    async def aclose(self) -> None:
        await self.close()
