"""Settling a performed call: its receipt, its step, and what comes next (Q-18, Q-19). Pure."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import asdict, replace

from connectors.operation import InDoubtRule, Kind, Operation
from connectors.port import Done, InDoubt, NotSent, Outcome, Parked, Refused
from core.canonical import JsonObject
from runtime.engine import doubt, intend
from runtime.engine.commit import ReceiptRow, StepRow
from runtime.engine.errors import UNUSABLE, ErrorClass, StepError
from runtime.engine.events import ActionFailed, ActionSucceeded
from runtime.engine.finish import finish
from runtime.engine.instructions import Nonce, Perform, Unfit
from runtime.engine.intend import tell_of
from runtime.engine.transition import Transition

_PARKED_SYNC = StepError(
    ErrorClass.DEFINITION, "parked", "The connector returned Parked, but its operation is declared as sync."
)
_NOT_SENT = "not_sent"
_AUTHORIZATION_CODES = ("401", "403", "unauthorized", "forbidden", "not_allowed", "invalid_auth")


def performed(transition: Transition, work: Perform, outcome: Outcome | Unfit, *, nonce: Nonce, chance: float) -> None:
    """Settle a call by how it ended. ``chance`` in [0, 1) chooses the jitter of a retry."""
    if isinstance(outcome, Parked) and work.operation.kind is Kind.DURABLE:
        _receipt_succeeded(transition, work, Done(outcome.output, outcome.external_id), None)
        intend.park_outside(transition, work.step, work.operation, nonce, expected=True)
        return
    if work.operation.kind is Kind.DURABLE:
        intend.expect_no_more(transition, work.step)
    match outcome:
        case Done():
            _receipt_succeeded(transition, work, outcome, None)
            finish(transition, work.step, outcome.output, usage_of(outcome))
        case Parked():
            _receipt_succeeded(transition, work, Done(outcome.output, outcome.external_id), _PARKED_SYNC)
            transition.fail(work.step, _PARKED_SYNC.to_json())
        case Unfit(done, problem):
            unusable = StepError(ErrorClass.TRANSPORT, UNUSABLE, problem)
            _receipt_succeeded(transition, work, done, unusable)
            transition.fail(work.step, unusable.to_json())
        case Refused():
            unauthorized = outcome.code in _AUTHORIZATION_CODES
            kind = ErrorClass.AUTHORIZATION if unauthorized else ErrorClass.TRANSPORT
            error = StepError(kind, outcome.code, outcome.message)
            _failed_receipt(transition, work.receipt, error)
            transition.fail(work.step, error.to_json(), usage_of(outcome))
        case NotSent():
            error = StepError(ErrorClass.TRANSPORT, _NOT_SENT, outcome.message)
            _failed_receipt(transition, work.receipt, error)
            after = outcome.retry_after_seconds or 0.0
            _retry(transition, work.step, work.operation, error, at_least=after, chance=chance, usage=usage_of(outcome))
        case InDoubt():
            _doubtful(transition, work, outcome, nonce=nonce, chance=chance)


def usage_of(outcome: Done | Refused | NotSent) -> JsonObject | None:
    """The usage of a call, as it is recorded."""
    return None if outcome.usage is None else asdict(outcome.usage)


def _receipt_succeeded(transition: Transition, work: Perform, done: Done, error: StepError | None) -> None:
    """The effect happened, also where its output is of no use; ``error`` is what whoever shares it will be told."""
    if work.receipt is not None:
        told = (done.output, done.external_id, usage_of(done), None if error is None else error.to_json())
        tell_of(transition, work.receipt, ActionSucceeded(work.receipt.receipt_id, *told))


def _failed_receipt(transition: Transition, receipt: ReceiptRow | None, error: StepError) -> None:
    if receipt is not None:
        tell_of(transition, receipt, ActionFailed(receipt.receipt_id, str(error.kind), error.code, error.to_json()))


def _retry(
    transition: Transition,
    step: StepRow,
    operation: Operation,
    error: StepError,
    *,
    at_least: float,
    chance: float,
    usage: JsonObject | None = None,
) -> None:
    """Persist the failure and a due time; nobody sleeps (X-19). Past the attempts or the SLA it is terminal."""
    delay = max(operation.retry.delay_seconds(step.attempt + 1, chance=chance), at_least)
    deadline = transition.view.deadline_at
    late = deadline is not None and transition.view.now + timedelta(seconds=delay) >= deadline
    if step.attempt + 1 >= operation.retry.attempts or late:
        spent = "the SLA leaves no time for another attempt" if late else f"{step.attempt + 1} attempts were made"
        transition.fail(step, replace(error, message=f"{error.message} ({spent})").to_json(), usage)
        return
    transition.retry_later(step, timedelta(seconds=delay), error.to_json(), usage)


def unsent(transition: Transition, work: Perform) -> None:
    """The lease or the moment had passed before the call began, so nothing was sent: intend it anew, soon.

    A crash before this is committed leaves doubt, which the next lease resolves.
    """
    if work.operation.kind is Kind.DURABLE:
        intend.expect_no_more(transition, work.step)
    message = "Nothing was sent: too long had passed since the intent, or the lease was over."
    error = StepError(ErrorClass.TRANSPORT, _NOT_SENT, message)
    _failed_receipt(transition, work.receipt, error)
    transition.retry_later(work.step, doubt.PROBE_AFTER, error.to_json(), attempted=False)


def _doubtful(transition: Transition, work: Perform, outcome: InDoubt, *, nonce: Nonce, chance: float) -> None:
    error = doubt.unknown(outcome.message)
    if work.receipt is None:
        # Without a side effect there is nothing to be in doubt about.
        _retry(transition, work.step, work.operation, error, at_least=0.0, chance=chance)
        return
    receipt = doubt.mark(transition, work.receipt, outcome.message)
    spent = work.step.attempt + 1 >= work.operation.retry.attempts
    if work.operation.in_doubt is InDoubtRule.PROBE:
        doubt.look_later(transition, replace(work.step, last_error=None), error, doubt.PROBE_AFTER, attempted=True)
    elif work.operation.in_doubt is InDoubtRule.IDEMPOTENT and not spent:
        _retry(transition, work.step, work.operation, error, at_least=0.0, chance=chance)
    elif not doubt.put_off(transition, work.step, work.operation, receipt, outcome.message):
        doubt.ask_people(transition, work.step, work.operation, receipt, outcome.message, nonce)
