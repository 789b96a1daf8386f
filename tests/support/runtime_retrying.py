"""Helpers of tests/runtime that several test files share: from test_retrying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.errands import Errands


class Evidence:
    """Writes the bundles of runs, and reads them."""

    def __init__(self, runtime: Any, folder: Path) -> None:
        signer = FileSigner.load_or_create(folder / "key")
        bundling = Bundling(FileBlobStore(folder / "blobs"), signer, "test", runtime.definitions)
        self.runtime, self.folder = runtime, folder
        errands = Errands(runtime.database, runtime.definitions, runtime.connectors)
        self.dispatcher = Dispatcher(runtime.database, {**bundling.handlers(), **errands.handlers()}, "d")

    async def write(self) -> None:
        await self.runtime.trouble.drop_messages_except("bundle", "cancel", "shared", "return")
        await self.dispatcher.work_off()

    def all(self) -> list[Path]:
        return sorted(self.folder.rglob("*.zip"), key=lambda path: path.stat().st_size)
