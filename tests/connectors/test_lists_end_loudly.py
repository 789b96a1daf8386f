"""A list comes to its end, or says that it is truncated: whatever a system caps, hides or leaves unordered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from connectors.catalog import Catalog
from connectors.port import Done
from connectors.servicenow import listing
from connectors.servicenow.client import BasicAuth, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from core.canonical import VALUE_BYTES_MAX, canonical_bytes
from sandbox.servicenow_access import INTEGRATION_USER
from sandbox.world import SandboxConfig, World, sandbox_world
from tests.support.calls import Call
from tests.support.connectors_sql import call, database, declared, outside, sql

__all__ = ["database", "declared", "outside", "sql"]
KEY = "0" * 64
QUERY = {"table": "u_right", "query": "user=cara"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with sandbox_world(SandboxConfig()) as made:
        yield made


@pytest.fixture
def rights(world: World, catalog: Catalog, closing: Callable[[Any], Any]) -> Callable[..., Any]:
    """List the rights of a leaver who has so many, of so many bytes each."""
    settings = ServiceNowSettings(world.urls()["servicenow"], BasicAuth(INTEGRATION_USER, "sandbox"))
    connector = closing(ServiceNowConnector(settings))

    async def listed(count: int, size: int = 0, **more: Any) -> Any:
        for number in range(count):
            # Neither the order of writing nor that of the names is the order of the ids.
            row = {
                "sys_id": f"{number * 7919 % 100_003:032x}",
                "user": "cara",
                "name": f"r{number}",
                "note": "x" * size,
            }
            world.servicenow.state.seed("u_right", row)
        done = await connector.perform(Call("servicenow.record.query", QUERY | more, KEY, 30.0))
        assert isinstance(done, Done), done
        assert canonical_bytes(done.output).__len__() <= VALUE_BYTES_MAX
        return done.output

    return listed


@pytest.mark.parametrize("cap", [10_000, 250, 100, 37, 1])
@pytest.mark.parametrize("count", [0, 1, 100, 120, 250, 251])
async def test_every_row_comes_once_however_the_instance_caps(rights: Any, world: World, cap: int, count: int) -> None:
    world.servicenow.list_max = cap
    if cap == 1:
        count = min(count, 20)
    found = await rights(count, fields=["name"])
    assert sorted(row["name"] for row in found["records"]) == sorted(f"r{number}" for number in range(count))
    assert (found["count"], found["total"], found["truncated"]) == (count, count, False)
    assert all(row.keys() == {"name"} for row in found["records"])


@pytest.mark.parametrize(
    ("more", "count", "truncated"),
    [
        ({"limit": 5}, 5, True),
        ({"limit": 120}, 120, False),
        ({"limit": 300}, 120, False),
        ({"offset": 100}, 20, False),
        ({"offset": 100, "limit": 5}, 5, True),
        ({"offset": 200}, 0, False),
    ],
)
async def test_a_limit_says_whether_there_is_more(rights: Any, more: Any, count: int, truncated: bool) -> None:
    found = await rights(120, **more)
    assert (found["count"], found["truncated"], found["total"]) == (count, truncated, 120)


async def test_a_capped_page_of_a_limit_says_that_there_is_more(rights: Any, world: World) -> None:
    world.servicenow.list_max = 50
    found = await rights(120, limit=100)
    assert (found["count"], found["truncated"]) == (50, True)


async def test_rows_that_our_user_may_not_see_are_counted(rights: Any, world: World) -> None:
    """The instance filters each page by its rules after it has counted: pages come short, and even empty."""
    world.servicenow.hides = lambda row: int(row["name"][1:]) >= 5
    found = await rights(600)
    assert (found["count"], found["total"], found["truncated"]) == (5, 600, True)


@pytest.mark.parametrize(("count", "size"), [(1001, 2000), (300, 5000)])
async def test_more_than_one_output_can_hold_says_so(rights: Any, count: int, size: int) -> None:
    found = await rights(count, size)
    assert found["truncated"]
    assert 0 < found["count"] < found["total"] == count


async def test_more_than_the_limit_of_all_lists_says_so(rights: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "ROWS_MAX", 300)
    found = await rights(301, fields=["name"])
    assert (found["count"], found["total"], found["truncated"]) == (300, 301, True)


async def test_rows_of_a_table_come_to_the_end_or_say_so(sql: Any, declared: Catalog, database: Any) -> None:
    for count, shown in ((120, 120), (1000, 1000), (1001, 1000)):
        await database.execute("DELETE FROM crm.customers")
        await database.execute(
            "INSERT INTO crm.customers (id, status) SELECT n, 'new' FROM generate_series(1, $1::int) n", count
        )
        done = await sql.perform(call(declared, "select", status="new"))
        assert (done.output["count"], done.output["truncated"]) == (shown, shown < count)
