"""Open waits are listed with whom they wait for: at every door in the same words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.access import Role
from app.console.health import WAITING_SHOWN
from app.http.dependencies import LIMIT_MAX
from tests.support.browsing import Browser
from tests.support.trouble import Forger

pytestmark = pytest.mark.req("X-5")

FLOWS = """
workflow: naps
version: 1
reference: ${{ trigger.number }}
steps: [{id: nap, wait: {for: PT1H}}]
---
workflow: many
version: 1
reference: ${{ trigger.number }}
steps:
  - id: each
    foreach: ${{ [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] }}
    max_parallel: 20
    steps: [{id: hear, wait: {signal: shipped, correlate: "A${{ string(item) }}"}, timeout: P1D}]
"""


async def _browser(installation: Any, tenant: str = "default") -> Browser:
    return await Browser.logged_in(installation, await installation.token(Role.OPERATOR, subject="ann", tenant=tenant))


async def test_every_door_names_the_longest_wait_first_and_in_the_same_words(
    installation: Any, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in FLOWS.split("---"):
        await installation.add(text)
    nap = await installation.parked("naps", "INC1")
    run_id, approval, _ = await installation.asked("INC2")
    client = await installation.client(Role.AUDITOR)
    first, second = (await client.get("/v1/waiting")).json()["items"]
    assert [first["run_id"], second["run_id"]] == [str(nap), str(run_id)]
    assert second["waits_for"] == "1 of leads (Ann, Bob)"
    assert second["command"] == f"counterseal approval show {approval}"
    assert first["command"] == f"counterseal why {nap}"
    capsys.readouterr()  # the installation's own log
    said = await asyncio.to_thread(command.json, "waiting")
    same = ("waits_for", "run_id", "reference", "step_key", "kind", "command")
    assert [{name: row[name] for name in same} for row in said] == [
        {name: row[name] for name in same} for row in (first, second)
    ]
    page = (await (await _browser(installation)).get("/health")).text
    where = [page.index(f"/runs/{nap}"), page.index(first["waits_for"]), page.index(f"/runs/{run_id}")]
    assert where == sorted(where)
    assert second["waits_for"] in page
    read = [one["data"] for one in await installation.tenant_events("evidence.read")]
    assert [one["door"] for one in read if one["what"] == "waiting"] == ["http", "cli", "console"]


async def test_an_altered_question_does_not_hide_what_else_waits(installation: Any, database_url: str) -> None:
    first, _, _ = await installation.asked("INC1")
    second, _, _ = await installation.asked("INC2")
    await Forger(database_url).lost_values_of(first)
    rows = (await (await installation.client(Role.OPERATOR)).get("/v1/waiting")).json()["items"]
    assert [row["run_id"] for row in rows] == [str(first), str(second)]
    assert "somebody has changed what is stored" in rows[0]["waits_for"]
    assert rows[1]["waits_for"] == "1 of leads (Ann, Bob)"


async def test_no_tenant_sees_who_waits_at_another(installation: Any) -> None:
    await installation.asked("INC1")
    stranger = await installation.client(Role.ADMIN, tenant="other")
    assert (await stranger.get("/v1/waiting")).json() == {"items": [], "next": None}
    page = (await (await _browser(installation, "other")).get("/health")).text
    assert "INC1" not in page
    assert "Nothing waits." in page


async def test_the_list_is_cut_into_pages_and_each_wait_is_on_one(installation: Any) -> None:
    await installation.add(FLOWS.split("---")[1])
    await installation.parked("many", "INC1")
    client = await installation.client(Role.OPERATOR)
    whole = (await client.get("/v1/waiting", params={"limit": LIMIT_MAX})).json()["items"]
    assert len({row["waits_for"] for row in whole}) == WAITING_SHOWN + 1
    found, cursor = list[Any](), ""
    while cursor is not None:
        page = (await client.get("/v1/waiting", params={"limit": 4, "cursor": cursor})).json()
        assert len(page["items"]) <= 4
        found, cursor = [*found, *page["items"]], page["next"]
    assert found == whole
    refused = {"limit": str(LIMIT_MAX + 1), "cursor": "nonsense", "since": "2026-01-01", "status": "waiting"}
    for name, value in refused.items():
        assert (await client.get("/v1/waiting", params={name: value})).status_code in (400, 422), name
    shown = (await (await _browser(installation)).get("/health")).text
    assert [row["waits_for"] in shown for row in whole] == [True] * WAITING_SHOWN + [False]
    assert "counterseal waiting" in shown
