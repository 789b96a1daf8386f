"""Approvals read back as values, with their votes and what became of their actions.

What was asked stands in the book of the run alone, in the append that the approval's row names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from approvals.content import CardContent, CardState
from approvals.model import Approval, ApprovalKind, CardView, Choice, Terms, Vote, VoteChannel
from approvals.ports import MessageRef
from approvals.states import ApprovalStatus
from approvals.tally import progress
from core.db import Connection
from core.errors import NotFoundError
from evidence.receipts import ReceiptStatus
from runtime.engine.events import ApprovalRequested
from runtime.engine.run import RunView
from runtime.engine.told import Diverged, check_stored, read_line
from runtime.store.journal import KEPT_ON, LOCKED, RUN, TAIL, appends
from runtime.store.views import Graphs, loaded

# The append that asked, of the approval ``a``; of a run whose values retention has taken, what it left of the question.
ASKED = """r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept"""
ASKED_IN = """JOIN runs r ON r.run_id = a.run_id LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n
  LEFT JOIN remains m ON m.run_id = a.run_id"""

_READ = f"""
SELECT {{0}} to_jsonb(a) AS approval, now() AS now, r.workspace_id, {ASKED},
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id)) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes,
  (SELECT jsonb_build_object('name', p.name, 'slack', p.slack_user_id, 'groups', (SELECT jsonb_agg(m.group_name)
      FROM group_members m WHERE m.tenant_id = p.tenant_id AND m.person_id = p.person_id))
    FROM people p WHERE p.tenant_id = a.tenant_id AND p.person_id = $2) AS person
FROM approvals a {ASKED_IN} {{1}} WHERE a.approval_id = $1"""
_READ_ONE = _READ.format("", "")

# The approval as ``_READ`` gives it, and its run, of one snapshot: see ``runtime.store.faces``.
_READ_QUESTION = "SELECT * FROM read_question($1, $2, $3, $4)"
_OF_RUN = f"{RUN.format('r')}, r.state, t.policy_digest, t.max_writes_per_run, tail.*,"
READ_BY = "_approval_id uuid, _person text, _tenant text, _lock bool"
READ_QUESTION = LOCKED.format(
    "(SELECT a.run_id FROM approvals a WHERE a.approval_id = _approval_id)",
    _READ.format(_OF_RUN, f"JOIN tenants t ON t.tenant_id = a.tenant_id {TAIL.format('r', KEPT_ON.format('r'))}")
    .replace("$1", "_approval_id")
    .replace("$2", "_person"),
)
QUESTION = """run json, state bytea, policy_digest text, max_writes_per_run int, firsts int[], lines bytea[],
  vals bytea[], approval jsonb, now timestamptz, workspace_id text, run_key bytea, asked_at int, asked bytea,
  shown bytea, kept jsonb, votes jsonb, person jsonb"""

_SHOWN = "UPDATE approvals SET channel = $2, message_ts = $3 WHERE approval_id = $1"


@dataclass(frozen=True, slots=True)
class StoredApproval:
    """An approval with everything that a vote or a card needs.

    ``person`` is the directory's entry of the person asked about (name, Slack id, groups), None if there is none.
    """

    approval: Approval
    choice: str | None
    reason: str | None
    workspace_id: str
    consumed: bool
    now: datetime
    created_at: datetime
    person: Mapping[str, Any] | None
    message: MessageRef | None


async def read(connection: Connection, approval_id: UUID, person_id: str = "") -> StoredApproval:
    """One approval; ``NotFoundError`` if there is none that this connection may see."""
    return _stored(await connection.fetchrow(_READ_ONE, approval_id, person_id), approval_id)


async def read_to_decide(
    connection: Connection, tenant: str, approval_id: UUID, person_id: str, graphs: Graphs, *, lock: bool
) -> tuple[StoredApproval, RunView]:
    """One approval and its run, by one statement; ``lock`` holds the run until the transaction ends."""
    row = await connection.fetchrow(_READ_QUESTION, approval_id, person_id, tenant, lock)
    stored = _stored(row, approval_id)
    view = await loaded(connection, row, graphs)
    return stored, replace(view, kept_at=view.version)


def _stored(row: Any, approval_id: UUID) -> StoredApproval:
    if row is None:
        raise NotFoundError(f"There is no approval {approval_id}.")
    item = row["approval"]
    message = MessageRef(item["channel"], item["message_ts"]) if item["message_ts"] else None
    return StoredApproval(
        approval=_approval(item, question(row, approval_id), row["votes"] or []),
        choice=item["choice"],
        reason=item["reason"],
        workspace_id=row["workspace_id"],
        consumed=item["consumed_at"] is not None,
        now=row["now"],
        created_at=datetime.fromisoformat(item["created_at"]),
        person=row["person"],
        message=message,
    )


async def shown(connection: Connection, approval_id: UUID, message: MessageRef) -> None:
    """Remember where the card is."""
    await connection.execute(_SHOWN, approval_id, message.channel, message.ts)


def question(row: Any, approval_id: UUID) -> ApprovalRequested:
    """The question of a row with ``ASKED``. ``Diverged`` if its book does not tell it, or its values are others."""
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


def _approval(item: Mapping[str, Any], asked: ApprovalRequested, votes: list[Any]) -> Approval:
    return Approval(
        id=UUID(item["approval_id"]),
        tenant_id=item["tenant_id"],
        run_id=UUID(item["run_id"]),
        step_key=item["step_key"],
        kind=ApprovalKind(asked.kind),
        status=ApprovalStatus(item["status"]),
        action_digest=asked.digest,
        nonce=asked.nonce,
        terms=Terms.from_json(asked.terms or {}),
        requester=asked.requester,
        card=CardContent.from_json(asked.shown or {}),
        votes=tuple(_vote(entry["vote"], entry["name"], asked.digest) for entry in votes),
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
    return CardView(
        approval_id=approval.id,
        nonce=approval.nonce,
        kind=approval.kind,
        content=approval.card,
        state=state,
        votes=approval.votes,
        progress=progress(approval),
        two_person=approval.terms.two_person,
        detail=detail,
        link=link,
        late=" ".join(late["says"] for late in receipt["late"]) if receipt else "",
    )


def _state(stored: StoredApproval, receipt: Mapping[str, Any] | None) -> tuple[CardState, str]:
    status = stored.approval.status
    if status is not ApprovalStatus.APPROVED:
        return _ENDS[status], stored.reason or ""
    if receipt is None:
        return CardState.RECORDED, stored.reason or ""
    detail = receipt.get("resolution") or (receipt.get("error") or {}).get("message") or ""
    return _AFTER_APPROVAL[receipt["status"]], detail
