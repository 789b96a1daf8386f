"""The command that explains a run: what happened, why, who must do what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from msgspec import to_builtins

from app.cli import context
from app.cli.outcome import Json, print_json, printable
from app.cli.runs import RunId

if TYPE_CHECKING:
    from app.why import Why


async def why(run_id: RunId, as_json: Json = False) -> None:
    """Explain a run: what happened, why, who must do what, and the command for it."""
    from app.shown import run_row
    from app.why import explain

    async with context.faces() as faces:
        tenant = faces.settings.tenant
        run = await run_row(faces, tenant, run_id, "See `counterseal run list`.")
        said = await explain(faces, tenant, run)
    if as_json:
        print_json(to_builtins(said))
        return
    print_why(said)


def print_why(said: Why) -> None:
    """Print an explanation for people."""
    typer.echo(printable(said.happened))
    parts = [
        ("because", [said.because]),
        ("waits for", said.waits),
        ("what now", [said.remedy]),
        ("try", said.commands),
    ]
    for title, lines in parts:
        for number, line in enumerate(line for line in lines if line):
            typer.echo(f"{title if number == 0 else '':<10} {printable(line)}")
