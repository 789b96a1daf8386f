"""The page of a list: the questions that one step asks in every iteration, with a box for each, the odd ones first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.access import Role
from app.console import questions
from app.console.questions import May
from app.console.sessions import Viewer
from app.console.web import HOME, Decider, FacesDep, Page, Posted, Reader, go, identified, page
from app.faces import Faces
from approvals import lists as alike
from approvals.content import CardContent
from approvals.model import ApprovalStatus, CardView, Choice, VoteChannel
from approvals.quorum import REASON_CHARACTERS_MAX
from core.errors import NotFoundError
from runtime.engine.book.questions import LIST_MAX
from runtime.requests.directory import as_people
from runtime.requests.listing import ListAnswer, ListVote, vote_list
from runtime.requests.views import drawn_list
from runtime.store import approvals, lists
from runtime.store.approvals import StoredApproval

router = APIRouter(prefix="/approvals")

_DIGEST = re.compile(r"([0-9a-f-]{36})=([0-9a-f]{64})\Z")


@dataclass(frozen=True, slots=True)
class Row:
    """A question of the list as one viewer sees it. ``why`` is the reason why it has no box, "" if it has one.

    ``strange``: nobody of ours chose some of its values, so that its own page asks for more than a box.
    """

    stored: StoredApproval
    view: CardView
    content: CardContent
    withheld: str
    may: May
    odd: bool
    warned: bool
    why: str
    strange: bool


@dataclass(frozen=True, slots=True)
class Table:
    """The open questions of a list; those with a box can be answered here. ``left`` counts questions not shown.

    ``every`` are all questions of the list, in any state.
    """

    rows: list[Row]
    left: int
    first: StoredApproval
    names: dict[UUID, str]
    every: frozenset[UUID]

    @property
    def boxes(self) -> list[Row]:
        """The questions that this viewer may answer on this page."""
        return [row for row in self.rows if not row.why]


async def read(faces: Faces, viewer: Viewer, approval_id: UUID) -> Table:
    """The list of a question; ``NotFoundError`` if the viewer's tenant has no such list."""
    tenant = viewer.who.tenant
    async with faces.database.transaction(tenant) as connection:
        first = await approvals.read(connection, approval_id)
        every = await lists.of_list(connection, approval_id)
        if not every:
            raise NotFoundError(f"The approval {approval_id} stands on no list.")
        ids = [one.approval_id for one in every if one.status is ApprovalStatus.REQUESTED]
        found = await lists.several(connection, ids[:LIST_MAX])
        views = await drawn_list(connection, faces.definitions, found)
        people = await faces.definitions.directory(connection, tenant, first.directory_digest)
    slack = await questions.slack_groups(faces, viewer, people, questions.groups_of(first))
    common, _ = alike.kinds(views)
    plain = {one.approval_id for one in common.items} if common is not None else set()
    rows = []
    for stored, view in zip(found, views, strict=True):
        may = questions.rights(stored, viewer, people, slack)
        shaped = viewer.who.subject in {one.person for one in as_people(stored.approval, people).contributors}
        content, withheld = questions.content_for(stored, viewer, may, shaped=shaped)
        strange = bool(questions.outside(content)) or content.agent is not None
        why = "" if may.choices else may.why
        why = why or ("Nobody of yours chose its values: look at its own page" if strange else "")
        odd = stored.approval.id not in plain
        rows.append(Row(stored, view, content, withheld, may, odd, alike.warned(view.content), why, strange))
    names = alike.names_of([(row.stored.approval.id, row.content) for row in rows])
    return Table(
        sorted(rows, key=lambda row: not row.odd),
        len(ids) - len(rows),
        first,
        names,
        frozenset(one.approval_id for one in every),
    )


@router.get("/{approval}/list")
async def look(request: Request, approval: str, viewer: Reader, faces: FacesDep) -> Response:
    """Show the list. Whoever may not answer a question sees why in place of its box."""
    found = await read(faces, viewer, identified(approval))
    return _drawn(await page(request, faces, viewer), found)


@router.post("/{approval}/list")
async def answer(request: Request, approval: str, viewer: Decider, faces: FacesDep, fields: Posted) -> Response:
    """Take one vote for each question that was shown with a box, bound to the digest that was shown."""
    asked = identified(approval)
    if not viewer.has(Role.APPROVER):
        raise HTTPException(403, questions.NO_ROLE)
    shown, found = await page(request, faces, viewer), await read(faces, viewer, asked)
    choice, reason = fields.one("choice", 20), fields.one("reason").strip()
    digests = _digests(fields.get("shown", ()))
    chosen = frozenset(identified(one) for one in fields.get("item", ()))
    known = digests.keys() <= found.every - {row.stored.approval.id for row in found.rows if row.strange}
    if choice not in (Choice.APPROVE, Choice.REJECT) or not digests or not known or not chosen <= digests.keys():
        raise HTTPException(400, "The form cannot be read. Load the page again.")
    problem = ""
    if choice == Choice.APPROVE and not chosen:
        problem = "Choose at least one, or reject all of them"
    elif not reason and (choice == Choice.REJECT or chosen != digests.keys()):
        problem = "Write a reason for what is rejected"
    if problem:
        return _drawn(shown, found, 422, problem=problem, reason=reason, chosen=chosen)
    request_ = ListVote(
        tenant_id=viewer.who.tenant,
        first=next(iter(digests)),
        person_id=viewer.who.person,
        choice=Choice(choice),
        reason=reason,
        channel=VoteChannel.CONSOLE,
        chosen=chosen if choice == Choice.APPROVE else None,
        digests=digests,
        identity={"session": viewer.named},
    )
    outcome = await vote_list(faces.voting, request_)
    for code in ["counted"] * (outcome.approved + outcome.rejected) + [one.code for one in outcome.refused]:
        faces.metrics.of(viewer.who.tenant).vote(VoteChannel.CONSOLE, code)
    if outcome.refused:
        counted = outcome.approved + outcome.rejected
        return _drawn(shown, await read(faces, viewer, asked), 200 if counted else 409, result=outcome, reason=reason)
    return go(f"{HOME}/approvals/{asked}/list?answered")


def _digests(shown: Sequence[str]) -> dict[UUID, str]:
    """The digests of the questions that the form showed."""
    found = [_DIGEST.match(one) for one in shown]
    return {identified(one[1]): one[2] for one in found if one is not None} if all(found) else {}


def _drawn(shown: Page, found: Table, status: int = 200, **values: Any) -> Response:
    given: dict[str, Any] = {"problem": "", "reason": "", "result": ListAnswer(0, 0, (), found.first.approval.run_id)}
    views = [row.view for row in found.rows]
    asks = alike.question_of(views, len(views)) if len(views) > 1 else "Nothing of this list waits for an answer"
    given |= {"asks": questions.asks(views[0].content, views[0].kind, open_=True) if len(views) == 1 else asks}
    given |= {"chosen": None, "answered": "answered" in shown.request.query_params}
    given |= {"reason_max": REASON_CHARACTERS_MAX, "counts": questions.counts(found.first)}
    return shown.show("list.html", at="inbox", status=status, found=found, **{**given, **values})
