"""Breaking the glass: one person lets an action out alone, in an emergency that policy knows. Pure; fails closed.

It is never over a denial: what policy denies asks nobody, and the intent is judged anew. Whoever has asked for the
action may break the glass, too: that is what it is for. Somebody else reviews each use before there is another one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from approvals.model import Approval, ApprovalKind, Voter
from approvals.quorum import REASON_CHARACTERS_MAX, NotCounted, RefusalCode, closed, no_voter
from core.identity import Entry, Standing


def refused(
    approval: Approval,
    voter: Voter,
    entry: Entry | None,
    reason: str,
    at: datetime,
    seen: tuple[str | None, str | None],
) -> NotCounted | None:
    """The reason why this person may not break the glass for this question; None if they may.

    ``seen`` are the nonce and the digest that a face has shown, which must match if they are given.
    """
    if (over := closed(approval, at, *seen)) is not None:
        return over
    terms = approval.terms.break_glass
    if terms is None or approval.kind is not ApprovalKind.ACTION:
        return _no("No rule lets anybody break the glass for this: the people who are asked decide it.")
    if (nobody := no_voter(voter)) is not None:
        return nobody
    if entry is None or entry.owner is not None or not {*terms.by} <= entry.groups:
        return _no(f"Only members of {' and '.join(terms.by)} may break the glass for this, and you are not one.")
    if not reason.strip():
        return NotCounted(RefusalCode.REASON_MISSING, "Say what the emergency is; it is kept, and reviewed.")
    if len(reason) > REASON_CHARACTERS_MAX:
        return NotCounted(RefusalCode.REASON_TOO_LONG, f"At most {REASON_CHARACTERS_MAX} characters are kept.")
    return None


def unreviewed(name: str, about: str) -> NotCounted:
    """The refusal of a use before the last one was reviewed: who made that, and for which question."""
    words = f"{name} has broken the glass before, for the approval {about}, and nobody has reviewed that yet."
    return NotCounted(RefusalCode.UNREVIEWED, f"{words} Somebody else reviews it first; then it can be broken again.")


def may_not_review(review: Sequence[str], entry: Entry | None, user: str, shaped: Collection[str]) -> str:
    """The reason why this person may not review a use of the glass by ``user``; "" if they may.

    ``shaped`` are those who have a part in what it let out: they would review what they wanted themselves.
    """
    if entry is None or entry.standing is not Standing.PERSON:
        return "Only active people of the directory review it."
    if entry.id == user:
        return "Whoever has broken the glass does not review that: somebody else has to."
    if entry.id in shaped:
        return "You have a part in what was let out, so you do not review that: somebody else has to."
    if not {*review} <= entry.groups:
        return f"Only members of {' and '.join(review)} review it, and you are not one."
    return ""


def _no(sentence: str) -> NotCounted:
    return NotCounted(RefusalCode.GLASS, sentence)
