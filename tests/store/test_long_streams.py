"""A look at a long stream of a tenant holds a page of it and what it shows, and proves the whole all the same."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.events import EventType
from runtime.requests import auditing
from runtime.requests.auditing import EventFilter
from runtime.store import audit, streams
from runtime.store.offload import offload
from tests.support.runtime_stage import ACTOR


@pytest.mark.parametrize("page", [1, 4, 1000])
async def test_a_look_holds_no_more_rows_than_a_page(runtime: Any, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    await runtime.tenant()
    monkeypatch.setattr(streams, "PAGE", page)
    held = list[int]()

    async def counting(lines: int, *given: Any) -> Any:
        held.append(lines)
        return await offload(lines, *given)

    monkeypatch.setattr("runtime.store.streams.offload", counting)
    async with runtime.faces.transaction("acme") as connection:
        for number in range(9):
            await audit.record(connection, "acme", EventType.EVIDENCE_READ, ACTOR, {"what": f"card {number}"})
        whole = await streams.read(connection, "acme")
        held.clear()
        seen = await auditing.look(
            connection, "acme", EventFilter(type="evidence.read"), ACTOR, 3, before=whole.events[-1]["seq"]
        )
    assert [event["data"]["what"] for event in seen.events] == [f"card {number}" for number in (7, 6, 5)]
    assert seen.head == whole.head
    assert (sum(held), max(held) <= page) == (len(whole.events), True)
