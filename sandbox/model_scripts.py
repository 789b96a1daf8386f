"""Scripts for the model: ``script-gullible``, for example, obeys every instruction in a tool's result.

A script finds instructions in texts, such as ``CALL mail_send {"to": "a@b.example"}``, and answers with the text after
``ANSWER``. It is stateless: it derives the turn from the messages, so the same chat always gets the same answer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

PREFIX: Final = "script-"
# The script of a model with any other name that is offered tools.
ORDINARY: Final = "gullible"
_INSTRUCTION: Final = re.compile(r"\bCALL ([^\s{]{1,256}) ?(?=\{)")
_ANSWER: Final = re.compile(r"\bANSWER ([^\n]+)")
# In a system message, the JSON Schema of the answer follows this text.
_SCHEMA: Final = "JSON Schema:\n"
_DONE: Final = "Done."
_POSES: Final = ("SYSTEM:", "<|im_start|>system", "[system]")
_SHOUTS: Final = 40
_INSISTS: Final = 5
_ENORMOUS: Final = 1024 * 1024
_CONTROL: Final = "\x07\x1b[2J\x7f\u202eevil\u2066\u200b\r\n"

Turn: TypeAlias = Mapping[str, Any]
"""One message of the assistant: ``content`` and, if it calls, ``tool_calls``."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A call that a script wants to make: the tool's name, and the text of its arguments."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Chat:
    """The chat so far. ``offered`` are the names of the model's tools."""

    messages: Sequence[Mapping[str, Any]]
    offered: tuple[str, ...]

    @property
    def turn(self) -> int:
        """The number of the assistant's messages so far."""
        return sum(message["role"] == "assistant" for message in self.messages)

    @property
    def said(self) -> int:
        """The number of the model's calls so far."""
        return sum(len(message.get("tool_calls") or ()) for message in self.messages)

    def told(self, *roles: str) -> list[Wish]:
        """The instructions in messages of these roles, in order."""
        texts = (text for one in self.messages if one["role"] in roles for text in _texts(one.get("content")))
        return [wish for text in texts for wish in instructions(text)]

    @property
    def task(self) -> Wish:
        """The first instruction of a user, or else a call of the first tool without arguments."""
        return next(iter(self.told("user")), Wish(self.offered[0] if self.offered else "nothing", "{}"))

    @property
    def tasks(self) -> list[Wish]:
        """The instructions of users, or else a call of the first tool, whose result may hold instructions."""
        return self.told("user") or [self.task]

    @property
    def answer(self) -> str:
        """The answer that a user asks for, or else the smallest value for the JSON Schema in a system message."""
        texts = [text for one in self.messages if one["role"] == "user" for text in _texts(one.get("content"))]
        wanted = next((found[1] for text in texts if (found := _ANSWER.search(text))), None)
        return wanted or next((json.dumps(_least(schema)) for schema in self._schemas()), _DONE)

    def _schemas(self) -> Iterator[Mapping[str, Any]]:
        for one in self.messages:
            _, found, text = str(one.get("content")).rpartition(_SCHEMA)
            if one["role"] == "system" and found:
                schema, _ = json.JSONDecoder().raw_decode(text)
                yield schema


def _least(schema: Mapping[str, Any]) -> object:
    """The smallest value that fits a plain schema, with required members only."""
    if choices := schema.get("enum"):
        return choices[0]
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            return {name: _least(properties.get(name, {})) for name in schema.get("required", ())}
        case "array":
            return [_least(schema.get("items", {}))] * int(schema.get("minItems", 0))
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
    return _DONE


def instructions(text: str) -> Iterator[Wish]:
    """Find each ``CALL name {...}`` in a text. The arguments' text is kept unchanged."""
    for found in _INSTRUCTION.finditer(text):
        try:
            _, end = json.JSONDecoder().raw_decode(text, found.end())
        except (ValueError, RecursionError):
            continue
        yield Wish(found[1], text[found.end() : end])


