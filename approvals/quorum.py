"""Judges one vote: does it count, and does it decide the question? Pure; fails closed.

Rules, in the order in which they are applied:

1. A question takes no votes if it is no longer open, has expired, was replaced (nonce) or is about another action
   (digest).
2. Nobody who shaped the action counts, unless the terms allow their role in it (``Counted.separation_waived``).
   Only active people of the directory count: no service account, nobody who is deactivated or unknown.
3. Only members of a required group count. Groups are resolved at the moment of the vote. A group that could not be
   resolved allows nobody.
4. A rejection, and every answer about an action in doubt, needs a reason.
5. One eligible rejection rejects. Approval needs every group's quorum. With ``two_person`` each seat needs a different
   person (a matching of people to seats), and at least two people; without it one person may count for each of their
   groups.
6. For an action in doubt, the first choice to reach the quorum decides.
7. If the terms ask for a fresh login, an approval counts only after a login for this very question and action.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from approvals.content import PARTS
from approvals.model import (
    Approval,
    ApprovalEvent,
    ApprovalKind,
    ApprovalStatus,
    Choice,
    Principal,
    Vote,
    VoteChannel,
    Voter,
    choices_of,
)
from approvals.tally import current_votes, eligible_keys, has_role, plans, progress, quorum_met, separated, valid_votes
from core.identity import Directory, Standing
from core.terms import GroupSource, holds, may_be_delegated

REASON_CHARACTERS_MAX = 2000


class RefusalCode(StrEnum):
    """The reason why a vote does not count."""

    ALREADY_DECIDED = "already_decided"
    EXPIRED = "expired"
    STALE = "stale"
    CHANGED = "changed"
    WRONG_CHOICE = "wrong_choice"
    SEPARATION = "separation_of_duties"
    UNRESOLVABLE = "group_unresolvable"
    NOT_ELIGIBLE = "not_eligible"
    UNKNOWN = "not_in_directory"
    DEACTIVATED = "deactivated"
    MACHINE = "service_account"
    REASON_MISSING = "reason_missing"
    REASON_TOO_LONG = "reason_too_long"
    ALREADY_COUNTED = "already_counted"
    FALSE_CARD = "false_card"
    FALSE_WINDOW = "false_window"
    GRANT = "grant_refused"
    STEP_UP = "step_up_required"
    GLASS = "break_glass_refused"
    UNREVIEWED = "break_glass_unreviewed"
    NOTHING_ASKED = "nothing_asked"
    ASKED_ALREADY = "asked_already"
    TOO_MUCH_SAID = "too_much_said"
    NOT_NAMED = "not_named"
    UNEDITABLE = "uneditable"
    UNCHANGED = "unchanged"
    INVALID = "invalid_value"


class Counted(Struct, frozen=True):
    """The vote counts. ``effect`` is the event that it causes, None if more votes are needed.

    ``decision`` is the deciding choice, set together with ``effect``: for an action in doubt, *happened* and *again*
    approve, *fail* rejects. ``separation_waived`` asks for an audit event: the voter shaped the action, and the terms
    allow it.
    """

    vote: Vote
    effect: ApprovalEvent | None
    decision: Choice | None
    sentence: str
    separation_waived: bool = False


class NotCounted(Struct, frozen=True):
    """The vote does not count; ``sentence`` is for the person who sent it."""

    code: RefusalCode
    sentence: str


def consider(
    approval: Approval,
    voter: Voter,
    choice: Choice,
    reason: str,
    *,
    at: datetime,
    channel: VoteChannel,
    nonce: str | None = None,
    digest: str | None = None,
    fresh: datetime | None = None,
) -> Counted | NotCounted:
    """Judge one vote against the stored approval. ``at`` is the database's time.

    ``nonce`` comes from a button, ``digest`` from a face that showed the action. Each must match if given. ``fresh`` is
    the time at which this voter logged in again for this question and action; None if they have not.
    """
    reason = reason.strip()
    refusal = (
        closed(approval, at, nonce, digest)
        or ineligible(approval, voter, at)
        or _unusable(approval, voter, choice, reason, at)
        or _borrowed(approval, voter, choice, at)
        or _stale_login(approval, choice, at, fresh)
    )
    if refusal is not None:
        return refusal
    principal = _principal(approval, voter, at)
    usable = _usable_groups(approval, voter) if principal is None else principal.groups & eligible_keys(approval)
    name, behalf = (
        (voter.name, "") if principal is None else (f"{voter.name} for {principal.name}", principal.person_id)
    )
    ballot = (choice, reason, usable, channel, at.isoformat(), approval.action_digest)
    vote = Vote(voter.person_id, name, *ballot, on_behalf=behalf)
    after = replace(approval, votes=(*approval.votes, vote))
    decided = choice is Choice.REJECT or quorum_met(after, choice)
    return Counted(
        vote,
        _event(choice) if decided else None,
        choice if decided else None,
        _counted_sentence(after, choice, decided),
        separation_waived=any(has_role(approval, one) for one in vote.people),
    )


def glass_vote(
    approval: Approval, voter: Voter, reason: str, *, at: datetime, channel: VoteChannel, fresh: datetime | None
) -> Counted | NotCounted:
    """The vote of somebody who uses emergency access and may (``approvals.glass``): it alone decides the question."""
    terms = approval.terms.break_glass
    assert terms is not None, "no rule lets anybody"
    if (refusal := _stale_login(approval, Choice.APPROVE, at, fresh)) is not None:
        return refusal
    ballot = (Choice.APPROVE, reason.strip(), terms.keys, channel, at.isoformat(), approval.action_digest)
    vote = Vote(voter.person_id, voter.name, *ballot, glass=True)
    words = (
        f"You have broken the glass: it goes out now, and {' and '.join(terms.review)} and the operators hear of it."
    )
    waived = has_role(approval, voter.person_id)
    return Counted(vote, ApprovalEvent.APPROVE, Choice.APPROVE, words, separation_waived=waived)


def counted_again(votes: Iterable[Vote], people: Directory) -> tuple[Vote, ...]:
    """The votes of people who are still active in the directory, each with the groups that its voter is still in.

    Slack groups stay as recorded with the vote: Slack is not asked again.
    """
    counted = []
    for vote in votes:
        entry = people.entries.get(vote.voter)
        if vote.on_behalf:  # the record of the other person must still say so, for the time of the vote
            named = vote.at and people.delegates(vote.on_behalf, vote.voter, datetime.fromisoformat(vote.at))
            entry = people.entries.get(vote.on_behalf) if named else None
        if entry is not None and entry.standing is Standing.PERSON:
            slack = f"{GroupSource.SLACK_GROUP}:"
            own = (key for key in vote.groups if key.startswith(slack) or holds(entry, key, people))
            still = frozenset(key for key in own if not vote.on_behalf or may_be_delegated(key))
            counted.append(replace(vote, groups=still))
    return tuple(counted)


def _principal(approval: Approval, voter: Voter, at: datetime) -> Principal | None:
    """The person whom this voter stands in for now; None if they decide for themselves, or may not decide.

    Whoever may decide for themselves does. Nobody stands in for somebody who has voted already, or who shaped the
    action.
    """
    if _usable_groups(approval, voter):
        return None
    voted = {one.voter for one in valid_votes(approval) if not one.on_behalf}
    for one in sorted(voter.decides_for, key=lambda each: each.person_id):
        out = one.person_id in voted or separated(approval, one.person_id) is not None
        if one.delegation.holds(at) and not out and one.groups & eligible_keys(approval):
            return one
    return None


def _event(choice: Choice) -> ApprovalEvent:
    return ApprovalEvent.REJECT if choice in (Choice.REJECT, Choice.FAIL) else ApprovalEvent.APPROVE


_OVER = {
    ApprovalStatus.EXPIRED: NotCounted(
        RefusalCode.EXPIRED, "This request has expired; nothing was approved and nothing was done."
    ),
    ApprovalStatus.CANCELED: NotCounted(
        RefusalCode.ALREADY_DECIDED, "This request was canceled with its run; there is nothing to decide any more."
    ),
    ApprovalStatus.SUPERSEDED: NotCounted(
        RefusalCode.CHANGED,
        "This request is void: what it asked has changed, or its approval is too old, or of people who may vote no "
        "more. A new request replaces it.",
    ),
}


def closed(approval: Approval, at: datetime, nonce: str | None, digest: str | None) -> NotCounted | None:
    """The reason why the question takes no answer: it has ended, or the voter saw another one. None if it takes one."""
    if approval.status is not ApprovalStatus.REQUESTED:
        return _OVER.get(approval.status) or _decided(approval)
    if approval.expires_at is not None and at >= approval.expires_at:
        return _OVER[ApprovalStatus.EXPIRED]
    if nonce is not None and nonce != approval.nonce:
        return NotCounted(RefusalCode.STALE, "This card is out of date. Please use the newest card of this request.")
    if digest is not None and digest != approval.action_digest:
        return NotCounted(RefusalCode.CHANGED, "The action has changed since you saw it. Please look at it again.")
    return None


def _decided(approval: Approval) -> NotCounted:
    effect = ApprovalEvent.APPROVE if approval.status is ApprovalStatus.APPROVED else ApprovalEvent.REJECT
    deciders = [vote.name for vote in current_votes(approval.votes) if _event(vote.choice) is effect]
    by = _listed(deciders) or "somebody else"
    sentence = f"Already decided: {approval.status} by {by}. Your answer was not needed and does not count."
    return NotCounted(RefusalCode.ALREADY_DECIDED, sentence)


def _usable_groups(approval: Approval, voter: Voter) -> frozenset[str]:
    """The groups that this voter counts for: required ones that they are in, and that could be resolved."""
    return (voter.groups - voter.unresolvable) & eligible_keys(approval)


_NO_VOTER = {
    Standing.UNKNOWN: NotCounted(
        RefusalCode.UNKNOWN, "You are not in the directory, so this does not count. Ask an administrator to add you."
    ),
    Standing.DEACTIVATED: NotCounted(
        RefusalCode.DEACTIVATED,
        "You are deactivated in the directory, so this does not count. Ask an administrator if that is a mistake.",
    ),
    Standing.MACHINE: NotCounted(
        RefusalCode.MACHINE, "A service account never decides, so this does not count. A person has to, by themselves."
    ),
}


def no_voter(voter: Voter) -> NotCounted | None:
    """The reason why this person answers no question at all; None if they are an active person of the directory."""
    return _NO_VOTER.get(voter.standing)


def ineligible(approval: Approval, voter: Voter, at: datetime) -> NotCounted | None:
    """The reason why this person may not decide it; None if they may."""
    if (role := separated(approval, voter.person_id)) is not None:
        did = PARTS[role]
        return NotCounted(RefusalCode.SEPARATION, f"You may not decide this: you {did}, and somebody else has to.")
    if (nobody := no_voter(voter)) is not None:
        return nobody
    eligible = eligible_keys(approval)
    if _usable_groups(approval, voter) or _principal(approval, voter, at) is not None:
        return None
    names = {group.key: group.words for plan in plans(approval) for group in plan}
    unknown = sorted(names[key] for key in voter.unresolvable & eligible)
    if unknown:
        sentence = f"It could not be checked who belongs to {_listed(unknown)}, so this does not count. Try again."
        return NotCounted(RefusalCode.UNRESOLVABLE, sentence)
    if not eligible:
        return NotCounted(RefusalCode.NOT_ELIGIBLE, "You may not decide this: its policy names nobody who may.")
    sentence = f"You may not decide this: it asks members of {_listed(sorted(names.values()))}, and you are not one."
    return NotCounted(RefusalCode.NOT_ELIGIBLE, sentence)


def _unusable(approval: Approval, voter: Voter, choice: Choice, reason: str, at: datetime) -> NotCounted | None:
    offered = choices_of(approval.kind)
    if choice not in offered:
        return NotCounted(RefusalCode.WRONG_CHOICE, f"{choice} is no answer here; one of {_listed(offered, 'or')} is.")
    if not reason and (choice is Choice.REJECT or approval.kind is ApprovalKind.IN_DOUBT):
        return NotCounted(RefusalCode.REASON_MISSING, "Please give a reason; it is kept with your answer.")
    if len(reason) > REASON_CHARACTERS_MAX:
        sentence = f"The reason is {len(reason)} characters long; at most {REASON_CHARACTERS_MAX} are kept."
        return NotCounted(RefusalCode.REASON_TOO_LONG, sentence)
    principal = _principal(approval, voter, at)
    usable = _usable_groups(approval, voter) if principal is None else principal.groups & eligible_keys(approval)
    behalf = "" if principal is None else principal.person_id
    for vote in valid_votes(approval):
        same = (vote.voter, vote.on_behalf, vote.choice) == (voter.person_id, behalf, choice)
        if same and usable <= vote.groups:
            return NotCounted(RefusalCode.ALREADY_COUNTED, "Your answer is already counted; others are still awaited.")
    return None


def _borrowed(approval: Approval, voter: Voter, choice: Choice, at: datetime) -> NotCounted | None:
    """The reason why this voter may not approve for somebody else; None if they may.

    Otherwise whoever finds an open browser could make themselves the stand-in there, and log in again as themselves.
    """
    anew = approval.terms.step_up_seconds is not None and approval.kind is ApprovalKind.ACTION
    if not anew or choice is not Choice.APPROVE or _principal(approval, voter, at) is None:
        return None
    why = "This asks for a login anew of somebody who may decide it, so nobody approves it for somebody else."
    return NotCounted(RefusalCode.NOT_ELIGIBLE, why)


def _stale_login(approval: Approval, choice: Choice, at: datetime, fresh: datetime | None) -> NotCounted | None:
    """The reason why an approval needs a fresh login, with the place for it; None if it needs none, or has one."""
    seconds = approval.terms.step_up_seconds
    if seconds is None or choice is not Choice.APPROVE or approval.kind is not ApprovalKind.ACTION:
        return None
    if fresh is not None and timedelta(0) <= at - fresh <= timedelta(seconds=seconds):
        return None
    why = "You have to log in anew to approve this" if fresh is None else "Your login for this is too old"
    place = f"Open /console/approvals/{approval.id}, log in there once more for this question, and approve it there"
    return NotCounted(RefusalCode.STEP_UP, f"{why}, so this does not count. {place}.")


def _counted_sentence(approval: Approval, choice: Choice, decided: bool) -> str:
    answer = {
        Choice.APPROVE: "approval",
        Choice.REJECT: "rejection",
        Choice.HAPPENED: 'answer "it happened"',
        Choice.AGAIN: 'answer "do it again"',
        Choice.FAIL: 'answer "fail"',
    }[choice]
    if decided:
        return f"Your {answer} is counted, and decides it."
    missing = [f"{len(group.names)} of {group.group.of} of {group.group.words}" for group in progress(approval, choice)]
    two = "; two people are needed, one seat each" if approval.terms.two_person else ""
    return f"Your {answer} is counted. So far: {', '.join(missing)}{two}."


def _listed(words: Sequence[str], last: str = "and") -> str:
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
