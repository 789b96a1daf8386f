"""Emergency access (broken glass): what such a vote does outside its run, and the review of its use, for every face.

A use is a vote that decides alone (``approvals.glass``). The vote's append, its line in the tenant's stream and the
messages about it are one transaction. An index of the database allows no second use before the first is reviewed.
"""

from __future__ import annotations

from uuid import UUID

from approvals.glass import may_not_review, refused, unreviewed
from approvals.model import Approval, Voter
from approvals.quorum import NotCounted
from core.canonical import JsonObject, check_text
from core.db import Connection
from core.errors import AuthorizationError, ConsistencyError, InputError
from core.identity import Entry
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.engine.life.transition import Transition
from runtime.requests.directory import as_people
from runtime.requests.policy_changes import Then
from runtime.store import approvals, audit, glass, tenants
from runtime.store.approvals import StoredApproval

# The message below the card, and the topic of the operators' notices.
BROKEN = "glass"
# The role of reviewers if retention has removed the terms that name them.
OPERATORS = "operators"


async def judged(
    connection: Connection,
    stored: StoredApproval,
    asked: Approval,
    voter: Voter,
    entry: Entry | None,
    given: tuple[str, str | None, str | None],
) -> NotCounted | None:
    """The reason why this person may not break the glass now; None if they may. ``given``: reason, nonce, digest."""
    reason, nonce, digest = given
    if (no := refused(asked, voter, entry, reason, stored.now, (nonce, digest))) is not None:
        return no
    last = await glass.unreviewed(connection, asked.tenant_id)
    return unreviewed(last.name, str(last.approval_id)) if last is not None else None


def loud(transition: Transition, asked: Approval, person: str) -> Then:
    """Order messages to the operators and the approvers' channel; return the call that appends the tenant's line."""
    transition.message(BROKEN, asked.id, person)
    transition.alarm(f"glass:{asked.id}", f"{BROKEN}:{asked.id}", asked.id)
    data: JsonObject = {"approval": str(asked.id), "run": str(asked.run_id)}

    async def tell(connection: Connection) -> None:
        await audit.record(connection, asked.tenant_id, EventType.GLASS_BROKEN, Actor("person", person), data)

    return tell


async def review(
    connection: Connection, tenant: str, definitions: Definitions, approval_id: UUID, person_id: str, reason: str
) -> None:
    """Review a use of broken glass, so that another one is possible. A crash before the commit leaves it unreviewed.

    ``AuthorizationError`` if the person may not review it, ``ConsistencyError`` if this question waits for no review.
    """
    check_text(reason, "reason")
    if not reason.strip():
        raise InputError("is empty", where="reason", remedy="Say what the review has found.")
    await tenants.lock(connection, tenant)
    stored, last = await approvals.read(connection, approval_id), await glass.unreviewed(connection, tenant)
    if last is None or last.approval_id != approval_id:
        raise ConsistencyError(
            "No use of broken glass waits for a review here.", remedy="`counterseal doctor` names it."
        )
    people = await definitions.directory(connection, tenant, stored.directory_digest)
    entry, terms = people.entry(person_id), stored.approval.terms.break_glass
    review_ = terms.review if terms is not None else (OPERATORS,)
    shaped = {one.person for one in as_people(stored.approval, people).contributors if one.person is not None}
    if (why := may_not_review(review_, entry, last.person, shaped)) or entry is None:
        raise AuthorizationError(why or "Only active people of the directory review it.")
    data: JsonObject = {"approval": str(approval_id), "run": str(last.run_id), "reason": reason.strip()}
    if not await glass.review(connection, tenant, approval_id, Actor("person", entry.id), data):
        raise ConsistencyError("Somebody else has just reviewed it.")
