"""PostgreSQL is killed between the claim of a step and its intent: the claim is lost and made again (Q-9).

A claim is not flushed, so after a crash PostgreSQL gives the same epoch a second time. Only the lease's id, drawn anew
for each claim, tells the two workers apart.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from app import storage
from app.embedded_postgres import EmbeddedPostgres
from runtime.store import claims
from runtime.work.driving import Drive
from runtime.work.holding import Tools
from runtime.work.lease import Lease
from tests.support.for_all import ForAll
from tests.support.runtime_stage import ALLOW_ALL

LEASE = timedelta(seconds=30)
TEXT = """
workflow: one
version: 1
reference: ref
steps:
  - {id: a, do: probe.effect.apply, with: {name: a, value: x}}
"""


class Killed:
    """A durable server that can be killed like a machine that loses power, and started again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.server = EmbeddedPostgres(root)

    async def restart(self) -> None:
        """Kill every process of the server at once, and start it again on what had reached the disk."""
        postmaster = int((self._root / "cluster/data/postmaster.pid").read_text().splitlines()[0])
        group = [postmaster, *_children(postmaster)]
        for process in group:
            os.kill(process, signal.SIGKILL)
        async with asyncio.timeout(60):
            while await asyncio.to_thread(self.server.ensure_running) is None:
                pass  # its processes are still ending


def _children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in found]


@pytest.fixture
async def killed(tmp_path: Path) -> AsyncIterator[Killed]:
    server = Killed(tmp_path / "postgres")
    yield server
    await asyncio.to_thread(server.server.stop)


@pytest.fixture
async def database_url(killed: Killed) -> str:
    """A database of that server, which writes nothing of what nobody waits for."""
    url = await asyncio.to_thread(killed.server.start)
    connection = await asyncpg.connect(url)
    await connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
    await connection.execute("ALTER SYSTEM SET wal_writer_flush_after = '1GB'")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
    await storage.upgrade(url)
    return url


async def claim(runtime: Any, owner: str) -> tuple[Tools, asyncpg.Record, float]:
    tools = Tools(runtime.database, runtime.definitions, ForAll(runtime.connectors), owner, LEASE)
    began = Lease.now()
    async with runtime.database.connection() as connection:
        (record,) = await claims.claim_next(connection, owner, LEASE)
    return tools, record, began


async def place(runtime: Any) -> tuple[str, int]:
    row = await runtime.one("SELECT status, epoch FROM queue")
    return row["status"], row["epoch"]


@pytest.mark.req("Q-9")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("first_comes_first", [True, False])
async def test_of_two_leases_with_one_epoch_the_newer_one_acts_and_the_older_never(
    runtime: Any, killed: Killed, first_comes_first: bool
) -> None:
    await runtime.tenant()
    await runtime.policy(ALLOW_ALL)
    await runtime.publish(TEXT)
    started = await runtime.start("one", {}, ref=str(uuid4()))
    tools, record, began = await claim(runtime, "first")
    assert await place(runtime) == ("leased", 1)

    await killed.restart()
    assert await place(runtime) == ("claimable", 0), "the claim was lost with the server"

    newer_tools, newer, newer_began = await claim(runtime, "second")
    assert newer["step"]["lease_epoch"] == record["step"]["lease_epoch"]
    assert newer["step"]["lease_id"] != record["step"]["lease_id"]
    drives = [(tools, record, began), (newer_tools, newer, newer_began)]
    for means, step, at in drives if first_comes_first else reversed(drives):
        await Drive(means).run(step, at)
        if means is tools and first_comes_first:
            assert runtime.outside.effects == []
    assert await runtime.status(started.run_id) == "succeeded"
    assert [*runtime.outside.landed().values()] == [1]
