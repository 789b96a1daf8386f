"""Corrections of forms: whoever gave an entry corrects it before it is used, and no stranger does."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app.access import Role
from evidence.chain import Actor
from evidence.verify import verify_bundle
from runtime.requests import policies

pytestmark = pytest.mark.req("U-8")
TESTER = Actor("test", "tester")
PEOPLE = """
directory: tests
version: 5
people:
  - {id: ann, name: Ann}
  - {id: bob, name: Bob}
  - {id: eve, name: Eve}
  - {id: tess, name: Tess}
groups: {leads: [ann, tess], desk: [bob]}
"""
WORKFLOW = """
workflow: filled
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: form, task: {title: T, assign: {group: desk}, form: {type: object, properties: {x: {type: string}}}}}
  - {id: danger, do: probe.danger.hand, with: {name: x, fields: {owner: "${{ steps.form.output.x }}"}}}
"""
POLICY = """
policy: tests
version: 2
rules:
  - {id: dangers, match: {operation: probe.danger.hand}, outcome: needs_approval, approvers: [{group: leads}]ALLOW}
"""


@pytest.mark.parametrize("allow", ["", ", allow: [form_filler, requester]"])
async def test_whoever_filled_in_a_form_corrects_what_comes_of_it_until_it_is_decided(
    installation: Any, tmp_path: Path, allow: str
) -> None:
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        named = (connection, faces.definitions, "default")
        await policies.publish_policy(*named, POLICY.replace("ALLOW", allow), "policy", TESTER)
    tokens = {one: await installation.token(Role.APPROVER, Role.TRIGGER, subject=one) for one in ("ann", "bob", "tess")}
    await installation.people(PEOPLE)
    await installation.add(WORKFLOW)
    tokens["eve"] = await installation.token(Role.APPROVER, subject="eve")
    client = await installation.client()

    async def post(who: str, path: str, body: Any) -> Any:
        return await client.post(path, json=body, headers={"Authorization": f"Bearer {tokens[who]}"})

    started = await post("tess", "/v1/runs", {"workflow": "filled", "input": {"number": "1"}})
    run = UUID(started.json()["run_id"])
    await installation.work()
    task = (await installation.books.wait(run=run, kind="task", open=True)).id
    assert (await post("bob", f"/v1/tasks/{task}/complete", {"value": {"x": "wrogn"}})).is_success
    await installation.work()
    asked = (await installation.books.approval(run=run, open=True)).id
    assert (await post("eve", f"/v1/approvals/{asked}/edit", {"values": {"owner": "x"}})).status_code == 403
    edited = await post("bob", f"/v1/approvals/{asked}/edit", {"values": {"owner": "right"}})
    assert edited.json()["code"] == "edited", edited.text
    await installation.work()
    anew = (await installation.books.approval(run=run, open=True)).id
    refused = await post("bob", f"/v1/approvals/{anew}/votes", {"choice": "approve"})
    assert refused.status_code == 403, "an editor does not decide"
    assert (await post("ann", f"/v1/approvals/{anew}/votes", {"choice": "approve"})).json()["counted"]
    await installation.work()
    assert [one.input["fields"]["owner"] for one in installation.outside.effects] == ["right"]
    auditor = await installation.client(Role.AUDITOR)
    path, key = tmp_path / "bundle.zip", tmp_path / "key.pem"
    path.write_bytes((await auditor.get(f"/v1/runs/{run}/evidence")).content)
    key.write_bytes((await faces.outside("default")).signer.public_key.pem)
    assert verify_bundle(path, public_key=key).ok
