"""A comparison of log, database and store finds what somebody does who has the whole database (promise 6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from evidence.files import FileBlobStore
from evidence.layout import VALUES
from evidence.log.notes import Kind, NoteKey
from evidence.log.rings import Ring
from evidence.log.signer import Memory
from evidence.signing import FileSigner
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.erasing import purge
from runtime.keep.log_signing import LogSigner
from runtime.requests import policies, publishing
from runtime.requests.monitoring import Findings, KnownCheckpoint, monitor
from tests.support.runtime_stage import ACTOR
from tests.support.trouble import Forger

pytestmark = pytest.mark.tampers

POLICY = """
policy: p
version: 1
rules:
  - {id: all, match: {operation: probe.effect.apply}, outcome: allow}
  - id: two
    match: {operation: probe.record.update}
    outcome: needs_approval
    approvers: [{group: owners, of: 2}]
"""
PEOPLE = """
directory: d
people: [{id: ana, name: Ana}, {id: ben, name: Ben}, {id: cleo, name: Cleo}]
groups: {owners: [ana, ben, cleo]}
"""
RUNS = {
    "done": "probe.effect.apply, with: {name: e}",
    "asks": "probe.record.update, with: {name: r, fields: {priority: '1'}}",
}


class Office(Forger):
    """A tenant with a finished and a parked run, a signer, a store of bundles, and somebody who owns the database."""

    def __init__(self, runtime: Any, folder: Path, url: str) -> None:
        super().__init__(url)
        self.runtime, self.folder, self.blobs = runtime, folder, FileBlobStore(folder / "blobs")
        self.private = ed25519.Ed25519PrivateKey.generate()
        self.key = NoteKey("test", Kind.ED25519, self.private.public_key().public_bytes_raw())
        self.runs: dict[str, UUID] = {}
        self.kept: list[KnownCheckpoint] = []

    def signer(self, memory: str = "memory") -> LogSigner:
        places = (Memory(self.folder / memory), self.folder / "log")
        return LogSigner(self.runtime.database, self.key, self.private, *places)

    async def goes_on(self, *names: str) -> None:
        """Runs start and go as far as they can; evidence is written, leaves are ordered, checkpoints signed."""
        for name in names:
            self.runs[name] = (await self.runtime.start(name.split("-")[0], ref=str(uuid4()))).run_id
        await self.runtime.worker().work_off()
        bundling = Bundling(
            self.blobs, FileSigner.load_or_create(self.folder / "key.pem"), "test", self.runtime.definitions
        )
        await self.runtime.trouble.drop_messages_except("bundle")
        await Dispatcher(self.runtime.database, bundling.handlers(), "d").work_off()
        for _ in range(2):
            await self.runtime.sweep()

    async def begins(self) -> None:
        await self.runtime.tenant()
        async with self.runtime.faces.transaction("acme") as connection:
            await policies.publish_policy(connection, self.runtime.definitions, "acme", POLICY, "p.yaml", ACTOR)
            await publishing.publish_directory(connection, "acme", PEOPLE, "d.yaml", ACTOR)
        for name, step in RUNS.items():
            text = f"workflow: {name}\nversion: 1\nreference: ${{{{ run.id }}}}\nsteps: [{{id: s, do: {step}}}]\n"
            await self.runtime.publish(text, filled=False)
        await self.goes_on("done-1", "asks", "done-2")
        assert (await self.runtime.vote("ana", "approve")).counted
        await self.goes_on()
        await self.signs()

    async def signs(self, memory: str = "memory") -> list[str]:
        signed, refused = await self.signer(memory).turn(["acme"])
        if signed:
            data = (self.folder / "log" / "acme" / "checkpoint").read_bytes()
            self.kept.append(KnownCheckpoint(f"kept {len(self.kept)}", data))
        return refused

    async def compare(self, ring: Ring | None = None) -> Findings:
        given = (self.blobs, ring or Ring(self.key), self.kept, ACTOR)
        return await monitor(self.runtime.database, "acme", *given)

    # -- what somebody with the whole database does -------------------------------------------------------------------

    async def forget_run(self, run: UUID, *, leaves: bool) -> None:
        for table in ("runs", "journal", "bundles", "approvals", "waits", "queue", *(["log_leaves"] if leaves else [])):
            async with self._owner() as connection:
                await connection.execute("SET session_replication_role = replica")
                await connection.execute(f"DELETE FROM {table} WHERE run_id = $1", run)

    async def restored(self, *, to: int) -> None:
        """Bring log, stream and runs back to what they were when the log had so many leaves."""
        gone = "SELECT run_id FROM log_leaves WHERE kind = 'opened' AND place >= $1"
        for run in await self.runtime.all(gone, to):
            await self.forget_run(run["run_id"], leaves=True)
        await self._forge("DELETE FROM log_leaves WHERE place >= $1 OR place IS NULL", to)
        count = "(SELECT coalesce(max(count), 0) FROM log_leaves WHERE kind = 'told')"
        await self._forge(f"DELETE FROM audit_events WHERE seq >= {count}")
        await self._forge(
            f"UPDATE tenants SET audit_count = {count}, audit_head = (SELECT hash FROM audit_events "
            "ORDER BY seq DESC LIMIT 1)"
        )
        await self._forge("UPDATE log_counters SET runs = (SELECT max(number) FROM log_leaves)")
        await self._forge("DELETE FROM log_checkpoints WHERE size > $1", to)

    async def tail_cut(self) -> None:
        """The newest lines of the tenant's stream, and the row's count and head."""
        await self._forge("DELETE FROM audit_events WHERE seq >= 1")
        await self._forge("UPDATE tenants SET audit_count = 1, audit_head = (SELECT hash FROM audit_events)")

    async def run_deleted(self) -> None:
        await self.forget_run(self.runs["done-1"], leaves=False)

    async def run_deleted_with_leaves(self) -> None:
        await self.goes_on("done-3", "done-4")
        await self.signs()
        await self.forget_run(self.runs["done-3"], leaves=True)

    async def unordered_leaf_deleted(self) -> None:
        self.runs["late"] = (await self.runtime.start("done", ref="late")).run_id
        await self._forge("DELETE FROM log_leaves WHERE place IS NULL")

    async def unordered_run_deleted(self) -> None:
        for name in ("gone", "stays"):
            self.runs[name] = (await self.runtime.start("done", ref=name)).run_id
        await self.forget_run(self.runs["gone"], leaves=True)

    async def day_deleted(self) -> None:
        await self._forge("DELETE FROM log_leaves WHERE place BETWEEN 2 AND 6")
        await self._forge("UPDATE log_leaves SET place = place - 5 WHERE place > 6")

    async def moved_away(self) -> None:
        await self.runtime.tenant("other")
        for table in ("runs", "journal", "approvals", "waits"):
            await self._forge(f"UPDATE {table} SET tenant_id = 'other' WHERE run_id = $1", self.runs["asks"])

    async def voter_changed(self) -> None:
        before = await self.appends(self.runs["asks"])
        after = [[(line.replace(b'"id":"ana"', b'"id":"ben"'), vals) for line, vals in each] for each in before]
        await self.reheaded(self.runs["asks"], after)

    async def backup_restored(self) -> None:
        size = (await self.compare()).size
        await self.goes_on("done-3")
        await self.signs()
        await self.restored(to=size)
        assert any("were signed" in one for one in await self.signs()), "the signer refuses"

    async def second_history(self) -> None:
        """After the backup, history goes on otherwise, until it is longer than the one that was signed."""
        await self.backup_restored()
        await self.goes_on("done-5", "done-6", "done-7")
        assert any("are others" in one for one in await self.signs()), "the signer refuses"

    async def signer_rolled_back(self) -> None:
        """The same, and the signer's memory is restored, too: the key signs both histories."""
        await self.second_history()
        await self._forge("DELETE FROM log_checkpoints")
        assert await self.signs("another memory") == []

    async def policy_in_force(self) -> None:
        await self._forge("UPDATE tenants SET policy_digests = policy_digests || '{abc}'")

    async def foreign(self) -> None:
        await self.foreign_bundle(self.runs["done-1"], self.runs["done-2"])

    def values(self, run: str) -> Path:
        """The newest sidecar of a run."""
        return max((self.folder / "blobs" / "acme" / str(self.runs[run])).rglob(f"*{VALUES}"))

    async def values_gone(self) -> None:
        self.values("done-1").unlink()

    async def values_swapped(self) -> None:
        self.values("done-1").write_bytes(self.values("done-2").read_bytes())

    async def values_cut(self) -> None:
        path = self.values("done-1")
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])

    async def values_brought_back(self) -> None:
        path = self.values("done-1")
        before = path.read_bytes()
        await self.runtime.trouble.make_purge_due(self.runs["done-1"])

        async def stores(connection: Any, tenant: str) -> FileBlobStore:
            return self.blobs

        assert await purge(self.runtime.database, self.runtime.definitions, self.runs["done-1"], stores)
        await self.goes_on()
        await self.signs()
        assert (await self.compare()).problems == [], "erased, and the log says so"
        path.write_bytes(before)


