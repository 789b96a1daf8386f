"""Warn mode (X-2): what is invalid at a start is recorded with place and reason, and shown wherever people look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import definitions
from app.access import Role
from app.doctor import State, examine
from connectors.port import Connectors
from core.errors import ConsistencyError
from runtime.store import documents, replication

BROKEN = "workflow: broken\nversion: 1\nsteps:\n  - {id: a, do: probe.effect.aply, with: {name: x}}\n"
WHOLE = BROKEN.replace("aply", "apply")


def lay(folder: Path, text: str) -> Path:
    (folder / "workflows").mkdir(exist_ok=True)
    (folder / "workflows" / "broken.yaml").write_text(text)
    return folder / "workflows" / "broken.yaml"


@pytest.mark.req("X-2")
async def test_what_is_invalid_is_marked_unavailable_and_shown(installation: Any, definitions_dir: Path) -> None:
    path = lay(definitions_dir, BROKEN)
    faces, tenant = installation.app.faces, installation.settings.tenant
    await definitions.prepare(faces, Connectors({"probe": installation.app.outsides.given.connectors["probe"]}))
    client = await installation.client(Role.ADMIN, Role.OPERATOR)
    listed = (await client.get("/v1/workflows")).json()["unavailable"]
    (one,) = [each for each in listed if each["name"] == "broken"]
    assert (one["kind"], one["place"]) == ("workflow", str(path))
    assert f"{path}:4:" in one["reason"]
    assert "probe.effect.apply" in one["reason"], "the remedy, too"
    started = await client.post("/v1/runs", json={"workflow": "broken", "idempotency_key": "1"})
    assert started.status_code == 409
    assert "unavailable since the last start" in started.text
    assert str(path) in started.text
    found = [check for check in await examine(installation.settings) if check.what == "unavailable workflow broken"]
    assert [check.state for check in found] == [State.BROKEN]
    lay(definitions_dir, WHOLE)
    await definitions.prepare(faces)
    async with faces.database.transaction(tenant) as connection:
        assert await replication.listed(connection, tenant, "workflow", "broken") == []
        assert (await documents.startable_workflow(connection, tenant, "broken", None)).version == 1


@pytest.mark.req("X-2")
async def test_what_is_published_since_is_available(installation: Any, definitions_dir: Path) -> None:
    lay(definitions_dir, BROKEN)
    faces, tenant = installation.app.faces, installation.settings.tenant
    await definitions.prepare(faces)
    async with faces.database.transaction(tenant) as connection:
        with pytest.raises(ConsistencyError, match="unavailable since the last start"):
            await documents.startable_workflow(connection, tenant, "broken", None)
    client = await installation.client(Role.ADMIN)
    assert (await client.post("/v1/workflows", json={"source": WHOLE})).status_code == 201
    assert [one["name"] for one in (await client.get("/v1/workflows")).json()["unavailable"]] == []


@pytest.mark.req("V-2")
async def test_a_wait_is_put_off_over_http_or_the_answer_says_why_not(installation: Any) -> None:
    client = await installation.client(Role.TRIGGER)
    nobody = await client.post("/v1/signals/nobody%2Fx/extend", json={"for": "P1D"})
    assert nobody.status_code == 404
    for body in (
        {},
        {"for": "P1D", "until": "2030-01-01T00:00:00Z"},
        {"for": "soon"},
        {"until": "2030-01-01T00:00:00"},
    ):
        answer = await client.post("/v1/signals/nobody/extend", json=body)
        assert answer.status_code in (400, 422), (body, answer.text)
    assert (await (await installation.client()).post("/v1/signals/x/extend", json={"for": "P1D"})).status_code == 401
