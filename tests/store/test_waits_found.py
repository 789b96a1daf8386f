"""Waits that a notification is for, and what becomes of the notification: literal rows of two tenants."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from runtime.store import inbox
from runtime.store.inbox import FoundWait
from tests.support.rows import ago, put, put_run, read, uid

# The rows are of no book.
pytestmark = pytest.mark.tampers

KINDS = ("signal", "external")


async def two_tenants(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")


async def put_wait(runtime: Any, tenant: str, number: int, run: int, hours: float, **columns: Any) -> None:
    row = {"correlation_key": "paid:1", "created_at": ago(hours=hours), **columns}
    await put(runtime.database, "waits", tenant, wait_id=number, run_id=run, **row)


async def found(runtime: Any, tenant: str = "acme", kept: inbox.Notice | None = None, key: str = "paid:1") -> Any:
    async with runtime.database.connection() as connection:
        return await inbox.find(connection, tenant, key, KINDS, kept)


def of(wait: int, run: int, *, waiting: bool = True, parked: bool = True, going: bool = True, **more: Any) -> FoundWait:
    columns = {"step_key": "s", "kind": "signal", "token": "", **more}
    return FoundWait(uid(wait), uid(run), **columns, waiting=waiting, parked=parked, going=going)


def kept(run: int | None, hours: float) -> inbox.Notice:
    meant = None if run is None else str(uid(run))
    return inbox.Notice({}, {"run": meant}, "paid:1", processed=False, received_at=ago(hours=hours))


@pytest.mark.req("V-10")
async def test_the_oldest_that_waits_is_found_and_else_the_newest_that_is_over(runtime: Any) -> None:
    await two_tenants(runtime)
    await put_run(runtime.database, "beta", 9, created_at=ago(hours=90))
    await put_wait(runtime, "beta", 90, 9, 90)
    assert await found(runtime) is None
    await put_run(runtime.database, "acme", 1, created_at=ago(hours=10))
    await put_run(runtime.database, "acme", 2, created_at=ago(hours=9), status="succeeded", finished_at=ago(hours=1))
    await put_wait(runtime, "acme", 10, 1, 8, status="timed_out", parked=True)
    assert await found(runtime) == of(10, 1, waiting=False, parked=False)
    await put_wait(runtime, "acme", 11, 2, 7, status="completed", parked=False, token="t", step_key="z")
    assert await found(runtime) == of(11, 2, waiting=False, parked=False, going=False, token="t", step_key="z")
    await put_wait(runtime, "acme", 12, 1, 6, kind="child")
    await put_wait(runtime, "acme", 13, 1, 6, correlation_key="paid:2")
    assert (await found(runtime)).wait_id == uid(11)
    await put_wait(runtime, "acme", 14, 1, 5, parked=False)
    await put_wait(runtime, "acme", 15, 1, 4)
    assert await found(runtime) == of(14, 1, parked=False)
    assert await found(runtime, "beta") == of(90, 9)


@pytest.mark.req("V-10")
async def test_what_was_kept_is_for_whom_it_was_meant(runtime: Any) -> None:
    await two_tenants(runtime)
    for run, hours in ((1, 10), (2, 8), (3, 6)):
        await put_run(runtime.database, "acme", run, created_at=ago(hours=hours))
        await put_wait(runtime, "acme", 10 * run, run, hours)
    assert (await found(runtime)).wait_id == uid(10)
    assert (await found(runtime, kept=kept(3, 9))).wait_id == uid(30)
    later = await found(runtime, kept=kept(4, 5))
    assert (later.wait_id, later.waiting, later.parked) == (uid(30), False, False)
    # For whoever is there: runs that have begun by then, and none that began after it.
    assert (await found(runtime, kept=kept(None, 9))).wait_id == uid(10)
    assert not (await found(runtime, kept=kept(None, 11))).waiting
    (moment,) = (await read(runtime.database, "SELECT created_at FROM runs WHERE run_id = $1", uid(1)))[0]
    same = inbox.Notice({}, {"run": None}, "paid:1", processed=False, received_at=moment)
    assert (await found(runtime, kept=same)).waiting


@pytest.mark.req("V-10")
async def test_one_that_is_named_is_found_by_its_token_or_by_the_append_that_opened_it(runtime: Any) -> None:
    await two_tenants(runtime)
    for tenant, run in (("acme", 1), ("acme", 2), ("beta", 3)):
        await put_run(runtime.database, tenant, run)
    await put_wait(runtime, "acme", 10, 1, 9, token="a", status="completed")
    await put_wait(runtime, "acme", 11, 1, 8, token="b", kind="external")
    await put_wait(runtime, "acme", 12, 2, 7, token="c", status="completed")
    await put_wait(runtime, "acme", 13, 2, 6, token="d", kind="timer")
    await put_wait(runtime, "beta", 14, 3, 5, token="e")
    for n, told in ((2, 10), (3, 11), (4, 10)):
        lines = f'{{"wait":"{uid(told)}"}}'.encode()
        await put(runtime.database, "journal", "acme", run_id=1, n=n, lines=lines)

    async def named(token: str | None = None, version: int | None = None, tenant: str = "acme") -> UUID | None:
        async with runtime.database.connection() as connection:
            one = await inbox.find_named(connection, tenant, "paid:1", KINDS, token, version)
            return None if one is None else one.wait_id

    tokens = {token: await named(token) for token in "abcde"}
    assert tokens == {"a": uid(10), "b": uid(11), "c": uid(12), "d": None, "e": None}
    versions = {version: await named(version=version) for version in (1, 2, 3, 4)}
    assert versions == {1: None, 2: uid(10), 3: uid(11), 4: None}
    assert (await named("a", 2), await named("a", 3)) == (uid(10), None)
    assert await named() == uid(11)  # one that waits, before newer ones
    assert await named(tenant="beta") == uid(14)
    await put_wait(runtime, "acme", 15, 2, 3)
    assert await named() == uid(15)


@pytest.mark.req("V-13")
async def test_whose_run_began_what_has_a_key_outside(runtime: Any) -> None:
    await two_tenants(runtime)
    for run, (tenant, key) in enumerate(
        (("acme", "case:1"), ("beta", "case:1"), ("acme", "case:2"), ("beta", "case:2"))
    ):
        await put_run(runtime.database, tenant, run)
        kind = "external" if run in (1, 2) else "signal"
        await put_wait(runtime, tenant, 10 + run, run, 1, kind=kind, correlation_key=key)
    async with runtime.database.connection() as connection:
        found = [await inbox.tenant_of(connection, key) for key in ("case:1", "case:2", "case:3")]
    assert found == ["beta", "acme", None]


@pytest.mark.req("P-11")
async def test_a_notification_is_one_of_its_tenant_source_and_id(runtime: Any) -> None:
    await two_tenants(runtime)
    every = [("acme", "s", "1"), ("beta", "s", "1"), ("acme", "t", "1"), ("acme", "s", "2")]
    async with runtime.database.connection() as connection:
        for one in every:
            assert await inbox.record(connection, *one, {"of": list(one)}, "k")
            assert not await inbox.record(connection, *one, {"of": "another"})
        await inbox.reserve_for(connection, *every[0], {"run": None})
        await inbox.processed(connection, *every[0], {"done": 1})
        await inbox.processed(connection, *every[0], {"done": 2})
        await inbox.reserve_for(connection, *every[0], {"run": "later"})
        await inbox.empty(connection, *every[3])
        told = [await inbox.read(connection, *one) for one in every]
        assert await inbox.read(connection, "beta", "t", "1") is None
    facts = [(one.payload, one.result, one.correlation_key, one.processed) for one in told if one]
    assert facts == [
        ({"of": ["acme", "s", "1"]}, {"done": 1}, "k", True),
        ({"of": ["beta", "s", "1"]}, None, "k", False),
        ({"of": ["acme", "t", "1"]}, None, "k", False),
        ({}, None, "k", False),
    ]


async def test_the_times_of_a_wait_are_its_own(runtime: Any) -> None:
    await two_tenants(runtime)
    began, due = ago(hours=3), ago(hours=2)
    await put_wait(runtime, "acme", 1, 1, 5)
    await put_wait(runtime, "acme", 2, 1, 0, created_at=began, due_at=due)
    async with runtime.database.connection() as connection:
        times = await inbox.times_of(connection, uid(2))
    assert times[:2] == (began, due)
    assert abs(times[2] - ago()) < timedelta(minutes=5)


@pytest.mark.req("X-5")
async def test_of_events_that_could_start_nothing_the_newest_reason_of_each_workflow_is_told(runtime: Any) -> None:
    await two_tenants(runtime)
    streams = dict(await read(runtime.database, "SELECT tenant_id, stream_id FROM tenants"))
    told = [
        ("acme", 500, "w", "one", "old"),
        ("acme", 999, "v", "two", "of v"),
        ("acme", 1000, "w", "three", "new"),
        ("beta", 0, "w", "one", "of another tenant"),
    ]
    for tenant, seq, workflow, event, reason in told:
        line = f'{{"actor":{{"id":"sn"}},"data":{{"event":"{event}","name":"{workflow}"}}}}'.encode()
        row = {"stream_id": streams[tenant], "seq": seq, "type": "workflow.unstarted", "line": line, "hash": ""}
        await put(runtime.database, "audit_events", tenant, **row)
        beside = {"workflow": "x", "version": 1, "reason": "told in a line of its own"}
        result = {"unstarted": [beside, {"workflow": workflow, "version": seq + 1, "reason": reason}]}
        came = ago(hours=10 - seq / 1000)
        notice = {"source": "servicenow:sn", "notification_id": event, "result": result, "received_at": came}
        await put(runtime.database, "inbox", tenant, **notice)
        published = {"digest": event, "source": "s", "operations": {}, "published_by": "p"}
        await put(runtime.database, "workflows", tenant, name=workflow, version=seq + 1, **published)
    await runtime.execute("UPDATE tenants SET audit_count = 1001")

    async def unstarted(tenant: str) -> list[tuple[Any, ...]]:
        async with runtime.database.connection() as connection:
            return [one[:3] for one in await inbox.unstarted(connection, tenant)]

    assert await unstarted("acme") == [("v", 1000, "of v"), ("w", 1001, "new")]
    assert await unstarted("beta") == []  # too long ago: 1000 lines have come since
    await runtime.execute("UPDATE tenants SET audit_count = 1000")
    assert await unstarted("beta") == [("w", 1, "of another tenant")]
