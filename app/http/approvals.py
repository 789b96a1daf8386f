"""Approvals: the same questions as in Slack, decided over HTTP by the same rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter

from app.access import Role
from app.http import models, problems
from app.http.parts import LIMIT_DEFAULT, Approver, Cursor, FacesDep, Limit, Reader, decode_cursor, page
from app.slack import may_see_all
from approvals.model import CardContent, CardView, VoteChannel
from approvals.quorum import RefusalCode
from approvals.states import ApprovalStatus
from core.errors import NotFoundError
from runtime.requests.voting import VoteRequest
from runtime.store import read_models
from runtime.store.read_models import Row

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])

# An answer that is counted already is no error: the sender may be repeating a request whose answer was lost.
REFUSED: Mapping[RefusalCode, int] = {
    RefusalCode.ALREADY_DECIDED: 409,
    RefusalCode.EXPIRED: 409,
    RefusalCode.STALE: 409,
    RefusalCode.CHANGED: 409,
    RefusalCode.WRONG_CHOICE: 422,
    RefusalCode.SEPARATION: 403,
    RefusalCode.UNRESOLVABLE: 403,
    RefusalCode.NOT_ELIGIBLE: 403,
    RefusalCode.REASON_MISSING: 422,
    RefusalCode.REASON_TOO_LONG: 422,
    RefusalCode.ALREADY_COUNTED: 200,
}


@router.get("", response_model=models.Page[models.ApprovalOut], summary="List approvals, newest first")
async def listed(
    who: Reader,
    faces: FacesDep,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = "",
    status: ApprovalStatus | None = None,
    run_id: UUID | None = None,
) -> dict[str, Any]:
    """`status=requested` lists what waits for people. Sensitive values are masked in lists."""
    after = decode_cursor(cursor, datetime, UUID) or [read_models.LAST_TIME, read_models.LAST_ID]
    async with faces.database.reading(who.tenant) as connection:
        rows = await read_models.approvals_page(
            connection, who.tenant, limit + 1, status=status, run_id=run_id, after_at=after[0], after_id=after[1]
        )
    following = page(rows, limit, lambda row: (row["created_at"], row["approval_id"]))
    return {**following, "items": [summary(row) for row in following["items"]]}


@router.get("/{approval_id}", response_model=models.ApprovalDetail, summary="Look at one approval")
async def one(approval_id: UUID, who: Reader, faces: FacesDep) -> dict[str, Any]:
    """The card, complete. Sensitive values only for an approver whom this question asks."""
    async with faces.database.reading(who.tenant) as connection:
        row = await read_models.approval(connection, who.tenant, approval_id)
    if row is None:
        raise NotFoundError(f"There is no approval {approval_id}.")
    view = await faces.voting.view(who.tenant, approval_id)
    whole = who.has(Role.APPROVER) and await may_see_all(faces, who.tenant, who.subject, view)
    return detail(row, view, whole=whole)


@router.post(
    "/{approval_id}/votes",
    response_model=models.VoteOutcome,
    summary="Approve or reject",
    responses={403: {"description": "You may not"}, 409: {"description": "It is decided, expired or changed"}},
)
async def vote(approval_id: UUID, body: models.VoteIn, who: Approver, faces: FacesDep) -> Any:
    """The token's subject is the person who votes: groups, quorum and separation of duties are read now."""
    request = VoteRequest(
        who.tenant, approval_id, who.subject, body.choice, body.reason, VoteChannel.HTTP, digest=body.digest
    )
    answer = await faces.voting.vote(request)
    faces.metrics.vote(VoteChannel.HTTP, answer.code)
    status = 200 if answer.counted else REFUSED[RefusalCode(answer.code)]
    if status != 200:
        return problems.problem(status, answer.code, answer.sentence, approval_status=answer.status)
    return asdict(answer)


def summary(row: Row, *, whole: bool = False) -> dict[str, Any]:
    """An approval as lists show it."""
    content = CardContent.from_json(row["card"])
    shown = content if whole else content.masked()
    return {
        **{name: row[name] for name in ("approval_id", "run_id", "kind", "status", "tier", "requester")},
        **{name: row[name] for name in ("choice", "reason", "created_at", "expires_at", "decided_at")},
        "step": row["step_key"],
        "digest": row["action_digest"],
        "masked": bool(content.sensitive) and not whole,
        "card": shown.to_json(),
    }


def detail(row: Row, view: CardView, *, whole: bool) -> dict[str, Any]:
    """An approval with its votes and what has become of the action."""
    return {
        **summary(row, whole=whole),
        "state": str(view.state),
        "detail": view.detail,
        "late": view.late,
        "two_person": view.two_person,
        "votes": [
            {"person": v.voter, **{name: getattr(v, name) for name in ("name", "choice", "reason", "channel", "at")}}
            for v in view.votes
        ],
        "progress": [
            {"group": p.group.group, "source": str(p.group.source), "of": p.group.of, "names": list(p.names)}
            for p in view.progress
        ],
    }
