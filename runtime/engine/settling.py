"""How a performed call ends in the run: its receipt, its step, and what comes next (Q-18, Q-19). Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from connectors.operation import InDoubtRule, Kind, Operation
from connectors.port import Done, InDoubt, NotSent, Outcome, Parked, Refused, Usage
from core.canonical import JsonObject
from runtime.engine import doubt, elsewhere
from runtime.engine.commit import ReceiptRow, StepRow
from runtime.engine.events import ActionFailed, ActionSucceeded
from runtime.engine.finishing import finish
from runtime.engine.fitness import UNUSABLE
from runtime.engine.moves import Nonce, Perform, Unfit
from runtime.engine.receipting import tell_of
from runtime.engine.transition import GIVEN_UP, Transition

# A target that timed out may still be at work: the first look back at it waits this long.
PROBE_AFTER = timedelta(seconds=5)
# Probes that cannot tell yet, before people are asked.
PROBES_MAX = 12
# In a step's last error: how often its doubt was looked into, and that sending it again is not for us to decide.
_LOOKS, _OPEN = "looks", "open"

_PARKED_SYNC: JsonObject = {
    "class": "definition",
    "code": "parked",
    "message": "The connector began something that goes on, in an operation that is declared as sync.",
}
_AUTHORIZATION_CODES = ("401", "403", "unauthorized", "forbidden", "not_allowed", "invalid_auth")


def performed(transition: Transition, work: Perform, outcome: Outcome | Unfit, *, nonce: Nonce, chance: float) -> None:
    """Settle a call by how it ended. ``chance`` in [0, 1) chooses the jitter of a retry."""
    if isinstance(outcome, Parked) and work.operation.kind is Kind.DURABLE:
        _receipt_succeeded(transition, work, Done(outcome.output, outcome.external_id), None)
        elsewhere.park(transition, work.step, work.operation, nonce, expected=True)
        return
    elsewhere.expect_no_more(transition, work.step, work.operation)
    match outcome:
        case Done():
            _receipt_succeeded(transition, work, outcome, None)
            finish(transition, work.step, outcome.output, _usage(outcome.usage))
        case Parked():
            _receipt_succeeded(transition, work, Done(outcome.output, outcome.external_id), _PARKED_SYNC)
            transition.fail(work.step, _PARKED_SYNC)
        case Unfit(done, problem):
            unusable: JsonObject = {"class": "transport", "code": UNUSABLE, "message": problem}
            _receipt_succeeded(transition, work, done, unusable)
            transition.fail(work.step, unusable)
        case Refused():
            error: JsonObject = {"class": _class_of(outcome), "code": outcome.code, "message": outcome.message}
            _failed_receipt(transition, work.receipt, error)
            transition.fail(work.step, error, _usage(outcome.usage))
        case NotSent():
            error = {"class": "transport", "code": "not_sent", "message": outcome.message}
            _failed_receipt(transition, work.receipt, error)
            after = outcome.retry_after_seconds or 0.0
            usage = _usage(outcome.usage)
            _retry(transition, work.step, work.operation, error, at_least=after, chance=chance, usage=usage)
        case InDoubt():
            _doubtful(transition, work, outcome, nonce=nonce, chance=chance)


def _class_of(outcome: Refused) -> str:
    return "authorization" if outcome.code in _AUTHORIZATION_CODES else "transport"


def _receipt_succeeded(transition: Transition, work: Perform, done: Done, error: JsonObject | None) -> None:
    """The effect happened, also where its output is of no use; ``error`` is what whoever shares it will be told."""
    if work.receipt is not None:
        told = (done.output, done.external_id, _usage(done.usage), error)
        tell_of(transition, work.receipt, ActionSucceeded(work.receipt.receipt_id, *told))


def _usage(usage: Usage | None) -> JsonObject | None:
    if usage is None:
        return None
    return {
        "provider": usage.provider,
        "model": usage.model,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
    }


def _failed_receipt(transition: Transition, receipt: ReceiptRow | None, error: JsonObject) -> None:
    if receipt is not None:
        event = ActionFailed(receipt.receipt_id, str(error["class"]), str(error["code"]), error)
        tell_of(transition, receipt, event)


def _retry(
    transition: Transition,
    step: StepRow,
    operation: Operation,
    error: JsonObject,
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
        transition.fail(step, {**error, "message": f"{error['message']} ({spent})"}, usage)
        return
    later(transition, step, error, timedelta(seconds=delay), usage)


def under_way(transition: Transition, step: StepRow) -> None:
    """The effect is shared with another run or step, whose own lease is at it: look again when that is settled."""
    message = "Another run or step is doing this, and its outcome is not known yet."
    error: JsonObject = {"class": "consistency", "code": "effect_under_way", "message": message}
    if not look_later(transition, step, error, PROBE_AFTER):
        transition.fail(step, {**error, "message": f"{message} Resolve that one, then start this run again."})


def look_later(transition: Transition, step: StepRow, error: JsonObject, delay: timedelta) -> bool:
    """Look again when ``delay`` has passed, which is no attempt; False if that was done often enough."""
    before = (step.last_error or {}).get(_LOOKS)
    looks = before if isinstance(before, int) else 0
    if looks < PROBES_MAX:
        later(transition, step, {**_counts(step), **error, _LOOKS: looks + 1}, delay, attempted=False)
    return looks < PROBES_MAX


def put_off(transition: Transition, step: StepRow, operation: Operation, receipt: ReceiptRow, why: str) -> bool:
    """Let the step wait if the intended call may still arrive (``doubt.rest``); true if it waits.

    The wait is a row: a crash after its commit loses nothing, and a crash before it is a lease that runs out.
    """
    delay = doubt.rest(transition, operation, receipt)
    if delay <= timedelta(0):
        return False
    error: JsonObject = {"class": "timeout", "code": "in_doubt", "message": why, _OPEN: True}
    later(transition, step, {**_counts(step), **error}, delay, attempted=False)
    return True


def _counts(step: StepRow) -> JsonObject:
    """The counts in the step's last error. A wait in between is no outcome: a row of lost leases goes on."""
    return {name: count for name, count in (step.last_error or {}).items() if name in (_LOOKS, *GIVEN_UP.values())}


