"""Shares an effect: a later step is judged first, then reuses its result, joins it or takes it over. Pure.

An effect whose key has a wider scope is performed once, by whichever step comes first. A step that waits for its end is
woken in an append of its own run, and is judged anew before it goes on. No other run is changed here, only its book is
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.operation import Kind
from connectors.proposal import SYSTEM, same_call
from core.action import Action
from core.canonical import Json, JsonObject
from evidence.receipts import NOTHING_TO_DO
from runtime.engine.book import contributors
from runtime.engine.book.instructions import Next, Over, Shared
from runtime.engine.book.shared_effects import KEY, RECEIPT, UNDER_WAY, name_of
from runtime.engine.life.outside import park_outside
from runtime.engine.life.proposal import Proposal
from runtime.engine.life.transition import finish
from runtime.engine.model.errors import OUTPUT_REMOVED, ErrorClass, StepError
from runtime.engine.model.events import ActionRecalled
from runtime.engine.model.rows import ReceiptRow, expected_of
from runtime.engine.model.states import EffectState, WaitKind

_OF_OTHERS = (EffectState.BEGUN, EffectState.LEFT, EffectState.SUCCEEDED)
# The error code of a call that was not sent: a step that shares the effect may perform it at once.
NOT_SENT = "not_sent"

_CONFLICT = StepError(
    ErrorClass.CONSISTENCY,
    "effect_conflict",
    "Another run or step does something else under the same idempotency key. Give the operation a key of its own.",
)
_STUCK = StepError(
    ErrorClass.CONSISTENCY,
    "effect_in_doubt",
    "The run that did this is over, and nobody knows whether it happened. Look at the target system.",
)
_UNKNOWN = StepError(
    ErrorClass.CONSISTENCY,
    "output_unknown",
    "A person said that this had happened. Nobody knows its output, so nothing can go on with it.",
)
_GIVEN_UP = StepError(ErrorClass.CONSISTENCY, "effect_failed", "The step that performed this shared effect failed.")


def recall(p: Proposal, receipt: ReceiptRow) -> Next:
    """Reuse the recorded result of this step's own effect. Nothing is sent."""
    p.transition.tell(ActionRecalled(receipt.receipt_id), step=p.step.key)
    if receipt.error is not None:
        p.transition.fail(p.step, receipt.error)
    elif p.operation.kind is Kind.DURABLE:
        park_outside(p.transition, p.step, p.operation, p.nonce)  # it was begun, and its end is still to come
    else:
        finish(p.transition, p.step, receipt.output, receipt.usage, shaped=[*receipt.written])
    return Over()


def is_done(p: Proposal, receipt: ReceiptRow) -> bool:
    """True if this step's own effect happened. False for a durable effect that ended before the step began anew."""
    waits = [wait for wait in p.transition.run.waits.values() if wait.step_key == receipt.step_key]
    ended = any(wait.left and wait.kind is WaitKind.EXTERNAL and wait.parked for wait in waits)
    if receipt.resolution == NOTHING_TO_DO and receipt.attempt == 0:
        return False  # nothing was sent: if the step begins anew, the target is read anew
    return receipt.status == EffectState.SUCCEEDED and not (ended and p.operation.kind is Kind.DURABLE)


def share(p: Proposal, action: Action) -> Next | None:
    """Share the effect that has this step's key; None if this step has to perform it itself."""
    shared = p.known.shared
    if shared is None:
        return None
    if p.owns(shared.receipt) and not _goes_on_without(p, shared):
        return None
    if shared.life is EffectState.FAILED:
        return _failed(p, shared)
    if not shared.erased and not _same(p, shared.receipt, action):
        p.transition.fail(p.step, _CONFLICT.to_json())
    elif shared.life is EffectState.LEFT:
        _take_over(p, shared)
    elif shared.life in UNDER_WAY:
        _join(p, shared)
    else:
        _reuse(p, shared)
    return Over()


def _goes_on_without(p: Proposal, shared: Shared) -> bool:
    """True if the step was begun anew, and its earlier durable effect goes on, or has ended, without it."""
    return p.operation.kind is Kind.DURABLE and shared.life in _OF_OTHERS


