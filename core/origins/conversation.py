"""Feeds a conversation with a model to the matcher, in the engine and in the verifier alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from core.bounded_json import parse_object
from core.canonical import Json, digest
from core.errors import InputError
from core.origins.matching import MODEL, Matcher
from core.origins.repeats import Performed

TOOL = "tool:"


class Passage(Struct, frozen=True):
    """One value that a model was shown or has said, with its ``origin``, which is ``model`` if the model said it.

    ``step`` is the turn that said it, or the call that gave this result. A result of ``tool:<operation>`` may have
    ``records``, the pointer to its records. ``answer``: the value is a whole answer, with its calls. ``effect``: it is
    the result of a call with an effect. ``protected`` are the fields of a result that not just anyone may write.
    """

    origin: str
    value: Json
    step: str = ""
    records: str | None = None
    answer: bool = False
    effect: bool = False
    protected: tuple[str, ...] = ()


class CallSaid(Struct, frozen=True):
    """A call as a model has said it: its step, its tool and its arguments, which are a text if they are no JSON."""

    step: str
    tool: str
    arguments: Json


@dataclass
class Listener:
    """Feeds a growing conversation to a matcher. ``passages`` is the part fed so far, ``performed`` the calls in it."""

    matcher: Matcher = field(default_factory=Matcher)
    passages: list[Passage | None] = field(default_factory=list)
    performed: Performed = field(default_factory=Performed)
    _own: dict[str, bool] = field(default_factory=dict)
    _called: dict[str, Json] = field(default_factory=dict)

    def listen(self, conversation: Sequence[Passage | None]) -> None:
        """Feed the new part of the conversation. None in it is a value that cannot be read."""
        for one in conversation[len(self.passages) :]:
            self._take(one)
            self.passages.append(one)

    def knows_the_beginning_of(self, conversation: Sequence[Passage | None]) -> bool:
        """True if the part fed so far is a prefix of the conversation."""
        return conversation[: len(self.passages)] == self.passages

    def _take(self, one: Passage | None) -> None:
        if one is None:
            self.matcher.withheld()
        elif one.answer:
            for call in calls_of(one.step, one.value):
                self._called[call.step] = call.arguments
            self._own |= _answered(self.matcher, one)
        elif one.origin == MODEL:
            self.matcher.add_call(one.value)
        elif one.step and one.origin.startswith(TOOL):
            operation = one.origin.removeprefix(TOOL)
            own = self._own.get(one.step, False)
            called = self._called.pop(one.step, None)
            self.matcher.add_result(
                operation, one.value, records=one.records, own=own, protected=one.protected, asked=called
            )
            if one.effect and isinstance(called, dict):
                self.performed.add(operation, called)
        else:
            self.matcher.add_source(one.origin, one.value)


def listener_of(passages: Sequence[Passage | None]) -> Listener:
    """Make a listener, and feed it a whole conversation."""
    listener = Listener()
    listener.listen(passages)
    return listener


def matcher_of(passages: Sequence[Passage | None]) -> Matcher:
    """Make a matcher, and feed it a whole conversation."""
    return listener_of(passages).matcher


def digest_of(passages: Iterable[Passage | None]) -> str:
    """The digest of a conversation. Conversations with equal digests give the same origins."""
    content = [None if one is None else [one.origin, one.step, one.records, one.value] for one in passages]
    marks: list[Json] = [
        [one.effect, *one.protected] for one in passages if one is not None and (one.effect or one.protected)
    ]
    return digest([*content, marks] if marks else content)


def calls_of(step: str, answer: Json) -> list[CallSaid]:
    """The calls in an answer; ``step`` is its turn."""
    message: Mapping[str, Any] = answer if isinstance(answer, dict) else {}
    made = [one["function"] for one in message.get("tool_calls") or ()]
    return [
        CallSaid(f"{step}/{number}", str(one["name"]), _arguments(str(one["arguments"])))
        for number, one in enumerate(made, start=1)
    ]


def _answered(matcher: Matcher, one: Passage) -> dict[str, bool]:
    """Feed an answer. Returns for the step of each call whether all of its arguments are in the requester's words."""
    matcher.add_call(one.value.get("text") if isinstance(one.value, dict) else None)
    return {call.step: matcher.add_call(call.arguments) for call in calls_of(one.step, one.value)}


def _arguments(text: str) -> Json:
    try:
        return parse_object(text.encode(errors="replace"), where="arguments") if text.strip() else {}
    except InputError:
        return text
