"""Reads approvals, with their votes and what became of their actions.

Only the run's book tells what was asked, in the append that the approval's row names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from approvals.content import CardContent, CardState
from approvals.model import Approval, ApprovalKind, ApprovalStatus, CardView, Choice, Vote, VoteChannel
from approvals.ports import MessageRef
from approvals.tally import progress
from core.canonical import JsonObject
from core.db import Connection, within
from core.errors import NotFoundError
from core.identity import Contributor
from core.terms import Terms
from evidence.receipts import ReceiptStatus
from runtime.engine.commit import ApprovalRow
from runtime.engine.contributors import barred_from, told_of
from runtime.engine.events import ApprovalRequested
from runtime.engine.pausing import Pause, keys_of
from runtime.engine.run import RunView
from runtime.engine.told import Diverged, check_stored, read_line
from runtime.store.journal import KEPT_ON, LOCKED, OF_TENANT, OF_TENANT_TYPES, RUN_ROW, TAIL, appends
from runtime.store.read_models import LAST_ID, LAST_TIME, Row, Statement, every, first
from runtime.store.views import Graphs, loaded

# The append that asked the question of the approval ``a``; if retention has emptied the run, what it kept of that.
ASKED = """r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept"""
ASKED_IN = """JOIN runs r ON r.run_id = a.run_id LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n
  LEFT JOIN remains m ON m.run_id = a.run_id"""

_READ = """
SELECT {0} to_jsonb(a) AS approval, now() AS now, r.workspace_id,
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id)) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes
FROM approvals a {1} WHERE a.approval_id = $1"""
_READ_ONE = _READ.format(
    f"{ASKED}, t.paused, t.directory_digest,", f"{ASKED_IN} JOIN tenants t ON t.tenant_id = a.tenant_id"
)

# The approval as ``_READ`` gives it, and its run, of one snapshot: see ``runtime.store.faces``.
_READ_QUESTION = "SELECT * FROM read_question($1, $2, $3)"
_OF_RUN = f"{RUN_ROW.format('r')}, r.run_key, r.state, {OF_TENANT}, tail.*,"
_ITS_RUN = "JOIN runs r ON r.run_id = a.run_id JOIN tenants t ON t.tenant_id = a.tenant_id"
READ_BY = "_approval_id uuid, _tenant text, _lock bool"
READ_QUESTION = LOCKED.format(
    "(SELECT a.run_id FROM approvals a WHERE a.approval_id = _approval_id)",
    _READ.format(_OF_RUN, f"{_ITS_RUN} {TAIL.format('r', KEPT_ON.format('r'))}").replace("$1", "_approval_id"),
)
QUESTION = f"""run json, run_key bytea, state bytea, {OF_TENANT_TYPES}, firsts int[],
  lines bytea[], vals bytea[], approval jsonb, now timestamptz, workspace_id text, votes jsonb"""

_SHOWN = "UPDATE approvals SET channel = $2, message_ts = $3 WHERE approval_id = $1"


@dataclass(frozen=True, slots=True)
class StoredApproval:
    """An approval with everything that a vote or a card needs.

    ``card`` is as it was shown; it is empty if the approval was read to decide on it. ``directory_digest`` names the
    tenant's directory as it was then, ``paused`` is what was paused in the tenant.
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


async def read(connection: Connection, approval_id: UUID) -> StoredApproval:
    """One approval; ``NotFoundError`` if there is none that this connection may see."""
    row = await connection.fetchrow(_READ_ONE, approval_id)
    asked = question(_there(row, approval_id), approval_id)
    return _stored(row, asked, asked.digest, asked.shown or {}, told_of(asked))


async def read_to_decide(
    connection: Connection, tenant: str, approval_id: UUID, graphs: Graphs, *, lock: bool
) -> tuple[StoredApproval, RunView]:
    """One approval and its run, by one statement; ``lock`` locks the run until the transaction ends.

    The question is taken from the run, or from the book if the run has let go of the step.
    """
    row = await connection.fetchrow(_READ_QUESTION, approval_id, tenant, lock)
    view = await loaded(connection, _there(row, approval_id), graphs)
    asked = view.run.approvals.get(approval_id)
    if asked is not None:
        stored = _stored(row, asked, asked.action_digest, {}, barred_from(view.run, asked))
    else:
        async with within(connection, tenant):
            stored = await read(connection, approval_id)
    return stored, replace(view, kept_at=view.version)


def _there(row: Any, approval_id: UUID) -> Any:
    if row is None:
        raise NotFoundError(f"There is no approval {approval_id}.")
    return row


