"""Commands for receipts: undo what one records."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from app.cli import context
from app.cli.outcome import Commands, Json, print_fields

receipt = Commands(name="receipt", help="Receipts: reverse.")

ReceiptId = Annotated[UUID, typer.Argument(help="The receipt's id.", parser=context.id_of("RECEIPT"))]


@receipt.command("reverse")
async def reverse(
    receipt_id: ReceiptId,
    reason: Annotated[str, typer.Option(help="Why it is undone; kept with the run.")],
    as_json: Json = False,
) -> None:
    """Start a run that undoes what this receipt records. It is judged like any action, and fails if the record was
    changed since. Exit 4 if there is no way back, or if the effect is reversed already.
    """
    from runtime.requests import reversing

    async with context.faces() as faces:
        tenant, who = faces.settings.tenant, context.actor(faces.settings)
        asked = reversing.Undo(tenant, faces.settings.workspace, receipt_id, reason, who.id, who)
        started = await faces.ask(tenant, reversing.reverse, faces.definitions, asked)
    print_fields({"receipt_id": receipt_id, "run_id": started.run_id}, as_json=as_json)
