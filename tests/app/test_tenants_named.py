"""A tenant is created by the verb for it: whoever names one that is not there hears so, and nothing is made."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import asyncpg
import pytest

from app.cli.outcome import Exit
from app.faces import build_faces
from app.settings import load_settings
from app.wiring import build
from core.errors import NotFoundError
from tests.support.trouble import Forger

NAMING = [
    ("workflow", "list"),
    ("policy", "list"),
    ("run", "list"),
    ("approval", "list"),
    ("token", "list"),
    ("tenant", "set"),
]


async def _tenants(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        return [row["tenant_id"] for row in await connection.fetch("SELECT tenant_id FROM tenants ORDER BY 1")]
    finally:
        await connection.close()


def test_a_command_never_creates_the_tenant_that_it_names(
    command: Any, clean_environment: pytest.MonkeyPatch, database_url: str
) -> None:
    command("tenant", "create", "acme")
    clean_environment.setenv("COUNTERSEAL_TENANT", "acmee")
    for arguments in NAMING:
        command(*arguments, exit_code=Exit.CONFLICT)
        assert "There is no tenant 'acmee'. Did you mean 'acme'?" in command.said
        assert "`counterseal tenant create acmee`" in command.said
    clean_environment.delenv("COUNTERSEAL_TENANT")
    token = ("token", "create", "--subject", "ann", "--role", "admin", "--tenant", "acne")
    command(*token, exit_code=Exit.CONFLICT)
    command("tenant", "set", "acne", "--weight", "2", exit_code=Exit.CONFLICT)
    command("queue", "status", "--tenant", "acne", exit_code=Exit.CONFLICT)
    assert "Did you mean 'acme'?" in command.said
    assert asyncio.run(_tenants(database_url)) == ["acme", "default"]


def test_tenants_are_created_once_and_listed(command: Any) -> None:
    made = command.json("tenant", "create", "acme", "--max-concurrency", "3", "--weight", "2")
    assert (made["tenant_id"], made["max_concurrency"], made["weight"]) == ("acme", 3, 2)
    command("tenant", "create", "acme", "--weight", "5", exit_code=Exit.CONFLICT)
    assert "`counterseal tenant set acme`" in command.said
    listed = command.json("tenant", "list")
    assert [(one["tenant_id"], one["max_concurrency"], one["weight"]) for one in listed] == [
        ("acme", 3, 2),
        ("default", 16, 1),
    ]
    assert command.json("token", "list", "--tenant", "acme") == []
    command("tenant", "create", "No Tenant", exit_code=Exit.INPUT)


async def test_a_start_with_a_name_that_is_not_there_is_refused(
    clean_environment: pytest.MonkeyPatch, database_url: str
) -> None:
    webhooks = {"incidents": {"secret": "at-least-16-characters", "tenant": "defaulr"}}
    for settings in (
        load_settings(database_url=database_url, tenant="defautl"),
        load_settings(database_url=database_url, webhooks=webhooks),
    ):
        with pytest.raises(NotFoundError, match=r"Did you mean 'default'\?"):
            async with build(settings, first_run=True):
                pytest.fail("it started")
    with pytest.raises(NotFoundError, match=r"Did you mean 'default'\?"):
        async with build_faces(load_settings(database_url=database_url, tenant="defautl")):
            pytest.fail("it was built")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app", "up",
        env={**os.environ, "COUNTERSEAL_DATABASE_URL": database_url, "COUNTERSEAL_TENANT": "acme"},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, errors = await process.communicate()
    assert process.returncode == Exit.CONFLICT, errors.decode()
    assert b"`counterseal tenant create acme` creates it." in errors
    assert await _tenants(database_url) == ["default"]


async def test_only_a_first_run_makes_the_default_one(clean_environment: pytest.MonkeyPatch, database_url: str) -> None:
    await Forger(database_url).no_tenants()
    with pytest.raises(NotFoundError, match="There is no tenant 'acme'"):
        async with build(load_settings(database_url=database_url, tenant="acme"), first_run=True):
            pytest.fail("it started")
    assert await _tenants(database_url) == [], "whoever names another one has no use for it"
    settings = load_settings(database_url=database_url)
    with pytest.raises(NotFoundError, match="`counterseal tenant create default` creates it"):
        async with build(settings):
            pytest.fail("a worker made a tenant")
    assert await _tenants(database_url) == []
    async with build(settings, first_run=True):
        assert await _tenants(database_url) == ["default"]