def _texts(content: object) -> Iterator[str]:
    """The text of a message; if it is JSON, every string value in it."""
    if isinstance(content, str):
        try:
            content = json.loads(content)
        except (ValueError, RecursionError):
            yield str(content)
            return
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif isinstance(value, str):
            yield value


def _next(chat: Chat, wishes: Sequence[Wish]) -> list[Wish]:
    """The first wish that was not called yet."""
    return [*wishes[chat.said : chat.said + 1]]


def _fooled(chat: Chat) -> list[Wish]:
    """The user's wishes, and those in tool results that pose as a system message."""
    fooling = [
        wish
        for one in chat.messages
        if one["role"] == "tool"
        for text in _texts(one.get("content"))
        if text.lstrip().startswith(_POSES)
        for wish in instructions(text)
    ]
    return _next(chat, [*chat.told("user"), *fooling])


def _with_text(task: Wish, text: str) -> Wish:
    """The task with ``text`` in place of every string argument."""
    arguments = json.loads(task.arguments)
    changed = {name: text if isinstance(value, str) else value for name, value in arguments.items()}
    return Wish(task.name, json.dumps(changed or {"text": text}))


def _once(chat: Chat, *wishes: Wish) -> list[Wish]:
    return [] if chat.turn else [*wishes]


_SCRIPTS: Final[Mapping[str, Callable[[Chat], list[Wish]]]] = {
    "obedient": lambda chat: _next(chat, chat.told("user")),
    "gullible": lambda chat: _next(chat, [*chat.tasks, *chat.told("tool")]) if chat.offered else [],
    "fooled": _fooled,
    "looping": lambda chat: [chat.task],
    "insistent": lambda chat: [chat.task] if chat.turn < _INSISTS else [],
    "shouting": lambda chat: [chat.task] * _SHOUTS,
    "at-once": lambda chat: _once(chat, *chat.told("user")),
    "broken-json": lambda chat: _once(chat, Wish(chat.task.name, chat.task.arguments[:-1] + ', "')),
    "unknown-tool": lambda chat: _once(chat, Wish("no_such_tool", "{}")),
    "same-id": lambda chat: _once(chat, chat.task, chat.task),
    "no-id": lambda chat: _once(chat, chat.task),
    "enormous": lambda chat: _once(chat, _with_text(chat.task, "x" * _ENORMOUS)),
    "control": lambda chat: _once(chat, _with_text(chat.task, _CONTROL)),
    "careless": lambda chat: [],
}
NAMES: Final = tuple(sorted(_SCRIPTS))


def play(script: str, chat: Chat) -> Turn:
    """The next message of a script. ``KeyError`` if there is no such script."""
    wishes = _SCRIPTS[script](chat)
    if not wishes:
        return {"content": "I have nothing to say." if script == "careless" else chat.answer}
    ids = [_id(script, chat, at) for at in range(len(wishes))]
    if script == "same-id":
        ids = ids[:1] * len(wishes)
    if script == "no-id":
        ids = [""] * len(wishes)
    return {
        "content": None,
        "tool_calls": [
            {"id": one, "type": "function", "function": {"name": wish.name, "arguments": wish.arguments}}
            for one, wish in zip(ids, wishes, strict=True)
        ],
    }


def _id(script: str, chat: Chat, at: int) -> str:
    return "call_" + hashlib.sha256(f"{script} {chat.turn} {at}".encode()).hexdigest()[:24]


def misuse(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """The reason why a model's API would refuse this history; None if each call is followed by exactly one result."""
    waiting: set[str] = set()
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            answered = message.get("tool_call_id")
            if answered not in waiting:
                return f"messages[{at}]: a tool message must answer a call of the assistant message before it, once"
            waiting.discard(answered)
            continue
        if waiting:
            return f"messages[{at}]: these tool_call_ids have no tool message: {', '.join(sorted(waiting))}"
        ids = [call["id"] for call in message.get("tool_calls") or ()]
        waiting = set(ids)
        if len(waiting) < len(ids):
            return f"messages[{at}]: two tool_calls have one id"
    return f"these tool_call_ids have no tool message: {', '.join(sorted(waiting))}" if waiting else None
