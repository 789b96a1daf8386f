"""The reasons that people give are bound by the chain, stand in the bundle, and go with the run's payloads."""

from __future__ import annotations

import json
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from approvals.model import Choice, VoteChannel
from evidence.bundle import assemble
from evidence.chain import Actor, timestamp
from evidence.commitments import opening, path_of, reason_path
from evidence.files import FileBlobStore
from evidence.layout import VALUES
from evidence.opened import Opened
from evidence.signing import FileSigner
from evidence.verify import verify_bundle, verify_unsigned
from runtime.keep.bundling import Bundling, content_of
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.steering import cancel_run
from runtime.requests.voting import VoteRequest, Voting
from tests.support.tampering import Tampering

NOTE = "the-note-of-a-person"
GATE = """
workflow: asks
version: 1
reference: ${{ trigger.name }}
retention: P30D
steps:
  - id: ok
    approve: {summary: Go on?, approvers: {group: owners}, quorum: 2}
"""
MAIL = (
    "workflow: mails\nversion: 1\nretention: P30D\nsteps:\n  - {id: mail, do: probe.mail.send, with: {text: hello}}\n"
)


class Desk:
    """The runtime with people and a bundler."""

    def __init__(self, runtime: Any, folder: Path) -> None:
        self.runtime, self.folder = runtime, folder
        self.signer = FileSigner.load_or_create(folder / "key.pem")
        self.bundling = Bundling(FileBlobStore(folder / "blobs"), self.signer, "test", runtime.definitions)
        self.dispatcher = Dispatcher(runtime.database, self.bundling.handlers(), "d")

    async def start(self, text: str, name: str) -> UUID:
        await self.runtime.tenant()
        await self.runtime.policy()
        await self.runtime.publish(text)
        for person in ("ana", "ben"):
            await self.runtime.person(person, ("owners", "operators"))
        run_id: UUID = (await self.runtime.start(name, {"name": "INC1"})).run_id
        return run_id

    async def vote(self, person: str, choice: str, reason: str) -> Any:
        approval = await self.runtime.question()
        request = VoteRequest("acme", approval, person, Choice(choice), reason, VoteChannel.HTTP)
        return await Voting(self.runtime.faces, self.runtime.definitions).vote(request)

    async def bundle(self) -> None:
        await self.runtime.worker().work_off()
        await self.runtime.trouble.drop_messages_except("bundle")
        await self.dispatcher.work_off()

    async def files(self, run_id: UUID) -> dict[str, bytes]:
        """The files of the stored bundle, after it was verified."""
        await self.bundle()
        bundle = await self.runtime.books.bundle(run=run_id)
        path = self.folder / "blobs" / bundle.uri.removeprefix("file:")
        verification = verify_bundle(path)
        assert verification.ok, verification.to_text()
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        return {**files, "values": path.with_name(path.name + VALUES).read_bytes()}

    async def forged(self, run_id: UUID, reason: str, voter: str) -> dict[str, str]:
        """The failed checks of a bundle that shows another reason of this voter, or of the cancel by them."""
        async with self.runtime.database.transaction() as connection:
            material = await self.bundling.material(connection, "acme", run_id)
        content, key, shown = content_of(material, "test"), material.book.row["run_key"], dict[int, Opened]()
        for told in material.book.events:
            event: Any = told.event
            if told.actor.id == voter and event.TYPE in ("approval.voted", "run.canceled"):
                path = path_of("cancel", "reason")
                if event.TYPE == "approval.voted":
                    path = reason_path(str(event.approval), voter, timestamp(told.at))
                shown[told.seq or 0] = Opened(told.seq or 0, [opening(key, path, reason)])
        shown = {one.seq: one for one in content.opened} | shown
        content = replace(content, opened=[shown[seq] for seq in sorted(shown)])
        made = assemble(content, self.signer.public_key)
        with closing(made.files):
            return {
                row.check: row.detail
                for row in verify_unsigned(made.files, made.statement, attachments=made.attachments).failed
            }


@pytest.fixture
def desk(runtime: Any, tmp_path: Path) -> Desk:
    return Desk(runtime, tmp_path)


def opened_in(files: dict[str, bytes], path: str) -> list[Any]:
    """The values that the sidecar opens under paths with such an end, in the order of their events."""
    lines = [json.loads(line)["opened"] for line in files["values"].splitlines()]
    return [value for shown in lines for _, place, value in shown if place.endswith(path)]


def votes_in(files: dict[str, bytes]) -> list[tuple[str, bool]]:
    """The voters, and whether the chain commits to a reason of theirs."""
    (told,) = [json.loads(line) for line in files["approvals.jsonl"].splitlines()]
    return [(vote["voter"], vote["reason"] is not None) for vote in told["votes"]]


async def test_the_reason_of_a_rejection_stands_in_the_bundle_and_the_chain_commits_to_it(desk: Desk) -> None:
    run_id = await desk.start(GATE, "asks")
    await desk.runtime.worker().work_off()
    assert (await desk.vote("ana", "approve", "")).counted
    assert (await desk.vote("ben", "reject", NOTE)).status == "rejected"
    without, with_reason = await desk.runtime.books.events(run_id, type="approval.voted")
    assert "committed" not in without.data
    ((path, _),) = with_reason.data["committed"]
    assert path.endswith(f"/vote/ben/{with_reason.ts}/reason")
    files = await desk.files(run_id)
    assert (votes_in(files), opened_in(files, "/reason")) == ([("ana", False), ("ben", True)], [NOTE])
    assert NOTE.encode() not in files["events.jsonl"]


