"""Commands for approvals, tasks and actions in doubt. The same rules hold as in Slack."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer
from msgspec import structs

from app.cli import context
from app.cli.outcome import (
    Commands,
    Exit,
    Json,
    first_of,
    print_fields,
    print_json,
    print_one,
    print_part,
    print_rows,
    printable,
)
from app.cli.telling import proposed_by, source_rows
from approvals.model import ApprovalStatus
from core import bounded_json
from core.errors import InputError

if TYPE_CHECKING:
    from approvals.fields import FormField
    from core.terms import Grant

approval = Commands(name="approval", help="Approvals: list, show, approve, reject.")
task = Commands(name="task", help="Tasks: list, look, complete.")

ApprovalId = Annotated[
    UUID, typer.Argument(help="The approval's id, or the beginning of it.", parser=context.approval_of)
]
As = Annotated[
    str | None, typer.Option("--as", help="Who acts: a person's id in the directory; COUNTERSEAL_PERSON without it.")
]
Text = Annotated[str, typer.Option(help="The words; whoever sees the question reads them.")]
TaskId = Annotated[UUID, typer.Argument(help="The task's id.", parser=context.id_of("TASK"))]


@approval.command("list")
async def approval_list(
    status: Annotated[str, typer.Option(help="requested, approved, rejected, …, or all.")] = ApprovalStatus.REQUESTED,
    mine: Annotated[bool, typer.Option("--mine", help="Only those that you may decide and have not answered.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=context.INT4_MAX - 1, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List the approvals that wait for people, or those with another status, newest first.

    With --mine, those that COUNTERSEAL_PERSON may decide now: their answer is judged again by the same rules.
    """
    from app.deciding import decidable
    from app.shown import approval_summary
    from runtime.store import approvals

    context.check_word(status, [*ApprovalStatus, "all"], "status")
    wanted = None if status == "all" else status
    if mine and wanted != ApprovalStatus.REQUESTED:
        raise InputError("are open ones.", where="--mine", remedy="Leave --status out.")
    async with context.faces() as faces:
        tenant, own = faces.settings.tenant, None
        if mine:
            own = await decidable(faces, tenant, faces.settings.person_id, context.INT4_MAX)
        async with faces.database.transaction(tenant) as connection:
            most = limit + 1 if own is None else context.INT4_MAX
            found = await approvals.approvals_page(connection, tenant, most, status=wanted)
        await context.record_read(faces, "approvals")
    found = [row for row in found if own is None or row["approval_id"] in own]
    names = ("reference", "groups")
    rows = [
        {**approval_summary(row), "title": row["card"].get("title"), **{name: row[name] for name in names}}
        for row in first_of(found, limit)
    ]
    columns: tuple[str, ...] = ("approval_id", "title", "kind", "tier", "requester", "status", "outcome", "expires_at")
    columns += names
    if sys.stdout.isatty() and not as_json:
        columns = ("approval_id", "title", "reference", "groups" if wanted else "outcome", "expires_at")
    if not as_json:
        rows = [{**row, "groups": ", ".join(row["groups"])} for row in rows]
    print_rows(rows, columns, as_json=as_json, empty="Nothing waits for a decision.")