ROWS: dict[str, tuple[Callable[[Office], Awaitable[None]], str]] = {
    "run deleted": (Office.run_deleted, "(number 1): the log has it, and the database has not: it was deleted"),
    "run and leaves deleted": (Office.run_deleted_with_leaves, "run number 4 is missing"),
    "unordered leaf deleted": (Office.unordered_leaf_deleted, "does not have the leaf that opened it"),
    "unordered run deleted": (Office.unordered_run_deleted, "run number 4 is missing"),
    "day deleted": (Office.day_deleted, "its end was cut off"),
    "stream's tail": (Office.tail_cut, "line 2 of the tenant's stream: the log has it, and the stream has not"),
    "backup": (Office.backup_restored, "its end was cut off, or a backup was restored"),
    "moved": (Office.moved_away, "it was moved to the tenant other"),
    "voter": (Office.voter_changed, "it was rewritten"),
    "second history": (Office.second_history, "it is a second history"),
    "signer rolled back": (Office.signer_rolled_back, "it is a second history"),
    "policy": (Office.policy_in_force, "the policy abc is in force, and no event has put it in force"),
    "bundle": (Office.foreign, "is another's: it is of run"),
    "values gone": (Office.values_gone, "are gone, and nothing erased them"),
    "values of another run": (Office.values_swapped, "are others"),
    "values cut": (Office.values_cut, "are others"),
    "values brought back": (Office.values_brought_back, "are in the store, and the log says that they are erased"),
}


@pytest.fixture
async def office(runtime: Any, tmp_path: Path, database_url: str) -> Office:
    found = Office(runtime, tmp_path, database_url)
    await found.begins()
    return found


@pytest.mark.parametrize("name", ROWS)
async def test_what_was_done_behind_the_log_is_found(office: Office, name: str) -> None:
    before = await office.compare()
    assert before.problems == []
    assert before.checkpoint == before.size > 8
    do, words = ROWS[name]
    await do(office)
    assert any(words in one for one in (await office.compare()).problems), (await office.compare()).problems
