"""A running graph: what it waits for, and steps that are added to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli import context
from app.cli.outcome import awaited
from app.cli.output import Json, print_fields, print_rows
from core.errors import InputError
from runtime.engine.states import WaitState

RunId = Annotated[str, typer.Argument(help="The run's id.")]


def add_to(run: typer.Typer) -> None:
    """Add these commands to those about runs."""
    run.command("waits")(waits)
    run.command("extend")(extend)


@awaited
async def waits(
    run_id: RunId,
    every: Annotated[bool, typer.Option("--all", help="Also what it has waited for.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a run waits for, with the keys and tokens by which signals reach it."""
    from runtime.store import read_models

    wanted = context.uuid(run_id, "RUN")
    async with context.faces() as faces:
        tenant = faces.settings.tenant
        ids = await faces.looking.waits(tenant, wanted)
        async with faces.database.reading(tenant) as connection:
            found = await read_models.waits_page(connection, tenant, ids, 1000)
    rows = [row for row in found if every or row["status"] == WaitState.WAITING]
    columns = ("step_key", "kind", "status", "correlation_key", "due_at", "token")
    print_rows(rows, columns, as_json=as_json, empty="It waits for nothing.")


@awaited
async def extend(
    run_id: RunId,
    file: Annotated[Path, typer.Argument(help="The new steps: a document (YAML) with `steps`, and maybe `before`.")],
    if_version: Annotated[int, typer.Option("--if-version", min=1, help="Its version, as `run show --json` has it.")],
    as_json: Json = False,
) -> None:
    """Add steps to a run. Exit 4 if it is at another version by now."""
    from core.documents import load_document

    source = load_document(context.read_text(file), str(file)).value
    if not isinstance(source, dict):
        raise InputError("is not an object.", where=str(file), remedy="Write `steps:` and the steps below it.")
    wanted = context.uuid(run_id, "RUN")
    async with context.faces() as faces:
        actor = context.actor(faces.settings)
        done = await faces.extending.extend(faces.settings.tenant, wanted, actor, source, if_version)
    print_fields({"number": done.number, "steps": list(done.steps), "version": done.version}, as_json=as_json)