@approval.command("show")
async def approval_show(approval_id: ApprovalId, as_person: As = None, as_json: Json = False) -> None:
    """Show the whole card, its votes and its outcome. Only people whom it asks see sensitive values."""
    from app.shown import approval_detail

    async with context.faces() as faces:
        person, remedy = as_person or faces.settings.person_id, "See `counterseal approval list`."
        shown = await approval_detail(faces, faces.settings.tenant, approval_id, person, remedy)
        await context.record_read(faces, "approval", thing=approval_id)
    if as_json:
        print_json(shown)
        return
    card = shown["card"]
    heads = {name: card[name] for name in ("title", "summary", "target", "operation", "risk", "reversible", "reverse")}
    names = (
        "tier",
        "status",
        "state",
        "why",
        "detail",
        "delivered",
        "card_problem",
        "late",
        "paused",
        "requester",
        "expires_at",
        "digest",
        "masked",
    )
    fields = {**heads, **{name: shown[name] for name in names}, "run": shown["run_id"], "step": shown["step"]}
    lines = fields["summary"].split("\n")
    if fields["summary"] == fields["title"] or len(lines) > 1:
        del fields["summary"]
    fields |= proposed_by(card.get("agent"))
    print_fields({name: value for name, value in fields.items() if value not in ("", None)})
    for line in lines if len(lines) > 1 else ():
        typer.echo(f"  {printable(line)}")
    needed = [
        {"group": item["group"], "votes": f"{len(item['names'])} of {item['of']}", "from": ", ".join(item["names"])}
        for item in shown["progress"]
    ]
    print_part("changes", card["changes"], "field", "before", "after")
    print_part("other inputs", card["inputs"], "field", "value")
    if card.get("sources"):
        print_part("where the values come from", [*source_rows(card["sources"])], "field", "source", "quoted")
    print_part("rules", card["rules"], "id", "because")
    print_part("votes", shown["votes"], "person", "choice", "reason", "channel", "at")
    print_part("said", shown["said"], "name", "said", "to", "text", "at")
    print_part("needed", needed, "group", "votes", "from")


@approval.command("approve")
async def approve(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="Why; kept with the vote.")] = "",
    as_person: As = None,
    grant_uses: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Also allow the same so often, within the bounds of the policy.")
    ] = None,
    grant_for: Annotated[str, typer.Option(help="For how long; an ISO 8601 duration.")] = "PT1H",
    grant_agent: Annotated[bool, typer.Option(help="Only for the agent that asks, not for the whole run.")] = False,
    as_json: Json = False,
) -> None:
    """Approve. Exit 4 if the vote does not count."""
    from core.durations import parse_duration
    from core.terms import Grant

    span = int(parse_duration(grant_for).total_seconds())
    grant = None if grant_uses is None else Grant(grant_uses, span, grant_agent)
    await take_vote(approval_id, "approve", reason, as_person, as_json, grant)


@approval.command("reject")
async def reject(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="Why; kept with the vote.")],
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Reject, with a reason. Exit 4 if the vote does not count."""
    await take_vote(approval_id, "reject", reason, as_person, as_json)


@approval.command("resolve")
async def resolve(
    approval_id: ApprovalId,
    choice: Annotated[str, typer.Argument(help="happened, again or fail.")],
    reason: Annotated[str, typer.Option(help="How you know; kept with the vote.")],
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Decide on an action in doubt: it happened, do it again, or count it as failed."""
    if choice not in ("happened", "again", "fail"):
        raise InputError(f"{choice!r} is no answer.", where="CHOICE", remedy="One of happened, again, fail.")
    await take_vote(approval_id, choice, reason, as_person, as_json)


@approval.command("ask")
async def ask(approval_id: ApprovalId, text: Text, as_person: As = None, as_json: Json = False) -> None:
    """Ask for more before deciding. The question stays open; whoever requested it is told."""
    await _say(approval_id, "asks", text, as_person, as_json)


@approval.command("answer")
async def answer(approval_id: ApprovalId, text: Text, as_person: As = None, as_json: Json = False) -> None:
    """Answer what was asked. Whoever answers has a part in it then, and does not decide it."""
    await _say(approval_id, "answers", text, as_person, as_json)


@approval.command("comment")
async def comment(approval_id: ApprovalId, text: Text, as_person: As = None, as_json: Json = False) -> None:
    """Comment on an open question."""
    await _say(approval_id, "comments", text, as_person, as_json)


