"""No upgrade of the schema under processes of another release, and none of these goes on after one."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app import storage
from app.cli.outcome import Exit
from app.settings import Settings
from core.errors import ConfigurationError
from tests.support.insides import RUNNING_KEY, migrations_folder, take_migrations_from

HOLDERS = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((classid::bigint << 32) | objid::bigint) = $1"""
# Processes start here, which takes long on a busy machine.
pytestmark = pytest.mark.timeout(300)

NEXT = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "0999", "{head}", None, None


def upgrade() -> None:
    op.execute("CREATE TABLE of_the_next_release (n int)")
"""


@asynccontextmanager
async def started(settings: Settings, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", *arguments, "--json"),
        env={**os.environ, "COUNTERSEAL_DATABASE_URL": url_of(settings), "COUNTERSEAL_PORT": "0"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Any]:
    """A connection of the database's owner."""
    connection = await asyncpg.connect(url_of(settings))
    yield connection
    await connection.close()


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one of a release with one more migration; those that it starts are not."""
    own = tmp_path / "migrations"
    shutil.copytree(migrations_folder().parent, own, ignore=shutil.ignore_patterns("__pycache__"))
    (own / "versions" / "0999_next.py").write_text(NEXT.format(head=storage.head_revision()))
    take_migrations_from(own / "versions", monkeypatch)


async def holders(database: Any, *, of: set[int] | None = None, count: int) -> set[int]:
    """Wait until so many connections keep the schema as it is, of which none is one ``of`` these."""
    async with asyncio.timeout(240):
        while True:
            found = {row["pid"] for row in await database.fetch(HOLDERS, RUNNING_KEY)} - (of or set())
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


async def refused(settings: Settings, database: Any) -> None:
    """A process of the next release cannot start, and changes nothing; nor does an upgrade by hand."""
    for upgrade in (storage.ready_database(settings).__aenter__(), storage.upgrade(url_of(settings))):
        with pytest.raises(ConfigurationError, match="processes of another release are at work") as error:
            await upgrade
        assert "Stop all of them" in (error.value.remedy or "")
    assert await database.fetchval("SELECT version_num FROM alembic_version") != "0999"
    assert await database.fetchval("SELECT to_regclass('of_the_next_release') IS NULL")


def url_of(settings: Settings) -> str:
    assert settings.database_url is not None
    return settings.database_url.get_secret_value()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("part", ["work", "serve"])
async def test_a_process_keeps_the_schema_as_it_is_until_it_ends(
    clean_environment: Any, settings: Settings, database: Any, next_release: None, part: str, end: signal.Signals
) -> None:
    async with started(settings, part) as process:
        kept = await holders(database, count=2)
        await refused(settings, database)
        # PostgreSQL has lost the connection, as by a restart: the process takes another.
        for pid in kept:
            await database.execute("SELECT pg_terminate_backend($1)", pid)
        await holders(database, of=kept, count=1)
        await refused(settings, database)
        process.send_signal(end)
        async with asyncio.timeout(240):
            await process.communicate()
    async with storage.ready_database(settings):
        assert await database.fetchval("SELECT to_regclass('of_the_next_release') IS NOT NULL")
    async with started(settings, part) as process, asyncio.timeout(60):
        _, errors = await process.communicate()
    assert process.returncode == Exit.CONFIGURATION, errors.decode()
    assert b"another release made it" in errors


async def test_a_process_that_was_cut_off_during_an_upgrade_ends(
    clean_environment: Any, settings: Settings, database: Any
) -> None:
    async with started(settings, "serve") as process:
        kept = await holders(database, count=2)
        # As an upgrade that stands in line before the process can come back.
        other = await asyncpg.connect(url_of(settings))
        queued = asyncio.create_task(other.execute("SELECT pg_advisory_lock($1)", RUNNING_KEY))
        async with asyncio.timeout(240):
            while True:
                if await database.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    break
                await asyncio.sleep(0.01)
        for pid in kept:
            await database.execute("SELECT pg_terminate_backend($1)", pid)
        await queued
        await database.execute("UPDATE alembic_version SET version_num = '0999'")
        await other.close()
        async with asyncio.timeout(240):
            _, errors = await process.communicate()
    assert process.returncode == Exit.CONFIGURATION, errors.decode()
    assert b"another release made it" in errors
    await database.execute("UPDATE alembic_version SET version_num = $1", storage.head_revision())


async def test_processes_of_one_release_start_together(settings: Settings, database: Any, next_release: None) -> None:
    """One of them upgrades, and those that waited for it find nothing to do, though it is at work by then."""

    async def start(others: asyncio.Barrier) -> None:
        async with storage.ready_database(settings):
            await others.wait()

    others = asyncio.Barrier(4)
    await asyncio.wait_for(asyncio.gather(*(start(others) for _ in range(4))), 60)
    assert await database.fetchval("SELECT version_num FROM alembic_version") == "0999"
