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

TOOL = "tool:"


class Heard(Struct, frozen=True):
    """One value that a model was shown or has said, with its ``origin``; ``model`` if the model said it.

    ``step`` is the turn that said it, or the call that gave this result. A result of ``tool:<operation>`` may have
    ``records``, the pointer to its records. ``answer`` is True if the value is a whole answer, with its calls.
    """

    origin: str
    value: Json
    step: str = ""
    records: str | None = None
    answer: bool = False


@dataclass
class Listener:
    """Feeds a growing conversation to a matcher. ``heard`` is the part already fed."""

    matcher: Matcher = field(default_factory=Matcher)
    heard: list[Heard | None] = field(default_factory=list)
    _own: dict[str, bool] = field(default_factory=dict)

    def listen(self, conversation: Sequence[Heard | None]) -> None:
        """Feed the new part of the conversation. None stands for a value that cannot be read."""
        for one in conversation[len(self.heard) :]:
            self._take(one)
            self.heard.append(one)

    def knows_the_beginning_of(self, conversation: Sequence[Heard | None]) -> bool:
        """True if the part already fed is a prefix of the conversation."""
        return conversation[: len(self.heard)] == self.heard

    def _take(self, one: Heard | None) -> None:
        if one is None:
            self.matcher.withheld()
        elif one.answer:
            self._own |= _answered(self.matcher, one)
        elif one.origin == MODEL:
            self.matcher.said(one.value)
        elif one.step and one.origin.startswith(TOOL):
            operation = one.origin.removeprefix(TOOL)
            own = self._own.get(one.step, False)
            self.matcher.shown(operation, one.value, records=one.records, own=own)
        else:
            self.matcher.given(one.origin, one.value)


def matcher_of(heard: Sequence[Heard | None]) -> Matcher:
    """A matcher that was fed a whole conversation, in order."""
    listener = Listener()
    listener.listen(heard)
    return listener.matcher


def digest_of(heard: Iterable[Heard | None]) -> str:
    """The digest of a conversation. Conversations with equal digests give the same origins."""
    return digest([None if one is None else [one.origin, one.step, one.records, one.value] for one in heard])


def _answered(matcher: Matcher, one: Heard) -> dict[str, bool]:
    """Feed an answer. Returns for the step of each call whether all of its arguments are in the requester's words."""
    said: Mapping[str, Any] = one.value if isinstance(one.value, dict) else {}
    matcher.said(said.get("text"))
    own = {}
    for number, call in enumerate(said.get("tool_calls") or (), start=1):
        own[f"{one.step}/{number}"] = matcher.said(_arguments(str(call["function"]["arguments"])))
    return own


def _arguments(text: str) -> Json:
    try:
        return parse_object(text.encode(errors="replace"), where="arguments") if text.strip() else {}
    except InputError:
        return text
