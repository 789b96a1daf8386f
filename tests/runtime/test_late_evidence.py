"""Late answers show everywhere: on the card, and in a later edition of the evidence; after retention too."""

from __future__ import annotations

import asyncio
import zipfile
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import Status, Verification, verify_bundle
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.voting import Voting
from runtime.store import bundles, faces, read_models
from tests.support.outside import Gate

WORKFLOW = """
workflow: w
version: 1
reference: ${{ run.id }}
retention: P30D
steps:
  - {id: a, do: probe.mail.send, with: {text: hello}}
"""
ASKS = """
policy: asks
version: 1
rules:
  - id: people
    match: {connector: probe}
    outcome: needs_approval
    approvers: [{group: operators, of: 1}]
    expires: PT8H
    because: People look at mail.
"""
SAYS = "A late answer: attempt 1 happened (e1). It counts as failed."


class Archive:
    """The runtime with a bundler, and a run that was given up while its one call hangs at a stalled worker."""

    def __init__(self, runtime: Any, folder: Path) -> None:
        self.runtime, self.folder = runtime, folder
        self.signer = FileSigner.load_or_create(folder / "key.pem")
        bundling = Bundling(FileBlobStore(folder / "blobs"), self.signer, "test", runtime.definitions)
        self.dispatcher = Dispatcher(runtime.database, bundling.handlers(), "d")
        self.gate = Gate(after_effect=True)

    async def given_up(self) -> UUID:
        runtime = self.runtime
        await runtime.tenant()
        await runtime.policy(ASKS)
        await runtime.publish(WORKFLOW)
        await runtime.person("olga", ("operators",))
        run_id: UUID = (await runtime.start("w")).run_id
        await runtime.worker().work_off()
        assert (await runtime.vote("olga", "approve")).counted
        runtime.outside.gates["probe.mail.send"] = self.gate
        self.slow = asyncio.create_task(runtime.worker("slow").work_off())
        await asyncio.wait_for(self.gate.reached.wait(), 60)
        await runtime.trouble.expire_leases()
        await runtime.time_passes()
        assert await runtime.sweep() == 1
        await runtime.worker("fast").work_off()
        assert (await runtime.vote("olga", "fail")).counted
        await runtime.worker("fast").work_off()
        assert await runtime.status(run_id) == "failed_terminal"
        return run_id

    async def answered(self) -> None:
        """The late answer comes, and is told."""
        self.gate.opened.set()
        await self.slow

    async def bundle(self) -> None:
        await self.runtime.trouble.drop_messages_except("bundle", "step")
        await self.dispatcher.work_off()

    def path(self, bundle: Any) -> Path:
        return self.folder / "blobs" / str(bundle.uri).removeprefix("file:")

    def verified(self, bundle: Any) -> Verification:
        key = self.folder / "public.pem"
        key.write_bytes(self.signer.public_key.pem)
        return verify_bundle(self.path(bundle), public_key=key)

    def file(self, bundle: Any, name: str) -> bytes:
        with zipfile.ZipFile(self.path(bundle)) as archive:
            return archive.read(name)

    def events(self, bundle: Any) -> bytes:
        return self.file(bundle, "events.jsonl")

    async def shown(self, run_id: UUID) -> Any:
        async with self.runtime.faces.transaction("acme") as connection:
            return await read_models.run(connection, "acme", run_id)


@pytest.fixture
async def archive(runtime: Any, tmp_path: Path) -> Archive:
    return Archive(runtime, tmp_path)


@pytest.mark.req("Q-21")
async def test_a_later_edition_continues_the_one_before_and_says_what_contradicts_it(archive: Archive) -> None:
    run_id = await archive.given_up()
    await archive.bundle()
    (first,) = await archive.runtime.books.bundles(run=run_id)
    closed = await archive.runtime.books.run(run_id)
    assert closed.purge_at is not None
    await archive.answered()
    now = await archive.runtime.books.run(run_id)
    assert (now.purge_at, now.finished_at, now.error) == (closed.purge_at, closed.finished_at, closed.error)
    await archive.bundle()
    before, after = await archive.runtime.books.bundles(run=run_id)
    assert before == first
    assert archive.events(after).startswith(archive.events(before))
    assert archive.events(after).count(b"\n") == archive.events(before).count(b"\n") + 1
    for edition in (before, after):
        assert archive.verified(edition).ok, archive.verified(edition).to_text()
        (receipts,) = [row for row in archive.verified(edition).rows if row.check == "receipts"]
        assert receipts.detail == "1 receipts agree with the events"  # bound by its digest, not by its id alone
    assert archive.file(before, "run.json") == archive.file(after, "run.json")
    assert "late answers" not in [row.check for row in archive.verified(before).rows]
    (row,) = [row for row in archive.verified(after).rows if row.check == "late answers"]
    assert (row.status, row.detail) == (
        Status.WARNING,
        "attempt 1 of probe.mail.send: succeeded. It counts as failed.",
    )
    row = await archive.shown(run_id)
    assert row["bundle"]["sha256"] == after.sha256
    assert row["editions"] == [before.name, after.name]
    assert row["evidence_problem"] is None


async def test_evidence_that_was_not_written_yet_is_written_once_with_the_late_answer(archive: Archive) -> None:
    run_id = await archive.given_up()
    await archive.answered()
    await archive.bundle()
    (only,) = await archive.runtime.books.bundles(run=run_id)
    assert archive.verified(only).ok
    assert b"action.late" in archive.events(only)


async def test_the_cards_of_its_action_say_it_and_are_redrawn(archive: Archive) -> None:
    await archive.given_up()
    await archive.runtime.trouble.drop_messages_except("bundle", "step")
    await archive.answered()
    cards = await archive.runtime.books.commands(kind="card", status="pending")
    asked = await archive.runtime.books.approvals()
    assert [approval.kind for approval in asked] == ["action", "in_doubt"]
    assert {UUID(card.payload["approval"]) for card in cards} == {approval.id for approval in asked}
    voting = Voting(archive.runtime.faces, archive.runtime.definitions)
    for approval in asked:
        view = await voting.view("acme", approval.id)
        assert view.late == SAYS


async def test_retention_waits_for_the_later_edition(archive: Archive) -> None:
    run_id = await archive.given_up()
    await archive.bundle()
    await archive.answered()
    await archive.runtime.trouble.drop_messages("bundle", "card", "note")
    await archive.runtime.trouble.make_purge_due(run_id)
    assert await archive.runtime.sweep() == 0
    async with archive.runtime.database.connection() as connection:
        assert (await bundles.state(connection, "acme", run_id))["bundled"] is False
        await faces.order_message(connection, "acme", run_id, "bundle", {})
    await archive.bundle()
    assert await archive.runtime.sweep() == 1
    receipt = await archive.runtime.books.receipt()
    assert receipt.status == "failed"


async def test_after_retention_the_fact_goes_to_the_tenants_audit(archive: Archive) -> None:
    run_id = await archive.given_up()
    await archive.bundle()
    await archive.runtime.trouble.drop_messages("card", "note")
    await archive.runtime.trouble.make_purge_due(run_id)
    assert await archive.runtime.sweep() == 1
    before = await archive.runtime.books.run(run_id)
    await archive.answered()
    assert await archive.runtime.books.run(run_id) == before
    (told,) = await archive.runtime.books.tenant_events("acme", type="action.late")
    assert (told.data["run"], told.data["known"], told.actor["id"]) == (str(run_id), "succeeded", "slow")
    assert told.data.keys() == {"run", "receipt", "attempt", "epoch", "known", "sent", "answered"}  # and no value
