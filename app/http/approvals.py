"""Approvals: the same questions as in Slack, decided over HTTP by the same rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.access import Role
from app.http import models, problems
from app.http.dependencies import Approver, FacesDep, Paged, Reader, Talker
from app.shown import approval_detail, approval_summary
from approvals.model import ApprovalStatus, Choice, VoteChannel
from approvals.quorum import NotCounted, RefusalCode
from approvals.talk import Saying
from core.canonical import JsonObject
from core.durations import Duration
from core.terms import Grant
from runtime.requests import glass
from runtime.requests.editing import EditRequest
from runtime.requests.talking import SayAnswer, SayRequest
from runtime.requests.voting import VoteAnswer, VoteRequest
from runtime.store import approvals

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])

# A vote that was counted before is no error: the sender may be retrying a request whose response was lost.
REFUSED: Mapping[RefusalCode, int] = {
    RefusalCode.ALREADY_COUNTED: 200,
    **dict.fromkeys((RefusalCode.SEPARATION, RefusalCode.UNRESOLVABLE, RefusalCode.NOT_ELIGIBLE), 403),
    **dict.fromkeys((RefusalCode.UNKNOWN, RefusalCode.DEACTIVATED, RefusalCode.MACHINE), 403),
    **dict.fromkeys((RefusalCode.FALSE_CARD, RefusalCode.FALSE_WINDOW, RefusalCode.GRANT), 403),
    RefusalCode.STEP_UP: 403,
    RefusalCode.GLASS: 403,
    RefusalCode.UNREVIEWED: 409,
    **dict.fromkeys((RefusalCode.ALREADY_DECIDED, RefusalCode.EXPIRED, RefusalCode.STALE, RefusalCode.CHANGED), 409),
    **dict.fromkeys((RefusalCode.NOTHING_ASKED, RefusalCode.ASKED_ALREADY, RefusalCode.TOO_MUCH_SAID), 409),
    **dict.fromkeys((RefusalCode.WRONG_CHOICE, RefusalCode.REASON_MISSING, RefusalCode.REASON_TOO_LONG), 422),
    RefusalCode.UNEDITABLE: 409,
    **dict.fromkeys((RefusalCode.NOT_NAMED, RefusalCode.UNCHANGED, RefusalCode.INVALID), 422),
}


class VoteOut(BaseModel):
    """One person's answer."""

    person: str
    name: str
    choice: Choice
    reason: str
    channel: str
    at: str


class GroupOut(BaseModel):
    """The progress of one group."""

    group: str
    source: str
    of: int
    names: list[str]


class ApprovalOut(BaseModel):
    """One question; ``masked`` says that sensitive values of the card are hidden from this token.

    ``outcome`` is what has become of it: of an approved action ``recorded``, ``executing``, ``applied``, ``failed``,
    ``in_doubt`` or ``canceled``, of any other its status. ``why`` is a code that says why. ``delivered`` says how its
    card was delivered: ``posted``, ``short`` (Slack took only its short form), ``refused`` (``card_problem`` says why).
    """

    approval_id: UUID
    run_id: UUID
    step: str
    kind: str
    status: str
    outcome: str
    why: str | None
    delivered: str | None
    card_problem: str | None
    tier: str
    requester: str
    digest: str
    choice: str | None
    reason: str | None
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    masked: bool
    card: dict[str, Any]


class ApprovalDetail(ApprovalOut):
    """One question with its votes and the action's outcome. ``late`` holds outcomes told after a lease was lost,
    ``paused`` the pauses that hold the action back. ``step_up_seconds``: an approval needs a login anew in the console.
    """

    state: str
    detail: str
    late: str
    paused: str
    two_person: bool
    step_up_seconds: int | None
    votes: list[VoteOut]
    progress: list[GroupOut]
    said: list[SaidOut]


class SaidOut(BaseModel):
    """Something that a person has said about the question. ``to`` is whom it was handed on to, "" for nobody."""

    person: str
    name: str
    said: Saying
    text: str
    at: str
    to: str


class GrantIn(models.In):
    """A grant of an approver in advance: the same `uses` times within `for`, by this run or one agent of it."""

    uses: Annotated[int, Field(ge=1, le=1000)]
    span: Annotated[Duration, Field(alias="for")]
    agent: bool = False

    @property
    def asked(self) -> Grant:
        """The grant."""
        return Grant(self.uses, int(self.span.total_seconds()), self.agent)


class VoteIn(models.In):
    """A vote. With ``digest``, it counts only if the action still has this digest. ``grant`` is allowed in advance."""

    choice: Choice
    reason: Annotated[str, Field(max_length=4000)] = ""
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    grant: GrantIn | None = None


