"""What people are shown: the content of a card, frozen when the question is put, the same on every face.

The digest of ``CardContent.to_json()`` is what evidence keeps of "the card as shown".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from core.action import Change, Risk
from core.canonical import Json, JsonObject
from core.errors import InputError


class CardState(StrEnum):
    """What a card says has become of its question, the performing of the action included."""

    PENDING = "pending"
    RECORDED = "recorded"
    EXECUTING = "executing"
    APPLIED = "applied"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class RuleReason:
    """One policy rule that asked for people, and why, in its author's words."""

    id: str
    because: str


@dataclass(frozen=True, slots=True)
class InputField:
    """One input of the action that is not part of the before/after table."""

    field: str
    value: Json


@dataclass(frozen=True, slots=True)
class CardContent:
    """Everything a person sees before deciding, complete (Q-20).

    ``reverse`` says how the action is undone, "" if it cannot be. ``changes`` are the proposed writes, ``inputs`` the
    action's other inputs. ``sensitive`` names fields of either whose values stay out of the channel. ``expires_at`` is
    ISO 8601 UTC. ``evidence`` is what the probe of an action in doubt reported, in its words.
    ``tier`` is the weight that policy gives the decision, "" for none.
    """

    title: str
    summary: str
    target: str
    operation: str
    connector: str
    risk: Risk
    reversible: bool
    reverse: str
    requester: str
    workflow: str
    workflow_version: int
    run_id: str
    reference: str
    step: str
    rules: tuple[RuleReason, ...]
    changes: tuple[Change, ...]
    inputs: tuple[InputField, ...]
    expires_at: str | None
    policy_name: str
    policy_version: int
    policy_digest_short: str
    sensitive: tuple[str, ...] = ()
    evidence: str = ""
    tier: str = ""

    def to_json(self) -> JsonObject:
        """A JSON object that ``from_json`` reads back to an equal value."""
        value: dict[str, Any] = asdict(self)
        for name in ("rules", "changes", "inputs", "sensitive"):
            value[name] = list(value[name])
        value["risk"] = str(self.risk)
        return value

    @classmethod
    def from_json(cls, value: JsonObject) -> CardContent:
        """Read what ``to_json`` wrote; ``InputError`` names the first member that is missing, unknown or wrong."""
        unknown = sorted(value.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            raise InputError("is not a member of a card", where=f"card.{unknown[0]}")
        read = {name: check(value.get(name, _ABSENT), f"card.{name}") for name, check in _READERS.items()}
        return cls(**read)

    def masked(self) -> CardContent:
        """The same content with the values of sensitive fields replaced by ``MASK``: what a channel may show."""
        hidden = frozenset(self.sensitive)
        changes = tuple(Change(c.field, MASK, MASK) if c.field in hidden else c for c in self.changes)
        inputs = tuple(InputField(i.field, MASK) if i.field in hidden else i for i in self.inputs)
        return CardContent(**{**_shallow(self), "changes": changes, "inputs": inputs})


MASK = "[hidden: open Review]"


def _shallow(content: CardContent) -> dict[str, Any]:
    return {name: getattr(content, name) for name in CardContent.__dataclass_fields__}


_ABSENT = object()


def _of(kind: type | tuple[type, ...], words: str) -> Callable[[object, str], Any]:
    def read(value: object, where: str) -> Any:
        if value is _ABSENT:
            raise InputError("is missing", where=where)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise InputError(f"is not {words}", where=where)
        return value

    return read


_text = _of(str, "a text")
_whole = _of(int, "a whole number")
_flag = _of(bool, "true or false")
_text_or_null = _of((str, type(None)), "a text or null")


def _json(value: object, where: str) -> Any:
    if value is _ABSENT:
        raise InputError("is missing", where=where)
    return value


def _risk(value: object, where: str) -> Risk:
    try:
        return Risk(_text(value, where))
    except ValueError:
        raise InputError(f"is not one of {', '.join(Risk)}", where=where) from None


def _rows(build: Callable[..., Any], **members: Callable[[object, str], Any]) -> Callable[[object, str], Any]:
    def read(value: object, where: str) -> Any:
        rows = []
        for index, row in enumerate(_of((list, tuple), "a list")(value, where)):
            place = f"{where}[{index}]"
            if not isinstance(row, dict) or row.keys() != members.keys():
                raise InputError(f"is not an object of exactly {', '.join(members)}", where=place)
            rows.append(build(**{name: check(row[name], f"{place}.{name}") for name, check in members.items()}))
        return tuple(rows)

    return read


def _texts(value: object, where: str) -> tuple[str, ...]:
    return tuple(_text(item, where) for item in _of((list, tuple), "a list")(value, where))


_READERS: dict[str, Callable[[object, str], Any]] = {
    **dict.fromkeys(("title", "summary", "target", "operation", "connector", "reverse", "requester"), _text),
    **dict.fromkeys(("workflow", "run_id", "reference", "step", "policy_name"), _text),
    **dict.fromkeys(("policy_digest_short", "evidence", "tier"), _text),
    **dict.fromkeys(("workflow_version", "policy_version"), _whole),
    "risk": _risk,
    "reversible": _flag,
    "expires_at": _text_or_null,
    "rules": _rows(RuleReason, id=_text, because=_text),
    "changes": _rows(Change, field=_text, before=_json, after=_json),
    "inputs": _rows(InputField, field=_text, value=_json),
    "sensitive": _texts,
}
