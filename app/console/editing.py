"""The page on which people edit an action: a form made from the operation's own schema."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.console import questions
from app.console.tasks import NONE, entered
from app.console.web import HOME, Decider, FacesDep, Page, Posted, go, identified, page
from app.faces import Faces
from app.http.approvals import REFUSED
from approvals.content import CardContent
from approvals.fields import FormProblem, fields_of
from approvals.model import VoteChannel
from approvals.quorum import NotCounted, RefusalCode
from core.canonical import JsonObject
from runtime.requests.editing import EditRequest
from runtime.store import approvals

router = APIRouter(prefix="/approvals")


@router.get("/{approval}/edit")
async def look(request: Request, approval: str, viewer: Decider, faces: FacesDep) -> Response:
    """Show the form, or why this viewer may not edit it."""
    approval_id = identified(approval)
    form = await faces.editing.form(viewer.who.tenant, approval_id, viewer.who.person)
    shown = await page(request, faces, viewer)
    if isinstance(form, NotCounted):
        status = REFUSED[form.code]
        return await _drawn(faces, shown, approval_id, None, {}, (), form.sentence, str(form.code), status)
    return await _drawn(faces, shown, approval_id, form, {})


@router.post("/{approval}/edit")
async def edit(request: Request, approval: str, viewer: Decider, faces: FacesDep, fields: Posted) -> Response:
    """Take the edited values. What was typed is kept if they are not taken."""
    approval_id, who = identified(approval), viewer.who
    form = await faces.editing.form(who.tenant, approval_id, who.person)
    known = fields_of(form) if isinstance(form, dict) else ()
    values: JsonObject = {one.name: given for one in known if (given := entered(one, fields)) is not NONE}
    session: JsonObject = {"session": viewer.named}
    question = (who.tenant, approval_id, who.person, values, VoteChannel.CONSOLE)
    # A form without the digest of its question counts as one about another question.
    request_ = EditRequest(*question, digest=fields.one("digest", 100) or "-", identity=session)
    answer = await faces.editing.edit(request_)
    if answer.edited:
        return go(f"{HOME}/approvals/{approval_id}")
    shown, status = await page(request, faces, viewer), REFUSED[RefusalCode(answer.code)]
    refusal = (answer.problems, answer.sentence, answer.code, status)
    return await _drawn(faces, shown, approval_id, form if isinstance(form, dict) else None, values, *refusal)


async def _drawn(
    faces: Faces,
    shown: Page,
    approval_id: UUID,
    form: JsonObject | None,
    value: JsonObject,
    problems: tuple[FormProblem, ...] = (),
    problem: str = "",
    code: str = "",
    status: int = 200,
) -> Response:
    async with faces.database.transaction(shown.viewer.who.tenant) as connection:
        stored = await approvals.read(connection, approval_id)
    faults: dict[str, list[str]] = {}
    for one in problems:
        faults.setdefault(str(one.path[0]) if one.path else "", []).append(one.sentence)
    content = CardContent.from_json(stored.card)
    shows = form is not None
    values: dict[str, Any] = {
        "approval": approval_id,
        "asks": questions.asks(content, stored.approval.kind, open_=True) if shows else "this",
        "digest": stored.approval.action_digest,
        "fields": fields_of(form) if form is not None else (),
        "faults": faults,
        "value_of": lambda field: value.get(field.name, field.schema.get("default")),
        "problem": problem,
        "code": code,
    }
    return shown.show("edit.html", at="inbox", status=status, **values)