def _stored(
    row: Any,
    asked: ApprovalRequested | ApprovalRow,
    digest: str,
    card: JsonObject,
    shaped: tuple[Contributor, ...],
) -> StoredApproval:
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
    )


async def run_of(connection: Connection, approval_id: UUID) -> UUID:
    """The run of an approval; ``NotFoundError`` if there is none that this connection may see."""
    row = await connection.fetchrow("SELECT run_id FROM approvals WHERE approval_id = $1", approval_id)
    return UUID(str(_there(row, approval_id)["run_id"]))


async def shown(connection: Connection, approval_id: UUID, message: MessageRef) -> None:
    """Remember where the card is."""
    await connection.execute(_SHOWN, approval_id, message.channel, message.ts)


def question(row: Any, approval_id: UUID) -> ApprovalRequested:
    """The question of a row with ``ASKED``. ``Diverged`` if the book does not tell it, or its values were altered."""
    kept, key = row["kept"], row["run_key"] or b""
    for append in appends((row["asked_at"],), (row["asked"],), (row["shown"],)) if row["asked"] else ():
        if kept is None:
            check_stored(append.lines[-1], append.stored, key)
        for number, line in enumerate(append.lines):
            if f'"{approval_id}"'.encode() in line and f'"type":"{ApprovalRequested.TYPE}"'.encode() in line:
                values = append.values.get(number, {}) if kept is None else kept
                place = append.first_seq + number
                event = read_line(line, values, key, place, verify=False).event
                if isinstance(event, ApprovalRequested) and event.approval == approval_id:
                    return event
    raise Diverged(f"The book does not tell what the approval {approval_id} asks", "approvals")


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
    )


_AFTER_APPROVAL: dict[str | None, CardState] = {
    None: CardState.RECORDED,
    ReceiptStatus.INTENDED: CardState.EXECUTING,
    ReceiptStatus.SUCCEEDED: CardState.APPLIED,
    ReceiptStatus.FAILED: CardState.FAILED,
    ReceiptStatus.IN_DOUBT: CardState.IN_DOUBT,
}
# In these states something is still to go out.
_WAITING = (CardState.PENDING, CardState.RECORDED)
_ENDS = {
    ApprovalStatus.REQUESTED: CardState.PENDING,
    ApprovalStatus.REJECTED: CardState.REJECTED,
    ApprovalStatus.EXPIRED: CardState.EXPIRED,
    ApprovalStatus.CANCELED: CardState.CANCELED,
    ApprovalStatus.SUPERSEDED: CardState.SUPERSEDED,
}


def card_view(stored: StoredApproval, receipt: Mapping[str, Any] | None, link: str = "") -> CardView:
    """The card as a face draws it: the frozen content and what has become of it; ``receipt`` is that of its action."""
    approval = stored.approval
    state, detail = _state(stored, receipt if stored.consumed else None)
    content = CardContent.from_json(stored.card)
    keys = keys_of(content.workflow, content.connector, approval.run_id) if state in _WAITING else []
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
        return CardState.RECORDED, stored.reason or ""
    detail = receipt.get("resolution") or (receipt.get("error") or {}).get("message") or ""
    return _AFTER_APPROVAL[receipt["status"]], detail


_QUESTION = f"""
SELECT a.approval_id, a.run_id, a.step_key, a.status, a.choice, a.reason, a.created_at, a.expires_at, a.decided_at,
  {ASKED} FROM approvals a {ASKED_IN} WHERE a.tenant_id = :tenant"""
_APPROVALS = Statement(f"""{_QUESTION} AND (a.created_at, a.approval_id) < (:after_at, :after_id)
  AND (CAST(:status AS text) IS NULL OR a.status = :status) AND (CAST(:run AS uuid) IS NULL OR a.run_id = :run)
ORDER BY a.created_at DESC, a.approval_id DESC LIMIT :limit""")
_APPROVAL = Statement(f"{_QUESTION} AND a.approval_id = :approval")


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
    """Approvals, newest first. ``Diverged`` if the question of one is not what was told."""
    after = {"after_at": after_at, "after_id": after_id}
    found = await every(connection, _APPROVALS, tenant=tenant, limit=limit, status=status, run=run_id, **after)
    return [_asked(row) for row in found]


def _asked(row: Row) -> Row:
    asked = question(row, row["approval_id"])
    shown = {"kind": asked.kind, "tier": asked.tier, "requester": asked.requester, "card": asked.shown}
    return {**row, **shown, "action_digest": asked.digest}


async def approval(connection: Connection, tenant: str, approval_id: UUID) -> Row | None:
    """One approval. ``Diverged`` as of ``approvals_page``."""
    row = await first(connection, _APPROVAL, tenant=tenant, approval=approval_id)
    return None if row is None else _asked(row)
