"""A database that this release cannot carry on is refused as it is, with the remedy."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import asyncpg
import pytest

from app import doctor, storage
from app.cli.outcome import Exit
from app.settings import load_settings
from core.errors import ConfigurationError

REVISIONS = ("0001", "0004", "0005", "9999")


@pytest.fixture(params=REVISIONS)
async def other(database_url: str, request: Any) -> Any:
    """The address of a database whose schema another release made, with its revision."""
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE alembic_version SET version_num = $1", request.param)
    yield database_url, request.param
    assert await connection.fetchval("SELECT version_num FROM alembic_version") == request.param
    await connection.close()


@pytest.mark.parametrize("auto_migrate", [True, False])
async def test_no_process_starts_on_the_schema_of_another_release(other: Any, auto_migrate: bool) -> None:
    url, revision = other
    with pytest.raises(ConfigurationError, match=f"at {revision}, .* another release made it") as refused:
        async with storage.ready_database(load_settings(database_url=url, auto_migrate=auto_migrate)):
            raise AssertionError
    assert "an empty database" in (refused.value.remedy or "")


async def test_the_doctor_says_so_too(other: Any) -> None:
    url, revision = other
    checks = await doctor.examine(load_settings(database_url=url))
    (check,) = (check for check in checks if check.what == "database")
    assert check.state is doctor.State.BROKEN
    assert f"at {revision}" in check.detail


async def test_the_upgrade_is_refused_in_words(other: Any) -> None:
    url, revision = other
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", "db", "upgrade"),
        env=os.environ | {"COUNTERSEAL_DATABASE_URL": url},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == Exit.CONFIGURATION
    assert errors.startswith(b"counterseal: the database's schema is at " + revision.encode())
    assert b"an empty database" in errors
