"""A conversation with a model as the matcher takes it in: the same in the engine and in the verifier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from core.bounded_json import parse_object
from core.canonical import Json, digest
from core.errors import InputError
from core.origins.matching import MODEL, Matcher

TOOL = "tool:"


class Heard(Struct, frozen=True):
    """One thing that a model was shown, or has said, with its ``origin``; ``model`` for what it has said.

    ``step`` is the turn that said it, or the call whose result it is. A result of ``tool:<operation>`` may have
    ``records``, the pointer to its records. ``answer`` says that the value is a whole answer, with its calls.
    """

    origin: str
    value: Json
    step: str = ""
    records: str | None = None
    answer: bool = False


def matcher_of(heard: Iterable[Heard | None]) -> Matcher:
    """A matcher that has taken in a conversation, in its order. None stands for what cannot be read."""
    matcher, own = Matcher(), dict[str, bool]()
    for one in heard:
        if one is None:
            matcher.withheld()
        elif one.answer:
            own |= _answered(matcher, one)
        elif one.origin == MODEL:
            matcher.said(one.value)
        elif one.step and one.origin.startswith(TOOL):
            operation = one.origin.removeprefix(TOOL)
            matcher.shown(operation, one.value, records=one.records, own=own.get(one.step, False))
        else:
            matcher.given(one.origin, one.value)
    return matcher


def digest_of(heard: Iterable[Heard | None]) -> str:
    """The digest of a conversation: two that have the same one give the same origins."""
    return digest([None if one is None else [one.origin, one.step, one.records, one.value] for one in heard])


def _answered(matcher: Matcher, one: Heard) -> dict[str, bool]:
    """Take in an answer: by the step of each call, if all of it is in the requester's words."""
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