def _same(p: Proposal, receipt: ReceiptRow, action: Action) -> bool:
    """True if the receipt belongs to the same action."""
    there, given = receipt.action.get(SYSTEM) or action.system, receipt.action["input"]
    assert isinstance(given, dict), "an input is an object"
    return there == action.system and same_call(p.operation, given, receipt.target, action)


def _failed(p: Proposal, shared: Shared) -> Next | None:
    """Fail a step that had joined the failed effect. None for any other, or if nothing was sent: it performs anew."""
    error = shared.receipt.error
    if _joined(p) != str(shared.receipt.receipt_id) or (error or {}).get("code") == NOT_SENT:
        return None
    if shared.wait is not None:
        reported = dict(shared.wait.result or {}).get("error")
        error = reported if isinstance(reported, dict) else error
    p.transition.fail(p.step, error or _GIVEN_UP.to_json())
    return Over()


def _joined(p: Proposal) -> Json:
    """The receipt of the shared effect that this step waited for last."""
    found: Json = None
    for wait in p.transition.run.waits.values():
        if wait.step_key == p.step.key and wait.kind is WaitKind.SHARED and not wait.left:
            found = (wait.context or {}).get(RECEIPT)
    return found


def _join(p: Proposal, shared: Shared) -> None:
    """Wait for the end of an effect that another step performs. Nothing is sent."""
    if shared.over and shared.life is not EffectState.BEGUN:
        p.transition.fail(p.step, _STUCK.to_json())
        return
    key = shared.receipt.idempotency_key
    limit = p.leaf.timeout or p.operation.timeouts.complete if p.operation.kind is Kind.DURABLE else None
    context: JsonObject = {"operation": p.operation.name, KEY: key, RECEIPT: str(shared.receipt.receipt_id)}
    p.transition.park(p.step, WaitKind.SHARED, p.nonce(), limit, context, name_of(key))


def _take_over(p: Proposal, shared: Shared) -> None:
    """Wait in place of the holder that has left. This step now holds the effect, under its first correlation key."""
    wait, receipt = shared.wait, shared.receipt
    assert wait is not None, "what was left was waited for"
    recalled = ActionRecalled(receipt.receipt_id, receipt.run_id, shaped=_shapers(p, shared))
    p.transition.tell(recalled, step=p.step.key)
    limit = p.leaf.timeout or p.operation.timeouts.complete
    context: JsonObject = {
        "operation": p.operation.name,
        KEY: receipt.idempotency_key,
        RECEIPT: str(receipt.receipt_id),
    }
    mine = expected_of(p.transition.view.run_id, p.step)
    p.transition.park(p.step, WaitKind.EXTERNAL, p.nonce(), limit, context, wait.correlation_key, wait=mine)


def _shapers(p: Proposal, shared: Shared) -> list[str] | None:
    """The marks of those who shaped the effect where it was performed, for this step (promise 12)."""
    return contributors.handed_on(p.transition.run, p.step.key, shared.shaped)


def _reuse(p: Proposal, shared: Shared) -> None:
    """Give the step the result of the effect, which has happened already. Nothing is sent."""
    receipt, output = shared.receipt, shared.receipt.output
    signal: JsonObject | None = None
    if shared.wait is not None:
        result: Mapping[str, Any] = shared.wait.result or {}
        output = result.get("output")
        signal = {"payload": output, "by": result.get("by"), "kind": str(shared.wait.kind)}
    ended: JsonObject | None = None if signal is None else {"by": signal["by"]}
    p.transition.tell(ActionRecalled(receipt.receipt_id, receipt.run_id, ended, _shapers(p, shared)), step=p.step.key)
    if receipt.error is not None:
        p.transition.fail(p.step, receipt.error)
    elif signal is not None:
        finish(p.transition, p.step, output, signal=signal)
    elif shared.erased:
        p.transition.fail(p.step, OUTPUT_REMOVED)
    elif receipt.resolution is not None and not receipt.output:
        p.transition.fail(p.step, _UNKNOWN.to_json())
    else:
        finish(p.transition, p.step, receipt.output, receipt.usage)
