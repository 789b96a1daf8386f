"""Receipts: the durable record of one side effect, written before it (the intent) and after it (the outcome).

They are the source of truth for safe retries and for evidence. If a receipt is ``in_doubt``, or ``intended`` by a
lost lease, the effect may have happened: it is never repeated before the doubt is resolved (promise 2).
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from core.canonical import JsonObject
from core.machine import Machine

# Of an effect that an agent has carried out itself: its outcome is as the agent reported it.
BY_AGENT = "the agent, outcome as it reported"
# The code of the error of an effect that happened otherwise than asked; its ``fields`` are the names that differ.
ALTERED = "altered"
# The resolution of a receipt for which nothing was sent, because the target held every value already.
NOTHING_TO_DO = "nothing to do"


class ReceiptStatus(StrEnum):
    """The known progress of the effect."""

    INTENDED = "intended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"


class ReceiptEvent(StrEnum):
    """The events of a receipt."""

    SUCCEED = "succeed"
    FAIL = "fail"
    DOUBT = "doubt"
    RETRY = "retry"
    RESOLVE_APPLIED = "resolve_applied"
    RESOLVE_FAILED = "resolve_failed"


class Resolution(StrEnum):
    """The end of a doubt: the effect had happened; it had not and may be repeated; it is given up as failed."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    FAILED = "failed"


class LateAnswer(StrEnum):
    """The outcome that a worker reports after losing its lease; UNANSWERED: the call may have been sent."""

    UNANSWERED = "unanswered"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"


def contradiction(known: str, attempt: int, status: str, last_attempt: int) -> str | None:
    """The contradiction between a late answer about an attempt and its receipt, in words; None if there is none."""
    match known, status:
        case LateAnswer.SUCCEEDED, ReceiptStatus.FAILED:
            return "It counts as failed."
        case LateAnswer.SUCCEEDED, ReceiptStatus.SUCCEEDED if attempt != last_attempt:
            return f"Attempt {last_attempt} counts as done as well: it may have happened twice."
        case LateAnswer.FAILED, ReceiptStatus.SUCCEEDED if attempt == last_attempt:
            return "It counts as done."
    return None


RECEIPT: Machine[ReceiptStatus, ReceiptEvent] = Machine(
    name="receipt",
    initial=frozenset({ReceiptStatus.INTENDED}),
    table={
        (ReceiptStatus.INTENDED, ReceiptEvent.SUCCEED): ReceiptStatus.SUCCEEDED,
        (ReceiptStatus.INTENDED, ReceiptEvent.FAIL): ReceiptStatus.FAILED,
        (ReceiptStatus.INTENDED, ReceiptEvent.DOUBT): ReceiptStatus.IN_DOUBT,
        (ReceiptStatus.FAILED, ReceiptEvent.RETRY): ReceiptStatus.INTENDED,
        (ReceiptStatus.IN_DOUBT, ReceiptEvent.RETRY): ReceiptStatus.INTENDED,
        (ReceiptStatus.IN_DOUBT, ReceiptEvent.RESOLVE_APPLIED): ReceiptStatus.SUCCEEDED,
        (ReceiptStatus.IN_DOUBT, ReceiptEvent.RESOLVE_FAILED): ReceiptStatus.FAILED,
    },
)


class Receipt(Struct, frozen=True):
    """The record of one effect: the attempt, its outcome, and how to reverse it, if possible.

    ``attempt`` counts from 1. ``lease_epoch`` is the epoch of the lease that intended it. ``reverse`` undoes the
    effect: an ``operation`` and its complete ``input``. ``external_id`` is the target system's own id of the effect.
    ``resolution`` says in words how a doubt was resolved; ``error`` has the error under ``message``. ``settled_at``
    is None while the receipt is intended. ``late`` are the late answers about its attempts: the facts of each event
    with its values. ``approved_version`` is the target's version that people approved, ``version`` the one that was
    acted on, if people approved it and it has versions. ``reverses`` is the receipt that it undoes.
    A receipt of ``NOTHING_TO_DO`` has attempt 0.
    """

    receipt_id: UUID
    run_id: UUID
    step_key: str
    operation: str
    target: str
    idempotency_key: str
    action_digest: str
    status: str
    attempt: int
    lease_epoch: int
    reversible: bool
    reverse: JsonObject | None
    intended_at: datetime
    settled_at: datetime | None = None
    external_id: str | None = None
    resolution: str | None = None
    error: JsonObject | None = None
    late: tuple[JsonObject, ...] = ()
    approved_version: str | None = None
    version: str | None = None
    reverses: str | None = None
