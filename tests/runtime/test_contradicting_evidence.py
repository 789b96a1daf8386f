"""Evidence that contradicts itself is not signed: the runtime verifies a bundle before it signs it, and says so."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from evidence.chain import Actor, ChainHead, Event, EventType, append
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.dispatcher import Dispatcher
from runtime.handlers.bundling import Bundling
from runtime.verbs.evidence import write_again
from runtime.verbs.starting import cancel_run

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
# What somebody with the rights of the database's owner changes while the question is open, and the check that sees it.
BEFORE = [
    ("""UPDATE approvals SET card = jsonb_set(card, '{changes,0,after}', '"5"')""", "approvals"),
    ("UPDATE approvals SET requester = 'somebody.else'", "approvals"),
    ("UPDATE approvals SET terms = jsonb_set(terms, '{approvers,0,group}', '\"friends\"')", "approvals"),
]
# … and when it is done.
AFTER = [
    ("UPDATE receipts SET target = 'record/harmless'", "receipts"),
    ("UPDATE receipts SET external_id = 'e99'", "receipts"),
    ('UPDATE receipts SET reverse = \'{"operation": "probe.record.update", "input": {}}\'', "receipts"),
    ("UPDATE receipts SET settled_at = settled_at - interval '1 day'", "receipts"),
    ("UPDATE receipts SET intended_at = intended_at - interval '1 day'", "receipts"),
    ("DELETE FROM receipts", "receipts"),
    ('UPDATE run_inputs SET trigger = \'{"name": "INC2"}\'', "run"),
    ("UPDATE votes SET reason = 'I was made to'", "approvals"),
    ("DELETE FROM votes", "approvals"),
    ("UPDATE approvals SET status = 'rejected', choice = 'reject'", "approvals"),
]


class Office:
    """The runtime with people and a bundler."""

    def __init__(self, runtime: Any, folder: Path, database_url: str) -> None:
        self.runtime, self.folder, self.url = runtime, folder, database_url
        bundling = Bundling(FileBlobStore(folder / "blobs"), FileSigner.load_or_create(folder / "key.pem"), "test")
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

    async def as_owner(self, statement: str) -> None:
        """Behind the engine's back: as the owner of the tables, past triggers and rights."""
        owner = await asyncpg.connect(self.url)
        try:
            await owner.execute("SET session_replication_role = replica")
            assert int((await owner.execute(statement)).split()[-1]) > 0
        finally:
            await owner.close()

    async def approved(self) -> None:
        assert (await self.runtime.vote("ana", "approve")).counted
        await self.runtime.worker().work_off()

    async def bundle(self) -> None:
        await self.runtime.execute(
            "UPDATE commands SET status = 'rejected' WHERE status = 'pending' AND kind <> 'bundle'"
        )
        await self.dispatcher.work_off()

    def blobs(self) -> list[Path]:
        return [path for path in (self.folder / "blobs").rglob("*") if path.is_file()]

    async def failures(self) -> list[dict[str, Any]]:
        rows = await self.runtime.all("SELECT line FROM audit_events WHERE type = 'evidence.failed' ORDER BY seq")
        return [orjson.loads(row["line"])["data"] for row in rows]


@pytest.fixture
def office(runtime: Any, tmp_path: Path, database_url: str) -> Office:
    return Office(runtime, tmp_path, database_url)


async def assert_refused(office: Office, run_id: Any, check: str) -> None:
    """Nothing is stored or signed; the command, the audit and the figures say why. Trying again would not help."""
    await office.bundle()
    assert await office.runtime.status(run_id) == "succeeded"
    assert office.blobs() == []
    assert await office.runtime.all("SELECT name FROM bundles") == []
    (command,) = await office.runtime.all("SELECT status, attempts, last_error FROM commands WHERE kind = 'bundle'")
    assert (command["status"], command["attempts"]) == ("failed", 1)
    assert check in command["last_error"]
    assert await office.failures() == [{"run": str(run_id), "checks": [check]}]


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("statement", "check"), BEFORE)
async def test_what_was_altered_while_it_was_open_is_not_signed(office: Office, statement: str, check: str) -> None:
    run_id = await office.asked()
    await office.as_owner(statement)
    await office.approved()
    await assert_refused(office, run_id, check)


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("statement", "check"), AFTER)
async def test_what_was_altered_when_it_was_done_is_not_signed(office: Office, statement: str, check: str) -> None:
    run_id = await office.asked()
    await office.approved()
    await office.as_owner(statement)
    await assert_refused(office, run_id, check)


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
async def test_a_truncated_chain_is_refused_once_and_for_all(office: Office) -> None:
    run_id = await office.asked()
    await office.approved()
    await office.as_owner("DELETE FROM audit_events WHERE type = 'run.closed'")
    await assert_refused(office, run_id, "chain")


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
async def test_payloads_are_not_removed_while_the_evidence_contradicts_itself(office: Office) -> None:
    """What could be compared would be gone."""
    run_id = await office.asked()
    await office.approved()
    await office.as_owner("UPDATE receipts SET target = 'record/harmless'")
    await office.bundle()
    await office.runtime.execute("UPDATE runs SET purge_at = now()")
    await office.runtime.sweep()
    row = await office.runtime.one("SELECT purged_at FROM runs WHERE run_id = $1", run_id)
    assert row["purged_at"] is None


