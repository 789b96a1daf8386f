"""The ServiceNow stand-in's page: what is there, and nothing that somebody wrote is markup."""

from __future__ import annotations

import httpx

from sandbox.world import World


async def test_the_page_shows_the_incidents_as_text(world: World, plain: httpx.AsyncClient) -> None:
    fields = {"short_description": "<script>alert(1)</script>", "impact": "1", "urgency": "1"}
    inserted = await plain.post(
        f"{world.servicenow.url}/_sandbox/records/incident", json={"user": "raj.quist", "fields": fields}
    )
    page = await plain.get(f"{world.servicenow.url}/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert inserted.json()["record"]["number"] in page.text
    assert "&lt;script&gt;alert(1)" in page.text
    assert "<script" not in page.text
    assert "1 - Critical" in page.text
