"""The inbox: questions for the viewer, questions for their groups, the viewer's own requests and decisions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.access import Role
from app.console import questions
from app.console.questions import May
from app.console.sessions import Viewer
from app.console.web import HOME, Decider, FacesDep, Posted, go, page
from app.faces import Faces
from app.http.dependencies import decode_cursor, encode_cursor
from approvals.content import CardContent
from approvals.model import ApprovalKind, ApprovalStatus, TaskState, TaskView
from approvals.tally import current_votes
from core.errors import CountersealError
from core.identity import Delegation, Directory, Kind, Standing, principal
from runtime.requests.delegating import delegate
from runtime.store import console, tasks, tenants
from runtime.store.approvals import StoredApproval
from runtime.store.console import ListedQuestion
from runtime.store.read_models import FIRST_ID

router = APIRouter(prefix="/inbox")

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
LOOKED_AT = 200
REQUESTS_SHOWN = 10
DECIDED_SHOWN = 25
TASKS_SHOWN = 50
# An answer: the symbol, and its word.
SAID = {
    "approve": ("approved", "Approved"),
    "reject": ("rejected", "Rejected"),
    "happened": ("applied", "It happened"),
    "again": ("executing", "Again"),
    "fail": ("failed", "It failed"),
}


@dataclass(frozen=True, slots=True)
class Item:
    """A question in a list, which shows no sensitive values. ``many`` questions of one step are shown as one item."""

    id: UUID
    listed: ListedQuestion
    content: CardContent
    withheld: str
    title: str
    state: tuple[str, str]
    may: May
    asker: str
    answered: str
    due: datetime | None
    many: int = 1

    @property
    def outside(self) -> list[Any]:
        """The values that nobody of ours chose."""
        return questions.outside(self.content)


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists of one inbox. ``more``: not all open questions were read.

    ``away`` says who decides for the viewer meanwhile, None for nobody; ``others`` are those who could, by name.
    """

    mine: list[Item]
    groups: list[Item]
    tasks: list[TaskView]
    requests: list[Item]
    decided: list[Item]
    following: str
    more: bool
    away: Delegation | None = None
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def last_day(self) -> date | None:
        """The last day on which somebody else decides for the viewer."""
        return None if self.away is None else (self.away.ends - timedelta(seconds=1)).date()


@router.get("")
async def inbox(request: Request, viewer: Decider, faces: FacesDep, after: str = "") -> Response:
    """Show the inbox; the question that expires first is on top."""
    return await _drawn(request, faces, viewer, after)


async def _drawn(
    request: Request, faces: Faces, viewer: Viewer, after: str = "", status: int = 200, problem: str = ""
) -> Response:
    shown = await page(request, faces, viewer)
    lists = await read(faces, viewer, after)
    count = len(lists.mine) + len(lists.tasks)
    values: dict[str, Any] = {"said_as": SAID, "groups_of": _group_names, "problem": problem}
    return shown.show("inbox.html", at="inbox", status=status, lists=lists, count=count, later=bool(after), **values)


@router.post("/away")
async def go_away(request: Request, viewer: Decider, faces: FacesDep, fields: Posted) -> Response:
    """Let somebody else decide for the viewer on some days, or end that; by the same verb as over HTTP."""
    to, first, last = (fields.one(name, 200) for name in ("to", "from", "until"))
    days = None if fields.one("end", 5) else (to, first, last)
    if days is not None and not all(map(_DAY.match, days[1:])):
        return await _drawn(request, faces, viewer, status=422, problem="Choose the first day and the last one")
    try:
        await faces.ask(viewer.who.tenant, delegate, viewer.who.subject, days, viewer.actor)
    except CountersealError as error:
        return await _drawn(request, faces, viewer, status=422, problem=f"{error.message} {error.remedy or ''}".strip())
    return go(f"{HOME}/inbox#away")


def _group_names(stored: StoredApproval) -> list[str]:
    return [group.words for group in questions.groups_of(stored)]


