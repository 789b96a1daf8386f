"""Pages that faces show of runs, among literal rows of two tenants, past the rights of the faces' role."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from approvals.model import TaskState
from runtime.store import read_models, tasks
from runtime.store.read_models import RunFilter
from tests.support.rows import ago, put, put_run, uid

# The rows are of no book.
pytestmark = pytest.mark.tampers

MIDNIGHT = datetime(2026, 11, 1, tzinfo=UTC)


def at(minute: int) -> datetime:
    return MIDNIGHT + timedelta(minutes=minute)


async def two_tenants(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")


def numbers(rows: Any, name: str = "run_id") -> list[int]:
    return [row[name].int for row in rows]


async def put_runs(runtime: Any) -> None:
    """Write runs with two that began in one moment."""
    await two_tenants(runtime)
    rows: list[tuple[str, int, dict[str, Any]]] = [
        ("acme", 0, {"status": "failed"}), ("acme", 5, {}), ("acme", 5, {"workflow": "v"}), ("beta", 6, {}),
        ("acme", 7, {"reference": "x"}), ("acme", 1, {"status": "failed", "reference": "xy", "workflow": "vw"}),
    ]  # fmt: skip
    for number, (tenant, minute, row) in enumerate(rows, 1):
        await put_run(runtime.database, tenant, number, created_at=at(minute), **row)


async def test_runs_come_newest_first_and_pages_neither_skip_nor_repeat(runtime: Any) -> None:
    await put_runs(runtime)
    async with runtime.database.connection() as connection:

        async def page(limit: int, *after: Any, tenant: str = "acme", **wanted: str) -> list[Any]:
            return await read_models.runs_page(connection, tenant, RunFilter(**wanted), limit, *after)

        assert numbers(await page(9)) == [5, 3, 2, 6, 1]
        first = await page(2)
        second = await page(2, first[-1]["created_at"], first[-1]["run_id"])
        third = await page(2, second[-1]["created_at"], second[-1]["run_id"])
        assert [numbers(each) for each in (first, second, third)] == [[5, 3], [2, 6], [1]]
        assert await page(2, third[-1]["created_at"], third[-1]["run_id"]) == []
        assert numbers(await page(9, tenant="beta")) == [4]
        assert numbers(await page(9, status="failed")) == [6, 1]
        assert numbers(await page(9, workflow="v")) == [3]
        assert numbers(await page(9, reference="x")) == [5]
        assert numbers(await page(9, reference="x", workflow="v")) == []
        assert dict(await read_models.run_counts(connection, "acme", 9)) == {"waiting": 3, "failed": 2}
        assert dict(await read_models.run_counts(connection, "acme", 4)) == {"waiting": 3, "failed": 1}
        assert dict(await read_models.run_counts(connection, "beta", 9)) == {"waiting": 1}


async def test_a_run_is_shown_with_its_children_its_editions_and_what_it_waits_for(runtime: Any) -> None:
    await two_tenants(runtime)
    await put_run(runtime.database, "acme", 1, audit_count=9)
    for number, minute in ((13, 1), (12, 1), (11, 2)):
        await put_run(runtime.database, "acme", number, parent_run_id=1, created_at=at(minute))
    await put_run(runtime.database, "acme", 14, parent_run_id=2)
    for lines, name in ((5, "first"), (7, "second")):
        stored = {"uri": f"at {name}", "sha256": name * 2, "bytes": lines}
        await put(runtime.database, "bundles", "acme", run_id=1, lines=lines, name=name, **stored)
    await put(runtime.database, "bundles", "acme", run_id=2, lines=8, name="of another")
    problems = [("bundle", "failed", "the newest"), ("bundle", "pending", None), ("card", "failed", "a card's")]
    for number, (kind, status, error) in enumerate(problems, 5):
        row = {"run_id": 1, "kind": kind, "status": status, "last_error": error}
        await put(runtime.database, "commands", "acme", command_id=number, **row)
    older = {"run_id": 1, "kind": "bundle", "status": "failed", "last_error": "older"}
    await put(runtime.database, "commands", "acme", command_id=4, **older)
    theirs = {**older, "run_id": 2, "last_error": "of another run"}
    await put(runtime.database, "commands", "acme", command_id=9, **theirs)
    async with runtime.database.connection() as connection:
        assert await read_models.run(connection, "beta", uid(1)) is None
        found = await read_models.run(connection, "acme", uid(1))
        assert found is not None
        shown = {name: found[name] for name in ("children_count", "editions", "evidence_problem", "waiting_for")}
        assert shown == {
            "children_count": 3, "editions": ["first", "second"], "evidence_problem": "the newest", "waiting_for": None
        }  # fmt: skip
        assert found["children"] == [uid(12), uid(13), uid(11)]
        assert found["bundle"] == {"name": "second", "uri": "at second", "sha256": "secondsecond", "bytes": 7}
        place = await read_models.bundle(connection, "acme", uid(1))
        assert place is not None
        assert (place["name"], place["bytes"]) == ("second", 7)
        assert await read_models.bundle(connection, "beta", uid(1)) is None
        await put(runtime.database, "bundles", "acme", run_id=1, lines=9, name="last")
        found = await read_models.run(connection, "acme", uid(1))
        assert found is not None
        assert (found["bundle"]["name"], found["evidence_problem"]) == ("last", None)


@pytest.mark.req("V-6")
async def test_an_open_run_waits_for_more_steps_when_nothing_else_is_left_to_wait_for(runtime: Any) -> None:
    await two_tenants(runtime)
    later = {"open_until": ago(hours=-1)}
    rows: list[dict[str, Any]] = [later, later, {**later, "executing": 1}, {**later, "status": "failed"}, {}, later]
    for number, row in enumerate(rows, 1):
        await put_run(runtime.database, "acme", number, **row)
    for run, status in ((2, "waiting"), (6, "completed")):
        await put(runtime.database, "waits", "acme", wait_id=run, run_id=run, status=status)
    async with runtime.database.connection() as connection:
        found = [await read_models.run(connection, "acme", uid(number)) for number in range(1, 7)]
    assert [one and one["waiting_for"] for one in found] == ["more steps", None, None, None, None, "more steps"]


async def test_waits_come_oldest_first_and_pages_neither_skip_nor_repeat(runtime: Any) -> None:
    await two_tenants(runtime)
    for number, minute in ((1, 3), (2, 2), (3, 2), (4, 1), (5, 0)):
        row = {"wait_id": number, "run_id": 1, "created_at": at(minute), "status": "completed" if number == 4 else ""}
        await put(runtime.database, "waits", "beta" if number == 5 else "acme", **row)
    async with runtime.database.connection() as connection:

        async def page(limit: int, *after: Any, ids: tuple[int, ...] = (1, 2, 3, 4, 5)) -> list[Any]:
            return await read_models.waits_page(connection, "acme", [uid(one) for one in ids], limit, *after)

        first = await page(2)
        second = await page(2, first[-1]["created_at"], first[-1]["wait_id"])
        assert [numbers(each, "wait_id") for each in (first, second)] == [[4, 2], [3, 1]]
        assert numbers(await page(9, ids=(1, 4)), "wait_id") == [4, 1]


@pytest.mark.req("P-7")
async def test_lines_of_a_book_come_from_wherever_they_are_asked_for(runtime: Any) -> None:
    await two_tenants(runtime)
    appends = {1: (0, "abc"), 2: (3, "d"), 3: (4, "ef")}
    for n, (first, kinds) in appends.items():
        lines = b"\n".join(b'{"type":"%s"}' % kind.encode() for kind in kinds)
        await put(runtime.database, "journal", "acme", run_id=1, n=n, first_seq=first, lines=lines)
    await put(runtime.database, "journal", "acme", run_id=2, n=1, lines=b"not JSON")
    async with runtime.database.connection() as connection:

        async def lines_of(limit: int, after: int = -1, run: int = 1, tenant: str = "acme") -> list[tuple[Any, ...]]:
            found = await read_models.audit_page(connection, tenant, uid(run), limit, after)
            return [(line["seq"], line["append"], line["type"]) for line in found]

        every = [(0, 1, "a"), (1, 1, "b"), (2, 1, "c"), (3, 2, "d"), (4, 3, "e"), (5, 3, "f")]
        assert await lines_of(9) == every
        assert [await lines_of(2, after) for after in range(-1, 6)] == [every[n : n + 2] for n in range(7)]
        assert await lines_of(9, run=2) == [(0, 1, "unreadable")]
        assert await lines_of(9, tenant="beta") == []


@pytest.mark.req("V-4")
async def test_policies_are_listed_newest_first_with_those_that_judge(runtime: Any) -> None:
    await two_tenants(runtime)
    rows = [("acme", "d2", "p", 2, 5), ("acme", "d1", "p", 1, 4), ("acme", "d0", "q", 1, 4), ("beta", "d2", "p", 2, 9)]
    for tenant, digest, name, version, minute in rows:
        text = {"source": "", "published_by": "ann", "published_at": at(minute)}
        await put(runtime.database, "policies", tenant, digest=digest, name=name, version=version, **text)
    await runtime.execute("UPDATE tenants SET policy_digests = '{d0,d2}' WHERE tenant_id = 'acme'")
    async with runtime.database.connection() as connection:
        found = [await read_models.policy_versions(connection, tenant) for tenant in ("acme", "beta")]
    listed = [[(one["name"], one["version"], one["active"]) for one in each] for each in found]
    assert listed == [[("p", 2, True), ("q", 1, True), ("p", 1, False)], [("p", 2, False)]]


@pytest.mark.req("X-9")
async def test_tasks_come_in_pages_of_one_state_and_one_group(runtime: Any) -> None:
    await two_tenants(runtime)
    await put_run(runtime.database, "acme", 1, reference="order 7")
    await put_run(runtime.database, "beta", 2)
    for tenant, person, name in (("acme", "ann", "Ann A."), ("beta", "ann", "Another Ann"), ("acme", "bob", "Bob")):
        await put(runtime.database, "people", tenant, person_id=person, name=name)
    for tenant, group in (("acme", "desk"), ("acme", "owners"), ("beta", "thieves")):
        await put(runtime.database, "group_members", tenant, group_name=group, person_id="ann")
    form = {"type": "object", "properties": {"b": {}, "a": {}}}
    rows: list[tuple[str, str, dict[str, Any]]] = [
        ("waiting", "desk", {"due_at": at(9), "channel": "C", "message_ts": "1.2"}),
        ("completed", "desk", {"result": {"by": "person:ann", "output": {"a": 1}}}),
        ("waiting", "desk-night", {}), ("timed_out", "desk", {}), ("waiting", "desk", {"kind": "signal"}),
        ("waiting", "desk", {"run_id": 2}), ("waiting", "desk", {}),
    ]  # fmt: skip
    for number, (status, group, more) in enumerate(rows, 1):
        context = {"title": f"T{number}", "description": "d", "form": form, "fields": ["b", "a"], "group": group}
        row = {"wait_id": number, "run_id": 1, "kind": "task", "status": status, "context": context, **more}
        await put(runtime.database, "waits", "beta" if row["run_id"] == 2 else "acme", **row)
    async with runtime.database.connection() as connection:

        async def page(limit: int, after: int = 0, state: Any = None, group: str | None = None) -> list[int]:
            found = await tasks.page(connection, "acme", limit, uid(after), state=state, group=group)
            return [UUID(str(one.view.task_id)).int for one in found]

        assert await page(9) == [1, 2, 3, 4, 7]
        assert (await page(2), await page(2, 2), await page(2, 4)) == ([1, 2], [3, 4], [7])
        assert await page(9, state=TaskState.OPEN) == [1, 3, 7]
        assert await page(9, state=TaskState.OPEN, group="desk") == [1, 7]
        assert await page(9, state=TaskState.COMPLETED) == [2]
        assert await page(9, state=TaskState.EXPIRED) == [4]
        one, two = [await tasks.read(connection, uid(number), "ann") for number in (1, 2)]
        stranger, nobody = await tasks.read(connection, uid(1), "eve"), await tasks.read(connection, uid(1), "bob")
    assert (one.groups, stranger.groups, nobody.groups) == ({"desk", "owners"}, None, set())
    assert one.message is not None
    assert (one.message.channel, one.message.ts, two.message) == ("C", "1.2", None)
    assert (two.by, two.view.completed_by, two.value) == ("person:ann", "Ann A.", {"a": 1})
    assert (one.view.reference, one.view.due_at, two.view.due_at) == ("order 7", "2026-11-01T00:09:00+00:00", "")
    assert list(one.view.form["properties"]) == ["b", "a"]
