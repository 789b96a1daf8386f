"""Reads approvals, with their votes and the outcomes of their actions.

The question itself is only in the run's book, in the append that the approval's row names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals.content import CardContent, CardState
from approvals.model import Approval, ApprovalKind, ApprovalStatus, CardView, Choice, Vote, VoteChannel
from approvals.ports import MessageRef, Posted
from approvals.tally import progress
from core.canonical import JsonObject, clean
from core.db import Connection, within
from core.errors import NotFoundError
from core.identity import Contributor
from core.quorum import plans_of
from core.terms import Terms
from evidence.receipts import ALTERED, ReceiptStatus
from runtime.engine.book.contributors import barred_from, stated_contributors
from runtime.engine.book.ends import End, unread
from runtime.engine.book.recorded import Diverged, check_stored, read_line
from runtime.engine.book.refusals import Refusal
from runtime.engine.life.pausing import Pause, keys_of
from runtime.engine.model.events import ApprovalRequested
from runtime.engine.model.rows import ApprovalRow
from runtime.engine.model.run import OWN, RunView
from runtime.store.journal import Append, appends
from runtime.store.read_models import LAST_ID, LAST_TIME, Row, every, first
from runtime.store.statements import statements
from runtime.store.views import Graphs, loaded

_SQL = statements("approvals")
_READ_ONE = _SQL["read_one"]
_READ_QUESTION = _SQL["read_question"]
_SHOWN = _SQL["shown"]
_REFUSED = _SQL["refused"]
_POSTED = _SQL["posted"]
_REFUSALS = _SQL["refusals"]
_OPEN_BY = _SQL["open_by"]
_APPROVALS = _SQL["approvals"]
_OPEN = _SQL["open"]
_UNDELIVERED = _SQL["undelivered"]
_APPROVAL = _SQL["approval"]
_RUN_OF = _SQL["run_of"]

CARD_REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class StoredApproval:
    """An approval with everything that a vote or a card needs.

    ``card`` is as it was shown; it is empty if the approval was read to decide on it. ``directory_digest`` names the
    tenant's directory at the time of the read, ``paused`` holds the tenant's pauses then. ``preceded`` is the earlier
    question of the same step that is void or has expired. ``listed`` is the list of questions to which this one
    belongs; None if it stands alone.
    """

    approval: Approval
    card: JsonObject
    choice: str | None
    reason: str | None
    workspace_id: str
    consumed: bool
    now: datetime
    created_at: datetime
    directory_digest: str | None
    message: MessageRef | None
    paused: Mapping[str, Any]
    outcome: str | None = None
    why: str | None = None
    card_state: str | None = None
    decided_at: str | None = None
    preceded: UUID | None = None
    listed: str | None = None


async def read(connection: Connection, approval_id: UUID) -> StoredApproval:
    """One approval; ``NotFoundError`` if there is none that this connection may see."""
    row = await connection.fetchrow(_READ_ONE, approval_id)
    asked = question(_require(row, approval_id), approval_id)
    return stored_of(row, asked, asked.digest, asked.shown or {}, stated_contributors(asked))


async def read_to_decide(
    connection: Connection, tenant: str, approval_id: UUID, graphs: Graphs, *, lock: bool
) -> tuple[StoredApproval, RunView]:
    """One approval and its run, by one statement; ``lock`` locks the run until the transaction ends.

    The question is taken from the run, or from the book if the run has let go of the step.
    """
    row = await connection.fetchrow(_READ_QUESTION, approval_id, tenant, lock)
    view = await loaded(connection, _require(row, approval_id), graphs)
    asked = view.run.approvals.get(approval_id)
    if asked is not None:
        stored = stored_of(row, asked, asked.action_digest, {}, barred_from(view.run, asked))
    else:
        async with within(connection, tenant):
            stored = await read(connection, approval_id)
    return stored, replace(view, kept_at=view.version)


def _require(row: Any, approval_id: UUID) -> Any:
    if row is None:
        raise NotFoundError(f"There is no approval {approval_id}.")
    return row


def stored_of(
    row: Any,
    asked: ApprovalRequested | ApprovalRow,
    digest: str,
    card: JsonObject,
    shaped: tuple[Contributor, ...],
) -> StoredApproval:
    """Build the approval from a row of ``read_one`` and from the recorded question."""
    item = row["approval"]
    message = MessageRef(item["channel"], item["message_ts"]) if item["message_ts"] else None
    return StoredApproval(
        approval=_approval(item, asked, digest, shaped, row["votes"] or []),
        card=card,
        choice=item["choice"],
        reason=item["reason"],
        workspace_id=row["workspace_id"],
        consumed=item["consumed_at"] is not None,
        now=row["now"],
        created_at=datetime.fromisoformat(item["created_at"]),
        directory_digest=row["directory_digest"],
        message=message,
        paused=row["paused"] or {},
        outcome=item.get("outcome"),
        why=item.get("why"),
        card_state=item.get("card"),
        decided_at=item.get("decided_at"),
        preceded=row.get("preceded"),
        listed=item.get("listed"),
    )


async def run_of(connection: Connection, approval_id: UUID) -> UUID:
    """The run of an approval; ``NotFoundError`` if there is none that this connection may see."""
    row = await connection.fetchrow(_RUN_OF, approval_id)
    return UUID(str(_require(row, approval_id)["run_id"]))


async def shown(connection: Connection, approval_id: UUID, posted: Posted) -> None:
    """Store the place of the card, and the form in which it was posted."""
    form = "short" if posted.short else "posted"
    await connection.execute(_SHOWN, approval_id, posted.ref.channel, posted.ref.ts, form)


async def posted(connection: Connection, approval_id: UUID) -> bool:
    """True if a card of the question was posted: the book of an older release does not record that."""
    return bool(await connection.fetchval(_POSTED, approval_id))


async def refused(connection: Connection, approval_id: UUID, problem: str) -> None:
    """Store that the card was not delivered, and why. After a crash before that, the delivery is tried again."""
    await connection.execute(_REFUSED, approval_id, clean(problem))


class OpenQuestion(Struct, frozen=True):
    """An open question as it was asked."""

    approval_id: UUID
    run_id: UUID
    step_key: str
    asked: ApprovalRequested


async def open_questions(connection: Connection, tenant: str, most: int) -> list[OpenQuestion]:
    """The open questions of a tenant, the oldest first. One whose run retention has emptied is left out."""
    rows = await connection.fetch(_OPEN, tenant, most)
    return [
        OpenQuestion(row["approval_id"], row["run_id"], row["step_key"], question(row, row["approval_id"]))
        for row in rows
    ]


async def undelivered(connection: Connection, tenant: str, most: int) -> list[tuple[UUID, UUID, str]]:
    """The open questions whose card was not delivered: the approval, its run, and why."""
    rows = await connection.fetch(_UNDELIVERED, tenant, most)
    return [(row["approval_id"], row["run_id"], row["problem"]) for row in rows]


def question(row: Any, approval_id: UUID) -> ApprovalRequested:
    """The question in the append of a row, or what retention kept of it.

    ``Diverged`` if the book lacks it, or if its values were altered.
    """
    stored, key = row["kept"], row["run_key"] or b""
    found = [*appends((row["asked_at"],), (row["asked"],), (row["shown"],))] if row["asked"] else []
    if stored is None:
        for append in found:
            check_stored(append.lines[-1], append.stored, key)
    return question_in(found, approval_id, stored, key)


def question_in(
    found: Sequence[Append], approval_id: UUID, stored: Mapping[str, Any] | None, key: bytes
) -> ApprovalRequested:
    """The question of this approval in one of these appends, whose values were already compared with their lines."""
    for append in found:
        for number, line in enumerate(append.lines):
            if f'"{approval_id}"'.encode() in line and f'"type":"{ApprovalRequested.TYPE}"'.encode() in line:
                values = append.values.get(number, {}) if stored is None else stored
                place = append.first_seq + number
                event = read_line(line, values, key, place, verify=False).event
                if isinstance(event, ApprovalRequested) and event.approval == approval_id:
                    return event
    raise Diverged(f"The book does not tell what the approval {approval_id} asks", "approvals")


async def refusals_and_counts(
    connection: Connection, tenant: str, keys: Sequence[str], askers: Sequence[str]
) -> tuple[dict[str, list[Refusal]], dict[str, int]]:
    """Read the refusals that bind under these keys, and count the open questions of each of these askers."""
    found: dict[str, list[Refusal]] = {}
    for row in await connection.fetch(_REFUSALS, tenant, keys):
        refusal = Refusal(
            approval_id=row["approval_id"],
            run_id=row["run_id"],
            groups=tuple(row["groups"]),
            askers=tuple(row["askers"]),
            by=row["by"],
            reason=row["reason"],
            at=row["at"],
            until=row["until"],
        )
        found.setdefault(row["key"], []).append(refusal)
    counts = {row["asker"]: row["open"] for row in await connection.fetch(_OPEN_BY, tenant, askers)}
    return found, counts


def _approval(
    item: Mapping[str, Any],
    asked: ApprovalRequested | ApprovalRow,
    digest: str,
    shaped: tuple[Contributor, ...],
    votes: list[Any],
) -> Approval:
    return Approval(
        id=UUID(item["approval_id"]),
        tenant_id=item["tenant_id"],
        run_id=UUID(item["run_id"]),
        step_key=item["step_key"],
        kind=ApprovalKind(asked.kind),
        status=ApprovalStatus(item["status"]),
        action_digest=digest,
        nonce=asked.nonce,
        terms=Terms.from_json(asked.terms or {}),
        requester=asked.requester,
        contributors=shaped,
        votes=tuple(_vote(entry["vote"], entry["name"], digest) for entry in votes),
        expires_at=datetime.fromisoformat(item["expires_at"]),
        escalated=item["escalated"],
    )


def _vote(item: Mapping[str, Any], name: str, digest: str) -> Vote:
    # An approval's digest never changes (drift makes a new approval), so a stored vote is a vote on it.
    return Vote(
        voter=item["person_id"],
        name=name,
        choice=Choice(item["choice"]),
        reason=item["reason"],
        groups=frozenset(item["groups"]),
        channel=VoteChannel(item["channel"]),
        at=item["voted_at"],
        digest=digest,
        on_behalf=item.get("on_behalf") or "",
        glass=bool(item.get("glass")),
    )


_AFTER_APPROVAL: dict[str | None, CardState] = {
    None: CardState.RECORDED,
    ReceiptStatus.INTENDED: CardState.EXECUTING,
    ReceiptStatus.SUCCEEDED: CardState.APPLIED,
    ReceiptStatus.FAILED: CardState.FAILED,
    ReceiptStatus.IN_DOUBT: CardState.IN_DOUBT,
}
# The states in which the action may still go out.
_WAITING = (CardState.PENDING, CardState.RECORDED)
_ENDS = {
    ApprovalStatus.REQUESTED: CardState.PENDING,
    ApprovalStatus.REJECTED: CardState.REJECTED,
    ApprovalStatus.EXPIRED: CardState.EXPIRED,
    ApprovalStatus.CANCELED: CardState.CANCELED,
    ApprovalStatus.SUPERSEDED: CardState.SUPERSEDED,
}


def card_view(
    stored: StoredApproval, receipt: Mapping[str, Any] | None, link: str = "", end: End | None = None
) -> CardView:
    """The card as a face draws it: the frozen content and its outcome; ``receipt`` is the receipt of its action.

    ``end`` is the outcome by the run's fold. Without it (the run is purged), row and receipt give the outcome.
    """
    approval = stored.approval
    state, detail = _state(stored, receipt if stored.consumed else None)
    if end is not None and end.state is not CardState.PENDING:
        state, detail = end.state, end.detail
    content = CardContent.from_json(stored.card)
    # In our own workflows only agents are the requesters, by their accounts; an agent's pause names its account.
    agent = content.requester if content.workflow.startswith(OWN) else ""
    keys = keys_of(content.workflow, content.connector, approval.run_id, agent) if state in _WAITING else []
    return CardView(
        approval_id=approval.id,
        nonce=approval.nonce,
        digest=approval.action_digest,
        kind=approval.kind,
        content=content,
        state=state,
        votes=approval.votes,
        progress=progress(approval),
        two_person=approval.terms.two_person,
        decided_at=stored.decided_at or "",
        detail=detail,
        link=link,
        late=" ".join(late["says"] for late in receipt["late"]) if receipt else "",
        paused="; ".join(str(Pause.of(key, stored.paused[key])) for key in keys if key in stored.paused),
    )


def _state(stored: StoredApproval, receipt: Mapping[str, Any] | None) -> tuple[CardState, str]:
    status = stored.approval.status
    if status is not ApprovalStatus.APPROVED:
        return _ENDS[status], stored.reason or ""
    if receipt is None:
        return CardState(stored.outcome or CardState.RECORDED), stored.reason or ""
    error = receipt.get("error") or {}
    if receipt["status"] == ReceiptStatus.SUCCEEDED and error.get("code") == ALTERED:
        return CardState.ALTERED, error.get("message") or ""
    detail = receipt.get("resolution") or error.get("message") or unread(receipt.get("output"))
    return _AFTER_APPROVAL[receipt["status"]], detail


async def approvals_page(
    connection: Connection,
    tenant: str,
    limit: int,
    *,
    status: str | None = None,
    run_id: UUID | None = None,
    after_at: datetime = LAST_TIME,
    after_id: UUID = LAST_ID,
) -> list[Row]:
    """A page of approvals, newest first. ``Diverged`` if the question of one is not what was recorded."""
    found = await every(connection, _APPROVALS, tenant, after_at, after_id, status, run_id, limit)
    return [_asked(row) for row in found]


def _asked(row: Row) -> Row:
    asked = question(row, row["approval_id"])
    shown = {"kind": asked.kind, "tier": asked.tier, "requester": asked.requester, "card": asked.shown}
    plans = plans_of(Terms.from_json(asked.terms or {}), escalated=row["escalated"])
    groups = [*dict.fromkeys(group.words for plan in plans for group in plan)]
    return {**row, **shown, "action_digest": asked.digest, "groups": groups}


async def approval(connection: Connection, tenant: str, approval_id: UUID) -> Row | None:
    """One approval. ``Diverged`` as for ``approvals_page``."""
    row = await first(connection, _APPROVAL, tenant, approval_id)
    return None if row is None else _asked(row)
