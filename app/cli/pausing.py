"""Commands to pause a tenant, a workflow, a connector, an agent or a run, to resume it, and to deny an operation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from app.cli import context
from app.cli.outcome import Commands, Json, print_one, print_rows
from core.errors import InputError
from core.terms import Stopped

What = Annotated[Stopped, typer.Argument(metavar="WHAT", help="tenant, workflow, connector, agent or run.")]
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="Its name, or the run's id; a tenant needs none.")]


async def pause(
    what: Annotated[
        Stopped | None, typer.Argument(metavar="[WHAT]", help="tenant, workflow, connector, agent or run.")
    ] = None,
    name: Name = "",
    reason: Annotated[str, typer.Option(help="Why; whoever meets the pause reads it, and the audit keeps it.")] = "",
    as_json: Json = False,
) -> None:
    """Pause: no new action goes out until `resume`. Without arguments: list the pauses.

    After this command returns, no new action is intended and no new call begins. Calls under way end first.
    """
    from runtime.requests import denying, pausing

    async with context.faces() as faces:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        if what is None:
            rows = [asdict(one) for one in await faces.ask(tenant, pausing.listed)]
            denied = await faces.ask(tenant, denying.listed)
            rows += [
                {
                    "what": "denied",
                    "name": one.operation,
                    "by": one.by,
                    "at": f"until {one.until}",
                    "reason": one.reason,
                }
                for one in denied
                if not one.over
            ]
            print_rows(rows, ("what", "name", "by", "at", "reason"), as_json=as_json, empty="Nothing is paused.")
            if rows and not as_json:
                typer.echo("counterseal: end a pause with `counterseal resume WHAT NAME`.", err=True)
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


agent = Commands(name="agent", help="Stop agents that ask for actions over HTTP, and let them go on.")
Account = Annotated[str, typer.Argument(metavar="ACCOUNT", help="Its service account in the directory.")]


@agent.command("pause")
async def pause_agent(
    account: Account,
    reason: Annotated[str, typer.Option(help="Why; whoever meets the pause reads it, and the audit keeps it.")],
    as_json: Json = False,
) -> None:
    """Pause an agent: it begins no new action, and nothing goes out of what it has asked for. Its questions stay."""
    await pause(Stopped.AGENT, account, reason, as_json)


@agent.command("resume")
async def resume_agent(
    account: Account,
    reason: Annotated[str, typer.Option(help="Why; kept in the audit.")] = "",
    as_json: Json = False,
) -> None:
    """End the pause of an agent: what waited for it goes on within seconds, and is judged anew."""
    await resume(Stopped.AGENT, account, reason, as_json)


async def deny(
    operation: Annotated[str, typer.Argument(metavar="[OPERATION]", help="Such as servicenow.incident.update.")] = "",
    until: Annotated[str, typer.Option(help="A moment with its time zone: 2030-01-31T18:00:00Z.")] = "",
    reason: Annotated[str, typer.Option(help="Why; cards and evidence show it.")] = "",
    lift: Annotated[bool, typer.Option("--lift", help="End the denial now.")] = False,
    as_json: Json = False,
) -> None:
    """Deny an operation until a time: a policy of one rule, in force at once. Without arguments: list the denials.

    After this command returns, the operation is not done any more. Open questions about it become void.
    """
    from msgspec import to_builtins

    from runtime.requests import denying

    async with context.faces() as faces:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        if not operation:
            rows = [to_builtins(one) for one in await faces.ask(tenant, denying.listed)]
            empty = "Nothing is denied by `deny`."
            print_rows(rows, ("operation", "until", "over", "by", "reason"), as_json=as_json, empty=empty)
            return
        async with faces.database.transaction(tenant) as connection:
            place = (connection, faces.definitions, tenant, operation)
            if lift:
                done = await denying.lift(*place, actor)
            else:
                moment = context.moment("--until", until)
                assert moment is not None, "it is typed, or refused"
                done = await denying.deny(*place, moment, reason, actor)
    words = f"is denied until {done.until}" if not lift else "is denied no more" if done.changed else "was not denied"
    print_one(to_builtins(done), f"{operation} {words}.", as_json=as_json)


TOP = (pause, resume, deny)
