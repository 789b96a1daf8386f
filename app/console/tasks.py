"""The page of one task: a form that people fill in. It is checked and recorded by the same verb as on every face."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.access import Role
from app.console.web import HOME, Decider, FacesDep, FormFields, Page, Posted, Reader, go, identified, page
from app.http.tasks import REFUSED
from approvals.fields import TEXT_CHARACTERS_MAX, FieldKind, FormField, fields_of
from approvals.model import TaskAnswer, TaskState, VoteChannel
from core.canonical import Json, JsonObject
from runtime.store import tasks
from runtime.store.tasks import StoredTask

router = APIRouter(prefix="/tasks")

_WHOLE = re.compile(r"[+-]?\d{1,30}\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})\Z", re.ASCII)
NONE = object()


@router.get("/{task}")
async def look(request: Request, task: str, viewer: Reader, faces: FacesDep) -> Response:
    """Show the form to the members of its group, and only the task's texts to others."""
    async with faces.database.transaction(viewer.who.tenant) as connection:
        found = await tasks.read(connection, identified(task), viewer.who.subject)
    return _drawn(await page(request, faces, viewer), found, None, {})


@router.post("/{task}")
async def fill_in(request: Request, task: str, viewer: Decider, faces: FacesDep, fields: Posted) -> Response:
    """Take the filled-in form. The entered values are kept in it if they are not accepted."""
    if not viewer.has(Role.APPROVER):
        raise HTTPException(403, "Your login does not have the role approver, so it completes no task.")
    async with faces.database.transaction(viewer.who.tenant) as connection:
        found = await tasks.read(connection, identified(task), viewer.who.subject)
    value = {one.name: given for one in fields_of(found.view.form) if (given := entered(one, fields)) is not NONE}
    if fields.one("digest", 100) != found.view.digest:
        words = "What this task asks has changed since you saw it, so nothing was recorded. Look at it again."
        answer = TaskAnswer(False, "changed", words)
    else:
        who = (viewer.who.tenant, found.view.task_id, viewer.who.subject)
        answer = await faces.tasks.complete(*who, value, VoteChannel.CONSOLE)
    if answer.accepted:
        return go(f"{HOME}/tasks/{found.view.task_id}?done")
    shown = await page(request, faces, viewer)
    return _drawn(shown, found, answer, value)


def _drawn(shown: Page, found: StoredTask, answer: TaskAnswer | None, value: JsonObject) -> Response:
    faults: dict[str, list[str]] = {}
    for problem in answer.problems if answer is not None else ():
        faults.setdefault(str(problem.path[0]) if problem.path else "", []).append(problem.sentence)
    member = found.view.group in (found.groups or ()) and shown.viewer.has(Role.APPROVER)
    values: dict[str, Any] = {
        "task": found.view,
        "found": found,
        "fields": fields_of(found.view.form),
        "open": found.view.state is TaskState.OPEN,
        "member": member,
        "value_of": lambda field: value.get(field.name, field.schema.get("default") if answer is None else None),
        "answer": answer,
        "faults": faults,
        "done": "done" in shown.request.query_params,
    }
    status = 200 if answer is None else REFUSED[answer.code]
    return shown.show("task.html", at="inbox", status=status, **values)


def entered(field: FormField, sent: FormFields) -> Any:
    """The value of a field; ``NONE`` if it was left empty. A malformed number stays text, and is refused as such."""
    if field.kind is FieldKind.CHOICES:
        chosen: list[Json] = [item for item in sent.get(f"f.{field.name}", ()) if item]
        return chosen or NONE
    text = sent.one(f"f.{field.name}", TEXT_CHARACTERS_MAX + 1)
    if text == "":
        return NONE
    match field.kind:
        case FieldKind.BOOLEAN if text in ("true", "false"):
            return text == "true"
        case FieldKind.INTEGER | FieldKind.NUMBER if _WHOLE.match(text):
            return int(text)
        case FieldKind.NUMBER if _NUMBER.match(text):
            return float(text)
        case _:
            return text
