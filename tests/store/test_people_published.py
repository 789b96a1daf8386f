"""Directories that replace one another, and who has proposed a text: whole rows of two tenants."""

from __future__ import annotations

from typing import Any

import pytest

from core.identity import Directory, Entry
from evidence.chain import Actor
from evidence.events import EventType
from runtime.store import audit, documents, tenants
from tests.support.asking import owning
from tests.support.rows import read

pytestmark = pytest.mark.req("P-12")

ANN = Actor("person", "ann")
FIRST = Directory.of(
    "d1",
    [
        Entry("ann", "Ann", groups=frozenset({"owners", "leads"}), principals=("slack:T1/U1", "email:ann@a.example")),
        Entry("bob", "Bob", active=False, groups=frozenset({"owners"})),
        Entry("bot", "Bot", groups=frozenset({"machines"}), owner="ann"),
    ],
)
SECOND = Directory.of("d2", [Entry("bob", "Bob B.", groups=frozenset({"owners"})), Entry("cy", "Cy")])
PEOPLE = "SELECT tenant_id, person_id, name, active, owner, principals FROM people ORDER BY 1, 2"
MEMBERS = "SELECT tenant_id, group_name, person_id FROM group_members ORDER BY 1, 2, 3"
DIGESTS = "SELECT tenant_id, directory_digest, stop_number FROM tenants ORDER BY 1"


async def published(runtime: Any, tenant: str, directory: Directory) -> None:
    """Replace the directory as a publication does: after the line that says so."""
    data: Any = {"name": "d", "version": 1, "digest": directory.digest}
    async with runtime.faces.transaction(tenant) as connection:
        await audit.record(connection, tenant, EventType.DIRECTORY_PUBLISHED, ANN, data)
        await tenants.replace_directory(connection, tenant, directory)


async def test_a_directory_replaces_the_one_before_and_only_that(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")
    for tenant in ("acme", "beta"):
        await published(runtime, tenant, FIRST)
    mails = ["slack:T1/U1", "email:ann@a.example"]
    first = [("ann", "Ann", True, None, mails), ("bob", "Bob", False, None, []), ("bot", "Bot", True, "ann", [])]
    members = [("leads", "ann"), ("machines", "bot"), ("owners", "ann")]
    assert await read(runtime.database, PEOPLE) == [(tenant, *row) for tenant in ("acme", "beta") for row in first]
    assert await read(runtime.database, MEMBERS) == [(tenant, *row) for tenant in ("acme", "beta") for row in members]
    assert await read(runtime.database, DIGESTS) == [("acme", "d1", 1), ("beta", "d1", 1)]
    await published(runtime, "acme", SECOND)
    second = [("bob", "Bob B.", True, None, []), ("cy", "Cy", True, None, [])]
    people = [("acme", *row) for row in second] + [("beta", *row) for row in first]
    assert await read(runtime.database, PEOPLE) == people
    rows = [("acme", "owners", "bob"), *(("beta", *row) for row in members)]
    assert await read(runtime.database, MEMBERS) == rows
    assert await read(runtime.database, DIGESTS) == [("acme", "d2", 2), ("beta", "d1", 1)]
    async with runtime.database.connection() as connection:
        directory = await tenants.directory(connection, "beta")
        assert directory.digest == "d1"
        assert directory.entries["ann"] == FIRST.entries["ann"]
        assert directory.entries["bob"].groups == frozenset(), "nobody who is not active is a member"
        assert await tenants.groups(connection, "acme") == {"owners": frozenset({"bob"})}
        assert await tenants.directory_digest(connection, "acme") == "d2"


def facts(kind: EventType, digest: str, by: str) -> Any:
    """Make the facts of a line of this kind."""
    whom = {EventType.POLICY_ACTIVATED: ("author", "approver"), EventType.POLICY_RETIRED: ("approver",)}.get(
        kind, ("by",)
    )
    return {"name": "p", "version": 1, "digest": digest, **dict.fromkeys(whom, by)}


async def test_whoever_has_proposed_a_text_since_it_was_settled_last_is_named(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")
    proposed, settled = EventType.POLICY_PROPOSED, (EventType.POLICY_ACTIVATED, EventType.POLICY_RETIRED)
    told: list[tuple[str, EventType, str, str]] = [
        ("acme", proposed, "a", "old"), ("acme", settled[0], "a", "olga"), ("acme", proposed, "a", "ann"),
        ("acme", proposed, "b", "bob"), ("beta", proposed, "a", "eve"), ("beta", settled[0], "a", "eve"),
        ("acme", EventType.DIRECTORY_PUBLISHED, "a", "zoe"), ("acme", proposed, "a", "cy"),
    ]  # fmt: skip
    async with owning(runtime.database) as connection:
        for tenant, kind, digest, by in told:
            await audit.record(connection, tenant, kind, ANN, facts(kind, digest, by))
        asked = (("acme", "a"), ("acme", "b"), ("acme", "c"), ("beta", "a"))
        found = [await documents.proposers(connection, tenant, proposed, settled, digest) for tenant, digest in asked]
        assert found == [["cy", "ann"], ["bob"], [], []]
        await audit.record(connection, "acme", settled[1], ANN, facts(settled[1], "b", "ann"))
        assert await documents.proposers(connection, "acme", proposed, settled, "a") == []