@pytest.mark.tampers
@pytest.mark.usefixtures("quiet")
async def test_once_the_rows_are_as_they_were_the_evidence_can_be_ordered_again(office: Office) -> None:
    run_id = await office.asked()
    await office.approved()
    await office.as_owner("UPDATE receipts SET target = 'record/harmless'")
    await office.bundle()
    await office.as_owner("UPDATE receipts SET target = 'record/INC1'")
    async with office.runtime.faces.transaction("acme") as connection:
        await write_again(connection, "acme", run_id)
    await office.dispatcher.work_off()
    (blob,) = office.blobs()
    assert verify_bundle(blob).ok


# What release 0.1.0 did not record.
NEWER = ("committed", "reason_given", "receipt_digest")


async def as_recorded_before(office: Office, run_id: Any) -> None:
    """Rewrite a run's chain as release 0.1.0 would have recorded it."""
    rows = await office.runtime.all("SELECT line FROM audit_events WHERE stream_id = $1 ORDER BY seq", run_id)
    events = []
    for line in (orjson.loads(row["line"]) for row in rows):
        told = {"run.opened": ("committed",), "run.canceled": ("reason_given",)}.get(line["type"], ())
        data = {name: value for name, value in line["data"].items() if name not in NEWER or name in told}
        events.append(
            Event(
                EventType(line["type"]), Actor(**line["actor"]), datetime.fromisoformat(line["ts"]), data, line["step"]
            )
        )
    lines, head = append(ChainHead.of_run(run_id), events)
    owner = await asyncpg.connect(office.url)
    try:
        for line in lines:
            statement = "UPDATE audit_events SET line = $3, hash = $4 WHERE stream_id = $1 AND seq = $2"
            await owner.execute(statement, run_id, line.seq, line.bytes, line.hash)
        await owner.execute("UPDATE runs SET audit_head = $2 WHERE run_id = $1", run_id, head.hash)
    finally:
        await owner.close()


@pytest.mark.tampers
@pytest.mark.parametrize("ends", ["approved", "canceled"])
async def test_a_run_of_an_earlier_release_has_its_evidence_without_what_was_not_bound_then(
    office: Office, ends: str
) -> None:
    run_id = await office.asked()
    if ends == "approved":
        await office.approved()
    else:
        async with office.runtime.faces.transaction("acme") as connection:
            await cancel_run(connection, "acme", run_id, Actor("person", "ana"), "not needed")
    await as_recorded_before(office, run_id)
    await office.bundle()
    (blob,) = office.blobs()
    assert verify_bundle(blob).ok


async def test_receipts_and_chain_tell_the_same_times(office: Office) -> None:
    run_id = await office.asked()
    await office.approved()
    receipt = await office.runtime.one("SELECT intended_at, settled_at FROM receipts WHERE run_id = $1", run_id)
    rows = await office.runtime.all(
        "SELECT line FROM audit_events WHERE stream_id = $1 AND type LIKE 'action.%' ORDER BY seq", run_id
    )
    told = [orjson.loads(row["line"])["ts"] for row in rows]
    times = [receipt["intended_at"], receipt["settled_at"]]
    assert told == [f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}Z" for at in times]


async def test_every_outcome_of_an_action_binds_its_receipt(office: Office) -> None:
    run_id = await office.asked()
    await office.approved()
    rows = await office.runtime.all(
        "SELECT line FROM audit_events WHERE stream_id = $1 AND type = 'action.succeeded'", run_id
    )
    assert [len(orjson.loads(row["line"])["data"]["receipt_digest"]) for row in rows] == [64]
    await office.bundle()
    (blob,) = office.blobs()
    (row,) = [row for row in verify_bundle(blob).rows if row.check == "receipts"]
    assert "bound to the events by id" not in row.detail


async def test_the_receipt_of_an_action_that_was_in_doubt_is_bound_as_it_was_left(office: Office, gate: Any) -> None:
    """Intended, in doubt, not applied, intended once more, succeeded: the times and the digest are of the last."""
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
    (row,) = [row for row in verification.rows if row.check == "receipts"]
    assert "bound to the events by id" not in row.detail
