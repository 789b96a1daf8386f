"""Processor time of a PostgreSQL server on this machine."""

from __future__ import annotations

import asyncpg
import psutil


async def processor_seconds(connection: asyncpg.Connection[asyncpg.Record]) -> float:
    """Sum up the whole server: its processes, and those that have ended and were its own."""
    backend = psutil.Process(await connection.fetchval("SELECT pg_backend_pid()"))
    server = backend.parent()
    assert server is not None
    own = server.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for process in server.children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:  # it has ended just now, and is counted among the server's from the next time on
            continue
        total += times.user + times.system
    return float(total)
