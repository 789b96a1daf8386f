"""Findings of `counterseal doctor` about a schema that is not this release's."""

from __future__ import annotations

import pytest

from app import doctor, storage
from app.doctor import State
from app.settings import load_settings


@pytest.mark.parametrize(("migrates", "state"), [(True, State.WARNING), (False, State.BROKEN)])
async def test_an_older_schema_is_a_fault_where_nobody_upgrades_it(
    clean_environment: pytest.MonkeyPatch, database_url: str, migrates: bool, state: State
) -> None:
    async def older(url: str) -> str:
        return "0001"

    clean_environment.setattr(storage, "schema_revision", older)
    settings = load_settings(database_url=database_url, auto_migrate=migrates)
    found = {check.what: check for check in await doctor.examine(settings)}
    assert found["schema"].state is state
    assert found["schema"].detail == f"at 0001, needed is {storage.head_revision()}; run `counterseal db upgrade`"
