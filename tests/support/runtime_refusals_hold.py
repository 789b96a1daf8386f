"""Helpers of tests/runtime that several test files share: from test_refusals_hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher

PAY = """
workflow: pay
version: 1
steps:
  - {id: a, do: probe.effect.apply, with: {name: a, amount: 5}}
"""


async def retried(runtime: Any, folder: Path, run_id: UUID, actor: Actor) -> None:
    bundling = Bundling(
        FileBlobStore(folder / "blobs"), FileSigner.load_or_create(folder / "key"), "test", runtime.definitions
    )
    await runtime.trouble.drop_messages_except("bundle", "cancel", "shared", "return")
    await Dispatcher(runtime.database, bundling.handlers(), "d").work_off()
    await runtime.retry(run_id, actor=actor)
    await runtime.worker().work_off()


async def asked(runtime: Any) -> list[Any]:
    return list(await runtime.books.approvals(open=True))
