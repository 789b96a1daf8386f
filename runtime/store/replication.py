"""Says if what is acknowledged is on another machine as well, as far as this login may see.

With an asynchronous standby, a failover loses what was acknowledged last: starts, votes, and the record of effects that
have happened, which are then made again.
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
    """The kind, and why it is that."""

    kind: Kind
    why: str


async def of(connection: Connection) -> Replication:
    """The replication of the database that this connection leads to."""
    row = await connection.fetchrow(_FOUND)
    assert row is not None
    return judged(row["named"], row["waits"], row["standbys"], row["synchronous"], row["hidden"], row["gone"])


def judged(named: str, waits: str, standbys: int, synchronous: int, hidden: int, gone: int) -> Replication:
    """The kind of replication by the server's settings and by the standbys that are connected."""
    setting = f"synchronous_standby_names = {named!r}, synchronous_commit = {waits}"
    if named and waits not in ("off", "local"):
        # PostgreSQL acknowledges nothing before a standby of these names has it, connected or not.
        connected = f"{synchronous} of {standbys} standbys are" if not hidden else f"of {standbys} standbys some are"
        return Replication(Kind.SYNCHRONOUS, f"{setting}; {connected} synchronous")
    if standbys:
        return Replication(Kind.ASYNCHRONOUS, f"{standbys} standbys, and {setting}")
    if gone:
        return Replication(Kind.UNKNOWN, f"{gone} standbys have a slot and are not connected, and {setting}")
    return Replication(Kind.NONE, "no standby is connected")


async def behind(connection: Connection, tenant: str) -> float:
    """The seconds by which the database's clock is behind the newest line of an open run; 0 if it is not."""
    found = await connection.fetchval(_BEHIND, tenant)
    return 0.0 if found is None else float(found.total_seconds())


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