def is_for_people(step: StepRow) -> bool:
    """True if a doubt was put off that people are to be asked about, or that was probed."""
    return (step.last_error or {}).get(_OPEN) is True


def unsent(transition: Transition, work: Perform) -> None:
    """The lease or the moment had passed before the call began, so nothing was sent: intend it anew, soon.

    A crash before this is committed leaves doubt, which the next lease resolves.
    """
    elsewhere.expect_no_more(transition, work.step, work.operation)
    message = "Nothing was sent: too long had passed since the intent, or the lease was over."
    error: JsonObject = {"class": "transport", "code": "not_sent", "message": message}
    _failed_receipt(transition, work.receipt, error)
    later(transition, work.step, error, PROBE_AFTER, attempted=False)


def later(
    transition: Transition,
    step: StepRow,
    error: JsonObject,
    delay: timedelta,
    usage: JsonObject | None = None,
    *,
    attempted: bool = True,
) -> None:
    """Park the step until ``delay`` has passed, with the failure that made it wait and what the failed call cost.

    ``attempted`` says that an attempt is over; a doubt that is waited out, or looked into, uses none up.
    """
    transition.retry_later(step, delay, error, usage, attempt=step.attempt + attempted)


def _doubtful(transition: Transition, work: Perform, outcome: InDoubt, *, nonce: Nonce, chance: float) -> None:
    error: JsonObject = {"class": "timeout", "code": "in_doubt", "message": outcome.message}
    if work.receipt is None:
        # Without a side effect there is nothing to be in doubt about.
        _retry(transition, work.step, work.operation, error, at_least=0.0, chance=chance)
        return
    receipt = doubt.mark(transition, work.receipt, outcome.message)
    spent = work.step.attempt + 1 >= work.operation.retry.attempts
    if work.operation.in_doubt is InDoubtRule.PROBE:
        look_later(transition, replace(work.step, last_error=None), error, PROBE_AFTER)
    elif work.operation.in_doubt is InDoubtRule.IDEMPOTENT and not spent:
        _retry(transition, work.step, work.operation, error, at_least=0.0, chance=chance)
    elif not put_off(transition, work.step, work.operation, receipt, outcome.message):
        doubt.ask_people(transition, work.step, work.operation, receipt, outcome.message, nonce)
