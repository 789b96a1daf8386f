"""A crash between a bundle and its values, or between their erasure and its record: whoever comes next repairs it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core.canonical import sha256_hex
from core.errors import TransportError
from evidence.blobs import StoredBlob
from evidence.files import FileBlobStore
from evidence.layout import VALUES
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.sweeper import Sweeper

WORKFLOW = (
    "workflow: kept\nversion: 1\nreference: r\nretention: P30D\nsteps:\n  - {id: a, do: probe.value.read, with: {}}\n"
)
LOST, LANDED = "lost", "landed"


class Breaking(FileBlobStore):
    """A store in which one operation on a key with this end breaks, before it has happened or after."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.breaks: tuple[str, str, str] | None = None
        self.did: list[str] = []

    def _dies(self, what: str, key: str, when: str) -> None:
        if (
            self.breaks is not None
            and self.breaks[0] == what
            and key.endswith(self.breaks[1])
            and self.breaks[2] == when
        ):
            self.breaks = None
            raise TransportError(f"{what} of {key}: {when}")

    async def put(self, key: str, data: bytes, sha256: str, *, erasable: bool = False) -> StoredBlob:
        self._dies("put", key, LOST)
        made = await super().put(key, data, sha256, erasable=erasable)
        self.did.append(key.rpartition(".zip")[2] or ".zip")
        self._dies("put", key, LANDED)
        return made

    async def erase(self, prefix: str, end: str) -> int:
        self._dies("erase", end, LOST)
        count = await super().erase(prefix, end)
        self._dies("erase", end, LANDED)
        return count


class Keeping:
    """A run that has ended, and the keepers with a store that breaks."""

    def __init__(self, runtime: Any, folder: Path) -> None:
        self.runtime, self.store = runtime, Breaking(folder / "blobs")
        self.signer, self.folder = FileSigner.load_or_create(folder / "key.pem"), folder
        self.given: Any = self.store

    async def bundles(self, *, again: bool = False) -> None:
        if again:
            await self.runtime.trouble.hurry_messages()
        made = Bundling(self.store, self.signer, "test", self.runtime.definitions)
        await Dispatcher(self.runtime.database, made.handlers(), "d").work_off()

    async def sweeps(self) -> int:
        async def stores(_: Any, tenant: str) -> Any:
            return self.given

        return await Sweeper(self.runtime.database, self.runtime.definitions, stores=stores).sweep()

    async def purged(self, run: UUID) -> bool:
        return (await self.runtime.books.run(run)).purged_at is not None

    def sidecars(self) -> list[Path]:
        return [*(self.folder / "blobs").rglob(f"*{VALUES}")]

    async def ended(self) -> UUID:
        run: UUID = await self.runtime.go(WORKFLOW, {"name": "x"})
        await self.runtime.trouble.drop_messages_except("bundle")
        return run


@pytest.fixture
def keeping(runtime: Any, tmp_path: Path) -> Keeping:
    return Keeping(runtime, tmp_path)


@pytest.mark.parametrize(("end", "when", "left"), [
    (VALUES, LOST, []), (VALUES, LANDED, [VALUES]), (".zip", LOST, [VALUES]), (".zip", LANDED, [VALUES, ".zip"]),
])  # fmt: skip
async def test_values_are_stored_before_the_bundle_and_a_crash_stores_both_once_more(
    keeping: Keeping, end: str, when: str, left: list[str]
) -> None:
    run, keeping.store.breaks = await keeping.ended(), ("put", end, when)
    await keeping.bundles()
    assert keeping.store.did == left, "no bundle lies there whose values were never stored"
    assert await keeping.runtime.books.bundles(run=run) == []
    await keeping.bundles(again=True)
    (bundle,) = await keeping.runtime.books.bundles(run=run)
    assert len(keeping.sidecars()) == 1
    found = verify_bundle(keeping.folder / "blobs" / bundle.uri.removeprefix("file:"))
    assert [(row.status, row.detail.split(":")[0]) for row in found.rows if row.check == "values"] == [
        ("ok", "disclosed")
    ]


@pytest.mark.parametrize(("when", "left"), [(LOST, 1), (LANDED, 0)])
@pytest.mark.req("X-20")
async def test_nobody_says_erased_of_values_that_still_lie_somewhere(keeping: Keeping, when: str, left: int) -> None:
    run = await keeping.ended()
    await keeping.bundles()
    await keeping.runtime.trouble.make_purge_due(run)
    keeping.given = None
    for given in (None, FileBlobStore(keeping.folder / "elsewhere")):
        keeping.given = given
        assert (await keeping.sweeps(), await keeping.purged(run)) == (0, False), "the store has nothing of this run"
    keeping.given, keeping.store.breaks = keeping.store, ("erase", VALUES, when)
    assert (await keeping.sweeps(), await keeping.purged(run), len(keeping.sidecars())) == (0, False, left)
    assert await keeping.runtime.books.tenant_events("acme", type="run.purged") == []
    assert (await keeping.sweeps(), await keeping.purged(run), keeping.sidecars()) == (1, True, [])
    (bundle,) = await keeping.runtime.books.bundles(run=run)
    found = verify_bundle(keeping.folder / "blobs" / bundle.uri.removeprefix("file:"))
    assert found.ok
    assert [row.status for row in found.rows if row.check == "values"] == ["not_proven"], "nobody has shown a leaf"


async def test_values_that_no_bundle_names_are_erased_with_their_run(keeping: Keeping) -> None:
    run, data = await keeping.ended(), b"{}\n"
    await keeping.bundles()
    await keeping.store.put(f"acme/{run}/0-old.zip{VALUES}", data, sha256_hex(data))
    await keeping.runtime.trouble.make_purge_due(run, after=-timedelta(hours=1))
    assert (await keeping.sweeps(), keeping.sidecars()) == (1, [])
