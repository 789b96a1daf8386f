"""Open questions that nobody could decide, and cards that were not delivered: what `doctor` warns of."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from approvals.electorate import slack_groups, unanswerable
from approvals.tally import resolved
from core.db import Connection
from core.identity import Directory
from core.terms import Terms
from runtime.engine.contributors import told_of
from runtime.store import approvals

# At most so many open questions are looked at, the oldest first; the rest is counted.
QUESTIONS_MAX = 500


class Unread(Struct, frozen=True):
    """An open question that nobody could decide, and why."""

    approval_id: UUID
    run_id: UUID
    step: str
    why: str

    def __str__(self) -> str:
        return (
            f"Nobody can decide the open question {self.approval_id} (run {self.run_id}, step {self.step}). {self.why}"
        )


async def unread(connection: Connection, tenant: str, people: Directory) -> list[Unread]:
    """The open questions that nobody of this directory could decide, its escalation included.

    Questions that ask a Slack group are left out: who is in that is known when somebody votes.
    """
    found = []
    for one in await approvals.open_questions(connection, tenant, QUESTIONS_MAX):
        terms = Terms.from_json(one.asked.terms or {})
        if slack_groups(terms):
            continue
        why = unanswerable(terms, resolved(told_of(one.asked), people), people, {})
        if why is not None:
            found.append(Unread(one.approval_id, one.run_id, one.step_key, f"{why.message} {why.remedy}"))
    return found
