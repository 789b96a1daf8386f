"""Texts and people of one tenant are no other tenant's (promise 8)."""

from __future__ import annotations

from typing import Any

import pytest

from core.identity import NOBODY
from evidence.chain import Actor
from runtime.requests import publishing
from runtime.store import approvals, tenants

FLOW = """
workflow: same
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: %s}}
"""
GATE = """
workflow: gate
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, approve: {summary: Go on?, approvers: {group: owners}, quorum: 2}}
"""
PEOPLE = """
directory: d
people:
  - {id: ana, name: %s}
  - {id: bob, name: Bob, active: false}
groups: {owners: [ana, bob]}
"""


async def two_tenants(runtime: Any) -> None:
    for tenant in ("acme", "other"):
        await runtime.tenant(tenant)
        await runtime.policy(tenant=tenant)


@pytest.mark.req("V-4")
async def test_tenants_may_publish_different_texts_under_one_name_and_number(runtime: Any) -> None:
    """One process runs both, each as its own tenant wrote it."""
    await two_tenants(runtime)
    for tenant in ("acme", "other"):
        await runtime.publish(FLOW % tenant, tenant)
    runs = {tenant: (await runtime.start("same", tenant=tenant)).run_id for tenant in ("acme", "other")}
    await runtime.worker().work_off()
    for tenant, run in runs.items():
        assert await runtime.status(run) == "succeeded"
        assert (await runtime.books.receipt(run=run)).target == f"thing/{tenant}"


async def publish_people(runtime: Any, tenant: str, name: str) -> str:
    async with runtime.faces.transaction(tenant) as connection:
        await publishing.publish_directory(connection, tenant, PEOPLE % name, "people.yaml", Actor("test", "tester"))
        return str(await tenants.directory_digest(connection, tenant))


@pytest.mark.req("P-5")
async def test_people_are_those_of_their_own_tenant_as_they_were_published_last(runtime: Any) -> None:
    await two_tenants(runtime)
    digests = {tenant: await publish_people(runtime, tenant, tenant.upper()) for tenant in ("acme", "other")}

    async def ana(tenant: str, digest: str) -> str:
        async with runtime.database.connection() as connection:
            people = await runtime.definitions.directory(connection, tenant, digest)
        return str(people.entries["ana"].name)

    for tenant, digest in digests.items():
        assert await ana(tenant, digest) == tenant.upper()
    assert await ana("acme", await publish_people(runtime, "acme", "Another")) == "Another"
    async with runtime.database.connection() as connection:
        assert await runtime.definitions.directory(connection, "acme", None) is NOBODY, "of before there were people"


async def test_nobody_who_was_deactivated_is_in_a_group(runtime: Any) -> None:
    await two_tenants(runtime)
    await publish_people(runtime, "acme", "Ana")
    async with runtime.database.connection() as connection:
        groups = await tenants.groups(connection, "acme")
    assert groups is not None
    assert groups["owners"] == {"ana"}


async def test_a_voter_has_the_name_of_their_own_tenant(runtime: Any) -> None:
    await two_tenants(runtime)
    for tenant in ("acme", "other"):
        await publish_people(runtime, tenant, tenant.upper())
    await runtime.person("olga", ("owners",))
    await runtime.publish(GATE)
    await runtime.start("gate")
    await runtime.worker().work_off()
    question = await runtime.question("acme")
    await runtime.vote("ana", "approve", on=question)
    async with runtime.database.connection() as connection:
        votes = (await approvals.read(connection, question)).approval.votes
    assert [(vote.voter, vote.name) for vote in votes] == [("ana", "ACME")]
