"""Reads the texts that a bundle holds besides the run's book, and stores the place of each bundle."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import asyncpg

from core.db import Connection
from evidence.blobs import StoredBlob
from evidence.bundle import Bundle, DocumentText
from runtime.store.books import Book
from runtime.store.statements import statements

_SQL = statements("bundles")
_SOURCE = _SQL["source"]
_POLICIES = _SQL["policies"]
_STANDING = _SQL["standing"]
_DIRECTORIES = _SQL["directories"]
_REMEMBER = _SQL["remember"]
_NEWEST = _SQL["newest"]
_FAILURES = _SQL["failures"]
_STATE = _SQL["state"]


async def texts(
    connection: Connection, book: Book, policies: Iterable[str]
) -> tuple[DocumentText, tuple[DocumentText, ...]]:
    """The published text of a run's workflow, and the texts of the policies with these digests."""
    row = book.row
    source = await connection.fetchval(_SOURCE, row["tenant_id"], row["workflow"], row["workflow_version"])
    found = await connection.fetch(_POLICIES, row["tenant_id"], [*policies])
    workflow = DocumentText(row["workflow"], row["workflow_version"], source)
    return workflow, tuple(DocumentText(each["name"], each["version"], each["source"]) for each in found)


async def standing(connection: Connection, tenant: str) -> list[tuple[int, bytes]]:
    """The tenant's lines about pauses, policies and directories, in order, each with its place in the stream."""
    rows = await connection.fetch(_STANDING, tenant)
    return [(row["seq"], bytes(row["line"])) for row in rows]


async def directories(connection: Connection, tenant: str, digests: Iterable[str]) -> dict[str, str]:
    """The texts of the directories with these digests, by digest; those that were not kept are left out."""
    rows = await connection.fetch(_DIRECTORIES, tenant, [*digests])
    return {row["digest"]: row["source"] for row in rows}


async def remember(
    connection: Connection, run: str, tenant: str, lines: int, bundle: Bundle, stored: StoredBlob, key_id: str
) -> None:
    """Store the place and SHA-256 of a run's bundle. ``lines`` is the number of lines in this edition."""
    where = (bundle.name, stored.uri, stored.version_id, bundle.sha256, len(bundle.bytes), key_id)
    await connection.execute(_REMEMBER, run, tenant, lines, *where)


async def failures(connection: Connection, tenant: str) -> list[tuple[UUID, str]]:
    """The runs of a tenant whose evidence could not be stored, each with the reason. Somebody has to order it again."""
    return [(row["run_id"], row["last_error"]) for row in await connection.fetch(_FAILURES, tenant)]


async def newest(connection: Connection, tenant: str, run_id: UUID) -> str | None:
    """The SHA-256 of the bundle of a run's last end; None if that bundle is not stored."""
    found: str | None = await connection.fetchval(_NEWEST, tenant, run_id)
    return found


async def state(connection: Connection, tenant: str, run_id: UUID) -> asyncpg.Record | None:
    """Two flags of a run's evidence: if it is stored, and if its writing was given up. None if there is no such run."""
    return await connection.fetchrow(_STATE, tenant, run_id)
