"""False histories, each signed with the trusted key and free of contradictions: the verifier finds every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.canonical import JsonObject
from evidence.bundle import build_bundle
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling, content_of
from runtime.requests.steering import close_run
from tests.support.agents import ALLOW, Agents, agent, call, calls, says
from tests.support.forging import Forged
from tests.support.runtime_children import CHILD
from tests.support.runtime_stage import ACTOR

WHOLE = """
workflow: whole
version: 1
reference: ${{ run.id }}
steps:
  - {id: read, do: probe.value.read, with: {name: x}}
  - {id: ok, approve: {summary: Go on?, approvers: {group: owners}, quorum: 2}}
  - {id: raise, do: probe.record.update, with: {name: x, fields: {priority: "1"}}}
  - {id: put, do: probe.key.put, with: {name: x}}
  - {id: mail, do: probe.mail.send, with: {text: hello}}
  - {id: child, run: check, with: {name: ada}}
""" + agent().partition("steps:\n")[2].replace('    set: {found: "${{ output }}"}\n', "")
POLICY = ALLOW.replace("rules:\n", """rules:
  - id: raising
    match: {operation: probe.record.update}
    outcome: needs_approval
    approvers: [{group: owners}, {group: managers}]
    two_person: true
    fresh_for: P1D
    escalate: {after: PT6H, to: {group: chiefs}}
""")


@pytest.fixture
async def whole(agents: Agents, late_gate: Any, tmp_path: Path) -> tuple[bytes, FileSigner]:
    """The bundle of a run in which people, doubts, an agent, a child and an extension have their parts."""
    runtime: Any = agents.runtime
    read = call("probe_value_read", {"name": "y"})
    agents.model.turns = [calls(read), calls(call("probe_effect_apply", {"name": "z"})), says("done")]
    await runtime.tenant()
    await runtime.policy(POLICY)
    for person, groups in {
        "ana": ("owners", "managers"), "ben": ("owners",), "cara": ("managers",), "olga": ("operators",),
        "requester": ("owners", "chiefs"), "desk": ("desk",),
    }.items():  # fmt: skip
        await runtime.person(person, groups)
    await runtime.publish(CHILD, filled=False)
    await runtime.publish(WHOLE, filled=False)
    run = (await runtime.start("whole", {"text": "help"}, open=True)).run_id
    await runtime.worker().work_off()
    for people in (("ana", "ben"), ("ben", "cara")):
        for person in people:
            assert (await runtime.vote(person, "approve")).counted
        if people[1] == "ben":
            await runtime.worker().work_off()
    await runtime.crash(late_gate, "probe.mail.send")
    await runtime.worker().work_off()
    assert (await runtime.vote("olga", "happened")).counted
    await runtime.go_on()
    await runtime.extend(run, {"steps": [{"id": "more", "do": "probe.key.put", "with": {"name": "w"}}]})
    await runtime.go_on()
    async with runtime.faces.transaction("acme") as connection:
        await close_run(connection, runtime.definitions, "acme", run, ACTOR, "it is done")
    signer = FileSigner.load_or_create(tmp_path / "key.pem")
    making = Bundling(FileBlobStore(tmp_path), signer, "test", runtime.definitions)
    async with runtime.database.connection() as connection:
        material = await making.material(connection, "acme", run)
    return build_bundle(content_of(material, "test"), signer).bytes, signer


async def test_x(whole: Any, tmp_path: Path) -> None:
    data, signer = whole
    (tmp_path / "b.zip").write_bytes(data)
    open("/tmp/judge/whole.zip","wb").write(data)
    open("/tmp/judge/whole.pem","wb").write((tmp_path / "key.pem").read_bytes())
    made = Forged(data).sealed(signer)
    (tmp_path / "c.zip").write_bytes(made)
    print(verify_bundle(tmp_path / "c.zip").to_text())
    assert 0
