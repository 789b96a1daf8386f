"""Lists over HTTP, walked page by page: each row once, in the order of the whole list."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from app.access import Role
from app.http.dependencies import Paging

pytestmark = pytest.mark.req("X-5")

BUSY = """
workflow: busy
version: 1
reference: ${{ trigger.number }}
channels: {log: {reduce: append, ledger: true}}
steps:
  - {id: one, do: probe.effect.apply, with: {name: one}, set: {log: one}}
  - {id: two, do: probe.effect.apply, with: {name: two}, set: {log: two}}
  - {id: said, wait: {signal: said, correlate: "${{ trigger.number }}"}}
  - {id: told, wait: {signal: told, correlate: "${{ trigger.number }}"}}
"""
MORE = {"steps": [{"id": "extra", "do": "probe.effect.apply", "with": {"name": "extra"}}]}
OF_A_RUN = ("steps", "checkpoints", "receipts", "timeline", "ledger", "audit", "mutations", "waits")


async def _walked(client: Any, path: str, limit: int) -> list[Any]:
    found, cursor = list[Any](), ""
    for _ in range(200):
        answer = await client.get(path, params={"limit": limit, "cursor": cursor})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["items"]) <= limit
        assert page["items"] or not cursor, f"{path} says that there is more, and there is nothing"
        found += page["items"]
        if page["next"] is None:
            return found
        cursor = page["next"]
    raise AssertionError(f"{path} has no end")


async def test_every_list_is_the_same_in_pages_of_one(installation: Any) -> None:
    await installation.add(BUSY)
    operator = await installation.client(Role.OPERATOR)
    run_id = await installation.start("busy", "A")
    await installation.work()
    for number in range(2):
        version = (await operator.get(f"/v1/runs/{run_id}")).headers["etag"]
        steps = [{**step, "id": f"extra{number}"} for step in MORE["steps"]]
        added = await operator.post(f"/v1/runs/{run_id}/steps", json={"steps": steps}, headers={"If-Match": version})
        assert added.status_code == 201, added.text
    await operator.post("/v1/signals/said:A", json={})
    await operator.post("/v1/signals/A", json={})
    await installation.work()
    for reference in ("Q", "R"):
        await installation.asked(reference)
    admin = await installation.client(Role.ADMIN)
    for path in ("/v1/runs", "/v1/approvals", *(f"/v1/runs/{run_id}/{part}" for part in OF_A_RUN)):
        whole = await _walked(admin, path, 200)
        assert len(whole) >= 2, path
        for limit in (1, 2):
            assert await _walked(admin, path, limit) == whole, path


def test_a_list_that_is_there_whole_is_cut_after_the_last_row_of_the_page_before() -> None:
    rows = [{"step": step, "number": number, "key": f"{step}.{number}"} for step in range(3) for number in range(2)]
    for limit, key in product(range(1, 8), ({"step": int, "number": int}, {"key": str})):
        found, cursor = list[Any](), ""
        while True:
            page = Paging(limit, cursor).page_of_all(rows, **key)
            assert page["items"], "the page before has said that there is more"
            found += page["items"]
            if page["next"] is None:
                break
            cursor = page["next"]
            assert len(found) < 7
        assert found == rows, limit
