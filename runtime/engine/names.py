"""The ids of what belongs to a run. They are derived, so the same record gives the same ids (promise 5)."""

from __future__ import annotations

from uuid import UUID

from core.ids import derived_id
from runtime.engine.commit import StepRow
from runtime.engine.states import StepState

# What a parked step's entry in the checkpoint begins with; which kind of wait it is, the wait says.
PARKED = {
    StepState.WAITING_APPROVAL: "approval",
    StepState.WAITING: "wait",
    StepState.FAILED_RETRYABLE: "retry",
}


def step_id_of(run_id: UUID, key: str) -> UUID:
    """The id of a step."""
    return derived_id(run_id, f"step:{key}")


def wait_of(run_id: UUID, step: StepRow) -> UUID:
    """The id of the wait that a step parks on: a lease parks its step once.

    A wait for something outside is written before the step parks (V-9), and has an id of its own (``expected_of``).
    """
    return derived_id(run_id, f"wait:{step.key}:{step.lease_epoch}")


def expected_of(run_id: UUID, step: StepRow) -> UUID:
    """The id of the wait for what this lease begins outside: it may be canceled, and the step park on another."""
    return derived_id(run_id, f"expected:{step.key}:{step.lease_epoch}")
