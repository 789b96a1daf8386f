"""Actions that go on outside: the wait for their end, and the call that began them. Pure.

The wait is a row that exists before anything begins. Its correlation key is derived from the run and the step, so the
outside gets the same key at every attempt. The wait belongs to the lease that intends; a later lease of the step
replaces it by its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from connectors.operation import Kind, Operation
from connectors.port import Before, Call
from connectors.proposal import SYSTEM
from core.canonical import JsonObject
from core.ids import correlation_id
from evidence.commitments import blind
from runtime.engine.book.instructions import Nonce
from runtime.engine.life.transition import Transition, seconds
from runtime.engine.model.events import WaitCanceled, WaitOpened
from runtime.engine.model.graph import HANDED_OUT, OperationNode
from runtime.engine.model.rows import ReceiptRow, StepRow, expected_of
from runtime.engine.model.run import Run
from runtime.engine.model.states import WaitKind

# The idempotency key that was sent, if it is not the receipt's, because a shared effect has begun again.
SENT_KEY = "key"
# The correlation key of a step that has begun anew, because its earlier work outside has the first key.
CORRELATION = "correlation"

# The member of a run's trigger with the digest of the call that an agent carries out itself.
GATE = "gate"


def call_of(operation: Operation, receipt: ReceiptRow) -> Call:
    """The call that a receipt recorded, exactly as it was intended."""
    action: Mapping[str, Any] = receipt.action
    read = action["before"]
    before = None if read is None else Before.of_kept(read)
    seconds = operation.timeouts.perform.total_seconds()
    key = action.get(CORRELATION) or correlation_of(receipt.run_id, receipt.step_key)
    key = key if operation.kind is Kind.DURABLE else None
    sent = action.get(SENT_KEY) or receipt.idempotency_key
    return Call(operation.name, action["input"], sent, seconds, before, key, declared=operation)


def system_of(receipt: ReceiptRow) -> str:
    """The system that the action of this receipt was sent to; "" if none is known."""
    return str(receipt.action.get(SYSTEM) or "")


def correlation_of(run_id: UUID, step_key: str, again: int = 0) -> str:
    """The key under which the outside reports the end of this step's work; the same at every attempt.

    ``again`` is the number of the retry of the run that has begun the step anew.
    """
    return str(correlation_id(run_id, f"external:{step_key}" + (f"#{again}" if again else "")))


def gate_of(run: Run) -> str | None:
    """The blinded digest of the call that the run's agent carries out, for the intent; None if there is none."""
    call = run.trigger.get(GATE)
    return blind(run.run_key, call) if isinstance(call, str) else None


def moved(transition: Transition, operation: Operation, receipt: ReceiptRow) -> str:
    """The reason why the system that is configured today cannot settle a doubt; "" if it can.

    A system to which the action was not sent knows nothing of it, and nobody has approved the action there (promise 3).
    """
    sent, now = system_of(receipt), transition.systems.get(operation.connector, "none")
    same = sent in ("", now)
    return "" if same else f"It was sent to {sent}. The system now is {now}, so it is neither probed nor sent."


def expect_end(transition: Transition, step: StepRow, operation: Operation, nonce: Nonce) -> None:
    """Open the wait together with the intent of a durable operation, so that even an immediate end finds the wait.

    A crash after this commit leaves the receipt in doubt and this wait open; the next lease closes both.
    """
    due, context, correlation = _outside(transition, step, operation)
    wait = expected_of(transition.view.run_id, step)
    opened = WaitOpened(wait, WaitKind.EXTERNAL, seconds(due), _token(transition, step, nonce), context, correlation)
    transition.tell(opened, step=step.key)


def expect_no_more(transition: Transition, step: StepRow) -> None:
    """Cancel the wait opened with the intent: the call was refused, not sent, or is in doubt, or it has ended."""
    transition.tell(WaitCanceled(expected_of(transition.view.run_id, step), WaitKind.EXTERNAL), step=step.key)


def park_outside(
    transition: Transition, step: StepRow, operation: Operation, nonce: Nonce, *, expected: bool = False
) -> None:
    """Park a step whose action goes on outside: it holds nothing. ``expected`` says that its wait is open already."""
    wait = expected_of(transition.view.run_id, step)
    if expected:
        transition.park_on(step, wait, WaitKind.EXTERNAL)
    else:
        token = _token(transition, step, nonce)
        transition.park(step, WaitKind.EXTERNAL, token, *_outside(transition, step, operation), wait=wait)


def own_token(run: Run, step: StepRow) -> str:
    """The waiting token that the step hands out itself (``wait.token``): the same at every attempt, like its key.

    An approval binds the input that holds the token, so another lease has to derive the same one. Only a holder of
    the run's key can.
    """
    return blind(run.run_key, f"wait:{step.key}#{step.again}")


def _token(transition: Transition, step: StepRow, nonce: Nonce) -> str:
    leaf = transition.leaf(step.key)
    own = isinstance(leaf, OperationNode) and HANDED_OUT in leaf.inputs.references
    return own_token(transition.run, step) if own else nonce()


def _outside(transition: Transition, step: StepRow, operation: Operation) -> tuple[timedelta, JsonObject, str]:
    """The time limit of the work outside, the context for the resume, and the correlation key of its end."""
    leaf = transition.leaf(step.key)
    assert isinstance(leaf, OperationNode)
    key = correlation_of(transition.view.run_id, step.key, step.again)
    return leaf.timeout or operation.timeouts.parked, {"operation": operation.name}, key
