"""Approvals: list, show, approve, reject, and answer for actions in doubt. The same rules as in Slack."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from app.cli import context
from app.cli.outcome import Commands, Exit, Json, print_fields, print_json, print_one, print_rows
from core.errors import InputError

approval = Commands(help="Approvals: list, show, approve, reject.")

ApprovalId = Annotated[str, typer.Argument(help="The approval's id.")]
As = Annotated[
    str | None, typer.Option("--as", help="Who decides: a person's id in the directory; COUNTERSEAL_PERSON without it.")
]


@approval.command("list")
async def listed(
    status: Annotated[str, typer.Option(help="requested, approved, rejected, …, or all.")] = "requested",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List what waits for people, newest first."""
    from app.http.approvals import summary
    from approvals.states import ApprovalStatus
    from runtime.store import read_models

    context.check_word(status, [*ApprovalStatus, "all"], "status")
    wanted = None if status == "all" else status
    async with context.faces() as faces, faces.database.reading(faces.settings.tenant) as connection:
        found = await read_models.approvals_page(connection, faces.settings.tenant, limit, status=wanted)
    rows = [{**summary(row), "title": row["card"].get("title")} for row in found]
    columns = ("approval_id", "title", "kind", "tier", "requester", "status", "expires_at")
    print_rows(rows, columns, as_json=as_json, empty="Nothing waits for a decision.")


@approval.command("show")
async def show(approval_id: ApprovalId, as_person: As = None, as_json: Json = False) -> None:
    """Show the whole card, its votes, and what has become of it. Sensitive values only for those whom it asks."""
    from app.http.approvals import detail

    wanted = context.uuid(approval_id, "APPROVAL")
    async with context.faces() as faces:
        person, remedy = as_person or faces.settings.person_id, "See `counterseal approval list`."
        shown = await detail(faces, faces.settings.tenant, wanted, person, remedy)
    if as_json:
        print_json(shown)
        return
    card = shown["card"]
    heads = {name: card[name] for name in ("title", "summary", "target", "operation", "risk", "reversible", "reverse")}
    names = ("tier", "status", "state", "detail", "late", "requester", "expires_at", "digest", "masked")
    fields = {**heads, **{name: shown[name] for name in names}, "run": shown["run_id"], "step": shown["step"]}
    if fields["summary"] == fields["title"]:
        del fields["summary"]
    print_fields({name: value for name, value in fields.items() if value not in ("", None)}, as_json=False)
    needed = [
        {"group": item["group"], "votes": f"{len(item['names'])} of {item['of']}", "from": ", ".join(item["names"])}
        for item in shown["progress"]
    ]
    for title, rows, columns in (
        ("changes", card["changes"], ("field", "before", "after")),
        ("other inputs", card["inputs"], ("field", "value")),
        ("rules", card["rules"], ("id", "because")),
        ("votes", shown["votes"], ("person", "choice", "reason", "channel", "at")),
        ("needed", needed, ("group", "votes", "from")),
    ):
        typer.echo(f"\n{title}")
        print_rows(rows, columns, as_json=False, empty=f"no {title}")


@approval.command("approve")
async def approve(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="Why; kept with the vote.")] = "",
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Approve. Exit 4 if the vote does not count."""
    await _vote(approval_id, "approve", reason, as_person, as_json)


@approval.command("reject")
async def reject(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="Why; kept with the vote.")],
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Reject, with a reason. Exit 4 if the vote does not count."""
    await _vote(approval_id, "reject", reason, as_person, as_json)


@approval.command("resolve")
async def resolve(
    approval_id: ApprovalId,
    choice: Annotated[str, typer.Argument(help="happened, again or fail.")],
    reason: Annotated[str, typer.Option(help="How you know; kept with the vote.")],
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Say what became of an action in doubt: it happened, do it again, or count it as failed."""
    if choice not in ("happened", "again", "fail"):
        raise InputError(f"{choice!r} is no answer.", where="CHOICE", remedy="One of happened, again, fail.")
    await _vote(approval_id, choice, reason, as_person, as_json)


async def _vote(approval_id: str, choice: str, reason: str, as_person: str | None, as_json: bool) -> None:
    from approvals.model import Choice, VoteChannel
    from runtime.requests.voting import VoteRequest

    wanted = context.uuid(approval_id, "APPROVAL")
    async with context.faces() as faces:
        tenant, person = faces.settings.tenant, as_person or faces.settings.person_id
        request = VoteRequest(tenant, wanted, person, Choice(choice), reason, VoteChannel.CLI)
        answer = await faces.voting.vote(request)
    print_one(asdict(answer), answer.sentence, as_json=as_json)
    if not answer.counted:
        raise typer.Exit(Exit.CONFLICT)
