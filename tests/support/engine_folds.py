"""Helpers of tests/engine that several test files share: from test_folds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from evidence.receipts import ReceiptStatus
from runtime.engine.model.rows import ApprovalRow, ReceiptRow, step_id_of
from tests.support.engine_stage import NOW, RUN_ID

W, V, A, R = (UUID(int=number) for number in range(1, 5))


ERROR: dict[str, Any] = {"class": "transport", "code": "x", "message": "No."}


def receipt(status: ReceiptStatus = ReceiptStatus.INTENDED, key: str = "a") -> ReceiptRow:
    return ReceiptRow(
        receipt_id=R, step_key=key, operation="probe.effect.apply", target="t", idempotency_key="k", action_digest="d",
        action={"approval": None, "terms": {"old": 1}}, status=status, attempt=1, lease_epoch=1, reversible=False,
        reverse=None, intended_at=NOW, run_id=RUN_ID, error=ERROR,
    )  # fmt: skip


def approval(kind: str = "action", key: str = "a", number: UUID = A) -> ApprovalRow:
    return ApprovalRow(
        number, step_id_of(RUN_ID, key), key, kind, "d", "n", "low", {}, "ann", {}, None, timedelta(hours=1)
    )
