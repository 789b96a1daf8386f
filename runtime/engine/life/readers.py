"""Open questions after a change of people: those who asked, or those who may answer. Pure.

A question is checked again whenever the directory or the policy changes. If a person for whom its step acts is not
active any more, it is void. If nobody in its groups can decide it any more, it moves to the group of its escalation. If
that group cannot decide either, it is void. The next worker of the step then fails the step with the reason or, about a
doubt, asks others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from approvals.electorate import Unanswerable, slack_groups, unanswerable
from approvals.model import ApprovalKind
from approvals.tally import resolved
from connectors.port import Before
from connectors.proposal import SYSTEM, rebuilt_action
from core.terms import Terms
from evidence.receipts import ReceiptStatus
from policy.model import Ruling
from policy.sets import PolicySet
from runtime.engine.book import refusals
from runtime.engine.book.contributors import barred_from, whole
from runtime.engine.book.instructions import last_receipt, open_wait
from runtime.engine.life import ask
from runtime.engine.life.approved import earlier_binding
from runtime.engine.life.intend import judge
from runtime.engine.life.preflight import NOBODY
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ApprovalEscalated
from runtime.engine.model.rows import ApprovalRow, StepRow
from runtime.engine.model.traces import Trace
from runtime.engine.model.workflow import Workflow


def gone(transition: Transition, step: StepRow, asked: ApprovalRow) -> str | None:
    """The code of the reason why the question is void; None if it may stay."""
    place = (transition.view, transition.run, step.key)
    if asked.kind != ApprovalKind.IN_DOUBT and refusals.inactive_for(*place) is not None:
        return refusals.INACTIVE
    return NOBODY if unread(transition, asked) is not None else None


def unread(transition: Transition, asked: ApprovalRow, *, escalated: bool = True) -> Unanswerable | None:
    """The reason why nobody can decide the question; None if somebody can, or if only Slack knows.

    ``escalated`` says that the group of the escalation counts as well.
    """
    terms, people = Terms.from_json(asked.terms), transition.view.directory
    if slack_groups(terms) or not people.digest:
        return None  # the members of a Slack group are known when somebody votes
    now = terms if escalated else replace(terms, escalate=None)
    return unanswerable(now, resolved(barred_from(transition.run, asked), people), people, {})


def moves(transition: Transition, asked: ApprovalRow) -> bool:
    """True if only the group of the escalation can decide the question, and has not been asked yet."""
    answer = transition.run.answers[asked.approval_id]
    if answer.escalated or Terms.from_json(asked.terms).escalate is None:
        return False
    return unread(transition, asked, escalated=False) is not None and unread(transition, asked) is None


def move(transition: Transition, step: StepRow, approval: UUID) -> None:
    """Ask the group of the escalation now. A crash before the append leaves this to the next sweep."""
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


VOIDED = "voided"


def still_asks(
    transition: Transition, step: StepRow, workflow: Workflow, policy: PolicySet, asked: ApprovalRow
) -> bool:
    """True if policy would ask exactly this question now."""
    return otherwise(transition, step, workflow, policy, asked) is None


def otherwise(
    transition: Transition, step: StepRow, workflow: Workflow, policy: PolicySet, asked: ApprovalRow
) -> Ruling | None:
    """Policy's current outcome, if it would not ask exactly this question (maybe another one). None if it would.

    Questions of gates and about doubts do not come from policy, so these stay.
    """
    if asked.kind != ApprovalKind.ACTION or asked.action is None:
        return None
    stored: Mapping[str, Any] = asked.action
    read = stored["before"]
    before = None if read is None else Before.of_kept(read)
    operation = workflow.operations[step.operation]
    place = (transition.run.state, transition.graph, step.key)
    action = whole(*place, rebuilt_action(operation, stored["input"], before), str(stored.get(SYSTEM) or ""))
    receipt = last_receipt(transition.run, step.key)
    # A question before a repeat is bound to the intended action, so only its terms can differ from those of policy.
    again = receipt is not None and receipt.status == ReceiptStatus.IN_DOUBT
    if (trace := Trace.of_kept(stored)) is not None:
        transition.traces[step.key] = trace
    decision = judge(transition, step, workflow, policy, action, counted=again)
    if decision.outcome is not Ruling.NEEDS_APPROVAL or decision.approval is None:
        return decision.outcome
    same = earlier_binding(action, decision, stored, asked.action_digest) is not None
    if again:
        same = refusals.fits(Terms.from_json(asked.terms), decision.approval)
    return None if same else decision.outcome


def void(transition: Transition, step: StepRow, asked: ApprovalRow, why: str | None = None) -> None:
    """Void the question, and tell those who were asked. The step's next worker is denied by policy, or asks anew.

    ``why`` is the reason, unless it is policy: a change of those who asked or may answer
    (``runtime.engine.life.readers``).

    The tenant's number guards the append: if the policy has changed meanwhile, the new one judges instead.
    """
    wait = open_wait(transition.run, step.key)
    assert wait is not None  # an open question is what its step waits on
    transition.rows.stop = transition.view.stop
    ask.supersede(transition, step, asked.approval_id, why)
    transition.message(VOIDED, asked.approval_id, str(transition.view.stop))
    transition.resume(step, wait)
