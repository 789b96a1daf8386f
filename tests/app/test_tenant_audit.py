"""The tenant's stream over HTTP and on the command line, and bundles that are another run's (U-8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.access import Role
from app.cli.outcome import Exit
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
    assert (answer.status_code, b"consistency" in answer.content) == (409, True)
    assert (await client.get(f"/v1/runs/{other}/evidence")).status_code == 200
    assert len(await installation.tenant_events("evidence.exported")) == 1


@pytest.mark.req("U-8")
def test_the_stream_and_a_past_directory_are_read_on_the_command_line(command: Any, tmp_path: Path) -> None:
    people, policy = tmp_path / "people.yaml", tmp_path / "policy.yaml"
    people.write_text("directory: d\npeople: [{id: zoe, name: Zoe}]\ngroups: {owners: [zoe]}\n")
    policy.write_text("policy: p\nversion: 1\nrules: [{id: no, match: {connector: records}, outcome: deny}]\n")
    command("directory", "publish", str(people))
    command("policy", "publish", str(policy))
    told = command.json("audit", "tenant", "--type", "policy.activated")
    (activated,) = told["items"]
    assert told["verified"]["lines"] > activated["seq"] > 0
    assert "policy.activated" in command("audit", "tenant", "--since", activated["ts"])
    assert command.json("audit", "tenant", "--until", "1999-01-01T00:00:00Z")["items"] == []
    then = command.json("directory", "show", "--at", activated["ts"])
    assert command.json("directory", "show", "--digest", then["digest"][:12]) == then
    assert {(one["since"], one["by"]) for one in then["members"]} == {(then["since"], then["by"])}
    assert all(one["person"] in command("directory", "show") for one in then["members"])
    for refused, code in (
        (("audit", "tenant", "--type", "pause"), Exit.INPUT),
        (("audit", "tenant", "--since", "yesterday"), Exit.INPUT),
        (("directory", "show", "--at", "1999-01-01T00:00:00Z"), Exit.CONFLICT),
        (("directory", "show", "--at", activated["ts"], "--digest", then["digest"]), Exit.INPUT),
    ):
        command(*refused, exit_code=code)
