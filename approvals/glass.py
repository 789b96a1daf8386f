"""Emergency access (break-glass): one person alone lets an action out, if policy allows that. Pure; fails closed.

It never overrides a denial: an action that policy denies asks nobody, and the intent is judged again. Whoever asked for
the action may break the glass, too: that is its purpose. Somebody else reviews each use before there is another one.
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
    """The reason why this person may not break the glass (use emergency access) here; None if they may.

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
    """The refusal while the last use is not reviewed. It names who made that use, and for which question."""
    words = f"{name} has broken the glass before, for the approval {about}, and nobody has reviewed that yet."
    return NotCounted(RefusalCode.UNREVIEWED, f"{words} Somebody else reviews it first; then it can be broken again.")


def may_not_review(review: Sequence[str], entry: Entry | None, user: str, shaped: Collection[str]) -> str:
    """The reason why this person may not review a use of the glass by ``user``; "" if they may.

    ``shaped`` are the people who shaped the action that it let out: they would review their own action.
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
