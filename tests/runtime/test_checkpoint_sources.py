"""The making of a checkpoint: by what, of which writes, what it saw; the faces and the bundle say the same."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from connectors.port import Refused
from evidence import layout
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.views import RunReader

pytestmark = pytest.mark.req("P-3")

STEPS = """
workflow: steps
version: 1
channels: {log: {reduce: append}, seen: {initial: nothing}, never: {initial: 7}}
steps:
  - {id: one, do: probe.effect.apply, with: {name: one}, set: {log: one, seen: one}}
  - {id: two, do: probe.effect.apply, with: {name: two}, set: {log: two}}
  - {id: three, do: probe.effect.apply, with: {name: three}, set: {log: three}}
"""
LOOP = """
workflow: loop
version: 1
channels: {log: {reduce: append}}
steps:
  - {id: pause, wait: {signal: go, correlate: x}}
  - foreach: ${{ [1, 2] }}
    as: item
    steps:
      - {id: each, do: probe.effect.apply, with: {name: "${{ string(item) }}"}, set: {log: "${{ item }}"}}
  - {id: last, set: {log: last}}
"""
MORE = {"steps": [{"id": "more", "do": "probe.effect.apply", "with": {"name": "more"}, "set": {"log": "more"}}]}


class Shown:
    """The checkpoints of a run as a face shows them, and as its newest bundle does."""

    def __init__(self, runtime: Any, folder: Path) -> None:
        signer = FileSigner.load_or_create(folder / "key")
        bundling = Bundling(FileBlobStore(folder / "blobs"), signer, "test", runtime.definitions)
        self.runtime, self.folder = runtime, folder
        self.dispatcher = Dispatcher(runtime.database, bundling.handlers(), "d")

    async def write(self) -> None:
        await self.runtime.trouble.drop_messages_except("bundle")
        await self.dispatcher.work_off()

    def newest(self) -> Path:
        return max(self.folder.rglob("*.zip"), key=lambda path: path.stat().st_size)

    async def both(self, run: UUID) -> list[Any]:
        """Tell of each checkpoint its source, its writes and what it has seen, once both say the same."""
        await self.write()
        assert verify_bundle(self.newest()).ok, verify_bundle(self.newest()).to_text()
        with zipfile.ZipFile(io.BytesIO(self.newest().read_bytes())) as archive:
            bundled = [json.loads(line) for line in archive.read(layout.CHECKPOINT_LINES).splitlines()]
        faces = (await RunReader(self.runtime.faces, self.runtime.definitions).at("acme", run, range(1000))).checkpoints
        assert [(one["number"], one["source"]) for one in bundled] == [
            (one["superstep"], one["source"]) for one in faces
        ]
        for mine, theirs in zip(bundled, faces, strict=True):
            written = {(write["step"], name) for write in mine["writes"] for name in write["channels"]}
            assert written == {(write["step"], write["channel"]) for write in theirs["writes"]}
            first = faces[0]["superstep"]
            touched = {name: number for name, number in theirs["versions_seen"].items() if number != first}
            assert mine["versions_seen"] == touched
        return [(one["source"], [write["step"] for write in one["writes"]], one["versions_seen"]) for one in bundled]


@pytest.fixture
def shown(runtime: Any, tmp_path: Path) -> Shown:
    return Shown(runtime, tmp_path)


async def test_the_first_checkpoint_is_of_the_input_and_each_next_one_of_what_was_written(
    runtime: Any, shown: Shown
) -> None:
    run = await runtime.go(STEPS)
    assert await shown.both(run) == [
        ("input", [], {}),
        ("loop", ["one"], {"log": 1, "seen": 1}),
        ("loop", ["two"], {"log": 2, "seen": 1}),
        ("loop", ["three"], {"log": 3, "seen": 1}),
    ]


async def test_a_checkpoint_after_an_extension_says_so(runtime: Any, shown: Shown) -> None:
    run = await runtime.go(LOOP)
    await runtime.extend(run, MORE)
    await runtime.signal("go:x")
    await runtime.worker().work_off()
    found = await shown.both(run)
    assert await runtime.status(run) == "succeeded"
    assert [source for source, *_ in found[:3]] == ["input", "loop", "extension"], "it was parked before"
    assert [step for _, steps, _ in found for step in steps][-1] in ("last", "more")


async def test_a_checkpoint_after_a_retry_says_so(runtime: Any, shown: Shown) -> None:
    runtime.outside.script["two"] = [Refused("no", "not today")]
    run = await runtime.go(STEPS)
    assert [source for source, *_ in await shown.both(run)] == ["input", "loop", "loop"]
    await runtime.retry(run)
    await runtime.worker().work_off()
    assert await runtime.status(run) == "succeeded"
    assert await shown.both(run) == [
        ("input", [], {}),
        ("loop", ["one"], {"log": 1, "seen": 1}),
        ("loop", [], {"log": 1, "seen": 1}),
        ("retry", [], {"log": 1, "seen": 1}),
        ("loop", ["two"], {"log": 4, "seen": 1}),
        ("loop", ["three"], {"log": 5, "seen": 1}),
    ]


async def test_a_retry_of_a_run_that_was_extended_is_a_retry_first(runtime: Any, shown: Shown) -> None:
    runtime.outside.script["more"] = [Refused("no", "not today")]
    run = await runtime.go(LOOP)
    await runtime.extend(run, MORE)
    await runtime.signal("go:x")
    await runtime.worker().work_off()
    assert await runtime.status(run) == "failed_terminal"
    await shown.write()
    await runtime.retry(run)
    await runtime.worker().work_off()
    assert await runtime.status(run) == "succeeded"
    assert [source for source, *_ in await shown.both(run)].count("retry") == 1
