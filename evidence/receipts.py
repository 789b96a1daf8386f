"""Receipts: the durable record of one side effect, written before it (intended) and after it (how it ended).

They are the source of truth for safe retries and for evidence (Q-4). An effect whose receipt says ``intended`` by a
lease that is gone, or ``in_doubt``, may have happened: it is never repeated before the doubt is resolved (promise 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from core.canonical import Json, JsonObject
from core.machine import Machine
from evidence.chain import timestamp
from evidence.commitments import blind, commit, commit_fields, path_of


class ReceiptStatus(StrEnum):
    """How far the effect is known to have got."""

    INTENDED = "intended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"


class ReceiptEvent(StrEnum):
    """What can happen to a receipt."""

    SUCCEED = "succeed"
    FAIL = "fail"
    DOUBT = "doubt"
    RETRY = "retry"
    RESOLVE_APPLIED = "resolve_applied"
    RESOLVE_FAILED = "resolve_failed"


class Resolution(StrEnum):
    """What ended a doubt: it had happened; it had not, and may be done again; it is given up as failed."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    FAILED = "failed"


class LateAnswer(StrEnum):
    """The knowledge of a worker that had lost its lease about its call: that it may have been sent, or how it ended."""

    UNANSWERED = "unanswered"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"


def contradiction(known: str, attempt: int, status: str, last_attempt: int) -> str | None:
    """How a late answer about an attempt contradicts its receipt, as a sentence; None if it does not."""
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


# What of a late answer is a value, and committed to.
_LATE_VALUES = ("detail", "external_id", "output")


class Reverse(Struct, frozen=True):
    """How to undo the effect: the operation and its complete input."""

    operation: str
    input: JsonObject


class Receipt(Struct, frozen=True):
    """What was attempted, what happened, whether it is reversible and how to reverse it (Q-4).

    ``attempt`` counts from 1. ``lease_epoch`` is that of the lease which intended it. ``external_id`` is the target
    system's own id of the effect. ``resolution`` says in words how a doubt was resolved. ``settled_at`` is None while
    the receipt is intended. ``late`` are the late answers about its attempts, each the facts of its event with
    its values.
    """

    receipt_id: str
    tenant_id: str
    run_id: str
    step_key: str
    operation: str
    target: str
    idempotency_key: str
    action_digest: str
    status: ReceiptStatus
    attempt: int
    lease_epoch: int
    reversible: bool
    reverse: Reverse | None
    external_id: str | None
    resolution: str | None
    error: str | None
    intended_at: datetime
    settled_at: datetime | None
    late: Sequence[JsonObject] = ()

    def to_evidence(self, run_key: bytes) -> JsonObject:
        """The receipt as a bundle shows it: metadata, and commitments in place of every value.

        What can carry business data (target, idempotency key, external id, texts, the reversal's input) is committed
        under ``/receipt/<id>/…``; the action's digest is blinded. ``values(…)`` lists what a disclosure would open.
        """
        reverse: Json = None
        if self.reverse is not None:
            fields = sorted(self.reverse.input)
            reverse = {
                "operation": self.reverse.operation,
                "fields": [*fields],
                "committed": commit_fields(run_key, path_of("receipt", self.receipt_id, "reverse"), self.reverse.input),
            }
        shown: JsonObject = {
            "receipt": self.receipt_id,
            "run": self.run_id,
            "step": self.step_key,
            "operation": self.operation,
            "action": blind(run_key, self.action_digest),
            "status": str(self.status),
            "attempt": self.attempt,
            "lease_epoch": self.lease_epoch,
            "reversible": self.reversible,
            "reverse": reverse,
            "intended_at": timestamp(self.intended_at),
            "settled_at": None if self.settled_at is None else timestamp(self.settled_at),
            "committed": [[path, commit(run_key, path, value)] for path, value in self.values().items()],
        }
        if self.late:
            shown["late"] = [{name: late[name] for name in late if name not in _LATE_VALUES} for late in self.late]
        return shown

    def values(self) -> dict[str, Json]:
        """Path and value of everything that ``to_evidence`` commits to at its top level; absent ones left out."""
        named: dict[str, Json] = {
            "error": self.error,
            "external_id": self.external_id,
            "idempotency_key": self.idempotency_key,
            "resolution": self.resolution,
            "target": self.target,
        }
        late = {
            path_of("receipt", self.receipt_id, "late", str(number), name): late[name]
            for number, late in enumerate(self.late)
            for name in _LATE_VALUES
            if name in late
        }
        return late | {
            path_of("receipt", self.receipt_id, name): value for name, value in named.items() if value is not None
        }
