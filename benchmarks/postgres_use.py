"""Processor time of a PostgreSQL server on this machine."""

from __future__ import annotations

import asyncpg
import psutil


async def processor_seconds(connection: asyncpg.Connection[asyncpg.Record]) -> float:
    """The processor seconds of the whole server, with its child processes, also those that have ended."""
    backend = psutil.Process(await connection.fetchval("SELECT pg_backend_pid()"))
    server = backend.parent()
    assert server is not None
    own = server.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for process in server.children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:  # it has just ended; the server's own times include it from the next call on
            continue
        total += times.user + times.system
    return float(total)
