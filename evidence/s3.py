"""Blobs in an S3 bucket: written once under a checksum, kept by Object Lock if configured, read by version.

Object Lock does not prevent a newer version or a delete marker. So a blob is read by its version id, and its bytes are
checked against the SHA-256 that we stored, whatever the service says.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError
from msgspec import Struct

from core.canonical import sha256_hex
from core.errors import ConfigurationError, ConsistencyError, NotFoundError, TransportError
from evidence.blobs import LockMode, StoredBlob, check_got, check_put, check_read, key_of

Clock: TypeAlias = Callable[[], datetime]

_TYPES = {"zip": "application/zip", "jsonl": "application/jsonl"}
_TAKEN = frozenset({"PreconditionFailed", "412"})
_GONE = frozenset({"NoSuchKey", "NoSuchVersion", "404", "MethodNotAllowed", "405"})
_SETUP = frozenset({"NoSuchBucket", "AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"})


class Retention(Struct, frozen=True):
    """Object Lock for every blob from the moment it is written, except for blobs that are to be erased.

    The bucket must have Object Lock enabled.
    """

    mode: LockMode
    days: int


def _now() -> datetime:
    return datetime.now(UTC)


class S3BlobStore:
    """A ``BlobStore`` in one bucket, below ``folder``, through a boto3 S3 client that the caller made."""

    def __init__(
        self, client: Any, bucket: str, folder: str = "", *, retention: Retention | None = None, now: Clock = _now
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._retention = retention
        self._now = now
        self._prefix = f"s3://{bucket}/"
        self._folder = f"{folder}/" if folder else ""

    async def put(self, key: str, data: bytes, sha256: str, *, erasable: bool = False) -> StoredBlob:
        """See ``BlobStore.put``. A bucket whose own default locks every object refuses to erase it later."""
        key = self._folder + key
        check_put(key, data, sha256)
        try:
            answer = await asyncio.to_thread(self._client.put_object, **self._request(key, data, sha256, erasable))
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and _code(error) in _TAKEN:
                found, version_id = await self._fetch(key, None)
                if sha256_hex(found) != sha256:
                    raise ConsistencyError(f"{self._prefix}{key} exists already, with other content") from None
                return StoredBlob(self._prefix + key, version_id, sha256)
            raise self._failure(error, key) from error
        return StoredBlob(self._prefix + key, _version(answer), sha256)

    async def replace(self, key: str, data: bytes) -> None:
        """See ``BlobStore.replace``. In a bucket with versions the older ones stay, as its lifecycle says."""
        key, digest = self._folder + key, sha256_hex(data)
        check_put(key, data, digest)
        request = self._request(key, data, digest, erasable=True)
        del request["IfNoneMatch"]
        try:
            await asyncio.to_thread(self._client.put_object, **request)
        except (ClientError, BotoCoreError) as error:
            raise self._failure(error, key) from error

    async def get(self, blob: StoredBlob) -> bytes:
        """See ``BlobStore.get``."""
        data, _ = await self._fetch(key_of(blob, self._prefix), blob.version_id)
        return check_got(blob, data)

    async def read(self, key: str, most: int) -> bytes:
        """See ``BlobStore.read``: the newest version."""
        data, _ = await self._fetch(self._folder + key, None, most + 1)
        return check_read(key, data, most)

    async def keys(self, prefix: str) -> list[str]:
        """See ``BlobStore.keys``."""

        def listed() -> list[str]:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._folder + prefix
            )
            return [one["Key"].removeprefix(self._folder) for page in pages for one in page.get("Contents", ())]

        try:
            return await asyncio.to_thread(listed)
        except (ClientError, BotoCoreError) as error:
            raise self._failure(error, prefix) from error

    async def erase(self, prefix: str, end: str) -> int:
        """See ``BlobStore.erase``: every version and every delete marker."""
        try:
            return await asyncio.to_thread(self._erase, self._folder + prefix, end)
        except (ClientError, BotoCoreError) as error:
            raise self._failure(error, prefix) from error

    def _erase(self, prefix: str, end: str) -> int:
        pages = self._client.get_paginator("list_object_versions").paginate(Bucket=self._bucket, Prefix=prefix)
        every = [one for page in pages for kind in ("Versions", "DeleteMarkers") for one in page.get(kind, ())]
        found = [one for one in every if one["Key"].endswith(end)]
        for one in found:
            self._client.delete_object(Bucket=self._bucket, Key=one["Key"], VersionId=one["VersionId"])
        return len({one["Key"] for one in found})

    def _request(self, key: str, data: bytes, sha256: str, erasable: bool) -> dict[str, Any]:
        request: dict[str, Any] = {
            "Bucket": self._bucket,
            "Key": key,
            "Body": data,
            "ContentType": _TYPES.get(key.rpartition(".")[2], "application/octet-stream"),
            "IfNoneMatch": "*",
            "ChecksumAlgorithm": "SHA256",
            "ChecksumSHA256": base64.b64encode(bytes.fromhex(sha256)).decode(),
        }
        if self._retention is not None and not erasable:
            request["ObjectLockMode"] = str(self._retention.mode)
            request["ObjectLockRetainUntilDate"] = self._now() + timedelta(days=self._retention.days)
        return request

    async def _fetch(self, key: str, version_id: str | None, most: int | None = None) -> tuple[bytes, str | None]:
        def download() -> tuple[bytes, str | None]:
            version = {} if version_id is None else {"VersionId": version_id}
            answer = self._client.get_object(Bucket=self._bucket, Key=key, **version)
            with answer["Body"] as body:
                return body.read(most), _version(answer)

        try:
            return await asyncio.to_thread(download)
        except (ClientError, BotoCoreError) as error:
            raise self._failure(error, key) from error

    def _failure(self, error: ClientError | BotoCoreError, key: str) -> Exception:
        uri = self._prefix + key
        if not isinstance(error, ClientError):
            return TransportError(f"S3 could not be reached for {uri}: {error}")
        code = _code(error)
        if code in _SETUP:
            return ConfigurationError(
                f"S3 refused {uri}: {code}.",
                remedy=f"Check that the bucket {self._bucket} exists and that the credentials may read and write it.",
            )
        if code in _GONE:
            return NotFoundError(f"{uri} is not in the bucket")
        return TransportError(f"S3 answered {code} for {uri}")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def _version(answer: dict[str, Any]) -> str | None:
    """The version id; None for a bucket without versioning, which answers with none or with "null"."""
    version = answer.get("VersionId")
    return None if version in (None, "null") else str(version)
