"""Records as steps read them: literal rows of two tenants, whole answers at each side of a page's end."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.store import records
from tests.support.rows import put

# The rows are of no book.
pytestmark = [pytest.mark.tampers, pytest.mark.req("P-7")]


async def kept(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")
    rows = [("acme", "cases", key, number) for number, key in enumerate(("a", "B", "b", "c"), 1)]
    rows += [("acme", "notes", "a", 7), ("beta", "cases", "a", 8), ("beta", "cases", "d", 9)]
    for tenant, collection, key, number in rows:
        value = {"n": number, "odd": number % 2 == 1}
        row = {"collection": collection, "key": key, "value": value, "version": 10 + number, "run_id": 1}
        await put(runtime.database, "records", tenant, **row)


async def asked(runtime: Any, function: str, tenant: str = "acme", **values: Any) -> Any:
    return await records.read(runtime.database, tenant, function, {"collection": "cases", **values})


def shown(*found: tuple[str, int], truncated: bool = False) -> dict[str, Any]:
    rows = [{"key": key, "value": {"n": n, "odd": n % 2 == 1}, "version": 10 + n} for key, n in found]
    return {"records": rows, "truncated": truncated}


ALL = (("B", 2), ("a", 1), ("b", 3), ("c", 4))


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, shown(*ALL)),
        ({"limit": 3}, shown(*ALL[:3], truncated=True)),
        ({"limit": 4}, shown(*ALL)),
        ({"limit": 5}, shown(*ALL)),
        ({"after": "a"}, shown(*ALL[2:])),
        ({"after": "a", "limit": 2}, shown(*ALL[2:])),
        ({"after": "a", "limit": 1}, shown(ALL[2], truncated=True)),
        ({"after": "c"}, shown()),
        ({"where": {"odd": True}}, shown(("a", 1), ("b", 3))),
        ({"where": {"odd": True}, "limit": 1}, shown(("a", 1), truncated=True)),
        ({"where": {"odd": True, "n": 3}}, shown(("b", 3))),
        ({"where": {"odd": True, "n": 3, "more": 1}}, shown()),
        ({"collection": "notes"}, shown(("a", 7))),
        ({"collection": "none"}, shown()),
    ],
)
async def test_records_come_in_pages_of_one_collection_by_their_keys(runtime: Any, values: Any, wanted: Any) -> None:
    await kept(runtime)
    assert await asked(runtime, "query", **values) == wanted


async def test_one_record_is_read_with_its_version(runtime: Any) -> None:
    await kept(runtime)
    assert await asked(runtime, "get", key="a") == {"found": True, "value": {"n": 1, "odd": True}, "version": 11}
    assert await asked(runtime, "get", "beta", key="a") == {
        "found": True, "value": {"n": 8, "odd": False}, "version": 18,
    }  # fmt: skip
    for values in ({"key": "d"}, {"key": "A"}, {"key": "b", "collection": "notes"}):
        assert await asked(runtime, "get", **values) == {"found": False, "value": None, "version": None}
    assert (await asked(runtime, "query", "beta"))["records"] == shown(("a", 8), ("d", 9))["records"]
