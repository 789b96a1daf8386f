"""Commands about grants: what approvers of a run have allowed in advance, and taking one back."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer
from msgspec import to_builtins

from app.cli import context
from app.cli.outcome import Commands, Json, print_one, print_rows
from app.cli.runs import RunId
from core.errors import NotFoundError

grant = Commands(name="grant", help="What approvers have allowed in advance: list it, show it, take it back.")
GrantId = Annotated[UUID, typer.Argument(metavar="GRANT", help="The grant's id.", parser=context.id_of("GRANT"))]


@grant.command("list")
async def grant_list(run_id: RunId, as_json: Json = False) -> None:
    """List the grants of a run."""
    rows = await _grants(run_id)
    shown = [{**row, "target": row["of"].get("target"), "by": ", ".join(row["by"])} for row in rows]
    columns = ("grant", "state", "used", "uses", "until", "target", "by")
    print_rows(rows if as_json else shown, columns, as_json=as_json, empty="Nothing is allowed in advance in this run.")


@grant.command("show")
async def grant_show(run_id: RunId, grant_id: GrantId, as_json: Json = False) -> None:
    """Show one grant: what it covers, who gave it, how much is left."""
    row = next((one for one in await _grants(run_id) if one["grant"] == str(grant_id)), None)
    if row is None:
        raise NotFoundError(f"The run {run_id} has no grant {grant_id}.", remedy=f"counterseal grant list {run_id}")
    words = f"{row['used']} of {row['uses']} used, until {row['until']}: {row['of'].get('target')}"
    print_one(row, words, as_json=as_json)


@grant.command("revoke")
async def revoke(
    run_id: RunId,
    grant_id: GrantId,
    reason: Annotated[str, typer.Option(help="Why; kept in the evidence.")],
    as_json: Json = False,
) -> None:
    """Take a grant back: after this command no action goes out by it. Exit 4 if it is over."""
    from runtime.requests import granting

    async with context.faces() as faces:
        named = (faces.definitions, run_id, grant_id, context.actor(faces.settings))
        await faces.ask(faces.settings.tenant, granting.revoke_grant, *named, reason)
    print_one({"grant": str(grant_id), "state": "revoked"}, "Nothing more goes out by it.", as_json=as_json)


async def _grants(run_id: RunId) -> list[dict[str, Any]]:
    from runtime.requests import granting

    async with context.faces() as faces:
        found = await faces.ask(faces.settings.tenant, granting.grants_of, faces.definitions, run_id)
    return [to_builtins(one) for one in found]