@approval.command("hand")
async def hand(
    approval_id: ApprovalId,
    to: Annotated[str, typer.Option(help="A person, or a group: one that may decide it already.")],
    text: Annotated[str, typer.Option(help="Why; kept with the question.")] = "",
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Hand an open question on to somebody else who may decide it."""
    await _say(approval_id, "hands_on", text, as_person, as_json, to)


@approval.command("edit")
async def edit(
    approval_id: ApprovalId,
    values: Annotated[
        str, typer.Option(help="The values that are to be others, as JSON: {'priority': '2'}; the form without it.")
    ] = "",
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Edit what would be done. The question is void then, and what is written is judged anew."""
    from approvals.fields import fields_of
    from approvals.model import VoteChannel
    from approvals.quorum import NotCounted
    from runtime.requests.editing import EditRequest

    async with context.faces() as faces:
        tenant, person = faces.settings.tenant, as_person or faces.settings.person_id
        form = await faces.editing.form(tenant, approval_id, person)
        if isinstance(form, NotCounted):
            print_one({"edited": False, "code": str(form.code)}, form.sentence, as_json=as_json)
            raise typer.Exit(Exit.CONFLICT)
        if not values:
            rows = [{"value": one.name, "kind": str(one.kind), "now": one.schema["default"]} for one in fields_of(form)]
            print_rows(rows, ("value", "kind", "now"), as_json=as_json, empty="Nothing can be edited.")
            return
        given = bounded_json.parse_object(values.encode(), bytes_max=65_536, where="--values")
        identity: dict[str, Any] = {"named": person, "by": "option" if as_person else "settings"}
        asked = EditRequest(tenant, approval_id, person, given, VoteChannel.CLI, identity=identity)
        answer = await faces.editing.edit(asked)
    facts = {"edited": answer.edited, "code": answer.code, "sentence": answer.sentence, "run_id": answer.run_id}
    print_one(facts, answer.sentence, as_json=as_json)
    if not answer.edited:
        raise typer.Exit(Exit.CONFLICT)


async def _say(approval_id: UUID, kind: str, text: str, as_person: str | None, as_json: bool, to: str = "") -> None:
    from approvals.model import VoteChannel
    from approvals.talk import Saying
    from runtime.requests.talking import SayRequest

    async with context.faces() as faces:
        tenant, person = faces.settings.tenant, as_person or faces.settings.person_id
        identity: dict[str, Any] = {"named": person, "by": "option" if as_person else "settings"}
        asked = SayRequest(tenant, approval_id, person, Saying(kind), text, VoteChannel.CLI, to=to, identity=identity)
        answer = await faces.talking.say(asked)
    print_one(asdict(answer), answer.sentence, as_json=as_json)
    if not answer.recorded:
        raise typer.Exit(Exit.CONFLICT)


async def take_vote(
    approval_id: UUID,
    choice: str,
    reason: str,
    as_person: str | None,
    as_json: bool,
    grant: Grant | None = None,
    *,
    glass: bool = False,
) -> None:
    """Vote as a person, and print the result. Exit 4 if the vote does not count."""
    from approvals.model import Choice, VoteChannel
    from runtime.requests.voting import VoteRequest

    async with context.faces() as faces:
        tenant, person = faces.settings.tenant, as_person or faces.settings.person_id
        ballot = (tenant, approval_id, person, Choice(choice), reason, VoteChannel.CLI)
        identity: dict[str, Any] = {"named": person, "by": "option" if as_person else "settings"}
        request = VoteRequest(*ballot, grant=grant, identity=identity, glass=glass)
        answer = await faces.voting.vote(request)
    print_one(asdict(answer), answer.sentence, as_json=as_json)
    if not answer.counted:
        raise typer.Exit(Exit.CONFLICT)


@task.command("list")
async def task_list(
    state: Annotated[str, typer.Option(help="open, completed, expired, canceled, or all.")] = "open",
    group: Annotated[str | None, typer.Option(help="Only tasks of this group.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=context.INT4_MAX - 1, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List tasks."""
    from app.shown import task_summary
    from approvals.model import TaskState
    from runtime.store import tasks
    from runtime.store.read_models import FIRST_ID

    context.check_word(state, [*TaskState, "all"], "state")
    wanted = None if state == "all" else TaskState(state)
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        found = await tasks.page(connection, faces.settings.tenant, limit + 1, FIRST_ID, state=wanted, group=group)
        await context.record_read(faces, "tasks")
    rows = [task_summary(task) for task in first_of(found, limit)]
    columns = ("task_id", "title", "group", "state", "reference", "due_at")
    print_rows(rows, columns, as_json=as_json, empty="There are no such tasks.")


@task.command("show")
async def task_show(task_id: TaskId, as_json: Json = False) -> None:
    """Show one task: the question, the group that is asked, and the form's fields."""
    from app.shown import task_detail
    from approvals.forms import fields_of
    from runtime.store import tasks

    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        shown = task_detail(await tasks.read(connection, task_id))
        await context.record_read(faces, "task", thing=task_id)
    if as_json:
        print_json(shown)
        return
    fields = fields_of(shown.pop("form"))
    print_fields({name: value for name, value in shown.items() if value not in ("", None)})
    rows = [{**structs.asdict(field), "options": ", ".join(field.options) or None} for field in fields]
    print_part("fields", rows, "name", "kind", "required", "title", "options")


@task.command("complete")
async def complete(
    task_id: TaskId,
    as_person: As = None,
    value: Annotated[str | None, typer.Option(help="What is entered, as a JSON object by field, or @FILE.")] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", "-f", help="NAME=VALUE: one field; once for each option of a list of options."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Complete a task. Exit 2 if the form is not filled in correctly, 4 if you may not complete it or it has ended."""
    from app.shown import task_faults
    from approvals.model import VoteChannel

    if value is not None and field:
        raise InputError("goes without --field.", where="--value", remedy="Give one or the other.")
    async with context.faces() as faces:
        tenant, person = faces.settings.tenant, as_person or faces.settings.person_id
        if value is not None:
            entered = bounded_json.parse(context.typed(value), where="--value")
            if not isinstance(entered, dict):
                raise InputError("is not a JSON object.", where="--value", remedy="Give the fields by their names.")
        else:
            entered = _entered((await faces.tasks.view(tenant, task_id)).form, field or [])
        answer = await faces.tasks.complete(tenant, task_id, person, entered, VoteChannel.CLI)
    print_one({**structs.asdict(answer), "problems": task_faults(answer)}, answer.sentence, as_json=as_json)
    if not as_json:
        for fault in answer.problems:
            words = f"{fault.where}: {fault.sentence}" if fault.where else fault.sentence
            typer.echo(printable(words), err=True)
    if not answer.accepted:
        raise typer.Exit(Exit.INPUT if answer.problems else Exit.CONFLICT)


def _entered(form: dict[str, Any], given: list[str]) -> dict[str, Any]:
    """Convert typed fields to the types of the form. A value that cannot be converted stays text: the form's check then
    reports it together with the other faults."""
    from approvals.forms import fields_of

    fields = {field.name: field for field in fields_of(form)}
    texts: dict[str, list[str]] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise InputError(f"{item!r} is not NAME=VALUE.", where="--field")
        texts.setdefault(name, []).append(text)
    return {name: _read(fields.get(name), found) for name, found in texts.items()}


def _read(field: FormField | None, texts: list[str]) -> Any:
    from approvals.fields import FieldKind

    if field is not None and field.kind is FieldKind.CHOICES:
        return texts
    if len(texts) > 1:
        raise InputError("is given twice.", where="--field", remedy="Only a list of options takes several.")
    (text,) = texts
    match field.kind if field is not None else None:
        case FieldKind.INTEGER | FieldKind.NUMBER:
            with suppress(InputError):
                return bounded_json.parse(text.encode(errors="surrogateescape"))
        case FieldKind.BOOLEAN:
            return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    return text
