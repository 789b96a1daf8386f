"""The past of a step as whoever begins it now needs to know it: what earlier leases left in the book. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from approvals.model import ApprovalKind, Choice, Terms, Vote, VoteChannel
from approvals.states import ApprovalStatus
from approvals.tally import carried
from runtime.engine.commit import ApprovalRow, Claim, ReceiptRow, StepRow, VoteRow, WaitRow
from runtime.engine.moves import Given, Known
from runtime.engine.run import Run
from runtime.engine.states import WaitKind, WaitState
from runtime.engine.told import Diverged
from runtime.engine.transition import RunView

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def known_of(run: Run, step_key: str) -> Known:
    """The last receipt of this step, the answer that people have given and nothing has used, and its last wait."""
    return Known(receipt=last_receipt(run, step_key), given=_given(run, step_key), wait=_last_wait(run, step_key))


def last_receipt(run: Run, step_key: str) -> ReceiptRow | None:
    """The receipt of this step's last intent."""
    own = [row for row in run.receipts.values() if row.step_key == step_key]
    return max(own, key=lambda row: row.intended_at or _LONG_AGO, default=None)


def open_wait(run: Run, step_key: str) -> WaitRow | None:
    """The wait that this step is parked on, or that it has opened to park on."""
    for wait in run.waits.values():
        if wait.step_key == step_key and wait.status is WaitState.WAITING:
            return wait
    return None


def _given(run: Run, step_key: str) -> Given | None:
    given = None
    for approval_id, answer in run.answers.items():
        asked = run.approvals[approval_id]
        if asked.step_key == step_key and answer.status == ApprovalStatus.APPROVED and not answer.consumed:
            assert answer.choice is not None, "it is told with the decision"
            terms, choice = Terms.from_json(asked.terms), Choice(answer.choice)
            votes = [_vote(row, asked) for row in run.votes if row.approval_id == approval_id]
            given = Given(
                approval_id=approval_id,
                kind=ApprovalKind(asked.kind),
                digest=asked.action_digest,
                choice=choice,
                reason=answer.reason or "",
                terms=terms,
                carried=choice not in (Choice.REJECT, Choice.FAIL)
                and carried(terms, asked.requester, votes, choice, escalated=answer.escalated),
            )
    return given


def _vote(row: VoteRow, asked: ApprovalRow) -> Vote:
    said = (Choice(row.choice), row.reason, frozenset(row.groups), VoteChannel(row.channel))
    return Vote(row.person_id, row.person_id, *said, "", asked.action_digest)


def _last_wait(run: Run, step_key: str) -> WaitRow | None:
    """The newest wait that was not canceled, other than a retry or one for an answer that was given."""
    last = None
    for wait in run.waits.values():
        retry = wait.kind is WaitKind.RETRY or wait.status is WaitState.CANCELED
        if wait.step_key == step_key and not retry and (wait.kind is not WaitKind.APPROVAL or wait.result is not None):
            last = wait
    return last


def leased(view: RunView, claim: Claim, owner: str) -> StepRow:
    """The step as its lease leaves it. ``Diverged`` if the book knows no such step."""
    step = view.steps.get(claim.key)
    if step is None:
        raise Diverged(f"A lease was taken on the step {claim.key}, which is not open by the run's book")
    return replace(step, lease_owner=owner, lease_epoch=claim.epoch)
