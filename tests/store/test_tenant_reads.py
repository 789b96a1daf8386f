"""Small reads of people, tokens and what is published: literal rows of two tenants, whole results."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.errors import ConsistencyError
from runtime.store import documents, replication, tenants, tokens
from runtime.store.documents import Edition, Past
from runtime.store.replication import Unavailable
from tests.support.asking import owning
from tests.support.rows import ago, put, read

# The rows are of no book.
pytestmark = pytest.mark.tampers


async def two_tenants(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")


async def test_a_directory_is_its_tenant_s_alone(runtime: Any) -> None:
    await two_tenants(runtime)
    people = [("acme", "ann", "Ann", True), ("acme", "bob", "Bob", False), ("beta", "ann", "Another", True)]
    for tenant, person, name, active in people:
        row = {"person_id": person, "name": name, "active": active, "principals": [f"slack:{tenant}"]}
        await put(runtime.database, "people", tenant, **row)
    for tenant, group, person in (("acme", "g", "ann"), ("acme", "h", "ann"), ("beta", "i", "ann")):
        await put(runtime.database, "group_members", tenant, group_name=group, person_id=person)
    async with runtime.database.connection() as connection:
        found = (await tenants.directory(connection, "acme")).entries
        groups = await tenants.groups(connection, "acme")
        theirs = await tenants.groups(connection, "beta")
        await runtime.tenant("empty")
        assert await tenants.groups(connection, "empty") is None
        assert (await tenants.directory(connection, "empty")).entries == {}
    shown = {one.id: (one.name, one.active, sorted(one.groups), one.principals) for one in found.values()}
    assert shown == {
        "ann": ("Ann", True, ["g", "h"], ("slack:acme",)), "bob": ("Bob", False, [], ("slack:acme",)),
    }  # fmt: skip
    assert (groups, theirs) == ({"g": frozenset({"ann"}), "h": frozenset({"ann"})}, {"i": frozenset({"ann"})})


@pytest.mark.req("Q-12")
async def test_caps_are_set_and_lifted_in_their_tenant(runtime: Any) -> None:
    await two_tenants(runtime)
    caps = "SELECT max_runs_per_min, max_writes_per_run, weight, max_concurrency FROM tenants ORDER BY tenant_id"
    async with runtime.database.connection() as connection:
        await tenants.set_caps(connection, "acme", 60, 9, 2.5)
        assert await read(runtime.database, caps) == [(60, 9, 2.5, 16), (None, None, 1.0, 16)]
        await tenants.set_caps(connection, "acme", None, -1, None)
        assert await read(runtime.database, caps) == [(60, None, 2.5, 16), (None, None, 1.0, 16)]
        await tenants.set_caps(connection, "acme", -1, 0, None)
        assert await read(runtime.database, caps) == [(None, 0, 2.5, 16), (None, None, 1.0, 16)]
        held = {"owner": "w", "lease_id": 1, "expires_at": ago(hours=-1)}
        for number, row in enumerate(({"status": "leased"}, {"status": "sent"}, {"status": "claimable"}), 1):
            held_or_not = {} if row["status"] == "claimable" else held
            await put(runtime.database, "queue", "acme", run_id=number, **row, **held_or_not)
        await put(runtime.database, "queue", "beta", run_id=4, status="leased", **held)
        with pytest.raises(ConsistencyError, match="1 steps above the new cap"):
            await tenants.set_slots(connection, "acme", 1)
        await tenants.set_slots(connection, "acme", 2)


@pytest.mark.req("P-10")
async def test_tokens_are_listed_and_revoked_in_their_tenant(runtime: Any) -> None:
    await two_tenants(runtime)
    people = [("acme", "ann", True, None), ("acme", "bob", False, None), ("acme", "bot", True, "bob")]
    people += [("acme", "stray", True, "gone"), ("beta", "gone", True, None), ("beta", "bob", True, None)]
    for tenant, person, active, owner in people:
        row = {"person_id": person, "name": person, "active": active, "owner": owner}
        await put(runtime.database, "people", tenant, **row)
    rows: list[tuple[str, str, dict[str, Any]]] = [
        ("acme", "ann", {}), ("acme", "ann", {"expires_at": ago(hours=1)}), ("acme", "bob", {}), ("acme", "bot", {}),
        ("acme", "stray", {}), ("acme", "gone", {}), ("acme", "ann", {"revoked_at": ago(hours=1)}),
        ("beta", "gone", {}),
        ("acme", "bob", {"revoked_at": ago(hours=1), "expires_at": ago(hours=2)}),
        ("acme", "gone", {"expires_at": ago(hours=1)}),
    ]  # fmt: skip
    for number, (tenant, subject, row) in enumerate(rows, 1):
        token = {"token_hash": f"{number:x}{'0' * 20}", "subject": subject, "roles": ["viewer"]}
        await put(runtime.database, "tokens", tenant, **token, created_at=ago(hours=20 - number), **row)
    async with owning(runtime.database) as connection:
        listed = [(row["token"], row["ended"]) for row in await tokens.listed(connection, "acme")]
        ends = [None, "expired", "deactivated", "deactivated", "left", "left", "revoked"]
        every = [*ends, None, "revoked", "expired"]  # of several causes the first is told
        ours = [(f"{number:x}{'0' * 11}", end) for number, end in enumerate(every, 1) if number != 8]
        assert listed == ours
        owners = [await tokens.owner(connection, f"{number:x}{'0' * 20}") for number in range(1, 11)]
        assert [one and one["ended"] for one in owners] == every
        assert [await tokens.revoke(connection, "acme", prefix) for prefix in ("8", "7", "1", "1")] == [0, 0, 1, 0]
        lifetime = await tokens.create(connection, "acme", "9" * 20, "ann", ["viewer"], timedelta(hours=5))
    assert lifetime - ago() == pytest.approx(timedelta(hours=5), abs=timedelta(minutes=5))


@pytest.mark.req("X-1")
async def test_of_what_is_published_the_newest_that_is_not_retired_is_in_use(runtime: Any) -> None:
    await two_tenants(runtime)
    rows: list[tuple[str, str, int, Any]] = [
        ("acme", "w", 1, None), ("acme", "w", 2, None), ("acme", "w", 3, ago(hours=1)), ("acme", "v", 4, None),
        ("beta", "w", 9, None), ("acme", "u", 1, ago(hours=1)),
    ]  # fmt: skip
    operations = {"b.read": {"connector": "z"}, "a.write": {}, "a.read": {}}
    for tenant, name, version, retired in rows:
        row = {"name": name, "version": version, "digest": f"{name}{version}", "source": "", "retired_at": retired}
        await put(runtime.database, "workflows", tenant, **row, operations=operations, published_by="ann")
    async with owning(runtime.database) as connection:
        newest = await documents.newest_workflows(connection, "acme")
        assert [(one.name, one.version, one.digest) for one in newest] == [("v", 4, "v4"), ("w", 2, "w2")]
        chosen = [await documents.newest_workflows(connection, "acme", "w", number) for number in (1, 2, 3, 9)]
        assert [[one.version for one in each] for each in chosen] == [[1], [2], [], []]
        every = await documents.workflow_versions(connection, "acme")
        assert [(one.name, one.version) for one in every] == [("u", 1), ("v", 4), ("w", 3), ("w", 2), ("w", 1)]
        assert (every[0].operations, every[0].connectors) == (("a.read", "a.write", "b.read"), ("a", "z"))
        assert [one.version for one in await documents.workflow_versions(connection, "acme", "w")] == [3, 2, 1]
        assert await documents.workflow(connection, "acme", "w", 9) is None
        assert [await documents.retire_workflow(connection, "acme", "w", number) for number in (2, 2, 9)] == [
            True, False, False
        ]  # fmt: skip
        assert [one.version for one in await documents.newest_workflows(connection, "acme", "w")] == [1]
        assert [one.version for one in await documents.newest_workflows(connection, "beta", "w")] == [9]


@pytest.mark.req("V-4")
async def test_past_policies_and_directories_are_the_tenant_s_in_their_order(runtime: Any) -> None:
    await two_tenants(runtime)
    for tenant, digest, name, version in (("acme", "b", "q", 1), ("acme", "a", "p", 2), ("beta", "c", "p", 9)):
        text = {"source": f"text {digest}", "published_by": "ann"}
        await put(runtime.database, "policies", tenant, digest=digest, name=name, version=version, **text)
    await runtime.execute("UPDATE tenants SET policy_digests = '{b,c}'")
    streams = dict(await read(runtime.database, "SELECT tenant_id, stream_id FROM tenants"))
    for tenant, seq, kind in (("acme", 3, "directory"), ("acme", 4, "directory"), ("beta", 5, "directory")):
        data = f'{{"ts":"2026-11-0{seq}T00:00:00Z","data":{{"name":"d","version":{seq},"digest":"d{seq}"}}}}'.encode()
        row = {"stream_id": streams[tenant], "seq": seq, "type": f"{kind}.published", "line": data, "hash": ""}
        await put(runtime.database, "audit_events", tenant, **row)
    async with runtime.database.connection() as connection:
        p2, q1 = Edition("p", 2, "a"), Edition("q", 1, "b")
        assert await documents.past_policies(connection, "acme") == Past((p2, q1), (q1,))
        d3, d4 = Edition("d", 3, "d3"), Edition("d", 4, "d4")
        assert await documents.past_directories(connection, "acme") == Past((d4, d3), (d4,))
        since = await documents.directory_since(connection, "acme")
        assert since is not None
        assert since.day == 4
        assert await documents.policy(connection, "acme", "c") is None
        assert await documents.policy(connection, "acme", "a") == documents.StoredPolicy("p", 2, "text a")


@pytest.mark.req("X-2")
async def test_what_is_unavailable_is_replaced_and_forgotten_in_its_tenant(runtime: Any) -> None:
    await two_tenants(runtime)

    def one(kind: str, name: str, place: str, reason: str = "broken") -> Unavailable:
        return Unavailable(kind, name, place, reason)

    async with owning(runtime.database) as connection:
        await replication.replace(connection, "acme", [one("workflow", "gone", "g.yaml")])
        await replication.replace(connection, "beta", [one("workflow", "w", "theirs.yaml")])
        mine = [one("workflow", "w", "b.yaml"), one("policy", "w", "c.yaml"), one("workflow", "v", "a.yaml")]
        twice = one("workflow", "v", "a.yaml", "still broken")
        await replication.replace(connection, "acme", [*mine, twice])
        assert await replication.listed(connection, "acme") == [mine[1], twice, mine[0]]
        assert await replication.listed(connection, "acme", "workflow") == [twice, mine[0]]
        assert await replication.listed(connection, "acme", "workflow", "w") == [mine[0]]
        await replication.forget(connection, "acme", "workflow", "w")
        assert await replication.listed(connection, "acme") == [mine[1], twice]
        assert await replication.listed(connection, "beta") == [one("workflow", "w", "theirs.yaml")]
