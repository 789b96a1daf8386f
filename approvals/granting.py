"""Judges the grant that a voter adds to a vote: what is allowed in advance. Pure."""

from __future__ import annotations

from datetime import timedelta

from approvals.model import Approval, ApprovalKind, Choice, Vote
from approvals.quorum import NotCounted, RefusalCode
from approvals.tally import has_role
from core.durations import format_duration
from core.terms import Grant


def refused(approval: Approval, vote: Vote, grant: Grant, *, of_agent: bool) -> NotCounted | None:
    """The reason why this person may not allow this in advance, so that the vote does not count; None if they may."""
    bounds = approval.terms.grants
    if vote.choice is not Choice.APPROVE or approval.kind is not ApprovalKind.ACTION or bounds is None:
        return _no("Nothing can be allowed in advance here: the policy lets you approve only this, once.")
    if vote.on_behalf:
        return _no("You decide for somebody else here, so you allow nothing in advance.")
    if has_role(approval, vote.voter):
        return _no("You had a part in this, so you may not allow more of it in advance.")
    if grant.agent and not of_agent:
        return _no("This is no call of an agent, so nothing can be allowed for one.")
    if not (1 <= grant.uses <= bounds["uses"] and 1 <= grant.seconds <= bounds["seconds"]):
        span = format_duration(timedelta(seconds=bounds["seconds"]))
        return _no(f"At most {bounds['uses']} more within {span} can be allowed in advance.")
    return None


def _no(sentence: str) -> NotCounted:
    return NotCounted(RefusalCode.GRANT, sentence)
