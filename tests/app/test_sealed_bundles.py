"""Evidence of a run that goes on, and the leaf of the tenant's log that seals a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app import logbook, sealing
from core.errors import ConsistencyError, InputError, NotFoundError
from evidence.chain import Actor
from evidence.layout import LEAF, PROOF
from evidence.log.notes import NoteKey
from evidence.log.rings import Ring
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.log_signing import LogSigner

ACTOR = Actor("person", "aud")


async def signed(installation: Any) -> Ring:
    settings = installation.settings
    private = FileSigner.load_or_create(settings.log_key_path)
    key = logbook.note_key(settings, private)
    for _ in range(2):
        await installation.app.sweeper().sweep()
    await LogSigner(installation.engine, key, private, logbook.memory_of(settings), settings.log_path).turn(["default"])
    return logbook.ring_of(settings)


async def so_far(installation: Any, run_id: UUID, path: Path) -> str:
    made, seal = await sealing.so_far(installation.settings, installation.engine, "default", run_id, ACTOR)
    for end, data in (("", made.bytes), (LEAF, seal.leaf.bytes), (PROOF, seal.proof)):
        path.with_name(path.name + end).write_bytes(data)
    return str(seal.leaf.kind)


@pytest.mark.req("U-8")
async def test_a_run_that_waits_for_people_has_evidence_sealed_by_its_last_leaf(
    installation: Any, tmp_path: Path
) -> None:
    run_id, approval, nonce = await installation.asked()
    path = tmp_path / "so-far.zip"
    with pytest.raises(ConsistencyError, match="no signed leaf"):
        await so_far(installation, run_id, path)
    ring = await signed(installation)
    kind = await so_far(installation, run_id, path)
    assert kind in ("parked", "moved")
    assert not verify_bundle(path).ok, "it is no evidence of a run that has ended"
    assert verify_bundle(path, require_final=False).ok
    found = sealing.logged(path, ring, (), 0)
    assert (found["run"], found["log"]) == (str(run_id), "counterseal/default")
    # A leaf of another bundle, a changed one, another log, a witness that is wanted: each is refused.
    other, beside = tmp_path / "other.zip", path.with_name(path.name + LEAF)
    second, _, _ = await installation.asked("INC2")
    await signed(installation)
    await so_far(installation, second, other)
    leaf = beside.read_bytes()
    stranger = NoteKey("witness.example", ring.first.kind, ring.first.key)
    for data in (other.with_name(other.name + LEAF).read_bytes(), leaf.replace(b'"ts":"2', b'"ts":"3')):
        beside.write_bytes(data)
        with pytest.raises(InputError):
            sealing.logged(path, ring, (), 0)
    beside.write_bytes(leaf)
    for trusted, witnesses, quorum in ((Ring(ring.first.renamed("another")), (), 0), (ring, (stranger,), 1)):
        with pytest.raises(InputError):
            sealing.logged(path, trusted, witnesses, quorum)
    # The run moves on, and ends.
    assert (await installation.slack(installation.click(approval, nonce))).status_code == 200
    with pytest.raises(ConsistencyError, match="no signed leaf"):
        await so_far(installation, run_id, path)
    await installation.work()
    await signed(installation)
    with pytest.raises(ConsistencyError, match="Leave out"):
        await so_far(installation, run_id, path)
    bundled = len(await installation.books.lines(run_id))
    assert str((await sealing.leaf_of(installation.engine, "default", run_id, bundled)).leaf.kind) == "closed"
    with pytest.raises(ConsistencyError, match="no signed leaf"):
        await sealing.leaf_of(installation.engine, "default", run_id, bundled + 1)
    with pytest.raises(NotFoundError):
        sealing.logged(tmp_path / "nothing.zip", ring, (), 0)
    exported = await installation.tenant_events("evidence.exported")
    assert [event["data"]["what"] for event in exported] == ["so far", "so far"]