async def read(faces: Faces, viewer: Viewer, after: str) -> Lists:
    """Read the lists. ``InputError`` for an invalid cursor."""
    tenant, person = viewer.who.tenant, viewer.who.subject
    key = decode_cursor(after, datetime, UUID)
    start = (key[0], key[1]) if key else console.NEWEST
    async with faces.database.transaction(tenant) as connection:
        digest = await tenants.directory_digest(connection, tenant)
        people = await faces.definitions.directory(connection, tenant, digest)
        found = await console.open_questions(connection, tenant, LOOKED_AT + 1)
        asked = await console.requested(connection, tenant, person, REQUESTS_SHOWN)
        decided = await console.answered(connection, tenant, person, DECIDED_SHOWN + 1, start)
        entry = people.entry(principal(Kind.PERSON, person))
        own = sorted(entry.groups) if entry is not None and viewer.has(Role.APPROVER) else []
        waiting = []
        for group in own:
            waiting += await tasks.page(connection, tenant, TASKS_SHOWN, FIRST_ID, state=TaskState.OPEN, group=group)
    items = await _items(faces, viewer, people, [*found[:LOOKED_AT], *asked, *decided[:DECIDED_SHOWN]])
    opened, rest = items[: len(found[:LOOKED_AT])], items[len(found[:LOOKED_AT]) :]
    following = decided[DECIDED_SHOWN - 1] if len(decided) > DECIDED_SHOWN else None
    return Lists(
        mine=_together([one for one in opened if one.may.choices and not one.answered]),
        groups=_together([one for one in opened if one.may.groups and (one.answered or not one.may.choices)]),
        tasks=sorted((one.view for one in waiting), key=lambda task: task.due_at or "9"),
        requests=rest[: len(asked)],
        decided=rest[len(asked) :],
        following="" if following is None else encode_cursor([following.answered_at, following.stored.approval.id]),
        more=len(found) > LOOKED_AT,
        away=entry.delegate if entry is not None else None,
        others={
            one.id: one.name
            for one in sorted(people.entries.values(), key=lambda each: each.name)
            if one.standing is Standing.PERSON and one.id != person
        },
    )


def _together(items: Sequence[Item]) -> list[Item]:
    """The items, with the questions of one step merged into one item at the place of the first."""
    found: dict[tuple[UUID, str], list[Item]] = {}
    for one in items:
        stored = one.listed.stored
        found.setdefault((stored.approval.run_id, stored.listed or str(one.id)), []).append(one)
    return [replace(some[0], many=len(some)) for some in found.values()]


async def _items(faces: Faces, viewer: Viewer, people: Directory, found: Sequence[ListedQuestion]) -> list[Item]:
    wanted = {group.key: group for one in found for group in questions.groups_of(one.stored)}
    slack = await questions.slack_groups(faces, viewer, people, [*wanted.values()])
    return [_item(viewer, one, people, questions.rights(one.stored, viewer, people, slack)) for one in found]


def _item(viewer: Viewer, listed: ListedQuestion, people: Directory, may: May) -> Item:
    stored, approval = listed.stored, listed.stored.approval
    shaped = any(viewer.who.subject in people.people(one.principal) for one in approval.contributors)
    content, withheld = questions.content_for(stored, viewer, may, shaped=shaped)
    votes = {vote.voter: str(vote.choice) for vote in current_votes(approval.votes)}
    open_ = approval.status is ApprovalStatus.REQUESTED
    word = questions.state_of(stored)
    if open_ and approval.kind is ApprovalKind.IN_DOUBT:
        word = ("in-doubt", "In doubt")
    elif open_ and may.choices and viewer.who.subject not in votes:
        word = ("needs-you", "Needs you")
    return Item(
        id=approval.id,
        listed=listed,
        content=content.masked(),
        withheld=withheld or ("secret" if content.sensitive else ""),
        title=questions.asks(content, approval.kind, open_=open_),
        state=word,
        may=may,
        asker=content.asker or questions.name_of(people, content.requester),
        answered=votes.get(viewer.who.subject, ""),
        due=approval.expires_at,
    )
