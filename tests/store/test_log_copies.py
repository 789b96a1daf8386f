"""The copy of a log in the store is compared with the database's log, in both directions, and each fault is named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.log import tiles, tree
from evidence.log.checkpoints import Checkpoint
from evidence.log.notes import Kind, NoteKey, signed
from evidence.log.rings import Ring
from evidence.log.signer import Memory
from runtime.keep.log_signing import LogSigner
from runtime.keep.log_storing import LogStore
from runtime.requests import monitoring
from tests.support.trouble import Forger
from tests.support.web_folder import files_in

pytestmark = pytest.mark.tampers

PRIVATE = ed25519.Ed25519PrivateKey.generate()
KEY = NoteKey("test", Kind.ED25519, PRIVATE.public_key().public_bytes_raw())
WORKFLOW = "workflow: w\nversion: 1\nreference: ${{ run.id }}\nsteps: [{id: s, do: probe.value.read, with: {}}]\n"


class Stored(Forger):
    """A tenant whose log is signed twice into a store, and somebody who owns the store and the database."""

    def __init__(self, runtime: Any, folder: Path, url: str) -> None:
        super().__init__(url)
        self.runtime, self.folder, self.older = runtime, folder, dict[str, bytes]()
        self.log = folder / "store" / "_log" / "acme"

    async def signs(self, runs: int) -> None:
        for _ in range(runs):
            await self.runtime.start("w", ref=str(_))
        await self.runtime.sweep()
        where = (Memory(self.folder / "memory"), self.folder / "log")
        blobs = FileBlobStore(self.folder / "store")
        _, refused = await LogSigner(self.runtime.database, KEY, PRIVATE, *where, store=LogStore(blobs)).turn(["acme"])
        assert refused == []

    async def begins(self) -> None:
        await self.runtime.tenant()
        await self.runtime.publish(WORKFLOW, filled=False)
        await self.signs(3)
        self.older = files_in(self.log)
        await self.signs(300)

    async def compared(self) -> monitoring.Findings:
        blobs = FileBlobStore(self.folder / "store")
        return await monitoring.monitor(self.runtime.database, "acme", blobs, Ring(KEY), (), Actor("person", "aud"))

    def signed(self, leaves: list[bytes], origin: str = "test/acme", private: Any = PRIVATE) -> None:
        """Another checkpoint takes the place of the one that is stored."""
        key = NoteKey(origin, Kind.ED25519, private.public_key().public_bytes_raw())
        text = Checkpoint(origin, len(leaves), tree.root_of(map(tree.leaf_hash, leaves))).text
        (self.log / "checkpoint").write_bytes(signed(text, key, private).packed)

    def leaves(self) -> list[bytes]:
        found = [self.log / "tile/entries/000", *self.log.glob("tile/entries/001.p/*")]
        return [leaf for path in found for leaf in tiles.entries(path.read_bytes())]

    def write(self, path: str, data: bytes) -> None:
        (self.log / path).parent.mkdir(parents=True, exist_ok=True)
        (self.log / path).write_bytes(data)

    def changed(self, path: str) -> None:
        (where,) = self.log.glob(path)
        where.write_bytes(where.read_bytes()[:-1] + b"~")

    def removed(self, path: str) -> None:
        (where,) = self.log.glob(path)
        where.unlink()

    def put_back(self) -> None:
        """The store is as it was after the first checkpoint."""
        for path in files_in(self.log):
            (self.log / path).unlink()
        for path, data in self.older.items():
            self.write(path, data)

    def emptied(self) -> None:
        for path in files_in(self.log):
            (self.log / path).unlink()

    def rewritten(self) -> None:
        """Every file is of another history of the same length, which the log's key has signed."""
        leaves = self.leaves()
        leaves[5] = leaves[5].replace(b'"count":', b'"count":1')
        for path, data in (*tiles.bundles(leaves), *tiles.tiles([*map(tree.leaf_hash, leaves)])):
            self.write(path, data)
        self.signed(leaves)

    async def cut_off(self) -> None:
        """The end of the database's log is removed, and that of its stream with it."""
        await self._forge("DELETE FROM log_leaves WHERE place >= 290")


