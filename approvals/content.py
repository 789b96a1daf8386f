"""The content of a card, as people see it: frozen when the question is put, the same on every face.

The digest of ``CardContent.to_json()`` is what evidence keeps of "the card as shown".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, get_args, get_origin, get_type_hints

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from core.action import Change, Risk
from core.canonical import Json, JsonObject
from core.errors import InputError


class CardState(StrEnum):
    """The state that a card shows: of its question, and then of the action's execution."""

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


class RuleReason(Struct, frozen=True):
    """One policy rule that asked for people, and why, in its author's words."""

    id: str
    because: str


class InputField(Struct, frozen=True):
    """One input of the action that is not part of the before/after table."""

    field: str
    value: Json


class CardContent(Struct, frozen=True):
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
        value: JsonObject = to_builtins(self)
        return {name: list(item) if isinstance(item, tuple) else item for name, item in value.items()}

    @classmethod
    def from_json(cls, value: JsonObject) -> CardContent:
        """Read what ``to_json`` wrote; ``InputError`` names the first member that is missing, unknown or wrong."""
        unknown = sorted(value.keys() - set(cls.__struct_fields__))
        if unknown:
            raise InputError("is not a member of a card", where=f"card.{unknown[0]}")
        members = _MEMBERS[cls].items()
        return cls(**{name: _read(kind, value.get(name, _ABSENT), f"card.{name}") for name, kind in members})

    def masked(self) -> CardContent:
        """The same content with the values of sensitive fields replaced by ``MASK``: what a channel may show."""
        hidden = frozenset(self.sensitive)
        changes = tuple(Change(c.field, MASK, MASK) if c.field in hidden else c for c in self.changes)
        inputs = tuple(InputField(i.field, MASK) if i.field in hidden else i for i in self.inputs)
        return replace(self, changes=changes, inputs=inputs)


MASK = "[hidden: open Review]"
_ABSENT = object()
_WORDS = {str: "a text", int: "a whole number", bool: "true or false", str | None: "a text or null"}
# The members of each part of a card, with their types.
_MEMBERS = {part: get_type_hints(part) for part in (CardContent, RuleReason, Change, InputField)}


def _read(kind: Any, value: Any, where: str) -> Any:
    """The value as ``kind``: a type of ``_WORDS``, ``Risk``, a part of a card, a tuple of one of these, or any JSON."""
    if value is _ABSENT:
        raise InputError("is missing", where=where)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError("is not a list", where=where)
        return tuple(_read(get_args(kind)[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if members := _MEMBERS.get(kind):
        if not isinstance(value, dict) or value.keys() != members.keys():
            raise InputError(f"is not an object of exactly {', '.join(members)}", where=where)
        return kind(**{name: _read(member, value[name], f"{where}.{name}") for name, member in members.items()})
    if kind is Risk:
        if value not in tuple(Risk):
            raise InputError(f"is not one of {', '.join(Risk)}", where=where)
        return Risk(value)
    if kind in _WORDS and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise InputError(f"is not {_WORDS[kind]}", where=where)
    return value
