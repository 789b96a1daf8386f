"""Turns the result of a tool call, whatever it is, into the one message that the model sees. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from connectors.disclosure import resolved
from core.canonical import Json, JsonObject, canonical_bytes
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.agent_state import CallResult
from runtime.engine.model.errors import FAILED_BEFORE, REJECTED, TOO_MANY, ErrorClass
from runtime.engine.model.events import AgentBegan
from runtime.engine.model.keys import StepKey
from runtime.engine.model.states import WaitState

# The longest result that is shown whole. A longer one is cut, and its message says so.
RESULT_CHARS_MAX = 20_000
HIDDEN = "[secret]"
_WORDS = {
    CallResult.DENIED: "Policy denied this call. Nothing was done.",
    CallResult.REJECTED: "People rejected this call. Nothing was done.",
    CallResult.EXPIRED: "Nobody answered in time. Nothing was done.",
    CallResult.FAILED: "The call failed.",
    CallResult.REFUSED: "The call was refused. Nothing was done.",
    CallResult.CANCELED: "The call was canceled.",
}
_MAY_BE_DONE = "It was sent, and may have been done. Look before you call it again."
_CODES = {
    "policy_denied": CallResult.DENIED,
    REJECTED: CallResult.REJECTED,
    "requester_inactive": CallResult.DENIED,
    FAILED_BEFORE: CallResult.REFUSED,
    TOO_MANY: CallResult.REFUSED,
    str(CallResult.EXPIRED): CallResult.EXPIRED,
    str(WaitState.TIMED_OUT): CallResult.EXPIRED,
}


def result_of_error(error: JsonObject) -> CallResult:
    """The result of a call that failed with this error."""
    if error.get("class") == ErrorClass.CANCELED:
        return CallResult.CANCELED
    return _CODES.get(str(error.get("code")), CallResult.FAILED)


def result_message(outcome: CallResult, reason: str, *, sent: bool = False) -> str:
    """The message of a call without an output. ``sent`` says that the call may have been done all the same."""
    content: JsonObject = {"status": str(outcome), "what": _MAY_BE_DONE if sent else _WORDS[outcome], "reason": reason}
    return _cut(canonical_bytes(content).decode())


def done_message(schema: JsonObject, output: Json) -> str:
    """The message of a call that was done: its output, without secrets."""
    return _cut(canonical_bytes(masked(schema, schema, output)).decode())


def masked(root: JsonObject, schema: Json, value: Json) -> Json:
    """The value without what its schema marks as secret."""
    here = resolved(root, schema)
    if here.get("x-secret") is True:
        return HIDDEN
    if isinstance(value, list):
        return [masked(root, here.get("items"), item) for item in value]
    if not isinstance(value, dict):
        return value
    named, other = here.get("properties"), here.get("additionalProperties")
    known = named if isinstance(named, dict) else {}
    return {name: masked(root, known.get(name, other), item) for name, item in value.items()}


def _cut(text: str) -> str:
    if len(text) <= RESULT_CHARS_MAX:
        return text
    return f"{text[:RESULT_CHARS_MAX]}\n[cut: the result has {len(text)} characters, and these are the first]"


def recalled(node: AgentNode, seen: Mapping[str, object]) -> list[Json]:
    """References to the earlier turns that an agent is shown first: the newest in its channel."""
    if node.remember is None:
        return []
    held = cast("list[Json]", seen[f"state.{node.remember.channel}"])
    return held[-node.remember.turns :]


def remembered_agents(recorded: Iterable[RecordedEvent], key: str) -> list[tuple[str, str]]:
    """The agents whose turns the agent with this key remembers: each by its run and its key."""
    refs: list[Json] = []
    for each in recorded:
        if each.step == key and isinstance(each.event, AgentBegan):
            refs = each.event.remembered or []
    return [*dict.fromkeys((one, StepKey.of(step).agent) for one, step in map(pair, refs))]


def pair(ref: Json) -> tuple[str, str]:
    """The run and the step of a reference; two empty texts if the value is no reference."""
    match ref:
        case [str(run), str(step)]:
            return run, step
        case _:
            return "", ""
