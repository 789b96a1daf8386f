"""Helpers of tests/engine that several test files share: from test_lives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from runtime.engine.commit import ReceiptRow, WaitRow
from runtime.engine.graph import NO_GRAPH
from runtime.engine.replaying import unopened
from runtime.engine.run import Run
from runtime.engine.shared_rows import EffectRow
from runtime.engine.states import EffectState, WaitKind, WaitState
from tests.support.engine_stage import KEY, NOW, RUN_ID


def receipt(number: int, status: str = "intended", step: str = "a", **more: Any) -> ReceiptRow:
    """A receipt of a shared effect. The greater its number, the earlier its key."""
    row = ReceiptRow(
        receipt_id=UUID(int=number),
        run_id=RUN_ID,
        step_key=step,
        operation="probe.ticket.open",
        target="t",
        idempotency_key=f"k{9 - number}",
        action_digest="d",
        status=status,
        attempt=1,
        lease_epoch=1,
        reversible=False,
        reverse=None,
        intended_at=NOW + timedelta(seconds=number),
        action={},
        shared=True,
    )
    return replace(row, **more)


def wait(number: int, status: str = "waiting", kind: str = "external", step: str = "a", **more: Any) -> WaitRow:
    row = WaitRow(UUID(int=number), UUID(int=0), step, WaitKind(kind), WaitState(status), f"t{number}")
    return replace(row, **more)


def of_others(number: int, status: str = "waiting", kind: str = "external", **more: Any) -> WaitRow:
    """A wait for the effect of another step. The greater its number, the earlier the key of the effect."""
    context = {"operation": "o", "shared": f"k{9 - number}", "receipt": str(UUID(int=100 + number))}
    return wait(number, status, kind, **{"context": context, **more})


def run_of(*rows: ReceiptRow | WaitRow, finished: bool = False) -> Run:
    run = unopened(RUN_ID, KEY, NO_GRAPH)
    run.receipts = {row.receipt_id: row for row in rows if isinstance(row, ReceiptRow)}
    run.waits = {row.wait_id: row for row in rows if isinstance(row, WaitRow)}
    run.finished = finished
    return run


def row(number: int, status: str, was: int | None, wait_id: int | None = None) -> EffectRow:
    held = None if wait_id is None else UUID(int=wait_id)
    before = None if was is None else UUID(int=was)
    return EffectRow(f"k{9 - number}", "a", UUID(int=number), EffectState(status), before, held)
