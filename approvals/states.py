"""The states of an approval, and the only moves between them.

Rejected and expired are different outcomes to the run: a person said no, or nobody answered. Nothing is ever approved
by time. An approval that was given is still void when the action drifted before it was performed (promise 3).
"""

from __future__ import annotations

from enum import StrEnum

from core.machine import Machine


class ApprovalStatus(StrEnum):
    """The state of a question (Q-3). ``requested`` is the only one in which votes are taken."""

    REQUESTED = "requested"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"


class ApprovalEvent(StrEnum):
    """The events of an approval: people decide, time passes, the run ends, the action drifts."""

    APPROVE = "approve"
    REJECT = "reject"
    EXPIRE = "expire"
    CANCEL = "cancel"
    SUPERSEDE = "supersede"


APPROVAL: Machine[ApprovalStatus, ApprovalEvent] = Machine(
    name="approval",
    initial=frozenset({ApprovalStatus.REQUESTED, ApprovalStatus.CANCELED}),
    table={
        (ApprovalStatus.REQUESTED, ApprovalEvent.APPROVE): ApprovalStatus.APPROVED,
        (ApprovalStatus.REQUESTED, ApprovalEvent.REJECT): ApprovalStatus.REJECTED,
        (ApprovalStatus.REQUESTED, ApprovalEvent.EXPIRE): ApprovalStatus.EXPIRED,
        (ApprovalStatus.REQUESTED, ApprovalEvent.CANCEL): ApprovalStatus.CANCELED,
        (ApprovalStatus.REQUESTED, ApprovalEvent.SUPERSEDE): ApprovalStatus.SUPERSEDED,
        (ApprovalStatus.APPROVED, ApprovalEvent.SUPERSEDE): ApprovalStatus.SUPERSEDED,
    },
)
