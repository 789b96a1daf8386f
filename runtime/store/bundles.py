"""Reads the texts that a bundle holds besides the run's book, and remembers where a bundle is."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import asyncpg

from core.db import Connection
from evidence.blobs import StoredBlob
from evidence.bundle import Bundle, DocumentText
from runtime.store.books import Book

_SOURCE = "SELECT source FROM workflows WHERE tenant_id = $1 AND name = $2 AND version = $3"
_POLICIES = """
SELECT name, version, source FROM policies WHERE tenant_id = $1 AND digest = ANY ($2::text[]) ORDER BY name, version"""
_REMEMBER = """
INSERT INTO bundles (run_id, tenant_id, lines, name, uri, version_id, sha256, bytes, key_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (run_id, lines) DO NOTHING"""

_NEWEST = """
SELECT b.sha256 FROM bundles b JOIN runs r ON r.run_id = b.run_id AND b.lines = r.audit_count
WHERE r.tenant_id = $1 AND r.run_id = $2"""
_GIVEN_UP = """c.kind = 'bundle' AND c.status = 'failed'
  AND NOT EXISTS (SELECT FROM bundles b JOIN runs w ON w.run_id = b.run_id AND w.audit_count = b.lines
    WHERE b.run_id = c.run_id)
  AND NOT EXISTS (SELECT FROM commands n WHERE n.run_id = c.run_id AND n.kind = 'bundle'
    AND n.status IN ('pending', 'leased'))"""
_FAILURES = f"""
SELECT DISTINCT ON (c.run_id) c.run_id, c.last_error FROM commands c
WHERE c.tenant_id = $1 AND {_GIVEN_UP} ORDER BY c.run_id, c.command_id DESC"""
_STATE = f"""
SELECT EXISTS (SELECT FROM bundles b WHERE b.run_id = r.run_id AND b.lines = r.audit_count) AS bundled,
  EXISTS (SELECT FROM commands c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.run_id AND {_GIVEN_UP}) AS failed
FROM runs r WHERE r.tenant_id = $1 AND r.run_id = $2"""


async def texts(
    connection: Connection, book: Book, policies: Iterable[str]
) -> tuple[DocumentText, tuple[DocumentText, ...]]:
    """The workflow that a run runs, as it was published, and the policies with these digests."""
    row = book.row
    source = await connection.fetchval(_SOURCE, row["tenant_id"], row["workflow"], row["workflow_version"])
    found = await connection.fetch(_POLICIES, row["tenant_id"], [*policies])
    workflow = DocumentText(row["workflow"], row["workflow_version"], source)
    return workflow, tuple(DocumentText(each["name"], each["version"], each["source"]) for each in found)


async def remember(connection: Connection, book: Book, bundle: Bundle, stored: StoredBlob, key_id: str) -> None:
    """Note where this edition of the run's bundle is, and its SHA-256 (Q-21)."""
    where = (bundle.name, stored.uri, stored.version_id, bundle.sha256, len(bundle.bytes), key_id)
    await connection.execute(_REMEMBER, book.run_id, book.row["tenant_id"], book.head.count, *where)


async def failures(connection: Connection, tenant: str) -> list[tuple[UUID, str]]:
    """The runs of a tenant whose evidence was not stored and will not be unless it is ordered again, and why."""
    return [(row["run_id"], row["last_error"]) for row in await connection.fetch(_FAILURES, tenant)]


async def newest(connection: Connection, tenant: str, run_id: UUID) -> str | None:
    """The SHA-256 of the bundle of a run as it ended last; None if that is not stored."""
    found: str | None = await connection.fetchval(_NEWEST, tenant, run_id)
    return found


async def state(connection: Connection, tenant: str, run_id: UUID) -> asyncpg.Record | None:
    """Two flags of a run's evidence: it is stored, its writing was given up; None without such a run."""
    return await connection.fetchrow(_STATE, tenant, run_id)
