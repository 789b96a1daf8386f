"""While a card is open, others write the record: one vote, one effect; the book replays, and the bundle verifies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.views import RunReader
from tests.support.runtime_again import UPDATED, approved_by, begun
from tests.support.runtime_ends_of_approvals import card

pytestmark = pytest.mark.req("promise 3")


async def sound(runtime: Any, run_id: Any, folder: Path) -> None:
    """The run replays, and its bundle verifies."""
    assert (await RunReader(runtime.faces, runtime.definitions).replay("acme", run_id)).ok
    await runtime.history(run_id)
    signer = FileSigner.load_or_create(folder / "key.pem")
    bundling = Bundling(FileBlobStore(folder / "blobs"), signer, "test", runtime.definitions)
    await runtime.trouble.drop_messages_except("bundle")
    await Dispatcher(runtime.database, bundling.handlers(), "d").work_off()
    written = await runtime.books.bundle(run=run_id)
    assert verify_bundle(folder / "blobs" / written.uri.removeprefix("file:")).ok


async def test_six_writes_of_others_take_one_vote_and_one_effect(runtime: Any, tmp_path: Path) -> None:
    runtime.outside.records["a"] = {"version": 1, "fields": {"priority": "low"}}
    run_id = await begun(runtime, UPDATED, approved_by("leads", 1))
    await runtime.worker().work_off()
    for n in range(6):
        runtime.outside.records["a"] = {"version": 2 + n, "fields": {"priority": "low", "owner": f"other{n}"}}
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert [call.before.version for call in runtime.outside.effects] == ["7"]
    assert len(await runtime.books.approvals()) == 1
    await sound(runtime, run_id, tmp_path)


async def test_a_value_that_has_changed_is_named_and_one_that_is_there_is_not_written(
    runtime: Any, tmp_path: Path
) -> None:
    runtime.outside.records["a"] = {"version": 1, "fields": {"priority": "low"}}
    run_id = await begun(runtime, UPDATED, approved_by("leads", 1))
    await runtime.worker().work_off()
    question = await runtime.question()
    runtime.outside.records["a"] = {"version": 2, "fields": {"priority": "high"}}
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert runtime.outside.effects == []
    said = (await card(runtime, question)).detail
    assert "priority was 'low' when people were asked, and is 'high' now" in said
    receipt = await runtime.books.receipt()
    assert (receipt.status, receipt.resolution, receipt.attempt) == ("succeeded", "nothing to do", 0)
    await sound(runtime, run_id, tmp_path)
