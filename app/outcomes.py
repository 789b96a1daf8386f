"""The outcome of a run in one line, or what it waits for: what, why, and the remedy. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from approvals.model import ApprovalStatus
from core.canonical import JsonObject
from evidence.receipts import ReceiptStatus
from runtime.engine.model.errors import BUSY, DENIED, RATE, REJECTED, SLACK_AWAY, TOO_MANY
from runtime.engine.model.states import RunState, WaitKind, WaitState

# The state of a run: the symbol, and its word. A failed run shows its cause (``cause``).
RUNS: dict[str, tuple[str, str]] = {
    RunState.QUEUED: ("waiting", "In line"),
    RunState.RUNNING: ("executing", "Running"),
    RunState.WAITING_APPROVAL: ("waiting", "Waiting"),
    RunState.WAITING: ("waiting", "Waiting"),
    RunState.SUCCEEDED: ("applied", "Done"),
    RunState.FAILED_RETRYABLE: ("paused", "Tries again"),
    RunState.FAILED_TERMINAL: ("failed", "Failed"),
    RunState.CANCELED: ("canceled", "Canceled"),
}
# The code of a failure: its symbol, its word, and the sentence about the run.
_CAUSES: dict[str, tuple[str, str, str]] = {
    DENIED: ("denied", "Denied", "was denied"),
    REJECTED: ("rejected", "Rejected", "was rejected"),
    ApprovalStatus.EXPIRED: ("expired", "Expired", "expired"),
    WaitState.TIMED_OUT: ("expired", "Expired", "expired"),
}
_FAILED = ("failed", "Failed", "failed")
_REMEDIES: dict[str, str] = {
    DENIED: "Nothing was changed by it. Change what the workflow asks for, or the policy; then try again.",
    REJECTED: "Nothing was changed by it. Speak with whoever rejected it before you try again.",
    ApprovalStatus.EXPIRED: "Nobody answered in time, and nothing was changed by it. Try again to ask anew.",
    WaitState.TIMED_OUT: "What was waited for did not come in time. Try again to wait anew.",
    "authorization": "The target refused us. Repair the rights there, then try again.",
    "transport": "The target refused the call, or could not be reached. Look there, then try again.",
    "timeout": "The target did not answer in time. Try again when it does.",
    "expression": "An expression of the workflow failed. Publish a repaired version, and start anew.",
    "definition": "The workflow does not fit what it calls. Publish a repaired version, and start anew.",
    "consistency": "The target is not as the workflow expects it. Look there, then try again.",
}
# The code of a step that merely waits, and for what.
_LATER: dict[str, str] = {
    RATE: "its turn at {0} (rates)",
    BUSY: "{0}, which asks for no calls (Retry-After)",
    SLACK_AWAY: "Slack, which cannot say who is in a group",
    TOO_MANY: "room for another question",
    ReceiptStatus.IN_DOUBT: "news of its call, which is in doubt",
}
OPEN = frozenset({
    RunState.QUEUED, RunState.RUNNING, RunState.WAITING_APPROVAL, RunState.WAITING, RunState.FAILED_RETRYABLE,
})  # fmt: skip


class Failure(Struct, frozen=True):
    """The failure of a run: the step, the reason in its author's words, and the remedy."""

    step: str
    code: str
    message: str
    remedy: str


def state_of(run: Mapping[str, Any]) -> tuple[str, str]:
    """The symbol and the word for the state of a run; for a failed run, its cause."""
    error: JsonObject = run["error"] or {}
    if run["status"] == RunState.FAILED_TERMINAL:
        return _CAUSES.get(str(error.get("code")), (*RUNS[run["status"]], ""))[:2]
    return RUNS[run["status"]]


def failure_of(run: Mapping[str, Any]) -> Failure | None:
    """The failure, its reason and its remedy; None if the run has not failed."""
    if run["status"] not in (RunState.FAILED_TERMINAL, RunState.FAILED_RETRYABLE) or not run["error"]:
        return None
    error: JsonObject = run["error"]
    code, kind = str(error.get("code") or error.get("class")), str(error.get("class"))
    remedy = _REMEDIES.get(code) or _REMEDIES.get(kind) or "Look at the step, then try again."
    if run["status"] == RunState.FAILED_RETRYABLE:
        remedy = "It tries again by itself."
    return Failure(str(error.get("step") or ""), code, str(error.get("message") or ""), remedy)


def title_of(run: Mapping[str, Any], name: str) -> str:
    """The title of a run's page: its outcome."""
    error: JsonObject = run["error"] or {}
    step = str(error.get("step") or "")
    at = f" at {step}" if step else ""
    match run["status"]:
        case RunState.SUCCEEDED:
            return f"{name} is done"
        case RunState.FAILED_TERMINAL:
            return f"{name} {_CAUSES.get(str(error.get('code')), _FAILED)[2]}{at}"
        case RunState.FAILED_RETRYABLE:
            return f"{name} tries again"
        case RunState.CANCELED:
            return f"{name} was canceled"
        case RunState.WAITING_APPROVAL:
            return f"{name} waits for people"
        case RunState.WAITING:
            return f"{name} waits"
        case RunState.QUEUED:
            return f"{name} is in line"
        case _:
            return f"{name} is running"


def line_of(run: Mapping[str, Any], waits: Sequence[Mapping[str, Any]]) -> str:
    """A few words for a list: what the run waits for, or why it has failed."""
    failure = failure_of(run)
    if failure is not None:
        return f"{failure.code} at {failure.step}: {failure.message}" if failure.step else failure.message
    return "; ".join(short(wait) for wait in waits)


def short(wait: Mapping[str, Any]) -> str:
    """The kind of a wait in words, with its step."""
    context: dict[str, Any] = wait["context"] or {}
    error: dict[str, Any] = context.get("error") or {}
    again = f"its retry: {minute(wait['due_at'])}"
    if (later := _LATER.get(str(error.get("code")))) is not None:
        again = later.format(error.get("target") or "its target")
    words = {
        WaitKind.APPROVAL: "people",
        WaitKind.TASK: "a form",
        WaitKind.TIMER: f"time: {minute(wait['due_at'])}",
        WaitKind.RETRY: again,
        WaitKind.SIGNAL: f"the signal {wait['correlation_key']}",
        WaitKind.CHILD: "another run",
        WaitKind.EXTERNAL: "the system that it has called",
        WaitKind.SHARED: "another run's effect",
        WaitKind.PAUSE: f"the pause of {context.get('paused', '')}",
        WaitKind.AGENT: "its agent",
        WaitKind.PERMIT: "its agent, which carries it out",
        WaitKind.HOLD: f"{context.get('group', 'people')}: the step failed and is held",
    }
    return f"{words[WaitKind(wait['kind'])]} ({wait['step_key']})"


def minute(moment: datetime | None) -> str:
    """Write a moment in UTC, to the minute."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")
