"""Approvals as authority: votes are counted again, and let out the one action that they were given for. Pure."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from approvals.model import ApprovalKind
from core.action import Action
from evidence.receipts import ReceiptStatus
from policy.evaluate import Decision
from runtime.engine.book.instructions import Given, given_of, still_approved
from runtime.engine.life import ask, binding
from runtime.engine.life.binding import Bound
from runtime.engine.life.proposal import Leased, Proposal
from runtime.engine.model.errors import ErrorClass, StepError

_NOT_APPROVED = StepError(
    ErrorClass.AUTHORIZATION,
    "not_approved",
    "An approval was recorded, but the votes in the run's book do not meet its terms.",
)


def counted_again(leased: Leased, given: Given) -> Leased | None:
    """Count the votes of a recorded approval again. Returns None, and fails the step, if there are too few.

    A recorded approval alone lets no action out. If its votes are too old, or their voters may no longer vote, it is
    void, and people are asked again. So they are about a doubt (promise 1).
    """
    transition = leased.transition
    if not given.carried:
        ask.supersede(transition, leased.step, given.approval_id)
        if not leased.is_doubtful and transition.view.run.canceling is None:
            transition.fail(leased.step, _NOT_APPROVED.to_json())
            return None
    elif (why := given.void(transition.view)) is not None:
        ask.supersede(transition, leased.step, given.approval_id, why)
    else:
        return leased
    return leased.knowing(replace(leased.known, given=None))


def matching(p: Proposal, bound: str) -> UUID | None:
    """The approval of exactly this action: given and unconsumed, or consumed by an attempt that certainly failed."""
    given, receipt = p.known.given, p.known.receipt
    if given is not None and given.kind is ApprovalKind.ACTION and given.digest == bound:
        return given.approval_id
    if receipt is None or not p.owns(receipt):
        return None  # an approval given to another run lets nothing out here
    if receipt.status != ReceiptStatus.FAILED or receipt.action_digest != bound:
        return None
    used = still_approved(p.transition.view, p.transition.run, receipt)
    if used is None or not p.step.again:
        return used
    # People had the step begin anew: the approval must be fresh, and the attempt that used it certainly had no effect.
    given = given_of(p.transition.run, used)
    binds = given is not None and given.void(p.transition.view) is None and receipt.error is not None
    return used if binds else None


def bound_by(p: Proposal, action: Action, decision: Decision) -> Bound:
    """The binding of the action: that of the approval or the earlier intent if it still holds, or else that of now."""
    given, receipt = p.known.given, p.known.receipt
    if given is not None and given.kind is ApprovalKind.ACTION:
        asked = p.transition.run.approvals[given.approval_id]
        if (bound := binding.held(action, decision, asked.action, asked.action_digest)) is not None:
            return bound
    own = receipt is not None and p.owns(receipt)
    bound = binding.held(action, decision, receipt.action, receipt.action_digest) if own and receipt else None
    return bound or binding.bind(action, decision)


def version_of(p: Proposal, approval: UUID | None) -> str | None:
    """The version of the target that people were asked about; None if nothing was read, or the run holds it no more."""
    asked = None if approval is None else p.transition.run.approvals.get(approval)
    return None if asked is None else binding.version_of(asked.action)


def void(p: Proposal, action: Action | None = None) -> None:
    """Void the approval given for the step's action, and show that on its card. Answers of other kinds stay.

    ``action`` is what would be performed now: the card says which of its values are others than those approved.
    """
    given = p.known.given
    if given is None or given.kind is not ApprovalKind.ACTION:
        return
    asked = p.transition.run.approvals[given.approval_id].action
    changed = None if action is None or asked is None else binding.drift(p.operation, asked, action)
    ask.supersede(p.transition, p.step, given.approval_id, changed=changed)
