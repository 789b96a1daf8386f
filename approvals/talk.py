"""Talk about an open question before people decide, and the people to whom it is handed on. Pure; fails closed.

Whoever may decide may ask for more, comment, and hand the question on; whoever shaped it may answer and comment.
Talk decides nothing, and does not change who may decide: a question that is handed on calls other people whom its terms
name. Whoever answers counts as having shaped it from then on. All talk is somebody's own words, shown as a quotation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum

from approvals.electorate import members_of
from approvals.model import Approval, Statement, Voter
from approvals.quorum import REASON_CHARACTERS_MAX, NotCounted, RefusalCode, closed, ineligible
from approvals.tally import excluded, plans
from core.identity import Directory, Standing
from core.terms import GroupSource

# The most that may be said about one question.
SAID_MAX = 50


class Saying(StrEnum):
    """The kinds of things that people say: they ask for more, answer, comment, hand the question on."""

    ASKS = "asks"
    ANSWERS = "answers"
    COMMENTS = "comments"
    HANDS_ON = "hands_on"


WORDS = {
    Saying.ASKS: "Ask for more",
    Saying.ANSWERS: "Answer",
    Saying.COMMENTS: "Comment",
    Saying.HANDS_ON: "Hand on",
}
DONE = {
    Saying.ASKS: "Asked. The question stays open, and whoever asked for it is told.",
    Saying.ANSWERS: "Recorded. Your answer stands on the card, and you have a part in it now: others decide.",
    Saying.COMMENTS: "Recorded. Your comment stands with the question.",
    Saying.HANDS_ON: "Handed on. Who may decide has not changed.",
}
_NOTHING_ASKED = "Nobody has asked for more (any more), so there is nothing to answer. A comment can be given."
_ALREADY_ASKED = "Somebody has asked for more already, and it is not answered yet."
_NO_PART = "You have no part in this, and may not decide it, so you say nothing about it here."


def refused(
    approval: Approval,
    voter: Voter,
    saying: Saying,
    so_far: Sequence[Statement],
    *,
    at: datetime,
    nonce: str | None = None,
    digest: str | None = None,
) -> NotCounted | None:
    """The reason why this person may not say this now; None if they may. ``approval`` has its people of today."""
    if (over := closed(approval, at, nonce, digest)) is not None:
        return over
    may = ineligible(approval, voter, at)
    part = voter.standing is Standing.PERSON and any(one.person == voter.person_id for one in approval.contributors)
    if may is not None and (saying in (Saying.ASKS, Saying.HANDS_ON) or not part):
        no_part = may.code in (RefusalCode.SEPARATION, RefusalCode.NOT_ELIGIBLE) and saying is Saying.COMMENTS
        return NotCounted(may.code, _NO_PART) if no_part else may
    if len(so_far) >= SAID_MAX:
        return NotCounted(RefusalCode.TOO_MUCH_SAID, f"{SAID_MAX} things have been said about it. Decide it now.")
    if saying is Saying.ANSWERS and not waits_for_answer(so_far):
        return NotCounted(RefusalCode.NOTHING_ASKED, _NOTHING_ASKED)
    if saying is Saying.ASKS and waits_for_answer(so_far):
        return NotCounted(RefusalCode.ASKED_ALREADY, _ALREADY_ASKED)
    return None


def unusable(saying: Saying, text: str) -> NotCounted | None:
    """The reason why this text is not accepted; None if it is. Handing on needs no text."""
    if not text and saying is not Saying.HANDS_ON:
        return NotCounted(RefusalCode.REASON_MISSING, "Write something: it is kept with the question.")
    if len(text) > REASON_CHARACTERS_MAX:
        sentence = f"This is {len(text)} characters long; at most {REASON_CHARACTERS_MAX} are kept."
        return NotCounted(RefusalCode.REASON_TOO_LONG, sentence)
    return None


def waits_for_answer(so_far: Sequence[Statement]) -> bool:
    """True if the last question of a decider is not answered yet."""
    last = [one.said for one in so_far if one.said in (Saying.ASKS, Saying.ANSWERS)]
    return last[-1:] == [Saying.ASKS]


def may_be_handed(approval: Approval, people: Directory) -> dict[str, str]:
    """The people and groups to whom the question may be handed, by id or key, with their names.

    They are the groups that may decide now, and their members who have no part in the question. The members of a Slack
    group are not known here.
    """
    groups = {group.key: group for plan in plans(approval) for group in plan}
    out = excluded(approval.terms, approval.contributors)
    found = {key: group.words for key, group in groups.items() if group.person is None}
    for group in groups.values():
        if group.source is not GroupSource.SLACK_GROUP:
            found |= {one: people.entries[one].name for one in sorted(members_of(group, people)) if one not in out}
    return found


def handed(approval: Approval, to: str, people: Directory) -> str | None:
    """The id of the person, or the key of the group, to whom it may be handed under this name; None for others."""
    choices = may_be_handed(approval, people)
    for named in (to, people.resolve(to) or "", f"{GroupSource.GROUP}:{to}"):
        if named in choices:
            return named
    return None


def offered(
    approval: Approval, voter: Voter, so_far: Sequence[Statement], at: datetime, *, but: Collection[Saying] = ()
) -> tuple[Saying, ...]:
    """The things that this person may say now."""
    return tuple(one for one in Saying if one not in but and refused(approval, voter, one, so_far, at=at) is None)
