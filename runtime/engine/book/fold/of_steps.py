"""The fold of steps and of the receipts of their actions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from approvals.model import ApprovalStatus
from core.canonical import Json, JsonObject
from core.errors import ConsistencyError
from evidence.receipts import NOTHING_TO_DO, RECEIPT, ReceiptEvent, ReceiptStatus, Resolution
from runtime.engine.book import contributors, failures
from runtime.engine.book.fold import of_agents, of_grants
from runtime.engine.book.fold.of_waits import answer, end_wait
from runtime.engine.book.recorded import RecordedEvent, parts
from runtime.engine.model import events as e
from runtime.engine.model.agent_state import CallResult
from runtime.engine.model.errors import DENIED, RELEASED
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import LATER, PARKED, ReceiptRow, StepRow, WaitRow, wait_of
from runtime.engine.model.run import Run
from runtime.engine.model.states import (
    RUN,
    STEP,
    RunEvent,
    RunState,
    StepEvent,
    StepState,
    WaitEvent,
    WaitKind,
    WaitState,
)


def step_of(run: Run, recorded: RecordedEvent) -> StepRow:
    step = run.steps.get(recorded.step or "")
    if step is None:
        raise ConsistencyError(f"{recorded.event.TYPE} is about the step {recorded.step}, which is not open")
    return step


_EXECUTING = (StepState.READY, StepState.RUNNING)


def _move(run: Run, recorded: RecordedEvent, event: StepEvent, **changes: Any) -> StepRow:
    """Move the step of an event. A step that stops executing leaves its super-step."""
    step = step_of(run, recorded)
    moved = run.steps[step.key] = replace(step, status=STEP.next[step.status, event], **changes)
    if step.status in _EXECUTING and moved.status not in _EXECUTING:
        if step.key in run.state.open:
            run.state.open.remove(step.key)
        run.executing -= step.superstep == run.superstep
    return moved


def step_started(run: Run, recorded: RecordedEvent, event: e.StepStarted) -> None:
    _move(run, recorded, StepEvent.CLAIM, lease_owner=recorded.actor.id, lease_epoch=event.epoch, eligible_in=None)
    if run.status is RunState.QUEUED:
        run.status = RUN.next[run.status, RunEvent.START]


def step_succeeded(run: Run, recorded: RecordedEvent, event: e.StepSucceeded) -> None:
    ended = {"output": event.output, "writes": event.values or {}, "usage": event.usage}
    if event.shaped:
        contributors.within(run.state, recorded.step or "", event.shaped)
    step = _move(run, recorded, StepEvent.SUCCEED, **ended, last_error=None)
    if StepKey.of(step.key).is_inner:
        of_agents.used(run, step.key, event.usage)
        of_agents.ended(run, step.key, CallResult.DONE, event.output)


def step_failed(run: Run, recorded: RecordedEvent, event: e.StepFailed) -> None:
    error = error_of(event)
    if event.released:  # it was told when the step was held
        error = {**error, RELEASED: True}
    step = _move(run, recorded, StepEvent.FAIL, last_error=error, superstep=run.superstep, eligible_in=None)
    run.state.parked.pop(step.key, None)
    if not event.released:
        note_failure(run, recorded, event, error)
    if StepKey.of(step.key).is_inner:
        of_agents.used(run, step.key, event.usage)
        of_agents.failed(run, step.key, error)


def error_of(event: e.StepFailed | e.StepHeld) -> JsonObject:
    # If the run's key is lost, the event has no detail. The public part of the error is still known.
    lost = "What happened cannot be recorded: the key of this run is lost."
    error: JsonObject = event.detail or {"class": event.kind, "code": event.code, "message": lost}
    return {name: value for name, value in error.items() if name != RELEASED}


def note_failure(run: Run, recorded: RecordedEvent, event: e.StepFailed | e.StepHeld, error: JsonObject) -> None:
    """Note the effects of a failure besides the step's status: a denial, the error message, unused approvals."""
    key = recorded.step or ""
    run.refused += event.code == DENIED
    contributors.failed(run.state, key, event.shaped or ())
    for move in run.answers.values():
        unused = move.status == ApprovalStatus.APPROVED and not move.consumed
        if unused and run.approvals[move.approval_id].step_key == key:
            _failed_again(run, recorded, str(move.approval_id), error)


def step_parked(run: Run, recorded: RecordedEvent, event: e.StepParked) -> None:
    step = step_of(run, recorded)
    if event.known:
        run.waits[event.wait] = replace(run.waits[event.wait], parked=True)
    else:
        due = None if event.due is None else timedelta(seconds=event.due)
        opened = (event.wait, step.step_id, step.key, event.kind, WaitState.WAITING, event.token or "")
        run.waits[event.wait] = WaitRow(*opened, due, event.context or {}, event.correlation)
    park(run, recorded, StepEvent.PARK if event.kind is WaitKind.APPROVAL else StepEvent.WAIT, last_error=event.detail)


