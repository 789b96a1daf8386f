"""One behaviour for every blob store, and what is particular to each."""

from __future__ import annotations

import asyncio
import stat
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from core.errors import (
    ConfigurationError,
    ConsistencyError,
    InputError,
    NotFoundError,
    TransportError,
)
from evidence.blobs import BlobStore, LockMode, StoredBlob
from evidence.files import FileBlobStore
from evidence.s3 import Retention, S3BlobStore

BUCKET = "evidence-test"
KEY = "acme/2026/run-1.zip"
ONE, TWO = b"one" * 1000, b"two"


def sha(data: bytes) -> str:
    return sha256(data).hexdigest()


@contextmanager
def s3_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in (("ID", "x"), ("SECRET", "y")):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID" if name == "ID" else "AWS_SECRET_ACCESS_KEY", value)
    with warnings.catch_warnings():
        # botocore and moto, not we, use what Python is going to remove
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        from moto import mock_aws

        with mock_aws():
            client = boto3.client("s3", region_name="us-east-1", config=Config(retries={"max_attempts": 1}))
            client.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
            client.put_object = _one_at_a_time(client.put_object)
            yield client


def _one_at_a_time(put_object: Callable[..., Any]) -> Callable[..., Any]:
    """S3 looks whether an object is there and writes it in one step; moto in two, between which others write, too."""
    lock = threading.Lock()

    def put(**arguments: Any) -> Any:
        with lock:
            return put_object(**arguments)

    return put


@pytest.fixture
def s3_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with s3_bucket(monkeypatch) as client:
        yield client


@pytest.fixture(params=["files", "s3", "s3 locked"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "files":
        return FileBlobStore(tmp_path / "evidence")
    client = request.getfixturevalue("s3_client")
    return S3BlobStore(
        client, BUCKET, retention=Retention(LockMode.COMPLIANCE, 30) if "locked" in request.param else None
    )


async def test_what_is_put_is_got(store: BlobStore) -> None:
    blob = await store.put(KEY, ONE, sha(ONE))
    assert blob.sha256 == sha(ONE)
    assert blob.uri.endswith(KEY)
    assert await store.get(blob) == ONE


async def test_the_same_bytes_again_are_the_same_blob(store: BlobStore) -> None:
    assert await store.put(KEY, ONE, sha(ONE)) == await store.put(KEY, ONE, sha(ONE))


async def test_other_bytes_under_a_taken_key_are_refused(store: BlobStore) -> None:
    blob = await store.put(KEY, ONE, sha(ONE))
    with pytest.raises(ConsistencyError, match="other content"):
        await store.put(KEY, TWO, sha(TWO))
    assert await store.get(blob) == ONE


async def test_of_concurrent_puts_of_different_bytes_one_wins(store: BlobStore) -> None:
    async def attempt(data: bytes) -> StoredBlob | None:
        try:
            return await store.put(KEY, data, sha(data))
        except ConsistencyError:
            return None

    results = await asyncio.gather(*(attempt(data) for data in (ONE, TWO, ONE, TWO)))
    kept = {blob for blob in results if blob is not None}
    assert len(kept) == 1
    (blob,) = kept
    assert sha(await store.get(blob)) == blob.sha256


@pytest.mark.parametrize("key", ["", "/a", "a/", "../a", "a/../b", ".a", "a//b", "a b", "ä", "a\n", "x" * 600])
async def test_unusable_keys_are_refused(store: BlobStore, key: str) -> None:
    with pytest.raises(InputError):
        await store.put(key, ONE, sha(ONE))


async def test_a_wrong_checksum_is_refused_before_anything_is_written(store: BlobStore) -> None:
    with pytest.raises(InputError):
        await store.put(KEY, ONE, sha(TWO))
    blob = await store.put(KEY, TWO, sha(TWO))
    assert await store.get(blob) == TWO


async def test_what_is_not_there_is_not_found(store: BlobStore) -> None:
    blob = await store.put(KEY, ONE, sha(ONE))
    with pytest.raises(NotFoundError):
        await store.get(StoredBlob(blob.uri + "x", None, sha(ONE)))


async def test_a_digest_that_is_not_the_stored_one_is_noticed(store: BlobStore) -> None:
    blob = await store.put(KEY, ONE, sha(ONE))
    with pytest.raises(ConsistencyError, match="was changed"):
        await store.get(StoredBlob(blob.uri, blob.version_id, sha(TWO)))


@pytest.mark.parametrize(
    "uri", ["", "file:/etc/passwd", "file:../x", "s3://other/a", "s3://evidence-test/../a", "http://x"]
)
async def test_uris_of_elsewhere_are_refused(store: BlobStore, uri: str) -> None:
    with pytest.raises(InputError):
        await store.get(StoredBlob(uri, None, sha(ONE)))


async def test_files_are_private_whole_and_leave_nothing_behind(tmp_path: Path) -> None:
    root = tmp_path / "evidence"
    blob = await FileBlobStore(root).put(KEY, ONE, sha(ONE))
    assert blob.uri == f"file:{KEY}"
    files = [path for path in root.rglob("*") if path.is_file()]
    assert files == [root / KEY]
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    assert await FileBlobStore(root).get(blob) == ONE


async def test_a_changed_or_linked_file_is_noticed(tmp_path: Path) -> None:
    store = FileBlobStore(tmp_path)
    blob = await store.put(KEY, ONE, sha(ONE))
    (tmp_path / KEY).write_bytes(TWO)
    with pytest.raises(ConsistencyError):
        await store.get(blob)
    (tmp_path / KEY).unlink()
    (tmp_path / "elsewhere").write_bytes(ONE)
    (tmp_path / KEY).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TransportError):
        await store.get(blob)


async def test_an_unwritable_directory_is_a_transport_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TransportError, match="cannot be written"):
        await FileBlobStore(tmp_path / "file").put(KEY, ONE, sha(ONE))


