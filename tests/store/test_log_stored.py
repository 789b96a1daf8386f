"""The store of evidence holds each log whole: an independent reader of tiles needs nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from core.errors import ConsistencyError, TransportError
from evidence.blobs import BlobStore, LockMode
from evidence.files import FileBlobStore
from evidence.log import tree
from evidence.log.checkpoints import Checkpoint
from evidence.log.notes import Kind, NoteKey, signed
from evidence.log.signer import Memory
from evidence.s3 import Retention, S3BlobStore
from runtime.keep.log_signing import LogSigner
from runtime.keep.log_storing import LogStore
from tests.support.asking import asking

BUCKET = "evidence-test"
PRIVATE = ed25519.Ed25519PrivateKey.generate()
KEY = NoteKey("test", Kind.ED25519, PRIVATE.public_key().public_bytes_raw())
LEAVES = [b"leaf %d" % number for number in range(700)]
HASHES = [*map(tree.leaf_hash, LEAVES)]


@pytest.fixture(params=["files", "bucket", "locked bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobStore]:
    if request.param == "files":
        yield FileBlobStore(tmp_path / "store")
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with warnings.catch_warnings():
        # botocore and moto, not we, use what Python is going to remove
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        from moto import mock_aws

        with mock_aws():
            client = boto3.client("s3", region_name="us-east-1")
            client.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
            locked = Retention(LockMode.COMPLIANCE, 30) if "locked" in request.param else None
            yield Bucket(client, BUCKET, "prefix", retention=locked)


class Bucket(S3BlobStore):
    """A bucket of which a test makes a copy, as `aws s3 sync` does."""

    def __init__(self, client: Any, *given: Any, **named: Any) -> None:
        super().__init__(client, *given, **named)
        self.client = client

    def copy(self, prefix: str, folder: Path) -> None:
        for one in self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]:
            path = folder / one["Key"].removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read())

    def locked(self) -> set[str]:
        every = self.client.list_objects_v2(Bucket=BUCKET)["Contents"]
        found = {one["Key"]: self.client.head_object(Bucket=BUCKET, Key=one["Key"]) for one in every}
        return {key for key, head in found.items() if "ObjectLockMode" in head}


async def grow(kept: LogStore, size: int, first: int = 0, leaves: list[bytes] = LEAVES) -> None:
    """Store a log that has grown to this size, as the signer does."""
    hashes = [*map(tree.leaf_hash, leaves[:size])]
    text = Checkpoint("test", size, tree.root_of(hashes)).text
    await kept.put("acme", first, leaves[first:size], hashes, signed(text, KEY, PRIVATE))


def read(folder: Path) -> tuple[bytes, list[bytes]]:
    """The root and the leaves of a log in a folder, as others read it."""
    reader, backend = (pytest.importorskip(f"tlog_scales.{name}") for name in ("reader", "backend"))
    found = reader.TilesReader(backend.LocalBackend(folder))
    said = found.get_checkpoint()
    assert said.root_hash == found.calculate_root_hash()
    return said.root_hash, [found.get_entry(at) for at in range(said.size)]


async def test_a_store_is_a_whole_log(store: BlobStore, tmp_path: Path) -> None:
    """The log grows over the ends of tiles, by one signer or the next one; tiles of another log are refused."""
    kept, folder = LogStore(store), tmp_path / "store" / "_log" / "acme"
    for size, first in ((3, 0), (256, 0), (300, 256), (600, 256)):
        await grow(kept, size, first)
        assert kept.has("acme", size)
    for size in (600, 700):  # another process, which knows nothing of this
        await grow(LogStore(store), size)
    with pytest.raises(ConsistencyError, match="exists already"):
        await grow(LogStore(store), 700, 512, [*LEAVES[:-1], b"another"])
    if isinstance(store, Bucket):
        store.copy("prefix/_log/acme/", folder)
        names = {key.removeprefix("prefix/_log/acme/tile/") for key in store.locked()}
        assert names in (set(), {f"{level}/00{number}" for level in ("0", "entries") for number in (0, 1)})
    assert read(folder) == (tree.root_of(HASHES), LEAVES)


class Away(FileBlobStore):
    """A store that is away for so many writes."""

    writes = 0

    async def replace(self, key: str, data: bytes) -> None:
        self.writes -= 1
        if self.writes >= 0:
            raise TransportError("the store is away")
        await super().replace(key, data)


async def test_the_signer_stores_what_it_signs_and_a_store_that_was_away_gets_it_later(
    runtime: Any, tmp_path: Path
) -> None:
    """The checkpoint stands in the folder and the database meanwhile."""
    await runtime.go("workflow: w\nversion: 1\nreference: r\nsteps: [{id: s, do: probe.value.read, with: {}}]\n")
    await runtime.sweep()
    away = Away(tmp_path / "store")
    away.writes = 2
    where = (Memory(tmp_path / "memory"), tmp_path / "log")
    signer = LogSigner(runtime.database, KEY, PRIVATE, *where, store=LogStore(away))
    told = [await signer.turn(["acme"]) for _ in range(4)]
    assert [(len(done), len(refused)) for done, refused in told] == [(0, 1), (0, 1), (1, 0), (0, 0)]
    assert "was signed, and not stored: the store is away" in told[0][1][0]
    root, leaves = read(tmp_path / "store" / "_log" / "acme")
    assert (root, leaves) == read(tmp_path / "log" / "acme")
    async with asking(runtime.database) as connection:
        rows = await connection.fetch("SELECT note FROM log_checkpoints WHERE tenant_id = 'acme'")
    assert [row["note"] for row in rows] == [(tmp_path / "log" / "acme" / "checkpoint").read_bytes()]
    assert leaves