class GlassIn(models.In):
    """The emergency for which the glass is broken. With ``digest``, only if the action still has this digest."""

    reason: Annotated[str, Field(min_length=1, max_length=4000)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class ReviewIn(models.In):
    """The result of a review, which the tenant's audit keeps."""

    reason: Annotated[str, Field(min_length=1, max_length=1000)]


class SayIn(models.In):
    """Something to say about an open question. ``to`` is whom it is handed on to: a person, or a group that is asked.

    With ``digest``, it counts only if the action still has this digest.
    """

    said: Saying
    text: Annotated[str, Field(max_length=4000)] = ""
    to: Annotated[str, Field(max_length=200)] = ""
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class EditIn(models.In):
    """The values that are to be others, by the names of the form. ``digest`` as for a vote."""

    values: dict[str, Any]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class EditOut(BaseModel):
    """The answer to an edit."""

    code: str
    sentence: str
    run_id: UUID


class FormOut(BaseModel):
    """A JSON Schema with a property for each value that can be edited; its default is the value as it is now."""

    form: dict[str, Any]


@router.get("", response_model=models.Page[ApprovalOut], summary="List approvals, newest first")
async def listed(
    who: Reader, faces: FacesDep, paging: Paged, status: ApprovalStatus | None = None, run_id: UUID | None = None
) -> dict[str, Any]:
    """Lists approvals; `status=requested` lists those that wait for people. Sensitive values are masked in lists."""
    after = dict(zip(("after_at", "after_id"), paging.after(datetime, UUID), strict=False))
    wanted = {"status": status, "run_id": run_id, **after}
    rows = await faces.ask(who.tenant, approvals.approvals_page, paging.limit + 1, **wanted)
    return paging.page([approval_summary(row) for row in rows], "created_at", "approval_id")


@router.get("/{approval_id}", response_model=ApprovalDetail, summary="Look at one approval")
async def one(approval_id: UUID, who: Reader, faces: FacesDep) -> dict[str, Any]:
    """The complete card. Only an approver whom this question asks sees sensitive values."""
    return await approval_detail(faces, who.tenant, approval_id, who.subject if who.has(Role.APPROVER) else None)


@router.post(
    "/{approval_id}/votes",
    response_model=VoteAnswer,
    summary="Approve or reject",
    responses={403: {"description": "You may not"}, 409: {"description": "It is decided, expired or changed"}},
)
async def vote(approval_id: UUID, body: VoteIn, who: Approver, faces: FacesDep) -> Any:
    """Votes as the token's subject. Groups, quorum and separation of duties are evaluated now."""
    named = (who.tenant, approval_id, who.person, body.choice, body.reason, VoteChannel.HTTP)
    grant = None if body.grant is None else body.grant.asked
    request = VoteRequest(*named, digest=body.digest, grant=grant, identity={"token": who.credential})
    answer = await faces.voting.vote(request)
    faces.metrics.of(who.tenant).vote(VoteChannel.HTTP, answer.code)
    status = 200 if answer.counted else REFUSED[RefusalCode(answer.code)]
    if status != 200:
        return problems.problem(status, answer.code, answer.sentence, approval_status=answer.status)
    return answer


@router.post(
    "/{approval_id}/break-glass",
    response_model=VoteAnswer,
    summary="Break the glass",
    responses={
        403: {"description": "You may not"},
        409: {"description": "The last use is not reviewed, or it is over"},
    },
)
async def break_glass(approval_id: UUID, body: GlassIn, who: Approver, faces: FacesDep) -> Any:
    """Lets the action out alone, where a rule lets the token's subject. It is told loudly, and reviewed."""
    named = (who.tenant, approval_id, who.person, Choice.APPROVE, body.reason, VoteChannel.HTTP)
    request = VoteRequest(*named, digest=body.digest, identity={"token": who.credential}, glass=True)
    answer = await faces.voting.vote(request)
    faces.metrics.of(who.tenant).vote(VoteChannel.HTTP, answer.code)
    if not answer.counted:
        status = REFUSED[RefusalCode(answer.code)]
        return problems.problem(status, answer.code, answer.sentence, approval_status=answer.status)
    return answer


@router.post("/{approval_id}/review", status_code=204, summary="Review a use of broken glass")
async def review(approval_id: UUID, body: ReviewIn, who: Approver, faces: FacesDep) -> None:
    """Reviews it as the token's subject: not as whoever has broken the glass. Then it can be broken again."""
    await faces.ask(who.tenant, glass.review, faces.definitions, approval_id, who.person, body.reason)


@router.post(
    "/{approval_id}/said",
    response_model=SayAnswer,
    summary="Ask for more, answer, comment, or hand the question on",
    responses={403: {"description": "You may not"}, 409: {"description": "It is decided, expired or changed"}},
)
async def say(approval_id: UUID, body: SayIn, who: Talker, faces: FacesDep) -> Any:
    """Says it as the token's subject. It decides nothing, and who may decide stays as it is."""
    fields = (who.tenant, approval_id, who.person, body.said, body.text, VoteChannel.HTTP)
    identity: JsonObject = {"token": who.credential}
    answer = await faces.talking.say(SayRequest(*fields, to=body.to, digest=body.digest, identity=identity))
    return (
        answer if answer.recorded else problems.problem(REFUSED[RefusalCode(answer.code)], answer.code, answer.sentence)
    )


@router.get(
    "/{approval_id}/form",
    response_model=FormOut,
    summary="Get the form in which the action can be edited",
    responses={409: {"description": "It is decided, expired or changed"}},
)
async def form(approval_id: UUID, who: Talker, faces: FacesDep) -> Any:
    """The form for whoever may decide the question, or has asked for the action. Secret values are not in it."""
    found = await faces.editing.form(who.tenant, approval_id, who.person)
    if isinstance(found, NotCounted):
        return problems.problem(REFUSED[found.code], str(found.code), found.sentence)
    return {"form": found}


@router.post(
    "/{approval_id}/edit",
    response_model=EditOut,
    summary="Edit what would be done",
    responses={403: {"description": "You may not"}, 409: {"description": "It is decided, expired or changed"}},
)
async def edit(approval_id: UUID, body: EditIn, who: Talker, faces: FacesDep) -> Any:
    """Edits as the token's subject. The question is void then; policy judges the edited action, and may ask anew."""
    identity: JsonObject = {"token": who.credential}
    fields = (who.tenant, approval_id, who.person, body.values, VoteChannel.HTTP)
    answer = await faces.editing.edit(EditRequest(*fields, digest=body.digest, identity=identity))
    if answer.edited:
        return {"code": answer.code, "sentence": answer.sentence, "run_id": answer.run_id}
    return problems.problem(REFUSED[RefusalCode(answer.code)], answer.code, answer.sentence)
