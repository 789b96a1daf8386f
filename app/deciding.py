"""The questions that a person may decide, by the rules that judge their answer."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from app.faces import Faces
from approvals.model import Approval, VoteChannel, Voter, choices_of
from approvals.quorum import NotCounted, RefusalCode, consider
from approvals.tally import current_votes, plans
from core.identity import Kind, principal
from core.terms import GroupSource
from runtime.requests.directory import as_people, voter_of
from runtime.store import console, tenants


async def decidable(faces: Faces, tenant: str, person: str, most: int) -> frozenset[UUID]:
    """Find the questions, among ``most`` open ones, that this person may decide (also for others) and has not answered.

    Questions that need a fresh login are included: the console lets the person log in.
    """
    async with faces.database.transaction(tenant) as connection:
        digest = await tenants.directory_digest(connection, tenant)
        people = await faces.definitions.directory(connection, tenant, digest)
        found = [one.stored for one in await console.open_questions(connection, tenant, most)]
    named = principal(Kind.PERSON, person)
    entry = people.entry(named)
    wanted = {group.key: group for one in found for plan in plans(one.approval) for group in plan}
    # Slack is asked outside of any transaction, and only if one of these questions asks a group of it.
    asked = [group for group in wanted.values() if group.source is GroupSource.SLACK_GROUP]
    slack = await faces.directory(tenant).slack_membership(entry, asked)
    own = set()
    for stored in found:
        approval = as_people(stored.approval, people)
        voter = voter_of(named, entry, slack, approval, people)
        answered = any(voter.person_id in vote.people for vote in current_votes(approval.votes))
        if not answered and _may(approval, voter, stored.now):
            own.add(approval.id)
    return frozenset(own)


def _may(approval: Approval, voter: Voter, now: datetime) -> bool:
    for choice in choices_of(approval.kind):
        judged = consider(approval, voter, choice, "a reason", at=now, channel=VoteChannel.CLI)
        if not isinstance(judged, NotCounted) or judged.code is RefusalCode.STEP_UP:
            return True
    return False