@pytest.mark.parametrize("reason", ["it was fine", "-"])
async def test_a_changed_reason_does_not_verify(desk: Desk, reason: str) -> None:
    run_id = await desk.start(GATE, "asks")
    await desk.runtime.worker().work_off()
    await desk.vote("ana", "reject", NOTE)
    await desk.runtime.worker().work_off()
    assert await desk.forged(run_id, NOTE, "ana") == {}
    assert "nothing in its line commits" in (await desk.forged(run_id, reason, "ana"))["values"]


async def test_a_reason_that_nobody_gave_does_not_verify(desk: Desk) -> None:
    run_id = await desk.start(GATE, "asks")
    await desk.runtime.worker().work_off()
    for person in ("ana", "ben"):
        await desk.vote(person, "approve", "")
    await desk.runtime.worker().work_off()
    assert "nothing in its line" in (await desk.forged(run_id, "the boss said so", "ben"))["values"]


async def test_of_a_vote_that_its_voter_replaced_only_the_commitment_is_left(desk: Desk) -> None:
    run_id = await desk.start(GATE, "asks")
    await desk.runtime.worker().work_off()
    await desk.vote("ana", "approve", "looks right")
    await desk.vote("ana", "reject", NOTE)
    files = await desk.files(run_id)
    assert (votes_in(files), opened_in(files, "/reason")) == ([("ana", True), ("ana", True)], [NOTE])
    voted = await desk.runtime.books.events(run_id, type="approval.voted")
    assert [len(event.data["committed"]) for event in voted] == [1, 1]


async def test_the_note_about_what_became_of_an_action_stands_in_the_bundle(desk: Desk, gate: Any) -> None:
    run_id = await desk.start(MAIL, "mails")
    await desk.runtime.crash(gate, "probe.mail.send")
    await desk.runtime.worker().work_off()
    assert (await desk.vote("ana", "happened", NOTE)).counted
    assert opened_in(await desk.files(run_id), "/reason") == [NOTE]


async def cancel(desk: Desk, run_id: UUID, reason: str) -> None:
    async with desk.runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, desk.runtime.definitions, "acme", run_id, Actor("person", "ana"), reason)


async def test_the_reason_of_a_cancel_stands_in_the_bundle(desk: Desk) -> None:
    run_id = await desk.start(GATE, "asks")
    await desk.runtime.worker().work_off()
    await cancel(desk, run_id, NOTE)
    files = await desk.files(run_id)
    canceled = json.loads(files["run.json"])["canceled"]
    assert (canceled["by"], opened_in(files, "/cancel/reason")) == ("ana", [NOTE])
    assert NOTE.encode() not in files["events.jsonl"]


async def test_a_cancel_that_waits_for_an_action_keeps_the_first_reason(desk: Desk, gate: Any) -> None:
    run_id = await desk.start(MAIL, "mails")
    desk.runtime.outside.gates["probe.mail.send"] = gate
    async with desk.runtime.working():
        await gate.reached.wait()
        await cancel(desk, run_id, NOTE)
        await cancel(desk, run_id, "another")
        gate.opened.set()
        await desk.runtime.until(lambda: desk.runtime.books.runs(status="canceled"))
    files = await desk.files(run_id)
    canceled = json.loads(files["run.json"])["canceled"]
    assert (canceled["by"], opened_in(files, "/cancel/reason")) == ("ana", [NOTE])
    lines = [json.loads(line) for line in files["events.jsonl"].splitlines()]
    committed = [bool(line["data"].get("committed")) for line in lines if line["type"] == "run.canceled"]
    assert committed == [True, False]


async def test_a_changed_reason_of_a_cancel_does_not_verify(desk: Desk) -> None:
    run_id = await desk.start(GATE, "asks")
    await desk.runtime.worker().work_off()
    await cancel(desk, run_id, NOTE)
    assert await desk.forged(run_id, NOTE, "ana") == {}
    assert "nothing in its line commits" in (await desk.forged(run_id, "no reason", "ana"))["values"]


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("what", ["reason", "cancel"])
async def test_a_reason_that_is_changed_where_it_is_stored_is_not_signed(
    desk: Desk, database_url: str, what: str
) -> None:
    run_id = await desk.start(GATE, "asks")
    await desk.runtime.worker().work_off()
    if what == "reason":
        await desk.vote("ana", "reject", NOTE)
        await Tampering(database_url).vote_reason("")
    else:
        await cancel(desk, run_id, NOTE)
        await Tampering(database_url).cancel_reason("no reason")
    await desk.bundle()
    assert await desk.runtime.books.bundles() == []
    (refused,) = await desk.runtime.books.audit(type="evidence.failed")
    assert refused.data["checks"] == ["approvals" if what == "reason" else "run"]


@pytest.mark.req("X-20")
@pytest.mark.parametrize("kind", ["gate", "doubt", "cancel"])
async def test_retention_takes_the_reasons_along(desk: Desk, gate: Any, kind: str) -> None:
    run_id = await desk.start(MAIL if kind == "doubt" else GATE, "mails" if kind == "doubt" else "asks")
    if kind == "doubt":
        await desk.runtime.crash(gate, "probe.mail.send")
    await desk.runtime.worker().work_off()
    if kind == "cancel":
        await cancel(desk, run_id, NOTE)
    else:
        await desk.vote("ana", "happened" if kind == "doubt" else "reject", NOTE)
    await desk.files(run_id)
    await desk.runtime.trouble.make_purge_due()
    assert await desk.runtime.sweep() == 1
    assert await desk.runtime.books.mentions(NOTE) == set()