ROWS: dict[str, tuple[Callable[[Stored], Any], str]] = {
    "leaves are missing": (lambda s: s.removed("tile/entries/000"), "tile/entries/000 is missing"),
    "the end's leaves are missing": (lambda s: s.removed("tile/entries/001.p/*"), ".p/"),
    "hashes are missing": (lambda s: s.removed("tile/0/000"), "tile/0/000 is missing"),
    "upper hashes are missing": (lambda s: s.removed("tile/1/000.p/1"), "tile/1/000.p/1 is missing"),
    "leaves are changed": (lambda s: s.changed("tile/entries/000"), "tile/entries/000 is another"),
    "hashes are changed": (lambda s: s.changed("tile/0/001.p/*"), "is another than that of the log: it was changed"),
    "an older end is changed": (
        lambda s: s.write(next(path for path in s.older if path.startswith("tile/0/")), b"x"), "tile/0/000.p/"
    ),
    "a file more": (lambda s: s.write("tile/0/007", b"x"), "tile/0/007 is no file of the log that the database has"),
    "a file of no log": (lambda s: s.write("tile/0/7.zip", b"x"), "tile/0/7.zip is no file of the log"),
    "no checkpoint": (lambda s: s.removed("checkpoint"), "its checkpoint is missing"),
    "no note": (lambda s: s.write("checkpoint", b"<html>\n"), "its checkpoint is no signed note"),
    "ahead": (lambda s: s.signed([*s.leaves(), b"{}"]), "its end was cut off, or a backup was restored"),
    "forked": (Stored.rewritten, "it is a second history"),
    "forked, named by its files": (Stored.rewritten, "tile/entries/000 is another"),
    "another log's": (lambda s: s.signed(s.leaves(), "test/other"), "is of the log test/other, not of test/acme"),
    "a stranger's": (
        lambda s: s.signed(s.leaves(), private=ed25519.Ed25519PrivateKey.generate()), "not signed by a key of the log"
    ),
    "an old one is put back": (Stored.put_back, "leaves when it was last compared, and has"),
    "all is removed": (Stored.emptied, "and has none: it was removed"),
    "the database is cut off": (Stored.cut_off, "leaves were signed, and the log has 290"),
}  # fmt: skip


@pytest.fixture
async def stored(runtime: Any, tmp_path: Path, database_url: str) -> Stored:
    found = Stored(runtime, tmp_path, database_url)
    await found.begins()
    return found


async def test_each_fault_of_the_copy_in_the_store_is_named(stored: Stored, monkeypatch: Any) -> None:
    """The copy is made whole again after each fault, but what was told of it stays."""
    whole, before = files_in(stored.log), await stored.compared()
    assert (before.problems, before.stored) == ([], before.size)
    missed = []
    for name, (do, words) in ROWS.items():
        if (waited := do(stored)) is not None:
            await waited
        problems = [one for one in (await stored.compared()).problems if "copy in the store" in one]
        missed += [] if any(words in one for one in problems) else [(name, problems[:3])]
        stored.emptied()
        for path, data in whole.items():
            stored.write(path, data)
    assert missed == []


async def test_a_copy_that_nobody_writes_any_more_is_named_in_time(stored: Stored, monkeypatch: Any) -> None:
    """A signer at work is a few seconds behind; a tile that it has written before its checkpoint is none too many."""
    await stored.runtime.start("w", ref="more")
    await stored.runtime.sweep()
    found = await stored.compared()
    assert (found.problems, found.stored is not None and found.stored < found.size) == ([], True)
    monkeypatch.setattr(monitoring, "PATIENCE", timedelta())
    assert any("nobody has stored what came later" in one for one in (await stored.compared()).problems)