@pytest.mark.req("U-7")
async def test_s3_names_the_version_and_reads_it_under_a_forgery(s3_client: Any) -> None:
    store = S3BlobStore(s3_client, BUCKET)
    blob = await store.put(KEY, ONE, sha(ONE))
    assert blob.version_id
    s3_client.put_object(Bucket=BUCKET, Key=KEY, Body=TWO)
    assert await store.get(blob) == ONE
    with pytest.raises(ConsistencyError):
        await store.get(StoredBlob(blob.uri, None, blob.sha256))
    s3_client.delete_object(Bucket=BUCKET, Key=KEY)
    assert await store.get(blob) == ONE
    with pytest.raises(NotFoundError):
        await store.get(StoredBlob(blob.uri, "no-such-version", blob.sha256))


@pytest.mark.req("U-7")
async def test_s3_locks_from_the_moment_of_writing_and_sends_the_checksum(s3_client: Any) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    retention = Retention(LockMode.COMPLIANCE, 400)
    await S3BlobStore(s3_client, BUCKET, retention=retention, now=lambda: now).put(KEY, ONE, sha(ONE))
    head = s3_client.head_object(Bucket=BUCKET, Key=KEY, ChecksumMode="ENABLED")
    assert head["ObjectLockMode"] == "COMPLIANCE"
    assert head["ObjectLockRetainUntilDate"] == now + timedelta(days=400)
    assert head["ChecksumSHA256"]


async def test_a_bucket_without_versions_has_no_version_id(s3_client: Any) -> None:
    s3_client.create_bucket(Bucket="plain")
    store = S3BlobStore(s3_client, "plain")
    blob = await store.put(KEY, ONE, sha(ONE))
    assert blob.version_id is None
    assert await store.get(blob) == ONE


async def test_a_folder_of_the_bucket_stands_before_every_key_and_in_its_uri(s3_client: Any) -> None:
    store = S3BlobStore(s3_client, BUCKET, "team/evidence")
    blob = await store.put("tenant/run.zip", ONE, sha(ONE))
    assert blob.uri == f"s3://{BUCKET}/team/evidence/tenant/run.zip"
    assert await store.get(blob) == ONE


async def test_s3_failures_are_told_apart(s3_client: Any) -> None:
    with pytest.raises(ConfigurationError, match="bucket nowhere exists"):
        await S3BlobStore(s3_client, "nowhere").put(KEY, ONE, sha(ONE))


async def test_an_unreachable_s3_is_a_transport_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    config = Config(retries={"max_attempts": 0}, connect_timeout=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        # port 9, discard: nothing listens on loopback
        client = boto3.client("s3", region_name="us-east-1", endpoint_url="http://127.0.0.1:9", config=config)
        store = S3BlobStore(client, BUCKET)
        with pytest.raises(TransportError, match="could not be reached"):
            await store.put(KEY, ONE, sha(ONE))
        with pytest.raises(TransportError):
            await store.get(StoredBlob(f"s3://{BUCKET}/{KEY}", None, sha(ONE)))


async def test_what_is_to_be_erased_is_never_locked_and_goes_with_all_its_versions(store: BlobStore) -> None:
    end = ".values.jsonl"
    for place in ("acme/run-1", "acme/run-2"):
        await store.put(f"{place}/a.zip", ONE, sha(ONE))
        await store.put(f"{place}/a.zip{end}", ONE, sha(ONE), erasable=True)
    gone = await store.put(f"acme/run-1/b.zip{end}", b"two", sha(b"two"), erasable=True)
    assert await store.erase("acme/run-1/", end) == 2
    assert await store.erase("acme/run-1/", end) == 0
    assert await store.keys("acme/") == ["acme/run-1/a.zip", "acme/run-2/a.zip", f"acme/run-2/a.zip{end}"]
    with pytest.raises(NotFoundError):
        await store.get(gone)