def step_retry(run: Run, recorded: RecordedEvent, event: e.StepRetryScheduled) -> None:
    step = step_of(run, recorded)
    due = timedelta(seconds=event.seconds if event.due is None else event.due)
    context: JsonObject = {"attempt": event.attempt, "error": event.detail}
    opened = (event.wait, step.step_id, step.key, WaitKind.RETRY, WaitState.WAITING, str(event.wait))
    run.waits[event.wait] = WaitRow(*opened, due, context)
    changes: dict[str, Any] = {"last_error": event.detail, "attempt": event.attempt, "eligible_in": due}
    if event.waits is None:
        park(run, recorded, StepEvent.RETRY_LATER, **changes)
    else:
        park(run, recorded, StepEvent.WAIT, LATER, **changes)
    if StepKey.of(step.key).is_inner:
        of_agents.used(run, step.key, event.usage)


def park(run: Run, recorded: RecordedEvent, event: StepEvent, kind: str = "", **changes: Any) -> None:
    parked = _move(run, recorded, event, lease_owner=None, **changes)
    run.state.parked[parked.key] = f"{kind or PARKED[parked.status]}:{wait_of(run.run_id, parked)}"


def step_resumed(run: Run, recorded: RecordedEvent, event: e.StepResumed) -> None:
    wait = run.waits.get(UUID(event.invocation.removeprefix("resume:")))
    if wait is not None and wait.status is WaitState.WAITING:
        end_wait(run, wait.wait_id, WaitEvent.COMPLETE)
    step = step_of(run, recorded)
    if step.superstep == run.superstep and step.key in run.state.parked:
        # Until the barrier, a reader of the run sees that the step is ready, and no longer why it had parked.
        run.state.parked[step.key] = f"wait:{wait_of(run.run_id, step)}"
    _move(run, recorded, StepEvent.RESUME, superstep=run.superstep + 1, eligible_in=None)
    # If the run is still running, the barrier of its last step is due.
    if run.executing == 0 and run.status is not RunState.RUNNING:
        run.status = RUN.next[run.status, RunEvent.RESUME]


def step_set_back(run: Run, recorded: RecordedEvent, event: e.StepSetBack) -> None:
    step = step_of(run, recorded)
    # If the run's key is lost, the event has no detail. The count is still kept, so that retries end.
    run.steps[step.key] = replace(step, last_error=event.detail or {"setbacks": event.setbacks})


def step_canceled(run: Run, recorded: RecordedEvent, event: e.StepCanceled) -> None:
    key = recorded.step or ""
    if key in run.steps:
        _move(run, recorded, StepEvent.CANCEL, lease_owner=None)
    for wait in [wait for wait in run.waits.values() if wait.step_key == key and wait.status is WaitState.WAITING]:
        end_wait(run, wait.wait_id, WaitEvent.CANCEL)
    run.state.parked.pop(key, None)
    if StepKey.of(key).is_inner:
        of_agents.ended(run, key, CallResult.CANCELED, None)


def lease_expired(run: Run, recorded: RecordedEvent, event: e.LeaseExpired) -> None:
    changes: dict[str, Any] = {} if event.detail is None else {"last_error": event.detail}
    _move(run, recorded, StepEvent.LEASE_EXPIRE, lease_owner=None, **changes)


def intended(run: Run, recorded: RecordedEvent, event: e.ActionIntended) -> None:
    step = step_of(run, recorded)
    if event.key is None:
        changes: dict[str, Any] = {} if event.resolution is None else {"resolution": event.resolution}
        changes |= {
            "attempt": event.attempt,
            "lease_epoch": step.lease_epoch,
            "error": None,
            "intended_at": recorded.at,
        }
        receipt = _move_receipt(run, recorded, event.receipt, ReceiptEvent.RETRY, **changes)
        action: JsonObject = {**receipt.action, **(event.authority or {})}
        version = receipt.version
        if event.read is not None:  # the probe of a doubt compares with what was read last
            action["before"] = event.read
            version = None if receipt.approved_version is None else _version(action)
        run.receipts[event.receipt] = replace(receipt, action=action, version=version)
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
            intended_at=recorded.at,
            run_id=run.run_id,
            shared=event.shared,
            replaces=event.replaces,
            shaped=None if event.shaped is None else tuple(event.shaped),
            approved_version=event.approved_version,
            reverses=event.reverses,
            version=None if event.approved_version is None else _version(event.proposed),
        )
        run.steps[step.key] = replace(step, idempotency_key=event.key)
        run.writes += 1
        if event.same:
            run.same[event.same] = sorted({*run.same.get(event.same, ()), step.key})
    if event.approval is not None and event.approval in run.answers:
        answer(run, event.approval, None, consumed=True)
    if event.grant is not None:
        of_grants.used(run, event.grant)


