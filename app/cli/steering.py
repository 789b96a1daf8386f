"""Commands that steer runs, one or many by a filter: retry, cancel, pause."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer
from msgspec import to_builtins

from app.cli import context
from app.cli.outcome import Exit, Json, print_fields, print_json, print_one, print_part, print_rows
from app.cli.runs import As, answer, run, steer
from core.errors import InputError
from core.terms import Stopped

Run = Annotated[
    UUID | None,
    typer.Argument(metavar="[RUN]", help="The run: its id, its beginning, or its reference.", parser=context.run_of),
]
Wheres = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="KEY=VALUE",
        help="Instead of one run, all that fit; repeat it. status, workflow, version, reference, requested-by, error, "
        "after, before.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --where: only tell what would become of each run.")]
Yes = Annotated[bool, typer.Option("--yes", help="With --where: do not ask before the plan is carried out.")]


RUN = run


@run.command("retry")
async def retry(
    reason: Annotated[str, typer.Option(help="Why it may go on now; kept in the audit.")],
    run_id: Run = None,
    step: Annotated[
        str | None, typer.Option(help="A step that is held, or that waits for its retry: try it now, and it alone.")
    ] = None,
    as_person: As = None,
    where: Wheres = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Go on with a failed run, from the steps that failed or were canceled with it. Completed steps stay.

    With --step, try one step again that is held, or whose retry waits for its time. Exit 4 if that is not possible.
    With --where, all runs that fit: first the plan, then a result for each. Exit 4 if some could not.
    """
    from runtime.engine.life.holding import Answer
    from runtime.requests.steering import retry_run

    if (one := _one(run_id, where, dry_run=dry_run)) is None:
        await _several("retry", where or [], reason, dry_run=dry_run, yes=yes, as_json=as_json)
    elif step is not None:
        await answer(one, step, Answer.AGAIN, reason, as_person, as_json=as_json)
    else:
        await steer(retry_run, one, reason, as_json=as_json)


@run.command("cancel")
async def cancel(
    run_id: Run = None,
    reason: Annotated[str, typer.Option(help="Why; kept in the audit.")] = "",
    where: Wheres = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Cancel a run, or all that fit. An action under way ends first. What a run has done stays done, and is listed.

    With --where: first the plan, then a result for each. Exit 4 if some could not.
    """
    from app.shown import effects_of
    from runtime.requests import steering

    if (one := _one(run_id, where, dry_run=dry_run)) is None:
        await _several("cancel", where or [], reason, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    async with context.faces() as faces:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        given = (faces.definitions, tenant, one, actor, reason)
        async with faces.database.transaction(tenant) as connection:
            status = await steering.cancel_run(connection, *given)
        done = await effects_of(faces, tenant, one)
    if as_json:
        print_json({"run_id": one, "status": str(status), "done": done})
        return
    print_fields({"run_id": one, "status": str(status)})
    columns = ("receipt_id", "step_key", "operation", "summary", "reversible")
    print_part("done, and not undone: counterseal receipt reverse RECEIPT", done or [], *columns)


@run.command("pause")
async def pause(
    reason: Annotated[str, typer.Option(help="Why; whoever meets the pause reads it, and the audit keeps it.")],
    run_id: Run = None,
    where: Wheres = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Pause a run, or all that fit: no new action of it goes out until `counterseal resume run ID`.

    With --where: first the plan, then a result for each. Exit 4 if some could not.
    """
    from runtime.requests import pausing

    if (one := _one(run_id, where, dry_run=dry_run)) is None:
        await _several("pause", where or [], reason, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    async with context.faces() as faces:
        given = (faces.settings.tenant, Stopped.RUN, str(one), reason, context.actor(faces.settings))
        done = await pausing.pause(faces.database, faces.definitions, *given)
    words = "is paused: nothing more goes out" if done.changed else "was paused already"
    print_one({"run_id": one, "changed": done.changed}, f"run {one} {words}.", as_json=as_json)


def _one(run_id: UUID | None, where: list[str] | None, *, dry_run: bool) -> UUID | None:
    """The one run that is meant; None if a filter says which."""
    if (run_id is None) == (not where) or (run_id is not None and dry_run):
        raise InputError("is one run or a filter.", where="RUN", remedy="Give RUN, or --where KEY=VALUE [--dry-run].")
    return run_id


async def _several(verb: str, texts: list[str], reason: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Print the plan, ask, then print the result of each run. Exit 4 if some could not."""
    from runtime.requests import several

    wanted, where = several.Verb(verb), several.where_of(texts)
    if as_json and not (yes or dry_run):
        raise InputError("cannot ask.", where="--json", remedy="Give --dry-run or --yes, too.")
    columns = ("run_id", "reference", "workflow", "was", "ok", "says")
    async with context.faces() as faces:
        actor = context.actor(faces.settings)
        place = (faces.database, faces.definitions, faces.settings.tenant, wanted)
        found = await several.plan(*place, where, actor, reason)
        can = sum(one.ok for one in found)
        if not as_json or dry_run:
            rows = [to_builtins(one) for one in found]
            print_rows(rows, columns, as_json=as_json, empty="There are no such runs.")
        if not as_json:
            typer.echo(f"{verb}: {can} of {len(found)} runs can, {len(found) - can} cannot.", err=True)
        if dry_run or not found:
            return
        if not yes and can:
            typer.confirm(f"{verb} {can} runs?", abort=True, err=True)
        done = [one async for one in several.carry_out(*place, found, actor, reason)]
    print_rows([to_builtins(one) for one in done], columns, as_json=as_json, empty="There are no such runs.")
    did = sum(one.ok for one in done)
    if not as_json:
        typer.echo(f"{verb}: {did} of {len(done)} done, {len(done) - did} could not.", err=True)
    if did < len(done):
        raise typer.Exit(Exit.CONFLICT)
