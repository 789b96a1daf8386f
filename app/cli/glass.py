"""Commands about broken glass: an action that one person lets out alone, and the review of that."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli import context
from app.cli.outcome import Json, print_one
from app.cli.people import ApprovalId, As, take_vote


async def break_glass(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="The emergency; kept, and reviewed.")],
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Let the action out alone, where policy lets you; all hear of it. Exit 4 if it does not count."""
    await take_vote(approval_id, "approve", reason, as_person, as_json, glass=True)


async def review(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="What the review has found; kept in the audit.")],
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Review a use of broken glass, which somebody else has made. Then it can be broken again."""
    from runtime.requests import glass

    async with context.faces() as faces:
        named = (faces.definitions, approval_id, as_person or faces.settings.person_id, reason)
        await faces.ask(faces.settings.tenant, glass.review, *named)
    print_one({"approval": str(approval_id), "reviewed": True}, "Reviewed.", as_json=as_json)


COMMANDS = {"break-glass": break_glass, "review": review}
