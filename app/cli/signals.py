"""Signals: tell a run that waits what has happened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import context
from app.cli.outcome import Exit, awaited
from app.cli.output import Json, print_fields
from core.errors import InputError

signal = typer.Typer(help="Signals: tell a run that waits what has happened.", no_args_is_help=True)


@signal.command("send")
@awaited
async def send(
    key: Annotated[str, typer.Argument(help="The correlation key of the wait, as `run waits` shows it.")],
    output: Annotated[str | None, typer.Option(help="What happened, as JSON, or @FILE.")] = None,
    error: Annotated[str | None, typer.Option(help="It went wrong: the error's code.")] = None,
    message: Annotated[str, typer.Option(help="It went wrong: what happened, in words.")] = "",
    id_: Annotated[
        str | None, typer.Option("--id", help="The signal's id: the same one again is the same one.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Only for the wait with this token.")] = None,
    version: Annotated[int | None, typer.Option(min=1, help="Only for the run at this version.")] = None,
    as_json: Json = False,
) -> None:
    """Send a signal. Exit 4 if it is late, stale, or for another version of the run."""
    from app.http.signals import outcome
    from runtime.requests.signaling import Signal, default_id

    if error is not None and output is not None:
        raise InputError("goes without --output.", where="--error", remedy="A signal has one or the other.")
    if error is None and message:
        raise InputError("goes with --error.", where="--message", remedy="Give the error's code as well.")
    said: dict[str, Any] = {
        "output": None if output is None else read_json(output, "--output"),
        "error": None if error is None else {"code": error, "message": message},
        "token": token,
        "version": version,
    }
    async with context.faces() as faces:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        sent = Signal(tenant, key, id_ or default_id(key, said), actor, **said)
        answer = outcome(sent, await faces.signaling.signal(sent))
    print_fields(answer, as_json=as_json)
    if answer["code"] not in ("delivered", "kept"):
        raise typer.Exit(Exit.CONFLICT)


def read_json(text: str, where: str) -> Any:
    """JSON as it was typed, or of the file after an @; ``InputError`` names ``where``."""
    from core import bounded_json

    data = context.read_input(Path(text[1:])) if text.startswith("@") else text.encode(errors="surrogateescape")
    return bounded_json.parse(data, where=where)
