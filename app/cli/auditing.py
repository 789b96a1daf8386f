"""The command that shows the tenant's audit stream."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from app.cli import context
from app.cli.outcome import Commands, Json, first_of, print_json, print_one, print_rows

audit = Commands(name="audit", help="The audit of the tenant: what belongs to no run.")


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
    from runtime.requests.auditing import EventFilter

    wanted = EventFilter(type_, person, context.moment("--since", since), context.moment("--until", until), run)
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


@audit.command("export")
async def export(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Append the events to this file.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Or send them to this address, a batch in one request.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="With --to: a file with the bearer token.")] = None,
    cursor: Annotated[Path, typer.Option(help="Where to keep how far it has come.")] = Path("audit-export.cursor"),
    as_json: Json = False,
) -> None:
    """Export what the tenant's log has ordered since the last time, as OCSF events in lines: of runs and of the tenant.

    Each event comes at least once: the cursor moves when a batch is stored. An export that tells of something is an
    event of the stream.
    """
    from app.exporting import Cursor, append_to, post_to
    from app.faces import version
    from core.canonical import canonical_bytes
    from core.errors import InputError
    from runtime.requests import exporting

    if (output is None) == (to is None):
        raise InputError("name one of --output and --to", where="export")
    token = token_file.read_text(encoding="utf-8").strip() if token_file else None
    count = 0
    async with context.overview() as (settings, database):
        stored, actor = Cursor(cursor, settings.tenant), context.actor(settings)
        place = stored.read()
        while True:
            async with database.connection() as connection, connection.transaction(isolation="repeatable_read"):
                exported = await exporting.export(connection, settings.tenant, actor, version(), place)
            if exported.next == place:
                break
            data = b"".join(canonical_bytes(event) + b"\n" for event in exported.events)
            if data and output is not None:
                append_to(output, data)
            elif data and to is not None:
                post_to(to, data, token)
            stored.move(exported.next)
            place, count = exported.next, count + len(exported.events)
    print_one({"events": count, "next": place}, f"{count} events, up to leaf {place} of the log", as_json=as_json)
