"""Commands to set up and run Counterseal: up, serve, work, keep, demo, doctor, db, token, tenant."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import context
from app.cli.outcome import Commands, Exit, Json, print_fields, print_one, print_rows
from core.errors import ConfigurationError, ConsistencyError, InputError

if TYPE_CHECKING:
    from app.logins import Logins

db = Commands(name="db", help="The database's schema.")
token = Commands(name="token", help="Bearer tokens for HTTP.")
tenant = Commands(name="tenant", help="Tenants, their caps, and what each has outside.")

Tenant = Annotated[str | None, typer.Option("--tenant", help="The tenant; COUNTERSEAL_TENANT without it.")]
MaxConcurrency = Annotated[int | None, typer.Option(min=1, max=10_000, help="Steps executing at once.")]
MaxRunsPerMin = Annotated[int | None, typer.Option(min=1, max=context.INT4_MAX, help="Runs started a minute.")]
MaxWritesPerRun = Annotated[int | None, typer.Option(min=0, max=context.INT4_MAX, help="Side effects of one run.")]
Weight = Annotated[float | None, typer.Option(min=0.001, max=1000, help="Share of the workers.")]

_CAPS = ("max_concurrency", "max_runs_per_min", "max_writes_per_run", "weight")
_COLUMNS = ("tenant_id", *_CAPS, "policy_digests")


def up(as_json: Json = False) -> None:
    """Run everything in one process: HTTP, a worker, the keepers."""
    _run(as_json, "serve", "work", "keep")


def serve(as_json: Json = False) -> None:
    """Serve HTTP: webhooks, Slack, the API."""
    _run(as_json, "serve")


def work(as_json: Json = False) -> None:
    """Run a worker: lease steps and drive them."""
    _run(as_json, "work")


def keep(as_json: Json = False) -> None:
    """Run the keepers: dispatcher, scheduler, sweeper, completions."""
    _run(as_json, "keep")


def _run(as_json: bool, *names: str) -> None:
    import asyncio

    import uvloop

    from app.processes import Duty, run_settings

    def announce(url: str | None) -> None:
        if as_json:
            typer.echo(json.dumps({"parts": sorted(names), "url": url}))
        else:
            where = f" at {url}" if url else ""
            typer.echo(f"Counterseal is up ({', '.join(sorted(names))}){where}. Stop it with Ctrl-C.")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_settings(context.settings(), frozenset(map(Duty, names)), announce))


async def demo(
    auto: Annotated[bool, typer.Option("--auto", help="No questions: decide by signed clicks, and verify.")] = False,
    aws: Annotated[str | None, typer.Option("--aws", help="moto: SQS and S3 through boto3, to moto's server.")] = None,
) -> None:
    """Watch Counterseal work, with stand-ins for Slack and ServiceNow."""
    if aws not in (None, "moto"):
        raise InputError(f"{aws!r} is not known.", where="--aws", remedy="The only stand-in for AWS is moto.")
    from app import logs
    from app.demo.story import run_demo

    logs.configure("console", "warning", facts=False)
    raise typer.Exit(await run_demo(auto=auto, aws=aws is not None))


def sandbox(context_: typer.Context) -> None:
    """Serve stand-ins for Slack, ServiceNow and more; `counterseal sandbox --help` lists their options."""
    import runpy

    sys.argv = ["counterseal sandbox", *context_.args]
    runpy.run_module("sandbox", run_name="__main__")


def hook(context_: typer.Context) -> None:
    """Ask before each tool of Claude Code or Codex: `counterseal hook settings claude` prints what they need to run it.

    It is the command counterseal-hook of the distribution counterseal-agents, which needs nothing of the server.
    """
    try:
        from counterseal_agents.hook.command import main
    except ImportError:
        raise InputError(
            "is not installed here", where="counterseal-agents", remedy="Run: pip install counterseal-agents"
        ) from None
    main(context_.args)


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")], as_json: Json = False
) -> None:
    """Begin a folder of your own: a workflow, its policy, a directory, schemas for editors, settings."""
    from app.examples import begin

    written = [str(path) for path in begin(folder)]
    then = f"cd {folder} && counterseal policy check policies/it-operations.yaml && counterseal doctor"
    print_one({"written": written}, "\n".join([*written, "", f"Go on with: {then}"]), as_json=as_json)


async def doctor(as_json: Json = False) -> None:
    """Check what is configured, what is reachable, and what is missing."""
    from app import doctor as doctor_

    checks = await doctor_.examine(context.settings())
    print_rows([asdict(check) for check in checks], ("what", "state", "detail"), as_json=as_json, empty="")
    # Only a configured part that does not work is a failure.
    if any(check.state is doctor_.State.BROKEN for check in checks):
        raise typer.Exit(Exit.FAILED)


async def login(
    person: Annotated[str, typer.Option("--as", help="Who logs in: a person's id in the directory.")],
    role: Annotated[list[str], typer.Option(help="admin, operator, approver or auditor; repeat it.")],
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Print an address that logs a person in to the console, once, within 15 minutes."""
    from app import access
    from app.console import sessions

    for name in role:
        context.check_word(name, sorted(sessions.ROLES), "role")
    async with context.faces(tenant) as faces:
        who, roles = context.actor(faces.settings), frozenset(map(access.Role, role))
        code, subject = await sessions.make_link(faces.database, faces.settings.tenant, person, roles, who)
        url = f"{faces.settings.console_address}/login/{code}"
    print_one({"url": url, "subject": subject, "roles": sorted(roles)}, url, as_json=as_json)


