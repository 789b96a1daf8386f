"""The fold of questions to people and receipts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from approvals.model import APPROVAL, ApprovalEvent, ApprovalStatus, Choice
from core.errors import ConsistencyError
from evidence.receipts import RECEIPT, ReceiptEvent, ReceiptStatus, Resolution
from runtime.engine import events as e
from runtime.engine.commit import ApprovalMove, ApprovalRow, ReceiptRow, VoteRow, step_id_of
from runtime.engine.fold.of_steps import step_of
from runtime.engine.run import Run
from runtime.engine.told import Told, parts


def asked(run: Run, told: Told, event: e.ApprovalRequested) -> None:
    run.approvals[event.approval] = ApprovalRow(
        approval_id=event.approval,
        step_id=step_id_of(run.run_id, told.step or ""),
        step_key=told.step or "",
        kind=event.kind,
        action_digest=event.digest,
        nonce=event.nonce,
        tier=event.tier,
        terms=event.terms or {},
        requester=event.requester,
        card=event.shown or {},
        action=event.proposed,
        expires_in=timedelta(seconds=event.expires),
    )
    run.answers[event.approval] = ApprovalMove(event.approval, ApprovalStatus.REQUESTED)


def voted(run: Run, told: Told, event: e.ApprovalVoted) -> None:
    groups = event.groups or []
    run.votes.append(VoteRow(event.approval, told.actor.id, event.choice, event.reason, groups, event.channel))


_ANSWERS: Mapping[str, ApprovalEvent] = {
    ApprovalStatus.APPROVED: ApprovalEvent.APPROVE,
    ApprovalStatus.REJECTED: ApprovalEvent.REJECT,
    ApprovalStatus.CANCELED: ApprovalEvent.CANCEL,
    Choice.HAPPENED: ApprovalEvent.APPROVE,
    Choice.AGAIN: ApprovalEvent.APPROVE,
    Choice.FAIL: ApprovalEvent.REJECT,
}


def answered(run: Run, told: Told, event: e.ApprovalDecided) -> None:
    _answer(run, event.approval, _ANSWERS[event.outcome], choice=event.choice, reason=event.reason)


def _answer(run: Run, approval: UUID, event: ApprovalEvent | None, **changes: Any) -> None:
    known = run.answers.get(approval) or ApprovalMove(approval, ApprovalStatus.REQUESTED)
    status = known.status if event is None else APPROVAL.next[ApprovalStatus(known.status), event]
    run.answers[approval] = replace(known, status=status, **changes)


def consumed(run: Run, told: Told, event: e.ApprovalConsumed) -> None:
    _answer(run, event.approval, None, consumed=True)


def superseded(run: Run, told: Told, event: e.ApprovalSuperseded) -> None:
    _answer(run, event.approval, ApprovalEvent.SUPERSEDE)


def expired(run: Run, told: Told, event: e.ApprovalExpired) -> None:
    _answer(run, event.approval, ApprovalEvent.EXPIRE)


def reminded(run: Run, told: Told, event: e.ApprovalReminded | e.ApprovalEscalated) -> None:
    if isinstance(event, e.ApprovalEscalated):
        _answer(run, event.approval, None, escalated=True)
    wait = run.waits.get(event.wait) if event.wait is not None else None
    if wait is not None:
        context = {**(wait.context or {}), "next": event.rung}
        run.waits[wait.wait_id] = replace(wait, context=context, due_in=timedelta(seconds=event.due))


def intended(run: Run, told: Told, event: e.ActionIntended) -> None:
    step = step_of(run, told)
    if event.key is None:
        receipt = _receipt(run, event.receipt)
        status = RECEIPT.next[ReceiptStatus(receipt.status), ReceiptEvent.RETRY]
        action = {**receipt.action, **(event.authority or {})}
        run.receipts[event.receipt] = replace(
            receipt,
            status=status,
            action=action,
            attempt=event.attempt,
            lease_epoch=step.lease_epoch,
            error=None,
            resolution=receipt.resolution if event.resolution is None else event.resolution,
            intended_at=told.at,
            settled_at=None,
        )
    else:
        run.receipts[event.receipt] = ReceiptRow(
            receipt_id=event.receipt,
            step_key=step.key,
            operation=event.operation,
            target=event.target or "",
            idempotency_key=event.key,
            action_digest=event.digest or "",
            action=event.proposed or {},
            status=ReceiptStatus.INTENDED,
            attempt=event.attempt,
            lease_epoch=step.lease_epoch,
            reversible=event.reversible,
            reverse=event.reverse,
            intended_at=told.at,
            run_id=run.run_id,
            shared=event.shared,
            replaces=event.replaces,
        )
        run.steps[step.key] = replace(step, idempotency_key=event.key)
        run.writes += 1
    if event.approval is not None and event.approval in run.answers:
        _answer(run, event.approval, None, consumed=True)


def _receipt(run: Run, receipt_id: UUID) -> ReceiptRow:
    receipt = run.receipts.get(receipt_id)
    if receipt is None:
        raise ConsistencyError(f"there is no receipt {receipt_id}")
    return receipt


def _settle(run: Run, told: Told, receipt_id: UUID, event: ReceiptEvent, **changes: Any) -> None:
    receipt = _receipt(run, receipt_id)
    status = RECEIPT.next[ReceiptStatus(receipt.status), event]
    settled = told.at if status in (ReceiptStatus.SUCCEEDED, ReceiptStatus.FAILED) else None
    run.receipts[receipt_id] = replace(receipt, status=status, settled_at=settled, **changes)


def action_succeeded(run: Run, told: Told, event: e.ActionSucceeded) -> None:
    came = {"output": event.output, "external_id": event.external_id, "usage": event.usage, "error": event.unusable}
    _settle(run, told, event.receipt, ReceiptEvent.SUCCEED, **came)


def action_failed(run: Run, told: Told, event: e.ActionFailed) -> None:
    _settle(run, told, event.receipt, ReceiptEvent.FAIL, error=event.detail)


def in_doubt(run: Run, told: Told, event: e.ActionInDoubt) -> None:
    _settle(run, told, event.receipt, ReceiptEvent.DOUBT, resolution=event.why)


def held(run: Run, told: Told, event: e.ActionHeld) -> None:
    run.receipts[event.receipt] = replace(_receipt(run, event.receipt), resolution=event.why)


def doubt_resolved(run: Run, told: Told, event: e.ActionDoubtResolved) -> None:
    match event.resolution:
        case Resolution.APPLIED:
            _settle(run, told, event.receipt, ReceiptEvent.RESOLVE_APPLIED, output=event.output, resolution=event.how)
        case Resolution.FAILED:
            _settle(run, told, event.receipt, ReceiptEvent.RESOLVE_FAILED, resolution=event.how)
        case Resolution.NOT_APPLIED:
            pass  # the intent that follows moves the receipt


def late(run: Run, told: Told, event: e.ActionLate) -> None:
    """A second answer is kept beside the receipt; no status changes by it."""
    if event.receipt not in run.receipts and told.step not in run.steps and told.step not in run.past:
        return  # a run at rest has let go of the receipts of steps that are left behind
    receipt, (facts, values) = _receipt(run, event.receipt), parts(event)
    del facts["receipt"]
    run.receipts[event.receipt] = replace(receipt, late=(*receipt.late, {**facts, **values}))
