"""The command that shows the tenant's audit stream."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from app.cli import context
from app.cli.outcome import Commands, Json, first_of, print_json, print_rows

audit = Commands(name="audit", help="The audit of the tenant: what belongs to no run.")


@audit.callback()
def _group() -> None:
    """Keep `tenant` a command of its own: a group with one command would be that command."""


@audit.command("tenant")
async def tenant_events(
    type_: Annotated[
        str | None, typer.Option("--type", help="Only events of this type, such as pause.set or pause.*.")
    ] = None,
    person: Annotated[str | None, typer.Option(help="Only events in which this person acts, or is named.")] = None,
    since: Annotated[str | None, typer.Option(help="Only from this moment on (RFC 3339).")] = None,
    until: Annotated[str | None, typer.Option(help="Only before this moment (RFC 3339).")] = None,
    run: Annotated[str | None, typer.Option(help="Only events about this run.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many at most.")] = 100,
    as_json: Json = False,
) -> None:
    """Show the tenant's events, newest first: publications, pauses, tokens, refusals, erasures, reads of evidence.

    The chain of the whole stream is computed again each time, whatever is asked for. Exit 4 names the line at which it
    is broken. Reading is an event of the stream.
    """
    from runtime.requests import auditing
    from runtime.requests.auditing import Wanted

    wanted = Wanted(type_, person, context.moment("--since", since), context.moment("--until", until), run)
    async with context.faces() as faces:
        actor = context.actor(faces.settings)
        seen = await faces.ask(faces.settings.tenant, auditing.look, wanted, actor, limit + 1)
    events = first_of(seen.events, limit)
    if as_json:
        print_json({"verified": {"lines": seen.head.count, "head": seen.head.hash}, "items": events})
        return
    rows = [{**event, "at": datetime.fromisoformat(event["ts"]), "actor": event["actor"]["id"]} for event in events]
    print_rows(rows, ("seq", "at", "type", "actor", "data"), empty="No event fits.")
    typer.echo(f"verified: all {seen.head.count} lines of the stream, up to {seen.head.hash}", err=True)
