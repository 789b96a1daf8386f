"""Definitions when an installation starts: versions on disk, versions of before, and connectors that are missing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from app import definitions
from app.settings import Settings
from app.wiring import App, build
from connectors.port import Connectors
from core.db import ENGINE_ROLE, Database
from core.errors import ConfigurationError
from evidence.chain import Actor
from runtime.queue.postgres import PostgresQueue
from runtime.requests import publishing
from runtime.requests.starting import StartRequest, start_run
from runtime.store import documents
from tests.support.asking import owning
from tests.support.books import Books

ASKS = """
workflow: restarted
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: ok, approve: {summary: Go on?, approvers: {group: leads}}}
  - {id: old, do: probe.effect.apply, with: {name: first}}
"""
ASKS_NOT = """
workflow: restarted
version: 2
reference: ${{ trigger.number }}
steps:
  - {id: new, do: probe.effect.apply, with: {name: second}}
"""
ALLOWED = """
policy: restarts
version: 1
rules:
  - {id: all, match: {connector: probe}, outcome: allow}
"""
LEADS = "directory: d\npeople: [{id: ann, name: Ann}]\ngroups: {leads: [ann]}\n"


def _lay_out(folder: Path, workflow: str) -> None:
    for name, text in (("workflows/restarted.yaml", workflow), ("policies/p.yaml", ALLOWED), ("directory.yaml", LEADS)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


async def _begin(app: App, number: str) -> Any:
    tenant = app.settings.tenant
    async with app.faces.database.transaction(tenant) as connection:
        stored = await documents.startable_workflow(connection, tenant, "restarted", None)
        request = StartRequest(tenant, "main", "test", number, {"number": number}, "bob", Actor("test", "tests"))
        return (await start_run(connection, app.faces.definitions.compiled(stored), request)).run_id


async def _rows(app: App, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    async with app.database.connection() as connection:
        return [tuple(row.values()) for row in await connection.fetch(sql, *values)]


async def _work_off(app: App) -> None:
    quick = PostgresQueue(idle=timedelta(milliseconds=10))
    await replace(app, queue=quick).worker().work_off()


@pytest.mark.req("V-4")
@pytest.mark.req("X-1")
async def test_a_run_goes_on_with_its_version_when_only_the_next_one_is_on_disk(
    settings: Settings, definitions_dir: Path, outside_world: Any
) -> None:
    from approvals.model import Choice, VoteChannel
    from runtime.requests.voting import VoteRequest

    strict = settings.model_copy(update={"definitions_mode": "strict"})
    connectors = Connectors({"probe": outside_world})
    _lay_out(definitions_dir, ASKS)
    async with build(strict, connectors=connectors) as app:
        await definitions.prepare(app.faces, connectors)
        first = await _begin(app, "INC1")
        await _work_off(app)

    _lay_out(definitions_dir, ASKS_NOT)
    declared = definitions_dir / "operations" / "probe.yaml"
    declared.write_text(declared.read_text().replace("thing/", "object/"))
    async with build(strict, connectors=connectors) as app:
        await definitions.prepare(app.faces, connectors)
        second = await _begin(app, "INC2")
        await _work_off(app)
        books = Books(app.database)
        approval = (await books.approval(run=first)).id
        request = VoteRequest(strict.tenant, approval, "ann", Choice.APPROVE, "", VoteChannel.CLI)
        assert (await app.faces.voting.vote(request)).counted
        await _work_off(app)
        statuses = {run.workflow_version: run.status for run in await books.runs()}
        assert statuses == {1: "succeeded", 2: "succeeded"}
        receipts = {(receipt.run, receipt.step, receipt.target) for receipt in await books.receipts()}
        assert receipts == {(second, "new", "object/second"), (first, "old", "thing/first")}
        assert len(await books.receipts()) == 2


async def test_a_retired_version_on_disk_stays_retired_and_is_said(settings: Settings, definitions_dir: Path) -> None:
    structlog.reset_defaults()
    _lay_out(definitions_dir, ASKS)
    async with build(settings, connectors=Connectors({})) as app:
        await definitions.prepare(app.faces)
        async with app.faces.database.transaction(settings.tenant) as connection:
            await publishing.retire_workflow(connection, settings.tenant, "restarted", 1, Actor("person", "root"))
        with capture_logs() as logs:
            await definitions.prepare(app.faces)
        (said,) = [entry for entry in logs if entry["event"] == "workflow retired"]
        assert (said["name"], said["version"]) == ("restarted", 1)
        assert await _rows(app, "SELECT 1 FROM workflows WHERE retired_at IS NULL") == []


@pytest.mark.req("X-2")
@pytest.mark.req("X-3")
async def test_a_missing_connector_refuses_a_strict_start_and_is_a_warning_otherwise(
    settings: Settings, definitions_dir: Path
) -> None:
    structlog.reset_defaults()
    _lay_out(definitions_dir, ASKS)
    strict = settings.model_copy(update={"definitions_mode": "strict"})
    async with build(strict, connectors=Connectors({})) as app:
        with pytest.raises(ConfigurationError, match="restarted@1: the connector 'probe' is not configured"):
            await definitions.prepare(app.faces, app.outsides.given.connectors)
        assert await _rows(app, "SELECT name FROM workflows") == []
    async with build(settings, connectors=Connectors({})) as app:
        with capture_logs() as logs:
            await definitions.prepare(app.faces, app.outsides.given.connectors)
        (said,) = [entry for entry in logs if entry["event"] == "a definition is unavailable"]
        assert "restarted@1: the connector 'probe' is not configured" in said["reason"]
        assert await _rows(app, "SELECT name FROM workflows") == [("restarted",)]


@pytest.mark.req("X-2")
async def test_frozen_declarations_that_cannot_be_read_make_only_that_version_unavailable(
    settings: Settings, definitions_dir: Path
) -> None:
    structlog.reset_defaults()
    _lay_out(definitions_dir, ASKS)
    async with build(settings, connectors=Connectors({})) as app:
        await definitions.prepare(app.faces)
        assert settings.database_url is not None
        async with (
            Database(settings.database_url.get_secret_value(), ENGINE_ROLE) as database,
            owning(database) as connection,
        ):
            await connection.execute("""UPDATE workflows SET operations = '{"probe.effect.apply": {"name": "x"}}'""")
    async with build(settings, connectors=Connectors({})) as app:
        with capture_logs() as logs:
            await definitions.prepare(app.faces)
        assert any("restarted@1" in entry.get("reason", "") for entry in logs if entry["log_level"] == "warning")
        async with app.faces.database.transaction(settings.tenant) as connection:
            shown = await definitions.describe(connection, app.faces.definitions, settings.tenant, "restarted", 1)
        assert (shown["outline"], list(shown["operations"])) == (None, ["probe.effect.apply"])
        assert "a declaration of probe.effect.apply that this release cannot read" in shown["problem"]
    strict = settings.model_copy(update={"definitions_mode": "strict"})
    async with build(strict, connectors=Connectors({})) as app:
        with pytest.raises(ConfigurationError, match="restarted@1"):
            await definitions.prepare(app.faces)
