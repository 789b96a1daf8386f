"""Evidence over HTTP: what is downloaded is what was stored, and every download is on record (U-8)."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from app.access import Role
from core.canonical import digest
from evidence.opened import digest_of
from evidence.verify import verify_bundle
from tests.support.trouble import Forger


@pytest.mark.req("U-8")
async def test_an_auditor_downloads_a_bundle_that_verifies(installation: Any, tmp_path: Path) -> None:
    run_id = await installation.start("simple")
    await installation.work()
    client = await installation.client(Role.AUDITOR, subject="aud")
    answer = await client.get(f"/v1/runs/{run_id}/evidence")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    digest = hashlib.sha256(answer.content)
    assert answer.headers["etag"] == f'"{digest.hexdigest()}"'
    assert answer.headers["content-digest"] == f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"
    assert answer.headers["cache-control"] == "private, no-store"
    bundle = await installation.books.bundle(run=run_id)
    assert bundle.sha256 == digest.hexdigest()
    assert bundle.name in answer.headers["content-disposition"]
    path, key = tmp_path / "bundle.zip", tmp_path / "key.pem"
    path.write_bytes(answer.content)
    key.write_bytes(installation.app.outsides.signer.public_key.pem)
    result = verify_bundle(path, public_key=key)
    assert result.ok, result.to_text()
    (event,) = await installation.tenant_events("evidence.exported")
    assert event["actor"] == {"kind": "token", "id": "aud"}
    assert event["data"] == {"run": str(run_id), "sha256": digest.hexdigest()}


@pytest.mark.req("Q-4")
@pytest.mark.req("X-5")
async def test_a_bundle_shows_business_state_and_what_was_attempted(installation: Any) -> None:
    run_id = await installation.start("simple")
    await installation.work()
    client = await installation.client(Role.AUDITOR)
    with zipfile.ZipFile(io.BytesIO((await client.get(f"/v1/runs/{run_id}/evidence")).content)) as archive:
        lines, attempts, opened = (
            [json.loads(line) for line in archive.read(f"{name}.jsonl").splitlines()]
            for name in ("events", "attempts", "disclosures")
        )
    values = await client.get(f"/v1/runs/{run_id}/evidence/values")
    opened += [json.loads(line) for line in values.content.splitlines()]
    (attempt,) = attempts
    line, listed = lines[attempt["seq"]], {one["seq"]: one["values"] for one in opened}
    assert (line["type"], line["data"]["receipt"]) == ("action.intended", attempt["receipt"])
    place = f"/{digest_of(line)}"
    assert digest([[place + path, commitment] for path, commitment in listed[attempt["seq"]]]) == line["data"]["values"]
    assert {"/target", "/proposed/input", "/key"} <= {path for path, _ in listed[attempt["seq"]]}
    (done,) = [seq for seq, one in enumerate(lines) if one["type"] == "step.succeeded"]
    assert any(path.startswith("/output") for path, _ in listed[done])


async def test_evidence_of_a_run_that_has_not_ended_is_409(installation: Any) -> None:
    run_id, _, _ = await installation.asked()
    client = await installation.client(Role.AUDITOR)
    answer = await client.get(f"/v1/runs/{run_id}/evidence")
    assert (answer.status_code, answer.json()["code"]) == (409, "unfinished")


@pytest.mark.req("U-8")
async def test_a_run_that_was_canceled_has_evidence_as_any_other_that_has_ended(installation: Any) -> None:
    run_id, _, _ = await installation.asked()
    operator = await installation.client(Role.OPERATOR)
    assert (await operator.post(f"/v1/runs/{run_id}/cancel", json={})).status_code == 200
    await installation.work()
    client = await installation.client(Role.AUDITOR)
    answer = await client.get(f"/v1/runs/{run_id}/evidence")
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert json.loads(archive.read("run.json"))["status"] == "canceled"


async def test_evidence_that_is_not_written_yet_is_409_for_a_moment(installation: Any) -> None:
    run_id = await installation.start("simple")
    await installation.app.worker().work_off()
    client = await installation.client(Role.ADMIN)
    answer = await client.get(f"/v1/runs/{run_id}/evidence")
    assert (answer.status_code, answer.json()["code"]) == (409, "being_written")
    assert answer.headers["retry-after"] == "1"
    await installation.app.dispatcher().work_off()
    assert (await client.get(f"/v1/runs/{run_id}/evidence")).status_code == 200


async def test_a_bundle_that_was_changed_on_disk_is_not_handed_out(installation: Any) -> None:
    run_id = await installation.start("simple")
    await installation.work()
    (path,) = installation.settings.evidence_path.rglob("*.zip")
    path.chmod(0o600)
    path.write_bytes(path.read_bytes() + b"x")
    client = await installation.client(Role.AUDITOR)
    answer = await client.get(f"/v1/runs/{run_id}/evidence")
    assert (answer.status_code, answer.json()["code"]) == (409, "consistency")
    assert await installation.tenant_events("evidence.exported") == []


async def test_evidence_that_cannot_be_recorded_is_not_handed_out(installation: Any) -> None:
    run_id = await installation.start("simple")
    await installation.work()
    client = await installation.client(Role.AUDITOR)
    assert installation.settings.database_url is not None
    await Forger(installation.settings.database_url.get_secret_value()).refuse_audit()
    answer = await client.get(f"/v1/runs/{run_id}/evidence")
    assert answer.status_code == 500
    assert b"PK" not in answer.content


@pytest.mark.req("U-8")
async def test_reading_a_run_s_audit_is_on_record_and_reading_of_nothing_is_not(installation: Any) -> None:
    run_id = await installation.start("simple")
    await installation.work()
    client = await installation.client(Role.AUDITOR, subject="aud")
    assert (await client.get(f"/v1/runs/{run_id}/audit")).status_code == 200
    read = [(event["actor"], event["data"]) for event in await installation.tenant_events("evidence.read")]
    assert read == [({"kind": "token", "id": "aud"}, {"run": str(run_id), "what": "audit"})]
    assert (await client.get("/v1/runs/01890000-0000-7000-8000-000000000002/audit")).status_code == 404
    assert len(await installation.tenant_events("evidence.read")) == 1
