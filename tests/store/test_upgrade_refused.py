"""A database that this release cannot carry on is refused as it is, with the remedy."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from alembic import command
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from app import migrate
from core.errors import ConfigurationError

RUN = """
INSERT INTO runs (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest, trigger_type,
  trigger_ref, reference, requested_by, status) VALUES ($1, 'acme', 'w', 'w', 1, 'd', 't', '1', 'r', 'ann', 'queued')"""


async def _to(url: str, revision: str) -> None:
    engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    async with engine.begin() as connection:
        await connection.run_sync(lambda found: command.upgrade(migrate.alembic_config(found), revision))
    await engine.dispose()


@pytest.fixture
async def older(postgres_url: str) -> Any:
    """The address of a database with the schema of 0.1.0, with one run in it."""
    name = f"older_{uuid4().hex}"
    server = await asyncpg.connect(postgres_url)
    await server.execute(f'CREATE DATABASE "{name}"')
    url = make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    await _to(url, "0004")
    connection = await asyncpg.connect(url)
    await connection.execute("INSERT INTO tenants (tenant_id, stream_id) VALUES ('acme', gen_random_uuid())")
    await connection.execute(RUN, uuid4())
    await connection.close()
    yield url
    await server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await server.close()


async def test_runs_of_an_older_release_are_not_carried_on(older: str) -> None:
    with pytest.raises(ConfigurationError, match=r"it holds runs of Counterseal 0\.1\.0") as refused:
        await migrate.upgrade_async(older)
    assert "an empty database" in (refused.value.remedy or "")
    connection = await asyncpg.connect(older)
    assert await connection.fetchval("SELECT version_num FROM alembic_version") == "0004"
    assert await connection.fetchval("SELECT count(*) FROM runs") == 1
    await connection.close()


async def test_an_empty_database_of_an_older_release_is_upgraded(older: str) -> None:
    connection = await asyncpg.connect(older)
    await connection.execute("DELETE FROM runs")
    await asyncio.gather(*(migrate.upgrade_async(older) for _ in range(2)))
    assert await connection.fetchval("SELECT to_regclass('journal') IS NOT NULL")
    await connection.close()
