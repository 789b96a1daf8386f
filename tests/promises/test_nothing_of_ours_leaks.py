"""Files, secrets and tenants of an installation are its own (promise 8)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app import file_locks
from app.postgres_programs import Account
from app.settings import load_settings
from app.storage import DEFAULT_TENANT
from app.wiring import build
from core.db import FACES_ROLE, Database
from core.errors import NotFoundError
from runtime.store import tenants

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No setting of the developer's own; home is a folder of the test's."""
    for name in [name for name in os.environ if name.startswith("COUNTERSEAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COUNTERSEAL_HOME", str(tmp_path / "home"))
    return monkeypatch


def test_programs_that_we_start_get_no_secret_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("COUNTERSEAL_SLACK_BOT_TOKEN", "PGOPTIONS", "LD_PRELOAD_X"):
        monkeypatch.setenv(name, "secret-of-ours")
    told = tmp_path / "environment"
    assert Account().run(["sh", "-c", f"env > {told}"]) == 0
    assert "PATH=" in told.read_text()
    assert "secret-of-ours" not in told.read_text()


def test_files_of_an_installation_are_readable_by_its_own_account_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with file_locks.installation(tmp_path / "home"):
            pass
        with file_locks.demo(tmp_path / "demo"):
            pass
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


@pytest.mark.parametrize(("tenant", "founded"), [("acme", False), (DEFAULT_TENANT, True)])
async def test_a_first_start_creates_the_default_tenant_only_if_the_settings_name_it(
    database_url: str, tenant: str, founded: bool
) -> None:
    settings = load_settings(database_url=database_url, tenant=tenant)
    if founded:
        async with build(settings, first_run=True):
            pass
    else:
        with pytest.raises(NotFoundError):
            async with build(settings, first_run=True):
                pass
    async with Database(database_url, FACES_ROLE) as database, database.transaction(DEFAULT_TENANT) as connection:
        assert await tenants.exists(connection, DEFAULT_TENANT) is founded
