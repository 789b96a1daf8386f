"""What a durable operation begins outside: the wait for its end is there before it begins (V-1, V-3, V-9). Pure.

The correlation key is derived from the run and the step, so the outside is given the same one at every attempt. The
wait belongs to the lease that intends; a later lease of the step puts its own in the place of it.
"""

from __future__ import annotations

from connectors.operation import Kind, Operation
from runtime.engine.commit import StepRow, WaitRow
from runtime.engine.events import WaitCanceled, WaitOpened
from runtime.engine.graph import OperationNode
from runtime.engine.moves import Nonce
from runtime.engine.receipting import correlation_of
from runtime.engine.states import WaitKind, WaitState
from runtime.engine.transition import Transition, expected_of, seconds


def expect(transition: Transition, step: StepRow, operation: Operation, nonce: Nonce) -> None:
    """Write the wait with the intent: what is begun then, and answers at once, finds it (V-9).

    A crash after this commit leaves the receipt in doubt and this wait open; the next lease closes both.
    """
    if operation.kind is Kind.DURABLE:
        wait = _wait(transition, step, operation, nonce())
        assert wait.due_in is not None
        opened = (seconds(wait.due_in), wait.token, wait.context, wait.correlation_key)
        transition.tell(WaitOpened(wait.wait_id, wait.kind, *opened), step=step.key)


def expect_no_more(transition: Transition, step: StepRow, operation: Operation) -> None:
    """Cancel the wait opened with the intent: nothing was started (refused, not sent, in doubt), or it has ended."""
    if operation.kind is Kind.DURABLE:
        _cancel(transition, _wait(transition, step, operation, ""))


def forget(transition: Transition, wait: WaitRow | None) -> None:
    """The wait that an earlier lease of this step has left open."""
    if wait is not None and wait.kind is WaitKind.EXTERNAL:
        _cancel(transition, wait)


def _cancel(transition: Transition, wait: WaitRow) -> None:
    transition.tell(WaitCanceled(wait.wait_id, wait.kind), step=wait.step_key)


def park(transition: Transition, step: StepRow, operation: Operation, nonce: Nonce, *, expected: bool = False) -> None:
    """It goes on outside: the step waits for its end and holds nothing. ``expected`` says that the wait is there."""
    wait = _wait(transition, step, operation, nonce())
    transition.park(step, wait, known=expected)


def _wait(transition: Transition, step: StepRow, operation: Operation, token: str) -> WaitRow:
    leaf = transition.graph.leaf(step.key)
    assert isinstance(leaf, OperationNode)
    return WaitRow(
        wait_id=expected_of(transition.view.run_id, step),
        step_id=step.step_id,
        step_key=step.key,
        kind=WaitKind.EXTERNAL,
        status=WaitState.WAITING,
        token=token,
        due_in=leaf.timeout or operation.timeouts.complete,
        context={"operation": operation.name},
        correlation_key=correlation_of(operation, transition.view.run_id, step.key),
    )
