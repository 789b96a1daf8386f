"""Events of the agent's program as the hook gets them, and answers in the form that the program reads.

Claude Code and Codex send the same JSON. They differ in what a yes is: Claude Code is told so, Codex takes no answer
for one and refuses to be told. A no is exit code 2 with a reason, which both obey.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from counterseal_agents.canonical import JsonObject, parse

BEFORE, AFTER, FAILED = "PreToolUse", "PostToolUse", "PostToolUseFailure"
CLAUDE, CODEX = "claude", "codex"
HOSTS = (CLAUDE, CODEX)
EVENT_BYTES_MAX = 4 * 1024 * 1024
NO = 2
_NAME_MAX = 256


@dataclass(frozen=True)
class Event:
    """One event: which tool with which input, and the ids that the program gave to the session and to the call."""

    name: str
    tool: str
    arguments: JsonObject
    session: str
    use: str
    interrupted: bool
    error: str
    response: object


@dataclass(frozen=True)
class HookAnswer:
    """An answer to the program: the exit code, and the text for its standard output, or for its standard error."""

    code: int
    text: str


class Unreadable(Exception):
    """The standard input held no event of a tool."""


def read(data: bytes) -> Event:
    """The event. ``Unreadable`` for all that is not one, whole and unambiguous."""
    if len(data) > EVENT_BYTES_MAX:
        raise Unreadable("the event is too large")
    try:
        found = parse(data)
    except ValueError as problem:
        raise Unreadable(f"the event is no JSON: {problem}") from None
    if not isinstance(found, dict):
        raise Unreadable("the event is no JSON object")
    texts = {}
    for name in ("hook_event_name", "tool_name", "session_id", "tool_use_id"):
        value = found.get(name)
        if not isinstance(value, str) or not value or len(value) > _NAME_MAX:
            raise Unreadable(f"the event has no usable {name}")
        texts[name] = value
    arguments = found.get("tool_input")
    if not isinstance(arguments, dict):
        raise Unreadable("the tool's input is no JSON object")
    if texts["hook_event_name"] not in (BEFORE, AFTER, FAILED):
        raise Unreadable(f"it is set up for {texts['hook_event_name']}, which is no event of a tool")
    error = found.get("error")
    return Event(
        texts["hook_event_name"], texts["tool_name"], arguments, texts["session_id"], texts["tool_use_id"],
        interrupted=found.get("is_interrupt") is not False, error=error if isinstance(error, str) else "",
        response=found.get("tool_response"),
    )  # fmt: skip


def yes(host: str, action: str) -> HookAnswer:
    """The whole decision that lets the tool run."""
    if host == CODEX:
        return HookAnswer(0, "{}")
    decision = {
        "hookEventName": BEFORE, "permissionDecision": "allow",
        "permissionDecisionReason": f"Counterseal has let this call out (action {action}).",
    }  # fmt: skip
    return HookAnswer(0, json.dumps({"hookSpecificOutput": decision}))


def asked_inside() -> HookAnswer:
    """The decision about a tool whose body asks itself, about what it gets."""
    decision = {"hookEventName": BEFORE, "permissionDecision": "allow"}
    return HookAnswer(0, json.dumps({"hookSpecificOutput": decision}))


def no(host: str, words: str) -> HookAnswer:
    """The whole decision that keeps the tool from running."""
    if host == CODEX:
        return HookAnswer(NO, words)
    decision = {"hookEventName": BEFORE, "permissionDecision": "deny", "permissionDecisionReason": words}
    return HookAnswer(0, json.dumps({"hookSpecificOutput": decision}))


def nothing() -> HookAnswer:
    """No opinion: the program's own rules decide, as without this hook."""
    return HookAnswer(0, "{}")


def trouble(words: str) -> HookAnswer:
    """Words for the model about what has run already."""
    return HookAnswer(NO, words)
