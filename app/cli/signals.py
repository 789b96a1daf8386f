"""Commands for waiting runs: show their waits, send signals, add steps to the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import structs

from app.cli import context
from app.cli.outcome import Commands, Exit, Json, print_fields, print_rows
from app.cli.runs import RunId, run
from core import bounded_json
from core.errors import InputError
from runtime.engine.model.states import WaitState

signal = Commands(name="signal", help="Signals: tell a run that waits what has happened.")


@signal.command("send")
async def send(
    key: Annotated[str, typer.Argument(help="The correlation key of the wait, as `run waits` shows it.")],
    output: Annotated[str | None, typer.Option(help="What happened, as JSON, or @FILE.")] = None,
    error: Annotated[str | None, typer.Option(help="It went wrong: the error's code.")] = None,
    message: Annotated[str, typer.Option(help="It went wrong: what happened, in words.")] = "",
    id_: Annotated[
        str | None, typer.Option("--id", help="The signal's id: the same one again is the same one.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Only for the wait with this token.")] = None,
    version: Annotated[
        int | None,
        typer.Option(min=1, max=context.INT4_MAX, help="Only for the wait that was opened at this version of the run."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Send a signal. Exit 0 also if its wait or run has ended, 6 if it is kept because nobody waits for it yet, 4 if it
    is stale (no wait has its token or version) or a duplicate.
    """
    from app.shown import signal_sentence
    from runtime.requests.signaling import Signal, Signaling

    if error is not None and output is not None:
        raise InputError("goes without --output.", where="--error", remedy="A signal has one or the other.")
    if error is None and message:
        raise InputError("goes with --error.", where="--message", remedy="Give the error's code as well.")
    fields: dict[str, Any] = {
        "output": None if output is None else bounded_json.parse(context.typed(output), where="--output"),
        "error": None if error is None else {"code": error, "message": message},
        "token": token,
        "version": version,
    }
    async with context.faces() as faces:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        sent = Signal(tenant, key, id_ or None, actor, **fields)
        answer = await Signaling(faces.database, faces.definitions).signal(sent)
    print_fields({**structs.asdict(answer), "sentence": signal_sentence(answer, key)}, as_json=as_json)
    if answer.code not in ("delivered", "already_ended"):
        raise typer.Exit(Exit.KEPT if answer.code == "kept" else Exit.CONFLICT)


@run.command("waits")
async def waits(
    run_id: RunId,
    every: Annotated[bool, typer.Option("--all", help="Also waits that have ended.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a run waits for, with the keys and tokens by which signals reach it."""
    from runtime.store import read_models

    async with context.faces() as faces:
        tenant = faces.settings.tenant
        opened = await faces.reader.waits(tenant, run_id)
        found = await faces.ask(tenant, read_models.waits_page, [*opened], max(len(opened), 1))
    rows = [{**row, "version": opened[row["wait_id"]]} for row in found if every or row["status"] == WaitState.WAITING]
    columns = ("step_key", "kind", "status", "correlation_key", "due_at", "version", "token")
    print_rows(rows, columns, as_json=as_json, empty="It waits for nothing.")


@run.command("extend")
async def extend(
    run_id: RunId,
    file: Annotated[Path, typer.Argument(help="The new steps: a document (YAML) with `steps`, and maybe `before`.")],
    if_version: Annotated[
        int, typer.Option("--if-version", min=1, max=context.INT4_MAX, help="Its version, as `run show --json` has it.")
    ],
    as_json: Json = False,
) -> None:
    """Add steps to a run. Exit 4 if the run has another version by now."""
    from core.documents import load_document
    from runtime.requests.steering import Extending

    source = load_document(context.read_text(file), str(file)).value
    if not isinstance(source, dict):
        raise InputError("is not an object.", where=str(file), remedy="Write `steps:` and the steps below it.")
    async with context.faces() as faces:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        done = await Extending(faces.database, faces.definitions).extend(tenant, run_id, actor, source, if_version)
    print_fields({**structs.asdict(done), "steps": list(done.steps)}, as_json=as_json)
