"""Counts a vote: it is told, and if it decides the question, the step goes on or ends."""

from __future__ import annotations

from approvals.model import APPROVAL, ApprovalEvent, ApprovalKind
from approvals.quorum import Counted
from core.canonical import Json
from core.errors import ConsistencyError
from evidence.chain import Actor, timestamp
from evidence.commitments import commit, reason_path
from runtime.definition.reserved import POLICY_CHANGE
from runtime.engine import doubt, waits
from runtime.engine.commit import StepRow, WaitRow
from runtime.engine.errors import REJECTED, SENT, ErrorClass, StepError
from runtime.engine.events import ApprovalDecided, ApprovalVoted, WaitCompleted
from runtime.engine.instructions import last_receipt, open_wait
from runtime.engine.preflight import PROPOSAL
from runtime.engine.transition import Transition
from runtime.store.approvals import StoredApproval


def wait_of(transition: Transition, step: StepRow) -> WaitRow:
    """The wait of the step that the question is about."""
    wait = open_wait(transition.run, step.key)
    if wait is None:
        raise ConsistencyError(f"The step {step.key} does not wait for this answer.")
    return wait


def count(transition: Transition, stored: StoredApproval, counted: Counted) -> str:
    """Make the moves that the vote causes; return the approval's status afterwards."""
    approval, vote = stored.approval, counted.vote
    person = Actor("person", vote.voter)
    committed: list[Json] | None = None
    if vote.reason:
        path = reason_path(str(approval.id), vote.voter, timestamp(transition.view.at))
        committed = [[path, commit(transition.view.run.run_key, path, vote.reason)]]
    voted = ApprovalVoted(
        approval=approval.id,
        choice=str(vote.choice),
        channel=str(vote.channel),
        reason_given=bool(vote.reason),
        separation_waived=counted.separation_waived,
        committed=committed,
        reason=vote.reason,
        groups=sorted(vote.groups),
    )
    transition.tell(voted, step=approval.step_key, actor=person)
    if counted.effect is None:
        transition.message("card", approval.id, f"votes:{len(approval.votes)}:{vote.voter}")
        return str(approval.status)
    status = str(APPROVAL.next[approval.status, counted.effect])
    outcome = str(counted.decision) if approval.kind is ApprovalKind.IN_DOUBT else status
    decided = ApprovalDecided(approval.id, outcome, str(counted.decision), vote.reason)
    transition.tell(decided, step=approval.step_key, actor=person)
    transition.message("card", approval.id, "decided")
    if transition.view.workflow == POLICY_CHANGE:
        transition.message(PROPOSAL, approval.id, status)
    step = transition.view.run.steps[approval.step_key]
    wait = wait_of(transition, step)
    if counted.effect is ApprovalEvent.APPROVE:
        transition.resume(step, wait)
        return status
    # Giving a doubt up is no rejection: people were asked what became of the action, not if it may be done.
    doubtful = approval.kind is ApprovalKind.IN_DOUBT
    receipt = last_receipt(transition.run, approval.step_key) if doubtful else None
    if receipt is not None:
        doubt.given_up(transition, receipt, f"a person gave it up: {vote.reason}")
    kind, code = (ErrorClass.CONSISTENCY, "given_up") if doubtful else (ErrorClass.AUTHORIZATION, REJECTED)
    error = StepError(kind, code, vote.reason, {"by": vote.voter, **(SENT if doubtful else {})})
    waits.end_badly(transition, step, wait, WaitCompleted, error.to_json())
    return status
