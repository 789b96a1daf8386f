"""An open question whose readers have changed: those who asked, and those who may answer. Pure.

It is looked at again whenever the directory or the policy changes. If those for whom it acts are not active any more,
it is void. If nobody of its groups can decide it any more, it moves to the group of its escalation; if that cannot
decide either, it is void, and whoever takes the step next says why, or asks those who can (about a doubt).
"""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from approvals.electorate import Unanswerable, slack_groups, unanswerable
from approvals.model import ApprovalKind
from approvals.tally import resolved
from core.terms import Terms
from runtime.engine import askers
from runtime.engine.commit import ApprovalRow, StepRow
from runtime.engine.contributors import barred_from
from runtime.engine.events import ApprovalEscalated
from runtime.engine.instructions import open_wait
from runtime.engine.preflight import NOBODY
from runtime.engine.transition import Transition


def gone(transition: Transition, step: StepRow, asked: ApprovalRow) -> str | None:
    """The code of the reason why the question is void; None if it may stay."""
    place = (transition.view, transition.run, step.key)
    if asked.kind != ApprovalKind.IN_DOUBT and askers.inactive_for(*place) is not None:
        return askers.INACTIVE
    return NOBODY if unread(transition, asked) is not None else None


def unread(transition: Transition, asked: ApprovalRow, *, escalated: bool = True) -> Unanswerable | None:
    """The reason why nobody can decide the question; None if somebody can, or if Slack alone knows.

    ``escalated`` counts the group of the escalation as well.
    """
    terms, people = Terms.from_json(asked.terms), transition.view.directory
    if slack_groups(terms) or not people.digest:
        return None  # the members of a Slack group are known when somebody votes
    now = terms if escalated else replace(terms, escalate=None)
    return unanswerable(now, resolved(barred_from(transition.run, asked), people), people, {})


def moves(transition: Transition, asked: ApprovalRow) -> bool:
    """True if only the group of the escalation can decide it, and has not been asked yet."""
    answer = transition.run.answers[asked.approval_id]
    if answer.escalated or Terms.from_json(asked.terms).escalate is None:
        return False
    return unread(transition, asked, escalated=False) is not None and unread(transition, asked) is None


def move(transition: Transition, step: StepRow, approval: UUID) -> None:
    """Put the question to the group of its escalation now. A crash before the append leaves it to the next sweep."""
    wait = open_wait(transition.run, step.key)
    assert wait is not None  # an open question is what its step waits on
    context: dict[str, Any] = dict(wait.context or {})
    ladder, index = context["ladder"], context["next"]
    rung = next((n for n, (stage, _) in enumerate(ladder) if n >= index and stage == "escalate"), index - 1) + 1
    asked_at = transition.run.times.get(step.key, transition.view.now)
    age = (transition.view.now - asked_at).total_seconds()
    due = math.ceil(max(ladder[min(rung, len(ladder) - 1)][1] - age, 0))
    transition.tell(ApprovalEscalated(approval, wait.wait_id, min(rung, len(ladder) - 1), due), step=step.key)
    transition.message("escalate", approval, f"moved:{transition.view.stop}")
    transition.message("card", approval, f"moved:{transition.view.stop}")
