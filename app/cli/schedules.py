"""Commands for schedules: which moments start runs, when the next one comes, and what became of the last ones."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec import structs

from app.cli import context
from app.cli.outcome import Commands, Json, print_rows
from core.errors import NotFoundError

schedule = Commands(name="schedule", help="Schedules: list them, show the moments of one.")

MOMENTS_DEFAULT = 20
# The reason of a missed moment, in words.
_REASONS = {"down": "no keeper ran at its time", "newer": "a newer moment came before a keeper looked"}


@schedule.command("list")
async def schedule_list(as_json: Json = False) -> None:
    """List the schedules with their next moment, and what became of the last one: started, skipped, failed, missed."""
    from runtime.store import schedules

    async with context.faces() as faces:
        found = await faces.ask(faces.settings.tenant, schedules.listed)
    rows = [{**structs.asdict(one), "last_run": one.last_run and str(one.last_run)} for one in found]
    columns = ("workflow", "cron", "timezone", "next_at", "last_at", "last_outcome")
    print_rows(rows, columns, as_json=as_json, empty="No workflow has a schedule.")


@schedule.command("show")
async def schedule_show(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="The workflow's name.")],
    most: Annotated[int, typer.Option("--last", min=1, max=1000, help="How many moments.")] = MOMENTS_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show the last moments of a schedule, the newest first: the run that each has started, or why there is none."""
    from runtime.store import schedules

    async with context.faces() as faces:
        tenant = faces.settings.tenant
        if workflow not in [one.workflow for one in await faces.ask(tenant, schedules.listed)]:
            remedy = "See `counterseal schedule list`."
            raise NotFoundError(f"The workflow {workflow!r} has no schedule.", remedy=remedy)
        found = await faces.ask(tenant, schedules.moments, workflow, most)
    rows = [{**one, "run_id": one["run_id"] and str(one["run_id"])} for one in found]
    if not as_json:
        rows = [{**one, "reason": _REASONS.get(one["reason"] or "", one["reason"])} for one in rows]
    empty = "No moment has come yet."
    print_rows(rows, ("moment", "outcome", "run_id", "reason"), as_json=as_json, empty=empty)
    if not as_json and any(one["outcome"] == "missed" for one in found):
        words = (
            f"counterseal: nobody makes up for a missed moment: if it is needed, `counterseal run start {workflow}`."
        )
        typer.echo(words, err=True)
