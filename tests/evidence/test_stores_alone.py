"""Stores of bundles without a service: what is asked of S3 at all, and what a directory says of its faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from core.canonical import sha256_hex
from core.errors import ConsistencyError, InputError, NotFoundError, TransportError
from evidence.blobs import StoredBlob
from evidence.files import FileBlobStore
from evidence.s3 import S3BlobStore
from tests.evidence.test_every_fault import Body, Bucket

pytestmark = pytest.mark.req("U-7")

DATA = b"data"
DIGEST = sha256_hex(DATA)


@pytest.mark.parametrize(
    ("folder", "key", "fits"),
    [
        ("", "a/b", True), ("f", "a/b", True), ("f/g", "a", True), ("f" * 128, "a" * 128, True),
        ("a b", "a", False), ("/f", "a", False), ("f/", "a", False), ("..", "a", False), ("f" * 129, "a", False),
        ("/".join(["f" * 100] * 5), "a" * 7, True), ("/".join(["f" * 100] * 5), "a" * 8, False),
    ],
)  # fmt: skip
async def test_a_key_is_checked_with_its_folder_before_anything_is_asked(folder: str, key: str, fits: bool) -> None:
    client = Bucket({"VersionId": "v1"})
    store = S3BlobStore(client, "b1", folder)
    if fits:
        whole = f"{folder}/{key}" if folder else key
        assert await store.put(key, DATA, DIGEST) == StoredBlob(f"s3://b1/{whole}", "v1", DIGEST)
        assert client.asked[0][1]["Key"] == whole
    else:
        with pytest.raises(InputError, match="is not a usable key"):
            await store.put(key, DATA, DIGEST)
        assert client.asked == []


@pytest.mark.parametrize("held", [b"atad", b"", b"data\n", DATA])
async def test_what_is_there_is_the_same_or_another_by_all_of_its_bytes(held: bytes) -> None:
    client = Bucket(ClientError({"Error": {"Code": "412"}}, "PutObject"), {"Body": Body(held), "VersionId": "v9"})
    putting = S3BlobStore(client, "b1").put("x", DATA, DIGEST)
    if held == DATA:
        assert await putting == StoredBlob("s3://b1/x", "v9", DIGEST)
    else:
        with pytest.raises(ConsistencyError, match="s3://b1/x exists already, with other content"):
            await putting
    assert client.asked[1] == ["get", {"Bucket": "b1", "Key": "x"}], "the newest, because nobody knows which it is"


@pytest.mark.parametrize("version", [None, "v1"])
@pytest.mark.parametrize("held", [DATA, b"atad"])
async def test_what_is_got_is_that_version_and_has_its_digest(held: bytes, version: str | None) -> None:
    client: Any = Bucket(None, {"Body": Body(held), "VersionId": "v9"})
    getting = S3BlobStore(client, "b1").get(StoredBlob("s3://b1/x", version, DIGEST))
    if held == DATA:
        assert await getting == DATA
    else:
        with pytest.raises(ConsistencyError, match="it was changed"):
            await getting
    assert client.asked == [["get", {"Bucket": "b1", "Key": "x", **({"VersionId": version} if version else {})}]]


async def test_a_directory_says_why_it_cannot_write_or_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    store = FileBlobStore(tmp_path)
    with pytest.raises(TransportError) as caught:
        await store.put("file/x", DATA, DIGEST)
    assert str(caught.value).startswith("the evidence file file/x cannot be written: File exists")
    for key, error, words in (
        ("folder", TransportError, "the evidence file folder cannot be read: Is a directory"),
        ("link", TransportError, "the evidence file link cannot be read: Too many levels of symbolic links"),
        ("file/x", NotFoundError, "file:file/x is not in the evidence directory"),
        ("none", NotFoundError, "file:none is not in the evidence directory"),
    ):
        with pytest.raises(error) as told:
            await store.get(StoredBlob(f"file:{key}", None, DIGEST))
        assert str(told.value).startswith(words)
    for held in (b"atad", b"", b"data\n"):
        (tmp_path / "file").write_bytes(held)
        with pytest.raises(ConsistencyError, match="file:file exists already, with other content"):
            await store.put("file", DATA, DIGEST)
        with pytest.raises(ConsistencyError, match="it was changed"):
            await store.get(StoredBlob("file:file", None, DIGEST))
        assert (tmp_path / "file").read_bytes() == held
