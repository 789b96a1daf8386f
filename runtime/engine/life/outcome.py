"""The outcomes of a call: what each one means for the receipt and for the step. Pure."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import asdict, replace

from connectors.operation import InDoubtRule, Kind, Operation
from connectors.port import Done, InDoubt, Lent, NotSent, Outcome, Parked, Refused
from core.canonical import JsonObject
from runtime.engine.book.draft import tell_of
from runtime.engine.book.ends import error_of
from runtime.engine.book.instructions import Nonce, Perform, Unfit
from runtime.engine.life import doubt
from runtime.engine.life.doubt import PROBE_AFTER
from runtime.engine.life.outside import expect_no_more, park_outside
from runtime.engine.life.preflight import busy_words
from runtime.engine.life.records import CONNECTOR, read_by, refused_by
from runtime.engine.life.sharing import NOT_SENT
from runtime.engine.life.transition import Transition, finish
from runtime.engine.model.errors import BUSY, SENT, UNUSABLE, VOID, ErrorClass, StepError
from runtime.engine.model.events import ActionFailed, ActionSucceeded
from runtime.engine.model.rows import ReceiptRow, StepRow

_PARKED_SYNC = StepError(
    ErrorClass.DEFINITION, "parked", "The connector returned Parked, but its operation is declared as sync."
)
_AUTHORIZATION_CODES = ("401", "403", "unauthorized", "forbidden", "not_allowed", "invalid_auth")


def usage_of(outcome: Outcome | Unfit) -> JsonObject | None:
    """The usage that a call has reported: tokens, and their price."""
    answer = outcome.done if isinstance(outcome, Unfit) else outcome
    used = None if isinstance(answer, Parked | InDoubt) else answer.usage
    return None if used is None else asdict(used)


def begun_outside(transition: Transition, work: Perform, outcome: Parked, nonce: Nonce) -> None:
    """Record that the action has begun outside, and wait for its end."""
    _happened(transition, work, Done(outcome.output, outcome.external_id, secrets=outcome.secrets), None)
    park_outside(transition, work.step, work.operation, nonce, expected=True)


def done(transition: Transition, work: Perform, outcome: Done, usage: JsonObject | None) -> None:
    """Record the effect, and go on with its output. If the effect differs from what was asked for, its step fails."""
    altered = error_of(work.operation, work.call, outcome) if outcome.altered else None
    shaped = _happened(transition, work, outcome, altered, usage)
    if altered is None:
        finish(transition, work.step, outcome.output, usage, shaped=shaped)
    else:
        transition.fail(work.step, altered.to_json(), usage)


def parked_though_sync(transition: Transition, work: Perform, outcome: Parked) -> None:
    """Fail a step whose effect goes on outside although its operation is declared as sync, and record the effect."""
    _happened(transition, work, Done(outcome.output, outcome.external_id, secrets=outcome.secrets), _PARKED_SYNC)
    transition.fail(work.step, _PARKED_SYNC.to_json())


def unfit(transition: Transition, work: Perform, outcome: Unfit, usage: JsonObject | None) -> None:
    """Record an effect whose output cannot be used: it happened, and the step fails."""
    unusable = StepError(ErrorClass.TRANSPORT, UNUSABLE, outcome.problem, {} if work.receipt is None else SENT)
    _happened(transition, work, outcome.done, unusable, usage)
    transition.fail(work.step, unusable.to_json())


def refused(transition: Transition, work: Perform, outcome: Refused, usage: JsonObject | None) -> None:
    """Record that the target refused the call, and fail the step. The error says if the call was sent, or was void."""
    kind = ErrorClass.AUTHORIZATION if outcome.code in _AUTHORIZATION_CODES else ErrorClass.TRANSPORT
    more = {**(SENT if outcome.sent else {}), **(VOID if outcome.void else {})}
    error = StepError(kind, outcome.code, outcome.message, more)
    _did_not_happen(transition, work.receipt, error, outcome.secrets)
    transition.fail(work.step, error.to_json(), usage, refused_by(transition, work.step, work.operation))


def not_sent(transition: Transition, work: Perform, outcome: NotSent, usage: JsonObject | None, chance: float) -> None:
    """Record that the call did not leave, and try again later."""
    error = StepError(ErrorClass.TRANSPORT, NOT_SENT, outcome.message)
    _did_not_happen(transition, work.receipt, error, outcome.secrets)
    after = outcome.retry_after_seconds or 0.0
    _retry(transition, work.step, work.operation, error, after, chance, usage, work.call.input)


def unsent(transition: Transition, work: Perform) -> None:
    """Retry soon: the lease or the time to send had run out before the call began, so nothing was sent.

    A crash before this commit leaves doubt, which the next lease resolves.
    """
    if work.operation.kind is Kind.DURABLE:
        expect_no_more(transition, work.step)
    message = "Nothing was sent: too long had passed since the intent, or the lease was over."
    error = StepError(ErrorClass.TRANSPORT, NOT_SENT, message)
    _did_not_happen(transition, work.receipt, error)
    transition.retry_later(work.step, PROBE_AFTER, error.to_json(), attempted=False)


def unknown(transition: Transition, work: Perform, outcome: InDoubt, nonce: Nonce, chance: float) -> None:
    """Mark the receipt in doubt, and find out what happened: look, send again by the same key, wait, or ask people."""
    step, operation, error = work.step, work.operation, doubt.unknown(outcome.message)
    if work.receipt is None:
        # Without a side effect there is nothing to be in doubt about.
        after = outcome.retry_after_seconds or 0.0
        _retry(transition, step, operation, error, after, chance, inputs=work.call.input)
        return
    receipt = doubt.mark(transition, work.receipt, outcome.message, outcome.secrets)
    spent = step.attempt + 1 >= operation.retry.attempts
    if operation.in_doubt is InDoubtRule.PROBE:
        delay = max(PROBE_AFTER, timedelta(seconds=outcome.retry_after_seconds or 0.0))
        doubt.look_later(transition, replace(step, last_error=None), error, delay, attempted=True)
    elif operation.in_doubt is InDoubtRule.IDEMPOTENT and not spent:
        _retry(transition, step, operation, error, outcome.retry_after_seconds or 0.0, chance)
    elif not doubt.put_off(transition, step, operation, receipt, outcome.message):
        doubt.ask_people(transition, step, operation, receipt, outcome.message, nonce)


def _happened(
    transition: Transition, work: Perform, done: Done, error: StepError | None, usage: JsonObject | None = None
) -> list[str] | None:
    """Record that the effect happened, even if its output is unusable. Steps that share the effect get ``error``.

    Returns the marks of those who shaped the output.
    """
    by_others = done.writers or work.operation.written_by or work.operation.connector == CONNECTOR
    shaped = read_by(transition, work.step, work.operation, done) if by_others else None
    if work.receipt is not None:
        event = ActionSucceeded(
            work.receipt.receipt_id,
            done.output,
            done.external_id,
            usage,
            None if error is None else error.to_json(),
            [*done.altered] or None,
            shaped,
            [*done.secrets] or None,
        )
        tell_of(transition, work.receipt, event)
    return shaped


def _did_not_happen(transition: Transition, receipt: ReceiptRow | None, error: StepError, lent: Lent = ()) -> None:
    if receipt is not None:
        facts = (receipt.receipt_id, str(error.kind), error.code, error.to_json())
        tell_of(transition, receipt, ActionFailed(*facts, [*lent] or None))


def _retry(
    transition: Transition,
    step: StepRow,
    operation: Operation,
    error: StepError,
    at_least: float,
    chance: float,
    usage: JsonObject | None = None,
    inputs: JsonObject | None = None,
) -> None:
    """Record the failure and a due time; nobody sleeps. Fail for good if attempts or the SLA are used up.

    With ``inputs`` the call certainly had no effect. If its target has named a time (``at_least``), the step waits for
    that, and the attempt is used up all the same: a target that always names one does not hold a run for ever.
    """
    if at_least > 0:  # a target is asked again only after the second in which its time is over
        at_least += 1
    delay = max(operation.retry.delay_seconds(step.attempt + 1, chance=chance), at_least)
    deadline = transition.view.deadline_at
    late = deadline is not None and transition.view.now + timedelta(seconds=delay) >= deadline
    if step.attempt + 1 >= operation.retry.attempts or late:
        spent = "the SLA leaves no time for another attempt" if late else f"{step.attempt + 1} attempts were made"
        transition.fail(step, replace(error, message=f"{error.message} ({spent})").to_json(), usage)
        return
    if at_least > 0 and inputs is not None:
        place, due = transition.place(operation.connector, inputs), timedelta(seconds=delay)
        words = f"{busy_words(place, transition.view.now + due)} {error.message}"
        error = StepError(ErrorClass.TRANSPORT, BUSY, words, {"target": place})
    transition.retry_later(step, timedelta(seconds=delay), error.to_json(), usage)
