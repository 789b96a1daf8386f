"""One verb for many runs on the command line: the plan, a question whether to go on, and the result for each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import typer
from msgspec import to_builtins

from app.cli import context
from app.cli.outcome import Exit, print_rows
from core.errors import InputError

if TYPE_CHECKING:
    from app.faces import Faces
    from runtime.requests.several import Steer, Verb, Where


class Bulk(NamedTuple):
    """An order about many runs: the filter, why, and how the plan is shown and carried out."""

    where: Sequence[str]
    reason: str
    dry_run: bool
    yes: bool
    as_json: bool


async def in_bulk(faces: Faces, name: str, act: Verb | Steer, where: Where, bulk: Bulk) -> None:
    """Print the plan, ask, then print the result of each run. Exit 4 if some runs failed to do it."""
    from runtime.requests import several

    if bulk.as_json and not (bulk.yes or bulk.dry_run):
        raise InputError("cannot ask.", where="--json", remedy="Give --dry-run or --yes, too.")
    columns = ("run_id", "reference", "workflow", "was", "ok", "says")
    actor, place = context.actor(faces.settings), (faces.database, faces.definitions, faces.settings.tenant, act)
    found = await several.plan(*place, where, actor, bulk.reason)
    can = sum(one.ok for one in found)
    if not bulk.as_json or bulk.dry_run:
        rows = [to_builtins(one) for one in found]
        print_rows(rows, columns, as_json=bulk.as_json, empty="There are no such runs.")
    if not bulk.as_json:
        typer.echo(f"{name}: {can} of {len(found)} runs can, {len(found) - can} cannot.", err=True)
    if bulk.dry_run or not found:
        return
    if not bulk.yes and can:
        typer.confirm(f"{name} {can} runs?", abort=True, err=True)
    done = [one async for one in several.carry_out(*place, found, actor, bulk.reason)]
    print_rows([to_builtins(one) for one in done], columns, as_json=bulk.as_json, empty="There are no such runs.")
    did = sum(one.ok for one in done)
    if not bulk.as_json:
        typer.echo(f"{name}: {did} of {len(done)} done, {len(done) - did} could not.", err=True)
    if did < len(done):
        raise typer.Exit(Exit.CONFLICT)
