"""Values stand in a sidecar: retention deletes it, and the bundle verifies as before and says that they are erased."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app import logbook, sealing
from app.access import Role
from evidence.bundle import Bundle
from evidence.layout import LEAF, PROOF, VALUES
from evidence.log.notes import NoteKey
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.log_signing import LogSigner
from tests.support.forging import laid
from tests.support.other_verifiers import row_by_each

NOTE = "the vendor's contract ends in May"
WORKFLOW = """
workflow: values
version: 1
reference: ${{ trigger.number }}
retention: P30D
steps:
  - {id: go, approve: {summary: "Change ${{ trigger.number }}?", approvers: {group: leads}}}
"""
OK, OPEN, FAILED = "ok", "not_proven", "failed"


class Case:
    """An installation whose runs end, are erased and are logged; one bundle with the files beside it."""

    def __init__(self, installation: Any, folder: Path) -> None:
        self.installation, self.folder = installation, folder
        self.path, self.key = folder / "bundle.zip", folder / "public.pem"
        self.signer = installation.app.outsides.signer
        self.key.write_bytes(self.signer.public_key.pem)
        self.private = FileSigner.load_or_create(installation.settings.log_key_path)
        self.log = logbook.note_key(installation.settings, self.private)

    async def ended(self, number: str) -> Any:
        run = await self.installation.parked("values", number)
        asked = await self.installation.books.approval(run=run)
        said = self.installation.submission(asked.id, asked.nonce, "reject", NOTE)
        assert (await self.installation.slack(said)).status_code == 200
        await self.installation.work()
        return run

    async def purged(self, run: Any) -> None:
        await self.installation.trouble.make_purge_due(run)
        await self.logged()

    async def logged(self) -> None:
        for _ in range(3):
            await self.installation.app.sweeper().sweep()
        settings = self.installation.settings
        given = (self.log, self.private, logbook.memory_of(settings), settings.log_path)
        await LogSigner(self.installation.engine, *given).turn(["default"])

    async def got(self, run: Any) -> Bundle:
        """The bundle and its values, over HTTP."""
        client = await self.installation.client(Role.AUDITOR)
        bundle, values = [await client.get(f"/v1/runs/{run}/evidence{end}") for end in ("", "/values")]
        assert (bundle.status_code, values.status_code in (200, 410)) == (200, True), values.text
        sidecar = values.content if values.status_code == 200 else None
        return Bundle(bundle.content, "", "", sidecar)

    async def proof(self, run: Any) -> dict[str, bytes]:
        lines = len(await self.installation.books.lines(run))
        seal = await sealing.leaf_of(self.installation.engine, "default", run, lines)
        return {LEAF: seal.leaf.bytes, PROOF: seal.proof}

    def said(self, bundle: Bundle, *disclosed: bytes, key: NoteKey | None = None, **beside: bytes) -> tuple[str, str]:
        """The status and the first word about values, by three verifiers that agree, also in their exit codes."""
        laid(self.path, bundle)
        for end in (LEAF, PROOF):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)
        for end, data in beside.items():
            self.path.with_name(self.path.name + end).write_bytes(data)
        files = [self.folder / f"{number}.jsonl" for number, _ in enumerate(disclosed)]
        for file, data in zip(files, disclosed, strict=True):
            file.write_bytes(data)
        keys = [] if key is None else [key]
        found = verify_bundle(self.path, public_key=self.key, disclosed=files, log_keys=keys)
        row = next(row for row in found.rows if row.check == "values")
        words = [word for file in files for word in ("--disclosed", str(file))]
        words += [word for each in keys for word in ("--log-key", each.text)]
        for code, status, detail in row_by_each(self.folder, self.key, self.path, "values", *words):
            assert (code, status) == (found.exit_code, row.status), (detail, found.to_text())
            assert detail == row.detail or status == FAILED
        assert (found.exit_code != 0) is bool(found.failed)
        return str(row.status), row.detail.split(":")[0]


@pytest.fixture
async def case(installation: Any, tmp_path: Path) -> Case:
    await installation.add(WORKFLOW)
    return Case(installation, tmp_path)


@pytest.mark.req("X-20")
async def test_disclosed_withheld_and_erased_are_three_words_and_only_the_log_proves_the_last(case: Case) -> None:
    one, other = await case.ended("INC1"), await case.ended("INC2")
    await case.logged()
    first, second, closed = await case.got(one), await case.got(other), await case.proof(one)
    assert NOTE.encode() not in first.bytes
    assert first.sidecar is not None
    assert NOTE.encode() in first.sidecar
    bare = replace(first, sidecar=None)
    for number, (wanted, given) in enumerate({
        (OK, "disclosed"): case.said(first), (OPEN, "withheld"): case.said(bare),
    }.items()):  # fmt: skip
        assert given == wanted, number
    assert case.said(bare, first.sidecar) == (OK, "disclosed"), "wherever it lies"
    # A stranger's sidecar, one that was changed, one that was made anew: the statement names another.
    changed = first.sidecar.replace(NOTE.encode(), NOTE.upper().encode())
    for sidecar in (second.sidecar, changed, b"", first.sidecar + b"{}\n", first.sidecar.splitlines(keepends=True)[0]):
        assert case.said(replace(first, sidecar=sidecar)) == (FAILED, "sidecar"), sidecar
    assert not verify_bundle(case.path, public_key=case.key).ok

    await case.purged(one)
    after, proof = await case.got(one), await case.proof(one)
    assert (after.bytes, after.sidecar) == (first.bytes, None), "the bundle stays, and the values are not handed out"
    store = case.installation.settings.evidence_path
    assert [path.parent.name for path in store.rglob(f"*{VALUES}")] == [str(other)], "only this run's are deleted"
    assert not any(NOTE.encode() in path.read_bytes() for path in (store / "default" / str(one)).rglob("*.*"))
    assert case.said(after, key=case.log, **proof) == (OK, "erased")
    claims = {LEAF: closed[LEAF].replace(b'"closed"', b'"erased"')}
    for wanted, given in [
        # Nobody has said which log is trusted; the run was not erased; there is no proof at all.
        ((OPEN, "withheld"), case.said(after, **proof)),
        ((OPEN, "withheld"), case.said(after, key=case.log, **closed)),
        ((OPEN, "withheld"), case.said(after, key=case.log)),
        # Another run's bundle with this leaf, a leaf made of that of its end, no proof, another log's key.
        ((FAILED, "sidecar"), case.said(replace(second, sidecar=None), key=case.log, **proof)),
        ((FAILED, "sidecar"), case.said(after, key=case.log, **closed | claims)),
        ((FAILED, "sidecar"), case.said(after, key=case.log, **{LEAF: proof[LEAF]})),
        ((FAILED, "sidecar"), case.said(after, key=case.log.renamed("another"), **proof)),
        ((FAILED, "sidecar"), case.said(after, key=case.log, **proof | {PROOF: closed[PROOF]})),
        ((FAILED, "sidecar"), case.said(replace(after, sidecar=b""), key=case.log, **proof)),
        # Somebody has kept a copy: the values are shown, and the erasure is told.
        ((OK, "disclosed"), case.said(first, key=case.log, **proof)),
    ]:  # fmt: skip
        assert given == wanted
