"""Running Counterseal and setting it up: up, serve, work, keep, demo, doctor, db, token."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli import context
from app.cli.outcome import Exit, awaited
from app.cli.output import Json, print_json, print_rows
from core.errors import InputError

if TYPE_CHECKING:
    from app.access import Role
    from app.processes import Part, Running

db = typer.Typer(help="The database's schema.", no_args_is_help=True)
token = typer.Typer(help="Bearer tokens for HTTP.", no_args_is_help=True)
Tenant = Annotated[str | None, typer.Option("--tenant", help="The tenant; COUNTERSEAL_TENANT without it.")]


def add_to(root: typer.Typer) -> None:
    """Add the commands that stand at the top."""
    root.command("up", help="Run everything in one process: HTTP, a worker, the keepers.")(up)
    root.command("serve", help="Serve HTTP: webhooks, Slack, the API.")(serve)
    root.command("work", help="Run a worker: lease steps and drive them.")(work)
    root.command("keep", help="Run the keepers: dispatcher, scheduler, sweeper, completions.")(keep)
    root.command("demo", help="See it work, with stand-ins for Slack and ServiceNow.")(demo)
    root.command("doctor", help="Say what is configured, what is reachable, and what is missing.")(doctor)


def up(as_json: Json = False) -> None:
    """Run everything in one process."""
    from app.processes import ALL

    _run(ALL, as_json)


def serve(as_json: Json = False) -> None:
    """Serve HTTP."""
    from app.processes import Part

    _run(frozenset({Part.SERVE}), as_json)


def work(as_json: Json = False) -> None:
    """Run a worker."""
    from app.processes import Part

    _run(frozenset({Part.WORK}), as_json)


def keep(as_json: Json = False) -> None:
    """Run the keepers."""
    from app.processes import Part

    _run(frozenset({Part.KEEP}), as_json)


def _run(parts: frozenset[Part], as_json: bool) -> None:
    import asyncio

    import uvloop

    from app.processes import run_settings

    settings = context.settings()

    def announce(running: Running) -> None:
        if as_json:
            typer.echo(json.dumps({"parts": sorted(running.parts), "url": running.url}))
            return
        names = ", ".join(sorted(running.parts))
        where = f" at {running.url}" if running.url else ""
        typer.echo(f"Counterseal is up ({names}){where}. Stop it with Ctrl-C.")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_settings(settings, parts, announce))


@awaited
async def demo(
    auto: Annotated[bool, typer.Option("--auto", help="No questions: decide by signed clicks, and verify.")] = False,
    aws: Annotated[str | None, typer.Option("--aws", help="moto: SQS and S3 through boto3, to moto's server.")] = None,
) -> None:
    """See it work."""
    if aws not in (None, "moto"):
        raise InputError(f"{aws!r} is not known.", where="--aws", remedy="The only stand-in for AWS is moto.")
    from app import logs
    from app.demo.story import run_demo
    from app.settings import LogFormat, LogLevel

    logs.configure(LogFormat.CONSOLE, LogLevel.WARNING)
    raise typer.Exit(await run_demo(auto=auto, aws=aws is not None))


@awaited
async def doctor(as_json: Json = False) -> None:
    """Say what is configured, what is reachable, and what is missing. Exit 1 if something configured is broken."""
    from app import doctor as doctor_

    checks = await doctor_.examine(context.settings())
    rows = [{"what": check.what, "state": str(check.state), "detail": check.detail} for check in checks]
    print_rows(rows, ("what", "state", "detail"), as_json=as_json, empty="")
    if any(check.state is doctor_.State.BROKEN for check in checks):
        raise typer.Exit(Exit.FAILED)


@db.command("upgrade")
@awaited
async def db_upgrade(as_json: Json = False) -> None:
    """Bring the database's schema to this release's; safe to run at any time."""
    from app import storage

    async with storage.server(context.settings()) as url:
        before, after = await storage.schema_revision(url), storage.head_revision()
        await storage.upgrade(url)
    if as_json:
        print_json({"before": before, "after": after})
    else:
        typer.echo(f"The schema is at {after}." if before == after else f"From {before or 'nothing'} to {after}.")


def _named(tenant: str | None) -> str | None:
    return context.name(tenant, "--tenant") if tenant else None


@token.command("create")
@awaited
async def token_create(
    subject: Annotated[str, typer.Option(help="Whose it is: for people, their id in the directory.")],
    role: Annotated[list[str], typer.Option(help="admin, operator, approver, auditor or trigger; repeat for several.")],
    tenant: Tenant = None,
    expires: Annotated[str | None, typer.Option(help="How long it lives, such as P30D or PT8H.")] = None,
    as_json: Json = False,
) -> None:
    """Create a token and print it, once: only its hash is kept."""
    from app import access
    from core.durations import parse_duration

    roles = frozenset(_role(name) for name in role)
    lifetime = parse_duration(expires) if expires else None
    async with context.faces(_named(tenant)) as faces:
        owner, who = faces.settings.tenant, context.actor(faces.settings)
        made = await access.create_token(faces.database, owner, subject, roles, lifetime, who)
    if as_json:
        print_json({"token": made, "subject": subject, "roles": sorted(roles)})
    else:
        typer.echo(made)


def _role(name: str) -> Role:
    from app.access import Role

    try:
        return Role(name)
    except ValueError:
        raise InputError(f"{name!r} is not a role.", where="--role", remedy=f"One of {', '.join(Role)}.") from None


@token.command("list")
@awaited
async def token_list(tenant: Tenant = None, as_json: Json = False) -> None:
    """List tokens by the beginning of their hashes."""
    from runtime.store import tokens

    async with context.faces(_named(tenant)) as faces, faces.database.transaction(faces.settings.tenant) as connection:
        rows = [dict(row) for row in await tokens.listed(connection, faces.settings.tenant)]
    columns = ("token", "subject", "roles", "created_at", "expires_at", "revoked_at")
    print_rows(rows, columns, as_json=as_json, empty="There are no tokens.")


@token.command("revoke")
@awaited
async def token_revoke(
    token: Annotated[str, typer.Argument(help="The token, or the beginning of its hash as `token list` shows it.")],
    tenant: Tenant = None,
) -> None:
    """Revoke a token; it is refused from this moment on."""
    from app import access

    async with context.faces(_named(tenant)) as faces:
        owner, who = faces.settings.tenant, context.actor(faces.settings)
        count = await access.revoke_token(faces.database, owner, token, who)
    typer.echo(f"Revoked {count}.")
