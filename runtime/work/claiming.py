"""What a claim returned, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import asyncpg

from approvals.model import ApprovalKind, Choice, Terms
from core.db import Connection
from runtime.governance.moves import Given, Known
from runtime.kernel.commit import StepRow
from runtime.kernel.transition import RunView
from runtime.store import receipts
from runtime.store.views import load, run_view, step_row, wait_row


async def claimed(connection: Connection, record: asyncpg.Record) -> tuple[RunView, StepRow, Known]:
    """The run's view, the leased step, and what is known of it from earlier leases."""
    step = step_row(record["step"])
    if record["state"] is None:
        # The claim waited for another commit of this run, whose checkpoint its snapshot did not see yet.
        view, _ = await load(connection, UUID(record["run"]["run_id"]), [step.key])
    else:
        view = run_view(record, whole=False, steps={step.key: step})
    receipt = receipts.receipt_row(record["receipt"]) if record["receipt"] else None
    given = _given(record["approval"]) if record["approval"] else None
    wait = wait_row(record["wait"]) if record["wait"] else None
    return view, step, Known(receipt=receipt, given=given, wait=wait)


def _given(item: Mapping[str, Any]) -> Given:
    """An approval that was given, from its row as JSON."""
    return Given(
        approval_id=UUID(item["approval_id"]),
        kind=ApprovalKind(item["kind"]),
        digest=item["action_digest"],
        choice=Choice(item["choice"]),
        reason=item["reason"] or "",
        terms=Terms.from_json(item["terms"]),
    )
