"""The ends of approved actions: what has become of each, derived from the folded run alone. Pure.

A step that holds an approval can end in many ways: an outcome, a denial, a refused read, a cancel, the end of its
agent, another step that had done it. Each has a state here. ``Draft.commit`` compares the ends before and after each
append. If one differs, the append stores it beside the approval and orders its card. So no end is without its card.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct

from approvals.content import CardState
from approvals.model import ApprovalKind, ApprovalStatus
from connectors.disclosure import secret_names
from connectors.operation import Operation
from connectors.port import Call, Done
from connectors.readback import quoted
from core.canonical import JsonObject
from evidence.receipts import ALTERED, ReceiptStatus
from runtime.engine.model.errors import DENIED, StepError
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import ApprovalMove, ApprovalRow, ReceiptRow, StepRow
from runtime.engine.model.run import Run
from runtime.engine.model.states import STEP, RunState, StepState, WaitKind, WaitState

# The codes of ends that have no error.
CANCELED, SHARED, BEGUN, REPLACED = "canceled", "shared", "begun_outside", "asked_anew"
# The code of an approval that is void because a value on its card, or one that a rule had read, has changed.
CHANGED = "changed"

_SAID: Mapping[str, str] = {
    "stale": "Too much time had passed since it was approved.",
    "votes_lost": "Those who approved it may not decide on it any more.",
    "requester_inactive": "The account that asked for it is not active any more.",
    "nobody_may_decide": "Nobody could decide it any more.",
}


class End(Struct, frozen=True):
    """The end so far: the ``state`` that the card shows, a ``code`` without values, and words that may hold values.

    ``changed`` are the changed values that made the approval void (``life.approved.drift``).
    """

    state: CardState
    code: str = ""
    detail: str = ""
    changed: tuple[JsonObject, ...] = ()


_DECIDED = {
    ApprovalStatus.REQUESTED: CardState.PENDING,
    ApprovalStatus.REJECTED: CardState.REJECTED,
    ApprovalStatus.EXPIRED: CardState.EXPIRED,
    ApprovalStatus.CANCELED: CardState.CANCELED,
}
_PERFORMED = {
    ReceiptStatus.INTENDED: CardState.EXECUTING,
    ReceiptStatus.SUCCEEDED: CardState.APPLIED,
    ReceiptStatus.FAILED: CardState.FAILED,
    ReceiptStatus.IN_DOUBT: CardState.IN_DOUBT,
}


# For all other questions the status says everything.
_WATCHED = (ApprovalStatus.APPROVED, ApprovalStatus.SUPERSEDED)


def end_of(run: Run, approval: UUID) -> End | None:
    """The end of a question so far. None if the run no longer holds the question: then its row has the end."""
    asked, answer = run.approvals.get(approval), run.answers.get(approval)
    if asked is None or answer is None:
        return None
    step = run.steps.get(asked.step_key) or run.past.get(asked.step_key)
    status = ApprovalStatus(answer.status)
    if status is ApprovalStatus.SUPERSEDED:
        return _void(run, asked, answer, step)
    if status is not ApprovalStatus.APPROVED:
        return End(_DECIDED[status], detail=answer.reason or "")
    if answer.consumed and asked.kind == ApprovalKind.GATE:
        return End(CardState.RECORDED, detail=answer.reason or "")  # the workflow has gone on
    receipt = last_of(run, asked) if answer.consumed or asked.kind == ApprovalKind.IN_DOUBT else None
    if receipt is not None and (answer.consumed or (step is not None and _is_over(run, step))):
        return _performed(run, receipt, step)
    return None if step is None else _unsent(run, asked, answer, step)


def last_of(run: Run, asked: ApprovalRow) -> ReceiptRow | None:
    """The last receipt of the action that was asked about."""
    own = (asked.step_key, asked.action_digest)
    found = [row for row in run.receipts.values() if (row.step_key, row.action_digest) == own]
    return max(found, key=lambda row: (row.intended_at, row.receipt_id), default=None)


def _void(run: Run, asked: ApprovalRow, answer: ApprovalMove, step: StepRow | None) -> End:
    """The end of a void question or approval: by its recorded reason, by its denial, or because it was asked anew."""
    error = _error(step)
    if step is not None and _has_failed(run, step) and not _asked_later(run, asked):
        return End(CardState.SUPERSEDED, str(error.get("code") or DENIED), str(error.get("message") or ""))
    sentence = _SAID.get(answer.why or "", "")
    if answer.changed and answer.why is None:
        words = " ".join(map(_change, answer.changed))
        if step is not None and step.status is StepState.SUCCEEDED:
            words += " There was nothing left to do."
        return End(CardState.SUPERSEDED, CHANGED, words, tuple(answer.changed))
    return End(CardState.SUPERSEDED, answer.why or REPLACED, sentence or answer.reason or "")


def _change(change: JsonObject) -> str:
    """The words for one value that has changed."""
    name = str(change["field"]).removeprefix("facts.")
    if "was" not in change and "now" not in change:
        return f"{name} has changed; its values are hidden."
    was, now = (quoted(change[one]) if one in change else "not readable" for one in ("was", "now"))
    if change["of"] == "target":
        return f"{name} was {was} when people were asked, and is {now} now."
    return f"{name} was to be {was} when people were asked, and would be {now} now."


def _asked_later(run: Run, asked: ApprovalRow) -> bool:
    ids = [row.approval_id for row in run.approvals.values() if row.step_key == asked.step_key]
    return ids[-1] != asked.approval_id


def _performed(run: Run, receipt: ReceiptRow, step: StepRow | None) -> End:
    """The end of an action that was let out, by its receipt. An action that goes on outside ends with its step."""
    state, error = _PERFORMED[ReceiptStatus(receipt.status)], receipt.error or {}
    words = str(receipt.resolution or error.get("message") or unread(receipt.output))
    if state is CardState.APPLIED and error.get("code") == ALTERED:
        return End(CardState.ALTERED, ALTERED, words)
    if state is CardState.APPLIED and step is not None and _goes_on_outside(run, step):
        if step.status is StepState.WAITING and not _has_failed(run, step):
            return End(CardState.EXECUTING, BEGUN, "It was begun outside, and its end is still to come.")
        if _has_failed(run, step):
            failed = _error(step)
            sentence = f"It was begun outside, and failed there: {failed.get('message') or ''}"
            return End(CardState.FAILED, str(failed.get("code") or ""), sentence)
        if step.status is StepState.CANCELED:
            return End(CardState.CANCELED, CANCELED, f"It was begun outside. {_who_canceled(run, step)}")
    return End(state, str(error.get("code") or ""), words)


def _is_over(run: Run, step: StepRow) -> bool:
    return step.status in STEP.terminal or _has_failed(run, step)


def _has_failed(run: Run, step: StepRow) -> bool:
    """True if the step has failed for good, though people may still try it again."""
    held = step.status is StepState.WAITING and _waits(run, step, WaitKind.HOLD)
    return held or step.status is StepState.FAILED_TERMINAL


def _goes_on_outside(run: Run, step: StepRow) -> bool:
    waits = [wait for wait in run.waits.values() if wait.step_key == step.key and wait.kind is WaitKind.EXTERNAL]
    return any(wait.parked and not wait.left for wait in waits)


def _unsent(run: Run, asked: ApprovalRow, answer: ApprovalMove, step: StepRow) -> End:
    """The end of an unused approval, by the status of its step."""
    error, reason = _error(step), answer.reason or ""
    match step.status:
        case _ if _has_failed(run, step):
            words = f"It was not done. {error.get('message') or ''}".strip()
            return End(CardState.FAILED, str(error.get("code") or ""), words)
        case StepState.CANCELED:
            return End(CardState.CANCELED, CANCELED, f"It was not done. {_who_canceled(run, step)}")
        case StepState.SUCCEEDED:
            return End(CardState.APPLIED, SHARED, "Another step had done it already, and its result was used.")
        case StepState.WAITING if _waits(run, step, WaitKind.SHARED, WaitKind.EXTERNAL):
            return End(CardState.EXECUTING, SHARED, "Another step has begun it; this one waits for its end.")
        case StepState.WAITING if _waits(run, step, WaitKind.RETRY):
            return End(CardState.RECORDED, str(error.get("code") or ""), str(error.get("message") or ""))
        case StepState.FAILED_RETRYABLE:
            words = f"It is tried again: {error.get('message') or ''}"
            return End(CardState.RECORDED, str(error.get("code") or ""), words)
        case _:
            return End(CardState.RECORDED, detail=reason)


def _waits(run: Run, step: StepRow, *kinds: WaitKind) -> bool:
    waits = [wait for wait in run.waits.values() if wait.step_key == step.key and wait.status is WaitState.WAITING]
    return any(wait.kind in kinds for wait in waits)


def _error(step: StepRow | None) -> JsonObject:
    return {} if step is None else step.last_error or {}


def _who_canceled(run: Run, step: StepRow) -> str:
    """The reason why a step was canceled, in words."""
    if run.canceling is not None or run.status is RunState.CANCELED:
        canceling = run.canceling or {}
        reason = f": {canceling['reason']}" if canceling.get("reason") else ""
        return f"Its run was canceled by {canceling.get('by') or 'an operator'}{reason}."
    if run.finished and run.error is not None:
        return f"Its run ended before: {run.error.get('message') or run.error.get('code') or 'it failed'}"
    if StepKey.of(step.key).is_inner:
        return "The agent that asked for it had ended before."
    return "Its run ended before."


def changed(before: Run, after: Run, steps: Collection[str]) -> dict[UUID, End]:
    """The approvals whose end has changed by an append about these steps, each with its new end.

    The end of a run concerns all of its steps.
    """
    found = {}
    for approval, answer in after.answers.items():
        if after.approvals[approval].step_key not in steps or answer.status not in _WATCHED:
            continue
        if (end := end_of(after, approval)) is not None:
            was = before.answers.get(approval)
            known = was is not None and was.status == answer.status
            start = End(CardState.RECORDED, detail=answer.reason or "")
            if end != (end_of(before, approval) if known else start):
                found[approval] = end
    return found


def unread(output: Any) -> str:
    """The fields of an output that could not be read back after the write, in words; "" if there are none."""
    names = output.get("unreadable") if isinstance(output, dict) else None
    if not isinstance(names, list) or not names:
        return ""
    return f"Done. Not readable afterwards, so not compared: {', '.join(map(str, names))}."


def error_of(operation: Operation, call: Call, done: Done) -> StepError:
    """The error of a step whose target holds something else than was asked for. Secret values are left out."""
    return StepError.altered(done.altered, secret_names(operation.input_schema, call.input))