TOP = (up, serve, work, keep, demo, init, doctor, login)


@db.command("upgrade")
async def db_upgrade(as_json: Json = False) -> None:
    """Upgrade the database's schema to this release; safe to run at any time."""
    from app import storage

    async with storage.server(context.settings()) as logins:
        owner = _owner(logins)
        before, after = await storage.schema_revision(owner), storage.head_revision()
        await storage.upgrade(owner)
    words = f"The schema is at {after}." if before == after else f"From {before or 'nothing'} to {after}."
    print_one({"before": before, "after": after}, words, as_json=as_json)


@db.command("setup")
async def db_setup(
    directory: Annotated[
        Path | None, typer.Option(help="Write faces.env and engine.env there, for their owner's eyes only.")
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Give logins that are there new passwords.")] = False,
) -> None:
    """Upgrade the schema to this release and create the two logins, one for faces and one for the engine. Connects as
    the owner of the database (COUNTERSEAL_DATABASE_URL). Prints or writes the settings with the new passwords.
    """
    from app import logins, storage
    from app.postgres_cluster import write_private

    settings = context.settings()
    if settings.database_url is None:
        remedy = "Set it to the address of the database's owner. The embedded server needs no setup."
        raise ConfigurationError("COUNTERSEAL_DATABASE_URL is not set.", remedy=remedy)
    made = logins.drawn(settings.database_url.get_secret_value())
    owner = _owner(made)

    def keep() -> None:
        for kind, line in logins.settings_of(made).items():
            if directory is None:
                typer.echo(line, nl=False)
            else:
                write_private(directory / f"{kind}.env", line)

    await storage.upgrade(owner)
    await storage.make_logins(owner, made, renew=renew, keep=keep)
    if directory is not None:
        typer.echo(f"Written to {directory}/faces.env and {directory}/engine.env.")


def _owner(logins: Logins) -> str:
    if logins.owner is None:
        words = "COUNTERSEAL_DATABASE_URL is not set: only the owner of the database may change it."
        raise ConfigurationError(words, remedy="Set it to the owner's address for this command.")
    return logins.owner


@token.command("create")
async def token_create(
    subject: Annotated[str, typer.Option(help="Whose it is: a person's id in the directory, or a service account's.")],
    role: Annotated[list[str], typer.Option(help="admin, author, operator, approver, auditor or trigger; repeat it.")],
    tenant: Tenant = None,
    expires: Annotated[str, typer.Option(help="How long it lives, such as PT8H; P365D at most.")] = "P90D",
    as_json: Json = False,
) -> None:
    """Create a token and print it once: only its hash is stored.

    A token ends when it expires, when it is revoked, and when its person is removed or deactivated in the directory.
    """
    from app import access
    from core.durations import parse_duration

    for name in role:
        context.check_word(name, list(access.Role), "role")
    roles = frozenset(map(access.Role, role))
    try:
        lifetime = parse_duration(expires)
    except InputError as error:
        raise InputError(error.message, where="--expires", remedy=error.remedy) from None
    async with context.faces(tenant) as faces:
        owner, who = faces.settings.tenant, context.actor(faces.settings)
        made = await access.create_token(faces.database, owner, subject, roles, lifetime, who)
    print_one({**asdict(made), "roles": sorted(roles)}, made.token, as_json=as_json)


@token.command("list")
async def token_list(tenant: Tenant = None, as_json: Json = False) -> None:
    """List tokens by the beginning of their hashes, and why ended tokens have ended."""
    from runtime.store import tokens

    async with context.faces(tenant) as faces, faces.database.transaction(faces.settings.tenant) as connection:
        rows = [dict(row) for row in await tokens.listed(connection, faces.settings.tenant)]
    columns = ("token", "subject", "roles", "created_at", "expires_at", "ended")
    print_rows(rows, columns, as_json=as_json, empty="There are no tokens.")


@token.command("revoke")
async def token_revoke(
    token: Annotated[str, typer.Argument(help="The token, or the beginning of its hash as `token list` shows it.")],
    tenant: Tenant = None,
) -> None:
    """Revoke a token; every later request with it is refused. An agent's last one takes its open questions with it."""
    from app import access

    async with context.faces(tenant) as faces:
        actor = context.actor(faces.settings)
        count = await access.revoke_token(faces.database, faces.settings.tenant, token, actor)
    typer.echo(f"Revoked {count}.")


@tenant.command("create")
async def tenant_create(
    name: Annotated[str, typer.Argument(help="The new tenant's name: lower-case letters, digits, - and _.")],
    max_concurrency: MaxConcurrency = None,
    max_runs_per_min: MaxRunsPerMin = None,
    max_writes_per_run: MaxWritesPerRun = None,
    weight: Weight = None,
    as_json: Json = False,
) -> None:
    """Create a tenant, with its caps. Nothing else creates tenants, except that `up` creates the tenant `default`."""
    caps = (max_concurrency, max_runs_per_min, max_writes_per_run, weight)
    await _set(context.name(name, "NAME"), *caps, new=True, as_json=as_json)


@tenant.command("set")
async def tenant_set(
    name: Annotated[str | None, typer.Argument(help="The tenant; COUNTERSEAL_TENANT without it.")] = None,
    max_concurrency: MaxConcurrency = None,
    max_runs_per_min: MaxRunsPerMin = None,
    max_writes_per_run: MaxWritesPerRun = None,
    weight: Weight = None,
    as_json: Json = False,
) -> None:
    """Set a tenant's caps, and show them."""
    await _set(name, max_concurrency, max_runs_per_min, max_writes_per_run, weight, new=False, as_json=as_json)


async def _set(name: str | None, *values: float | None, new: bool, as_json: bool) -> None:
    from runtime.requests.publishing import ensure_tenant
    from runtime.store import tenants

    caps: dict[str, Any] = dict(zip(_CAPS, values, strict=True))
    async with (
        context.faces(name, "NAME", new_tenant=new) as faces,
        # One transaction: a crash leaves a complete tenant or none, and the command can be repeated.
        faces.database.transaction(faces.settings.tenant) as connection,
    ):
        owner = faces.settings.tenant
        if not await ensure_tenant(connection, owner, **caps) and new:
            remedy = f"`counterseal tenant set {owner}` changes its caps."
            raise ConsistencyError(f"The tenant {owner!r} exists.", remedy=remedy)
        (row,) = await tenants.listed(connection)
    print_fields({key: row[key] for key in _COLUMNS}, as_json=as_json)


@tenant.command("list")
async def tenant_list(as_json: Json = False) -> None:
    """List every tenant of this installation, with its caps."""
    from runtime.store import tenants

    async with context.overview() as (_, database), database.transaction() as connection:
        rows = await tenants.listed(connection)
    print_rows(rows, (*_COLUMNS, "created_at"), as_json=as_json, empty="There are no tenants.")
