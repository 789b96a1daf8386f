"""The tenant's stream over HTTP and on the command line, and bundles that are another run's (U-8)."""

from __future__ import annotations

from typing import Any

import pytest

from app.access import Role
from tests.support.trouble import Forger


@pytest.mark.req("U-8")
async def test_an_auditor_reads_the_tenant_s_events_in_pages_whose_stream_was_verified(installation: Any) -> None:
    client = await installation.client(Role.AUDITOR, subject="aud")
    admin = await installation.client(Role.OPERATOR, subject="ops")
    for path in ("/v1/pauses", "/v1/pauses/resume"):
        answer = await admin.post(path, json={"what": "tenant", "reason": "why"})
        assert answer.status_code == 200, answer.text
    asked = {
        (): {"pause.set", "pause.lifted"},
        (("type", "pause.set"),): {"pause.set"},
        (("person", "ops"), ("type", "pause.lifted")): {"pause.lifted"},
        (("person", "nobody"),): set(),
        (("since", "2999-01-01T00:00:00Z"),): set(),
        (("until", "1999-01-01T00:00:00Z"),): set(),
    }
    for wanted, kinds in asked.items():
        found, cursor, lines = list[Any](), "", 0
        while cursor is not None:
            page = (await client.get("/v1/audit", params=[*wanted, ("limit", 1), ("cursor", cursor)])).json()
            assert page["verified"]["lines"] > lines, "each read is an event"
            found, cursor, lines = found + page["items"], page["next"], page["verified"]["lines"]
        assert {event["type"] for event in found} & {"pause.set", "pause.lifted"} == kinds
        assert [event["seq"] for event in found] == sorted({event["seq"] for event in found}, reverse=True)
        assert kinds or not found
    for refused, status in ({"type": "pause"}, 400), ({"since": "2026-01-01T00:00:00"}, 422), ({"cursor": "x"}, 400):
        assert (await client.get("/v1/audit", params=refused)).status_code == status
    assert (await admin.get("/v1/audit")).status_code == 403
    read = await installation.tenant_events("evidence.read")
    assert {(event["actor"]["id"], event["data"]["what"]) for event in read} == {("aud", "tenant")}


@pytest.mark.tampers
@pytest.mark.req("U-8")
async def test_only_the_bundle_that_was_asked_for_is_handed_out(installation: Any) -> None:
    one, other = [await installation.start("simple", number) for number in ("INC1", "INC2")]
    await installation.work()
    client = await installation.client(Role.AUDITOR)
    await Forger(installation.settings.database_url.get_secret_value()).foreign_bundle(one, other)
    answer = await client.get(f"/v1/runs/{one}/evidence")
    assert (answer.status_code, answer.json()["code"]) == (409, "consistency")
    assert (await client.get(f"/v1/runs/{other}/evidence")).status_code == 200
    assert len(await installation.tenant_events("evidence.exported")) == 1
