"""The fold of steps that are held after a failure, and of the people's answers about them."""

from __future__ import annotations

from msgspec.structs import replace

from core.canonical import JsonObject
from evidence.receipts import ReceiptStatus
from runtime.engine.book import contributors
from runtime.engine.book.fold.of_steps import error_of, note_failure, park, step_of
from runtime.engine.book.fold.of_waits import end_wait
from runtime.engine.book.instructions import last_receipt
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model import events as e
from runtime.engine.model.errors import SOONER
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import WaitRow
from runtime.engine.model.run import Run
from runtime.engine.model.states import StepEvent, WaitEvent, WaitKind, WaitState

AGAIN, WITHOUT, CANCEL = "again", "without", "cancel"


def step_held(run: Run, recorded: RecordedEvent, event: e.StepHeld) -> None:
    """Keep a failed step open. It leaves its super-step, as every step that waits does."""
    step, error = step_of(run, recorded), error_of(event)
    opened = (event.wait, step.step_id, step.key, WaitKind.HOLD, WaitState.WAITING, str(event.wait))
    context: JsonObject = {"group": event.group, "error": error, "doubtful": doubtful(run, step.key)}
    run.waits[event.wait] = WaitRow(*opened, None, context)
    park(run, recorded, StepEvent.WAIT, last_error=error)
    note_failure(run, recorded, event, error)


def doubtful(run: Run, key: str) -> bool:
    """True if nobody knows whether the step's action happened: then it may not be done again."""
    receipt = last_receipt(run, key)
    return receipt is not None and receipt.status in (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT)


def answered(run: Run, recorded: RecordedEvent, event: e.HoldAnswered) -> None:
    """Apply a person's answer about a held step. The next event resumes the step, or cancels the run."""
    step, by = step_of(run, recorded), f"{recorded.actor.kind}:{recorded.actor.id}"
    if event.kind is not WaitKind.HOLD:
        run.steps[step.key] = replace(step, last_error={**(step.last_error or {}), SOONER: True})
        return
    result: JsonObject = {"choice": event.choice, "by": by, "reason": event.reason}
    if event.choice == WITHOUT:
        result["error"] = step.last_error
    end_wait(run, event.wait, WaitEvent.CANCEL if event.choice == CANCEL else WaitEvent.COMPLETE, result=result)
    if event.choice == AGAIN:
        _begin_anew(run, recorded, step.key)


def _begin_anew(run: Run, recorded: RecordedEvent, key: str) -> None:
    """Reset the step as if it had never begun. Only its count of leases goes on; earlier waits are marked as left."""
    run.tried += 1
    step = run.steps[key]
    fresh = {"attempt": 0, "idempotency_key": None, "last_error": None, "again": run.begun_anew}
    run.steps[key] = replace(step, **fresh)
    for wait in [wait for wait in run.waits.values() if wait.step_key == key]:
        run.waits[wait.wait_id] = replace(wait, left=True)
    who = (recorded.actor.kind, recorded.actor.id)
    run.tried_by[StepKey.of(key).agent] = contributors.tried(run.state, key, *who)
