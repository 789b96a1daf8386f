"""Evidence that contradicts itself is not signed: the runtime verifies a bundle before it signs it, and says so."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from connectors.port import Refused
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.engine.book.recorded import Diverged
from runtime.keep.bundling import Bundling, write_again
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.voting import Voting
from runtime.store import approvals, read_models
from tests.support.runtime_stage import ALLOW_ALL
from tests.support.tampering import Tampering

RAISE = """
workflow: raise
version: 1
reference: ${{ trigger.name }}
retention: P30D
steps:
  - id: raise
    do: probe.record.update
    with: {name: "${{ trigger.name }}", fields: {priority: "1"}}
"""
ASK = """
policy: ask
version: 1
rules:
  - id: raising
    match: {operation: probe.record.update}
    outcome: needs_approval
    approvers: [{group: owners}]
    because: It wakes people up.
"""
DAY = timedelta(days=1)
UNDO = {"operation": "probe.record.update", "input": {}}
Way = Callable[[Tampering], Awaitable[None]]
# What somebody with the rights of the database's owner changes of the question while it is open.
BEFORE: dict[str, Way] = {
    "card": lambda tamper: tamper.told_value("shown", {"title": "Nothing happens"}),
    "requester": lambda tamper: tamper.told_value("requester", "somebody.else"),
    "approvers": lambda tamper: tamper.told_value("terms", {"approvers": [{"group": "friends", "of": 1}]}),
    "values": lambda tamper: tamper.lost_values(),
    "question": lambda tamper: tamper.lost_audit("approval.requested"),
    "place": lambda tamper: tamper.asked_elsewhere(),
}
# … and of the run when it is done, and the check that sees it.
AFTER: dict[str, tuple[Way, str]] = {
    "target": (lambda tamper: tamper.receipt_target("record/harmless"), "book"),
    "external id": (lambda tamper: tamper.external_id("e99"), "book"),
    "reverse": (lambda tamper: tamper.reverse(UNDO), "book"),
    "settled": (lambda tamper: tamper.settled_earlier(DAY), "chain"),
    "intended": (lambda tamper: tamper.intended_earlier(DAY), "chain"),
    "lost receipt": (lambda tamper: tamper.lost_receipt(), "chain"),
    "trigger": (lambda tamper: tamper.told_value("inputs", {"name": "INC2"}), "book"),
    "result": (lambda tamper: tamper.result("INC2"), "run"),
    "reason": (lambda tamper: tamper.vote_reason("I was made to"), "approvals"),
    "lost vote": (lambda tamper: tamper.lost_vote(), "approvals"),
    "answer": (lambda tamper: tamper.rejected(), "approvals"),
    "end": (lambda tamper: tamper.ended_otherwise(), "approvals"),
}


class Office:
    """The runtime with people and a bundler."""

    def __init__(self, runtime: Any, folder: Path, database_url: str) -> None:
        self.runtime, self.folder, self.tampering = runtime, folder, Tampering(database_url)
        bundling = Bundling(
            FileBlobStore(folder / "blobs"), FileSigner.load_or_create(folder / "key.pem"), "test", runtime.definitions
        )
        self.dispatcher = Dispatcher(runtime.database, bundling.handlers(), "d")

    async def asked(self) -> Any:
        await self.runtime.tenant()
        await self.runtime.policy(ASK)
        await self.runtime.publish(RAISE)
        for person in ("ana", "ben"):
            await self.runtime.person(person, ("owners", "friends"))
        run_id = (await self.runtime.start("raise", {"name": "INC1"})).run_id
        await self.runtime.worker().work_off()
        return run_id

    async def approved(self) -> None:
        assert (await self.runtime.vote("ana", "approve")).counted
        await self.runtime.worker().work_off()

    async def bundle(self) -> None:
        await self.runtime.trouble.drop_messages_except("bundle")
        await self.dispatcher.work_off()

    def blobs(self) -> list[Path]:
        return list((self.folder / "blobs").rglob("*.zip"))

    async def failures(self) -> list[dict[str, Any]]:
        return [event.data for event in await self.runtime.books.audit(type="evidence.failed")]


@pytest.fixture
def office(runtime: Any, tmp_path: Path, database_url: str) -> Office:
    return Office(runtime, tmp_path, database_url)


async def assert_refused(office: Office, run_id: Any, check: str, status: str = "succeeded") -> None:
    """Nothing is stored or signed; the command, the audit and the figures say why. Trying again would not help."""
    await office.bundle()
    assert await office.runtime.status(run_id) == status
    assert office.blobs() == []
    assert await office.runtime.books.bundles() == []
    command = await office.runtime.books.command(kind="bundle")
    assert (command.status, command.attempts) == ("failed", 1)
    assert check in command.last_error
    assert await office.failures() == [{"run": str(run_id), "checks": [check]}]


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("what", BEFORE)
async def test_a_question_that_was_altered_is_neither_shown_nor_decided(office: Office, what: str) -> None:
    run_id = await office.asked()
    (asked,) = await office.runtime.books.approvals()
    await BEFORE[what](office.tampering)
    voting = Voting(office.runtime.faces, office.runtime.definitions)
    with pytest.raises(Diverged):
        await voting.view("acme", asked.id)
    if what != "place":  # a vote looks for no place: it reads the question in the book of the run
        with pytest.raises(Diverged):
            await office.runtime.vote("ana", "approve", on=asked.id)
    async with office.runtime.faces.transaction("acme") as connection:
        with pytest.raises(Diverged):
            await approvals.approvals_page(connection, "acme", 10)
        with pytest.raises(Diverged):
            await approvals.approval(connection, "acme", asked.id)
    await office.runtime.worker().work_off()
    assert await office.runtime.status(run_id) == "waiting_approval"
    assert office.runtime.outside.effects == []
    if what == "place":  # what the book asks is what is decided: one vote of this person carries it
        assert (await office.runtime.vote("ana", "approve", on=asked.id)).counted
        assert (await office.runtime.books.approvals())[0].status == "approved"


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("what", AFTER)
async def test_what_was_altered_when_it_was_done_is_not_signed(office: Office, what: str) -> None:
    alter, check = AFTER[what]
    run_id = await office.asked()
    await office.approved()
    await alter(office.tampering)
    await assert_refused(office, run_id, check)


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
async def test_why_a_run_is_not_signed_is_said_whatever_became_of_others(office: Office) -> None:
    run_id = await office.asked()
    await office.approved()
    await office.tampering.result("INC2")
    await office.bundle()
    await office.runtime.policy(ALLOW_ALL)
    await office.runtime.start("raise", {"name": "INC3"}, ref="2")
    await office.runtime.worker().work_off()
    await office.bundle()
    assert len(await office.runtime.books.bundles()) == 1
    async with office.runtime.faces.transaction("acme") as connection:
        row = await read_models.run(connection, "acme", run_id)
    assert row is not None
    assert "result" in row["evidence_problem"]


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
async def test_a_truncated_chain_is_refused_once_and_for_all(office: Office) -> None:
    run_id = await office.asked()
    await office.approved()
    await office.tampering.lost_audit("run.closed")
    await assert_refused(office, run_id, "chain")


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
async def test_payloads_are_not_removed_while_the_evidence_contradicts_itself(office: Office) -> None:
    """Keep the payloads: without them nothing could be compared."""
    run_id = await office.asked()
    await office.approved()
    await office.tampering.receipt_target("record/harmless")
    await office.bundle()
    await office.runtime.trouble.make_purge_due()
    await office.runtime.sweep()
    assert (await office.runtime.books.run(run_id)).purged_at is None


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
async def test_once_the_rows_are_as_they_were_the_evidence_can_be_ordered_again(office: Office) -> None:
    run_id = await office.asked()
    await office.approved()
    await office.tampering.receipt_target("record/harmless")
    await office.bundle()
    await office.tampering.receipt_target("record/INC1")
    async with office.runtime.faces.transaction("acme") as connection:
        await write_again(connection, "acme", run_id)
    await office.dispatcher.work_off()
    (blob,) = office.blobs()
    assert verify_bundle(blob).ok


async def test_receipts_and_chain_tell_the_same_times(office: Office) -> None:
    run_id = await office.asked()
    await office.approved()
    receipt = await office.runtime.books.receipt(run=run_id)
    told = [event.ts for event in await office.runtime.books.events(run_id) if event.type.startswith("action.")]
    times = [receipt.intended_at, receipt.settled_at]
    assert told == [f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}Z" for at in times]


async def test_the_receipt_of_an_action_that_was_in_doubt_is_as_its_lines_left_it(office: Office, gate: Any) -> None:
    """Intended, in doubt, not applied, intended once more, succeeded: the times are of the last."""
    run_id = await office.asked()
    assert (await office.runtime.vote("ana", "approve")).counted
    await office.runtime.crash(gate, "INC1")
    await office.runtime.worker().work_off()
    assert await office.runtime.status(run_id) == "succeeded"
    assert "action.doubt_resolved" in await office.runtime.events(run_id)
    await office.bundle()
    (blob,) = office.blobs()
    verification = verify_bundle(blob)
    assert verification.ok, verification.to_text()
    with zipfile.ZipFile(blob) as archive:
        events, (receipt,) = (
            [json.loads(line) for line in archive.read(name).splitlines()]
            for name in ("events.jsonl", "receipts.jsonl")
        )
    lines = [events[seq] for seq in receipt["events"]]
    assert [line["type"].removeprefix("action.") for line in lines] == [
        "intended", "in_doubt", "doubt_resolved", "intended", "succeeded"
    ]  # fmt: skip
    assert {line["data"]["receipt"] for line in lines} == {receipt["receipt"]}
    assert (receipt["intended_at"], receipt["settled_at"], receipt["attempt"]) == (lines[3]["ts"], lines[4]["ts"], 2)


SHARED = """
workflow: ticket
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: open, do: probe.ticket.open, with: {name: t}}
"""


async def test_an_action_whose_key_another_run_took_over_has_its_evidence(office: Office) -> None:
    runtime = office.runtime
    await runtime.tenant()
    await runtime.policy(ALLOW_ALL)
    await runtime.publish(SHARED)
    runtime.outside.script["t"] = [Refused("409", "conflict")]
    failed, done = [(await runtime.start("ticket", {"number": "INC1"}, ref=ref)).run_id for ref in ("1", "2")]
    await runtime.worker().work_off()
    assert [await runtime.status(run) for run in (failed, done)] == ["failed_terminal", "succeeded"]
    await office.bundle()
    assert len(office.blobs()) == 2
    assert await office.failures() == []