def _version(proposed: JsonObject | None) -> str | None:
    before: Any = (proposed or {}).get("before")
    return None if before is None else before["version"]


def unneeded(run: Run, recorded: RecordedEvent, event: e.ActionUnneeded) -> None:
    """Keep the receipt of a write that had nothing to do. It does not count as a write."""
    run.receipts[event.receipt] = ReceiptRow(
        receipt_id=event.receipt,
        run_id=run.run_id,
        step_key=recorded.step or "",
        operation=event.operation,
        target=event.target,
        idempotency_key=event.key,
        action_digest=event.digest,
        action=event.proposed or {},
        status=ReceiptStatus.SUCCEEDED,
        attempt=0,
        lease_epoch=step_of(run, recorded).lease_epoch,
        reversible=False,
        reverse=None,
        intended_at=recorded.at,
        settled_at=recorded.at,
        output=event.output,
        resolution=NOTHING_TO_DO,
    )


def _move_receipt(
    run: Run, recorded: RecordedEvent, receipt_id: UUID, event: ReceiptEvent | None = None, **changes: Any
) -> ReceiptRow:
    """Change a receipt, and move its status by the event if there is one. Returns the changed receipt."""
    receipt = run.receipts.get(receipt_id)
    if receipt is None:
        raise ConsistencyError(f"there is no receipt {receipt_id}")
    if event is not None:
        status = RECEIPT.next[ReceiptStatus(receipt.status), event]
        settled = status in (ReceiptStatus.SUCCEEDED, ReceiptStatus.FAILED)
        changes |= {"status": status, "settled_at": recorded.at if settled else None}
    run.receipts[receipt_id] = receipt = replace(receipt, **changes)
    return receipt


def action_succeeded(run: Run, recorded: RecordedEvent, event: e.ActionSucceeded) -> None:
    outcome = {"output": event.output, "external_id": event.external_id, "usage": event.usage, "error": event.unusable}
    _move_receipt(run, recorded, event.receipt, ReceiptEvent.SUCCEED, written=tuple(event.shaped or ()), **outcome)


def recalled(run: Run, recorded: RecordedEvent, event: e.ActionRecalled) -> None:
    contributors.within(run.state, recorded.step or "", event.shaped or ())


def action_failed(run: Run, recorded: RecordedEvent, event: e.ActionFailed) -> None:
    receipt = _move_receipt(run, recorded, event.receipt, ReceiptEvent.FAIL, error=event.detail)
    _failed_again(run, recorded, receipt.action.get("approval"), event.detail or {"code": event.code})


def _failed_again(run: Run, recorded: RecordedEvent, approval: Json, error: JsonObject) -> None:
    """Note that an approved call failed: one entry for each approval, with the last error."""
    asked = run.approvals.get(UUID(approval)) if isinstance(approval, str) else None
    if asked is None or not asked.key:
        return
    now: JsonObject = {"approval": approval, "at": recorded.at.isoformat(), "again": run.begun_anew}
    now |= {"code": error.get("code"), "message": error.get("message")}
    others = [one for one in run.failures.get(asked.key, []) if one["approval"] != approval]
    run.failures[asked.key] = [*others, now][-failures.KEPT :]


def in_doubt(run: Run, recorded: RecordedEvent, event: e.ActionInDoubt) -> None:
    _move_receipt(run, recorded, event.receipt, ReceiptEvent.DOUBT, resolution=event.why)


def action_held(run: Run, recorded: RecordedEvent, event: e.ActionHeld) -> None:
    _move_receipt(run, recorded, event.receipt, resolution=event.why)


def doubt_resolved(run: Run, recorded: RecordedEvent, event: e.ActionDoubtResolved) -> None:
    match event.resolution:
        case Resolution.APPLIED:
            outcome: dict[str, Any] = {"output": event.output, "resolution": event.how}
            outcome |= {} if event.unusable is None else {"error": event.unusable}
            _move_receipt(run, recorded, event.receipt, ReceiptEvent.RESOLVE_APPLIED, **outcome)
        case Resolution.FAILED:
            receipt = _move_receipt(run, recorded, event.receipt, ReceiptEvent.RESOLVE_FAILED, resolution=event.how)
            _failed_again(run, recorded, receipt.action.get("approval"), {"message": event.how})
        case Resolution.NOT_APPLIED:
            pass  # the intent that follows moves the receipt


def late(run: Run, recorded: RecordedEvent, event: e.ActionLate) -> None:
    """Keep a late answer with the receipt. No status changes by it."""
    if event.receipt not in run.receipts and recorded.step not in run.steps and recorded.step not in run.past:
        return  # a rested run no longer holds the receipts of steps behind the barrier
    receipt, (facts, values) = _move_receipt(run, recorded, event.receipt), parts(event)
    del facts["receipt"]
    run.receipts[event.receipt] = replace(receipt, late=(*receipt.late, {**facts, **values}))
