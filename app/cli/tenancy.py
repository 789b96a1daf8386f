"""Commands about what a tenant has outside: apply its settings, show them, suspend the tenant."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import context
from app.cli.outcome import Json, print_fields, print_one


async def tenant_apply(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Settings of tenants, one tenant a file.")],
    as_json: Json = False,
) -> None:
    """Put a tenant's own settings in force: Slack, ServiceNow, model, HTTP hosts, BPMN, SQL, webhooks, key, evidence.

    Every process takes them without a restart. What a file leaves out is not set, and nothing is inherited. Secrets
    stand in it by reference alone.
    """
    from runtime.requests import tenancy

    texts = [(context.read_text(path), str(path)) for path in files]
    async with context.overview() as (settings, database):
        actor = context.actor(settings)
        done = [await tenancy.apply(database, text, file, actor) for text, file in texts]
    for one in done:
        words = "are in force" if one.changed else "were in force already"
        print_one(
            asdict(one), f"settings of {one.tenant} version {one.version} {words} ({one.digest[:12]})", as_json=as_json
        )


async def tenant_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tenant.")], as_json: Json = False
) -> None:
    """Show a tenant: its settings in force, by whom, and what it has not set; if it is suspended, and why."""
    from core.terms import Stopped
    from runtime.definition.tenant import load_tenant
    from runtime.requests import pausing
    from runtime.store import tenant_settings

    async with context.overview(name) as (_, database), database.transaction() as connection:
        stored = await tenant_settings.in_force(connection, name)
        held = [one for one in await pausing.listed(connection, name) if one.what is Stopped.SUSPENDED]
    facts: dict[str, Any] = {"tenant": name, "suspended": str(held[0]) if held else None, "version": None}
    if stored is not None:
        content = load_tenant(stored.source, f"settings of {name}").content
        parts = [part for part in type(content).model_fields if part not in ("tenant", "secrets")]
        facts |= {"version": stored.version, "digest": stored.digest, "applied_by": stored.applied_by}
        facts |= {"applied_at": stored.applied_at, "secrets": [*content.secrets]}
        facts |= {"set": [part for part in parts if getattr(content, part)]}
        facts |= {"unset": [part for part in parts if not getattr(content, part)]}
    print_fields(facts, as_json=as_json)


async def tenant_suspend(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tenant.")],
    reason: Annotated[str, typer.Option(help="Why; whoever meets it reads it, and the audit keeps it.")] = "",
    lift: Annotated[bool, typer.Option("--lift", help="End the suspension.")] = False,
    as_json: Json = False,
) -> None:
    """Suspend a tenant: nothing of it starts and nothing of it is sent until `--lift`. Its data stays readable."""
    from runtime.requests import tenancy

    async with context.overview(name) as (settings, database):
        changed = await tenancy.suspend(database, name, reason, context.actor(settings), lift=lift)
    words = "goes on" if lift else "is suspended: nothing of it starts, and nothing of it is sent"
    if not changed:
        words = "was not suspended" if lift else "was suspended already"
    print_one({"tenant": name, "suspended": not lift, "changed": changed}, f"{name} {words}.", as_json=as_json)


OF_TENANTS: Mapping[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "apply": tenant_apply,
    "show": tenant_show,
    "suspend": tenant_suspend,
}
