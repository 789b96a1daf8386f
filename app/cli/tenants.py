"""Tenants: create one, set its caps, list them all."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli import context
from app.cli.outcome import awaited
from app.cli.output import Json, print_fields, print_rows
from core.errors import ConsistencyError

tenant = typer.Typer(help="Tenants and their caps: create, set, list.", no_args_is_help=True)

MaxConcurrency = Annotated[int | None, typer.Option(min=1, max=10_000, help="Steps executing at once.")]
MaxRunsPerMin = Annotated[int | None, typer.Option(min=1, help="Runs started a minute.")]
MaxWritesPerRun = Annotated[int | None, typer.Option(min=0, help="Side effects of one run.")]
Weight = Annotated[float | None, typer.Option(min=0.001, max=1000, help="Share of the workers.")]

_COLUMNS = ("tenant_id", "max_concurrency", "max_runs_per_min", "max_writes_per_run", "weight", "policy_digest")


@tenant.command("create")
@awaited
async def tenant_create(
    name: Annotated[str, typer.Argument(help="The new tenant's name: lower-case letters, digits, - and _.")],
    max_concurrency: MaxConcurrency = None,
    max_runs_per_min: MaxRunsPerMin = None,
    max_writes_per_run: MaxWritesPerRun = None,
    weight: Weight = None,
    as_json: Json = False,
) -> None:
    """Create a tenant, with its caps. Nothing else creates one, but for the `default` one, which `up` makes."""
    caps = _caps(max_concurrency, max_runs_per_min, max_writes_per_run, weight)
    print_fields(await _set(context.name(name, "NAME"), caps, new=True), as_json=as_json)


@tenant.command("set")
@awaited
async def tenant_set(
    name: Annotated[str | None, typer.Argument(help="The tenant; COUNTERSEAL_TENANT without it.")] = None,
    max_concurrency: MaxConcurrency = None,
    max_runs_per_min: MaxRunsPerMin = None,
    max_writes_per_run: MaxWritesPerRun = None,
    weight: Weight = None,
    as_json: Json = False,
) -> None:
    """Set a tenant's caps, and show them."""
    caps = _caps(max_concurrency, max_runs_per_min, max_writes_per_run, weight)
    print_fields(await _set(context.name(name, "NAME") if name else None, caps, new=False), as_json=as_json)


def _caps(concurrency: int | None, runs: int | None, writes: int | None, weight: float | None) -> dict[str, Any]:
    return {
        "max_concurrency": concurrency,
        "max_runs_per_min": runs,
        "max_writes_per_run": writes,
        "weight": weight,
    }


async def _set(name: str | None, caps: dict[str, Any], *, new: bool) -> dict[str, object]:
    from runtime.requests.publishing import ensure_tenant
    from runtime.store import tenants

    async with context.faces(name, new_tenant=new) as faces:
        owner = faces.settings.tenant
        # One transaction: a crash leaves a whole tenant or none, and the command can be given again.
        async with faces.database.transaction(owner) as connection:
            created = await ensure_tenant(connection, owner, **caps)
            if new and not created:
                raise ConsistencyError(
                    f"The tenant {owner!r} exists.", remedy=f"`counterseal tenant set {owner}` changes its caps."
                )
            (row,) = await tenants.listed(connection)
    return {key: row[key] for key in _COLUMNS}


@tenant.command("list")
@awaited
async def tenant_list(as_json: Json = False) -> None:
    """List every tenant of this installation, with its caps."""
    from runtime.store import tenants

    async with context.overview() as overview, overview.database.transaction() as connection:
        rows = await tenants.listed(connection)
    print_rows(rows, (*_COLUMNS, "created_at"), as_json=as_json, empty="There are no tenants.")
