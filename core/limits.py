"""Limits of time for clients of the database, so that nobody waits for a process that does not answer (promises 4, 9).

A process that is stopped, disconnected or lost with its machine keeps its connections open, and its locks with them. So
PostgreSQL ends an idle transaction, a statement that runs too long, and a long wait for a lock; and we drop a
connection without answers. Each limit is shorter than a lease, so the locks of such a process are free before its
leases run out.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
from msgspec import Struct

# The lease to which the seconds of ``Limits`` belong, and the shortest lease to which they are scaled down.
LEASE_SECONDS = 30.0
LEASE_SECONDS_MIN = 12.0


class Limits(Struct, frozen=True):
    """Limits in seconds, each shorter than the lease of ``LEASE_SECONDS``; ``within`` scales them to a shorter one.

    ``lock``: a wait for a lock. ``idle``: a transaction whose client is idle. ``statement``: one statement. ``answer``:
    one exchange, as the client sees it. ``alive``: a connection without a sign of life from the other machine.
    """

    lock: float = 2.0
    idle: float = 10.0
    statement: float = 15.0
    answer: float = 18.0
    alive: float = 10.0

    @staticmethod
    def within(lease_seconds: float) -> Limits:
        """The limits for this lease. They are never longer than the usual ones, and never so short that work fails."""
        scale = min(1.0, max(lease_seconds, LEASE_SECONDS_MIN) / LEASE_SECONDS)
        one = Limits()
        return Limits(one.lock * scale, one.idle * scale, one.statement * scale, one.answer * scale, one.alive * scale)

    @property
    def turn(self) -> float:
        """The wait for a lock of a caller that must succeed: a holder that has vanished has lost the lock by then."""
        return self.idle + self.lock

    def settings(self) -> dict[str, str]:
        """The limits as PostgreSQL's settings of a session or a login."""
        return {
            "lock_timeout": milliseconds(self.lock),
            "idle_in_transaction_session_timeout": milliseconds(self.idle),
            "statement_timeout": milliseconds(self.statement),
            "tcp_user_timeout": milliseconds(self.alive),
            "tcp_keepalives_idle": str(max(1, round(self.alive / 2))),
            "tcp_keepalives_interval": str(max(1, round(self.alive / 6))),
            "tcp_keepalives_count": "3",
        }


def milliseconds(seconds: float) -> str:
    """A time as PostgreSQL's settings have it; never 0, which would mean no limit."""
    return f"{max(1, round(seconds * 1000))}ms"


def keep_alive(transport: Any, seconds: float) -> None:
    """Let the system end a TCP connection without a sign of life from the other machine; skips other sockets."""
    found = transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": max(1, round(seconds / 2)),
        "TCP_KEEPINTVL": max(1, round(seconds / 6)),
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": round(seconds * 1000),
    }
    for name, value in options.items():
        if hasattr(socket, name):  # not every system has them all; the deadline of each exchange holds everywhere
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


if TYPE_CHECKING:
    _Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection


def kept_alive(seconds: float) -> type[_Connection]:
    """The class of connections whose socket is kept alive."""

    class KeepAliveConnection(_Connection):
        def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
            keep_alive(transport, seconds)
            super().__init__(protocol, transport, *rest)

    return KeepAliveConnection


async def close(connection: asyncpg.Connection[asyncpg.Record], seconds: float = 2.0) -> None:
    """Close a connection politely, or drop it if the server does not answer."""
    if connection.is_closed():
        connection.terminate()
        return
    try:
        async with asyncio.timeout(seconds):
            await connection.close()
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        connection.terminate()
