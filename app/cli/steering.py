"""Commands that steer runs, one or many by a filter: retry, cancel, pause."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from app.cli import context
from app.cli.bulk import Bulk, in_bulk
from app.cli.outcome import Json, print_fields, print_json, print_one, print_part
from app.cli.runs import As, RunId, answer, run, steer
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

    bulk = Bulk(where or [], reason, dry_run, yes, as_json)
    if (one := await _one_run("retry", run_id, bulk)) is None:
        return
    if step is not None:
        await answer(one, step, Answer.AGAIN, reason, as_person, as_json=as_json)
    else:
        await steer(retry_run, one, reason, as_json=as_json)


@run.command("fork")
async def fork(
    run_id: RunId,
    at: Annotated[str, typer.Option(help="A line of `run show`, or the step before which the new run begins.")],
    reason: Annotated[str, typer.Option(help="Why it goes on from there; kept in the audit.")],
    again: Annotated[
        bool, typer.Option("--again", help="What this run has done after that point may be done again.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be taken over, and done again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Begin a new run from an earlier point of one that is over, with the values that were recorded until there.

    What was done there stays done. All else is judged anew, and people are asked anew. Exit 4 if that is not possible.
    """
    from app.shown import fork_summary
    from runtime.requests import forking

    order, made = forking.Order(run_id, at, reason, again), None
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        if dry_run:
            found = await forking.preview(connection, faces.definitions, tenant, order)
        else:
            forked = await forking.fork_run(connection, faces.definitions, tenant, order, actor)
            made, found = forked.run_id, forked.preview
    document = {"run_id": made, "origin": run_id, **fork_summary(found)}
    if as_json:
        print_json(document)
        return
    print_fields({name: document[name] for name in ("run_id", "origin", "line", "checkpoint")})
    print_part("done, and not done again", document["done"], "step", "operation")
    print_part(
        "done after that, and maybe again" if made else "would be done again", document["again"], "step", "operation"
    )


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

    if (one := await _one_run("cancel", run_id, Bulk(where or [], reason, dry_run, yes, as_json))) is None:
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

    if (one := await _one_run("pause", run_id, Bulk(where or [], reason, dry_run, yes, as_json))) is None:
        return
    async with context.faces() as faces:
        given = (faces.settings.tenant, Stopped.RUN, str(one), reason, context.actor(faces.settings))
        done = await pausing.pause(faces.database, faces.definitions, *given)
    words = "is paused: nothing more goes out" if done.changed else "was paused already"
    print_one({"run_id": one, "changed": done.changed}, f"run {one} {words}.", as_json=as_json)


async def _one_run(verb: str, run_id: UUID | None, bulk: Bulk) -> UUID | None:
    """The id of the one run that was named; None if a filter was given and all matching runs were handled."""
    from runtime.requests import several

    if (run_id is None) == (not bulk.where) or (run_id is not None and bulk.dry_run):
        raise InputError("is one run or a filter.", where="RUN", remedy="Give RUN, or --where KEY=VALUE [--dry-run].")
    if run_id is None:
        async with context.faces() as faces:
            await in_bulk(faces, verb, several.Verb(verb), several.where_of(bulk.where), bulk)
    return run_id
