"""The commands that explain: what happened to a run, and who waits for whom."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import to_builtins

from app.cli import context
from app.cli.outcome import Json, first_of, print_json, print_rows, printable
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


async def waiting(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List what waits and for whom: people, agents, other systems, time, rates; what has waited the longest first."""
    from app.outcomes import minute
    from app.why import longest

    async with context.faces() as faces:
        rows = await longest(faces, faces.settings.tenant, limit + 1)
        await context.record_read(faces, "waiting")
    rows = first_of(rows, limit)
    if not as_json:
        rows = [
            {**row, "since": minute(row["since"]), "run": row["reference"] or row["run_id"], "step": row["step_key"]}
            for row in rows
        ]
    columns: tuple[str, ...] = ("since", "waits_for", "run", "step", "until")
    if sys.stdout.isatty() and not as_json:
        columns = ("since", "waits_for", "run", "step")
    print_rows(rows, columns, as_json=as_json, empty="Nothing waits.")
