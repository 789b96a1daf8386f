"""Commands to pause a tenant, a workflow, a connector or a run, and to resume it (promise 11)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from app.cli import context
from app.cli.outcome import Json, print_one, print_rows
from core.errors import InputError
from core.terms import Stopped

What = Annotated[Stopped, typer.Argument(metavar="WHAT", help="tenant, workflow, connector or run.")]
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="Its name, or the run's id; a tenant needs none.")]


async def pause(
    what: Annotated[
        Stopped | None, typer.Argument(metavar="[WHAT]", help="tenant, workflow, connector or run.")
    ] = None,
    name: Name = "",
    reason: Annotated[str, typer.Option(help="Why; whoever meets the pause reads it, and the audit keeps it.")] = "",
    as_json: Json = False,
) -> None:
    """Pause: no new action goes out until `resume`. Without arguments: list the pauses.

    After this command returns, no new action is intended and no new call begins. Calls under way end first.
    """
    from runtime.requests import pausing

    async with context.faces() as faces:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        if what is None:
            rows = [asdict(one) for one in await faces.ask(tenant, pausing.listed)]
            print_rows(rows, ("what", "name", "by", "at", "reason"), as_json=as_json, empty="Nothing is paused.")
            return
        if what is not Stopped.TENANT and not name:
            raise InputError(f"names no {what}.", where="NAME", remedy=f"counterseal pause {what} NAME --reason WHY")
        done = await pausing.pause(faces.database, faces.definitions, tenant, what, name, reason, actor)
    words = "is paused: nothing more goes out" if done.changed else "was paused already"
    print_one(asdict(done), f"{f'{what} {done.name}'.strip()} {words}.", as_json=as_json)


async def resume(
    what: What,
    name: Name = "",
    reason: Annotated[str, typer.Option(help="Why; kept in the audit.")] = "",
    as_json: Json = False,
) -> None:
    """End a pause: the waiting steps go on within seconds."""
    from runtime.requests import pausing

    async with context.faces() as faces:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        done = await pausing.resume(faces.database, faces.definitions, tenant, what, name, reason, actor)
    words = "goes on" if done.changed else "was not paused"
    print_one(asdict(done), f"{f'{what} {done.name}'.strip()} {words}.", as_json=as_json)


TOP = (pause, resume)
