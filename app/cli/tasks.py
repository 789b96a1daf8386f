"""Tasks: list, look, complete."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import context
from app.cli.outcome import Commands, Exit, Json, print_fields, print_json, print_one, print_rows, printable
from app.cli.signals import read_json
from core.errors import InputError

if TYPE_CHECKING:
    from approvals.fields import FormField

task = Commands(help="Tasks: list, look, complete.")

TaskId = Annotated[str, typer.Argument(help="The task's id.")]


@task.command("list")
async def listed(
    state: Annotated[str, typer.Option(help="open, completed, expired, canceled, or all.")] = "open",
    group: Annotated[str | None, typer.Option(help="Only tasks of this group.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List tasks."""
    from app.http.tasks import summary
    from approvals.model import TaskState
    from runtime.store import tasks
    from runtime.store.read_models import FIRST_ID

    context.check_word(state, [*TaskState, "all"], "state")
    wanted = None if state == "all" else TaskState(state)
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        found = await tasks.page(connection, faces.settings.tenant, limit, FIRST_ID, state=wanted, group=group)
    rows = [summary(task) for task in found]
    columns = ("task_id", "title", "group", "state", "reference", "due_at")
    print_rows(rows, columns, as_json=as_json, empty="There are no such tasks.")


@task.command("show")
async def show(task_id: TaskId, as_json: Json = False) -> None:
    """Show one task: what is asked, of whom, and the form's fields."""
    from app.http.tasks import detail
    from runtime.store import tasks

    wanted = context.uuid(task_id, "TASK")
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        shown = detail(await tasks.read(connection, wanted))
    if as_json:
        print_json(shown)
        return
    form = shown.pop("form")
    print_fields({name: value for name, value in shown.items() if value not in ("", None)}, as_json=False)
    typer.echo("\nfields")
    print_rows(_fields(form), ("name", "kind", "required", "title", "options"), as_json=False, empty="no fields")


def _fields(form: dict[str, Any]) -> list[dict[str, Any]]:
    from approvals.forms import fields_of

    return [{**asdict(field), "options": ", ".join(field.options) or None} for field in fields_of(form)]


@task.command("complete")
async def complete(
    task_id: TaskId,
    as_person: Annotated[
        str | None, typer.Option("--as", help="Who completes it: a person's id in the directory.")
    ] = None,
    value: Annotated[str | None, typer.Option(help="What is entered, as a JSON object by field, or @FILE.")] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", "-f", help="NAME=VALUE: one field; once for each option of a list of options."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Complete a task. Exit 2 if the form is not filled in as it has to be, 4 if you may not or it is over."""
    from app.http.tasks import faults
    from approvals.model import VoteChannel

    if value is not None and field:
        raise InputError("goes without --field.", where="--value", remedy="Give one or the other.")
    wanted = context.uuid(task_id, "TASK")
    async with context.faces() as faces:
        tenant, person = faces.settings.tenant, as_person or faces.settings.person_id
        if value is not None:
            entered = read_json(value, "--value")
            if not isinstance(entered, dict):
                raise InputError("is not a JSON object.", where="--value", remedy="Give the fields by their names.")
        else:
            view = await faces.tasks.view(tenant, wanted)
            entered = _entered(view.form, field or [])
        answer = await faces.tasks.complete(tenant, wanted, person, entered, VoteChannel.CLI)
    print_one({**asdict(answer), "problems": faults(answer)}, answer.sentence, as_json=as_json)
    if not as_json:
        for fault in answer.problems:
            words = f"{fault.where}: {fault.sentence}" if fault.where else fault.sentence
            typer.echo(printable(words), err=True)
    if not answer.accepted:
        raise typer.Exit(Exit.INPUT if answer.problems else Exit.CONFLICT)


def _entered(form: dict[str, Any], given: list[str]) -> dict[str, Any]:
    """Fields as they were typed, each as what its kind holds. What cannot be read as that stays text, and is refused
    with the rest of what is wrong."""
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
            return _number(text)
        case FieldKind.BOOLEAN:
            return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
        case _:
            return text


def _number(text: str) -> Any:
    from core import bounded_json

    try:
        return bounded_json.parse(text.encode(errors="surrogateescape"))
    except InputError:
        return text
