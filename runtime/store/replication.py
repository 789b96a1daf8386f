"""Finds out if acknowledged commits are on another machine as well, as far as this login may see.

With an asynchronous standby, a failover loses the newest acknowledged commits: starts, votes, and the record of effects
that have happened, which are then performed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from core.db import Connection
from runtime.store.statements import statements

_SQL = statements("replication")
_FOUND = _SQL["found"]
_BEHIND = _SQL["behind"]
_FORGET = _SQL["forget"]
_FORGET_ONE = _SQL["forget_one"]
_NOTE = _SQL["note"]
_LIST = _SQL["list"]


class Kind(StrEnum):
    """The kinds of replication."""

    SYNCHRONOUS = "synchronous"
    ASYNCHRONOUS = "asynchronous"
    NONE = "none"
    UNKNOWN = "unknown"


class Replication(Struct, frozen=True):
    """The kind of replication, and the reason for this verdict."""

    kind: Kind
    why: str


async def of(connection: Connection) -> Replication:
    """Read the replication of the database behind this connection."""
    row = await connection.fetchrow(_FOUND)
    assert row is not None
    return judged(row["named"], row["waits"], row["standbys"], row["synchronous"], row["hidden"], row["gone"])


def judged(named: str, waits: str, standbys: int, synchronous: int, hidden: int, unconnected: int) -> Replication:
    """Judge the kind of replication by the server's settings and by the connected standbys."""
    setting = f"synchronous_standby_names = {named!r}, synchronous_commit = {waits}"
    if named and waits not in ("off", "local"):
        # PostgreSQL acknowledges nothing before a standby of these names has it, connected or not.
        connected = f"{synchronous} of {standbys} standbys are" if not hidden else f"of {standbys} standbys some are"
        return Replication(Kind.SYNCHRONOUS, f"{setting}; {connected} synchronous")
    if standbys:
        return Replication(Kind.ASYNCHRONOUS, f"{standbys} standbys, and {setting}")
    if unconnected:
        return Replication(Kind.UNKNOWN, f"{unconnected} standbys have a slot and are not connected, and {setting}")
    return Replication(Kind.NONE, "no standby is connected")


async def behind(connection: Connection, tenant: str) -> float:
    """The seconds by which the database's clock is behind the newest line of an open run; 0 if it is not behind."""
    found = await connection.fetchval(_BEHIND, tenant)
    return 0.0 if found is None else float(found.total_seconds())


class Unavailable(Struct, frozen=True):
    """A definition that cannot be used. ``place`` is its file or its published version; ``name`` may be ""."""

    kind: str
    name: str
    place: str
    reason: str


async def replace(connection: Connection, tenant: str, found: Sequence[Unavailable]) -> None:
    """Replace the stored list of unavailable definitions. A crash before the commit leaves the former list."""
    await connection.execute(_FORGET, tenant)
    for one in found:
        await connection.execute(_NOTE, tenant, one.place, one.kind, one.name, one.reason)


async def forget(connection: Connection, tenant: str, kind: str, name: str) -> None:
    """Remove a definition from the list after it was published."""
    await connection.execute(_FORGET_ONE, tenant, kind, name)


async def listed(
    connection: Connection, tenant: str, kind: str | None = None, name: str | None = None
) -> list[Unavailable]:
    """The definitions that were unavailable at the last start; only those of this kind and name, if given."""
    return [Unavailable(*row) for row in await connection.fetch(_LIST, tenant, kind, name)]
