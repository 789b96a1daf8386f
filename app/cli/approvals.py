"""Approvals: list, show, approve, reject, and answer for actions in doubt. The same rules as in Slack."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from app.cli import context
from app.cli.outcome import Exit, awaited
from app.cli.output import Json, print_fields, print_json, print_rows
from core.errors import InputError, NotFoundError

approval = typer.Typer(help="Approvals: list, show, approve, reject.", no_args_is_help=True)

ApprovalId = Annotated[str, typer.Argument(help="The approval's id.")]
As = Annotated[
    str | None, typer.Option("--as", help="Who decides: a person's id in the directory; COUNTERSEAL_PERSON without it.")
]


@approval.command("list")
@awaited
async def listed(
    status: Annotated[str, typer.Option(help="requested, approved, rejected, …, or all.")] = "requested",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List what waits for people, newest first."""
    from app.http.approvals import summary
    from approvals.states import ApprovalStatus
    from runtime.store import read_models

    if status != "all" and status not in set(ApprovalStatus):
        words = ", ".join([*ApprovalStatus, "all"])
        raise InputError(f"{status!r} is not a status.", where="--status", remedy=f"One of {words}.")
    wanted = None if status == "all" else status
    async with context.faces() as faces, faces.database.reading(faces.settings.tenant) as connection:
        found = await read_models.approvals_page(connection, faces.settings.tenant, limit, status=wanted)
    rows = [{**summary(row), "title": row["card"].get("title")} for row in found]
    columns = ("approval_id", "title", "kind", "tier", "requester", "status", "expires_at")
    print_rows(rows, columns, as_json=as_json, empty="Nothing waits for a decision.")


@approval.command("show")
@awaited
async def show(approval_id: ApprovalId, as_person: As = None, as_json: Json = False) -> None:
    """Show the whole card, its votes, and what has become of it. Sensitive values only for those whom it asks."""
    shown = await _show(approval_id, as_person)
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


async def _show(approval_id: str, as_person: str | None) -> dict[str, Any]:
    from app.http.approvals import detail
    from app.slack import may_see_all
    from runtime.store import read_models

    wanted = context.uuid(approval_id, "APPROVAL")
    async with context.faces() as faces:
        tenant = faces.settings.tenant
        async with faces.database.reading(tenant) as connection:
            row = await read_models.approval(connection, tenant, wanted)
        if row is None:
            raise NotFoundError(f"There is no approval {approval_id}.", remedy="See `counterseal approval list`.")
        view = await faces.voting.view(tenant, wanted)
        whole = await may_see_all(faces, tenant, context.person(faces.settings, as_person), view)
        return detail(row, view, whole=whole)


@approval.command("approve")
@awaited
async def approve(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="Why; kept with the vote.")] = "",
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Approve. Exit 4 if the vote does not count."""
    await _vote(approval_id, "approve", reason, as_person, as_json)


@approval.command("reject")
@awaited
async def reject(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="Why; kept with the vote.")],
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Reject, with a reason. Exit 4 if the vote does not count."""
    await _vote(approval_id, "reject", reason, as_person, as_json)


@approval.command("resolve")
@awaited
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
        tenant, person = faces.settings.tenant, context.person(faces.settings, as_person)
        request = VoteRequest(tenant, wanted, person, Choice(choice), reason, VoteChannel.CLI)
        answer = await faces.voting.vote(request)
    if as_json:
        print_json(asdict(answer))
    else:
        typer.echo(answer.sentence)
    if not answer.counted:
        raise typer.Exit(Exit.CONFLICT)
