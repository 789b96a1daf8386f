"""Definitions that could not be used at the last start, each with its place and the reason (X-2)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from core.db import Connection

_FORGET = "DELETE FROM unavailable WHERE tenant_id = $1"
_FORGET_ONE = "DELETE FROM unavailable WHERE tenant_id = $1 AND kind = $2 AND name = $3"
_NOTE = """
INSERT INTO unavailable (tenant_id, place, kind, name, reason) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, place) DO UPDATE SET reason = excluded.reason"""
_LIST = """
SELECT kind, name, place, reason FROM unavailable WHERE tenant_id = $1 AND ($2::text IS NULL OR kind = $2)
  AND ($3::text IS NULL OR name = $3)
ORDER BY kind, name, place"""


class Unavailable(Struct, frozen=True):
    """One definition that cannot be used. ``place`` is its file, or what was published; ``name`` may be ""."""

    kind: str
    name: str
    place: str
    reason: str


async def replace(connection: Connection, tenant: str, found: Sequence[Unavailable]) -> None:
    """Remember what is unavailable now, and forget what was. A crash before the commit leaves what was known."""
    await connection.execute(_FORGET, tenant)
    for one in found:
        await connection.execute(_NOTE, tenant, one.place, one.kind, one.name, one.reason)


async def forget(connection: Connection, tenant: str, kind: str, name: str) -> None:
    """Forget what has been published since."""
    await connection.execute(_FORGET_ONE, tenant, kind, name)


async def listed(
    connection: Connection, tenant: str, kind: str | None = None, name: str | None = None
) -> list[Unavailable]:
    """Everything that was unavailable at the last start, or what has this kind and name."""
    return [Unavailable(*row) for row in await connection.fetch(_LIST, tenant, kind, name)]
