"""Holds a run to its record: it replays, and its bundle verifies, also by the verifier in JavaScript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.views import RunReader
from tests.support.other_verifiers import by_node


async def sound(runtime: Any, run_id: Any, folder: Path) -> None:
    """The run replays, and its bundle verifies."""
    assert (await RunReader(runtime.faces, runtime.definitions).replay("acme", run_id)).ok
    await runtime.history(run_id)
    signer = FileSigner.load_or_create(folder / "key.pem")
    bundling = Bundling(FileBlobStore(folder / "blobs"), signer, "test", runtime.definitions)
    await runtime.trouble.drop_messages_except("bundle")
    await Dispatcher(runtime.database, bundling.handlers(), "d").work_off()
    written = await runtime.books.bundle(run=run_id)
    bundle, key = folder / "blobs" / written.uri.removeprefix("file:"), folder / "public.pem"
    key.write_bytes(signer.public_key.pem)
    assert verify_bundle(bundle, public_key=key).exit_code == 0
    assert by_node(folder, key, [bundle]) == [(0, set())]
