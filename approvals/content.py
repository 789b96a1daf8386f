"""The content of a card, as people see it: frozen when the question is opened, the same on every face.

Evidence holds the digest of ``CardContent.to_json()`` as "the card as shown".
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from core.action import Change, Risk
from core.canonical import JsonObject
from core.errors import InputError
from core.identity import Role


class CardState(StrEnum):
    """The state that a card shows: first the question's, then the state of the action's execution."""

    PENDING = "pending"
    RECORDED = "recorded"
    EXECUTING = "executing"
    APPLIED = "applied"
    ALTERED = "altered"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELED = "canceled"


# What a contributor did, by role. Completes a sentence such as "You …" or "Ana Lee …".
PARTS = {
    Role.REQUESTER: "requested this",
    Role.UPDATER: "changed the record",
    Role.STEP_ADDER: "added this step",
    Role.FORM_FILLER: "filled in a form",
    Role.SIGNAL_SENDER: "sent a signal",
    Role.EDITOR: "edited this",
    Role.BEARER: "had the token that was used",
    Role.AGENT_OWNER: "had charge of the agent",
    Role.RETRIER: "went on with the failed run",
    Role.SOURCE_REQUESTER: "requested the run that this comes from",
    Role.OUTSIDE_WRITER: "edited outside what this reads",
    Role.SUBJECT: "would be affected by this",
    Role.ANSWERER: "answered a question about this",
}


class ShapedBy(Struct, frozen=True, forbid_unknown_fields=True):
    """A person who shaped the action: their name, what they did, and a note about their vote ("" for none).

    ``name`` comes from the directory, or for somebody whom it does not know from the principal.
    """

    name: str
    did: str
    note: str = ""


class RuleReason(Struct, frozen=True, forbid_unknown_fields=True):
    """One policy rule that asks people, and its reason in the author's words."""

    id: str
    because: str


class InputField(Struct, frozen=True, forbid_unknown_fields=True):
    """One input of the action that is not part of the before/after table."""

    field: str
    value: Any


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """The source of one value of the action: ``words`` are ours, ``of`` names a tool, a field or a signal.

    ``ours``: one of our own people chose or wrote the value. Otherwise ``value`` quotes it.
    """

    field: str
    words: str
    of: str = ""
    ours: bool = True
    value: str = ""


class Agent(Struct, frozen=True, forbid_unknown_fields=True):
    """The agent that proposes the action: its step, its model, the turn, and the ``requester`` that it works for.

    ``read`` are the operations whose results its model has seen. ``says`` is the reason that the model claims.
    """

    step: str
    model: str
    turn: int
    requester: str
    read: tuple[str, ...] = ()
    says: str = ""


class Edit(Struct, frozen=True, forbid_unknown_fields=True):
    """A value that people have edited: what it was at first, and what it is now."""

    field: str
    was: Any
    now: Any


class CardContent(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a person sees before deciding, complete.

    ``reverse`` says how the action is undone, "" if it cannot be. ``changes`` are the proposed writes, ``inputs`` the
    action's other inputs. ``sensitive`` names fields of either whose values stay out of the channel. ``expires_at`` is
    ISO 8601 UTC. ``evidence`` is the report of the probe of an action in doubt, in the probe's words.
    ``tier`` is the weight that policy gives the decision, "" for none. ``system`` is the outside system that would be
    called, by address and account, "" for none. ``shaped_by`` lists the people who shaped it; empty if the requester
    alone did. ``sources`` are the sources of its values, given if a rule reads them or an ``agent`` proposes it.

    ``question`` heads the card: words of an author, in which values stand in “quotation marks”; "" if it is too long.
    ``asker`` is the requester's name in the directory, ``link`` the address of the record in its system, "" for none.
    ``chosen`` are approvers who come from the record: `Ana Lee, manager of Raj Quist`.
    ``edits`` are the values that people have edited since it was first asked.
    Of an action in doubt, ``sent_at`` says when it was sent, and ``answer`` what the target said.
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
    system: str = ""
    shaped_by: tuple[ShapedBy, ...] = ()
    sources: tuple[Source, ...] = ()
    agent: Agent | None = None
    question: str = ""
    asker: str = ""
    link: str = ""
    sent_at: str = ""
    answer: str = ""
    chosen: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()

    def to_json(self) -> JsonObject:
        """A JSON object that ``from_json`` reads back to an equal value. Leaves out empty members of ``LATER``."""
        value: JsonObject = to_builtins(self)
        facts = {name: item for name, item in value.items() if item or name not in LATER}
        return {name: list(item) if isinstance(item, tuple) else item for name, item in facts.items()}

    @classmethod
    def from_json(cls, value: JsonObject) -> CardContent:
        """Read what ``to_json`` wrote; ``InputError`` names the first member that is missing, unknown or wrong."""
        try:
            return convert(value, cls)
        except ValidationError as error:
            raise _problem(str(error)) from None

    def masked(self) -> CardContent:
        """The same content for a channel: ``MASK`` replaces the values of sensitive fields."""
        hidden = frozenset(self.sensitive)
        changes = tuple(Change(c.field, MASK, MASK) if c.field in hidden else c for c in self.changes)
        inputs = tuple(InputField(i.field, MASK) if i.field in hidden else i for i in self.inputs)
        sources = tuple(replace(one, value=MASK) if one.value and one.field in hidden else one for one in self.sources)
        edits = tuple(Edit(one.field, MASK, MASK) if one.field in hidden else one for one in self.edits)
        return replace(self, changes=changes, inputs=inputs, sources=sources, edits=edits)


# Members that cards of earlier releases do not have: if they are left out, a card keeps its digest.
LATER = frozenset({"sources", "agent", "question", "asker", "link", "sent_at", "answer", "chosen", "edits"})
MASK = "[hidden]"
_UNUSABLE = re.compile(r"Object (missing required|contains unknown) field `(.*)`\Z")


def _problem(text: str) -> InputError:
    """Turn msgspec's message about a card, such as "Expected `str`, got `int` - at `$.title`", into an InputError."""
    words, _, place = text.partition(" - at `$")
    where = f"card{place.removesuffix('`')}"
    if member := _UNUSABLE.fullmatch(words):
        word = "is missing" if member[1] == "missing required" else "is not a member of a card"
        return InputError(word, where=f"{where}.{member[2]}")
    return InputError(f"is wrong: {words}", where=where)


def moved_between(old: CardContent, new: CardContent) -> tuple[Change, ...]:
    """The differences between a question and the one that replaced it: each field, from which value to which.

    A value that another person changed in the target differs in ``before``; a value that is newly asked for, in
    ``after``.
    """
    hidden = {*old.sensitive, *new.sensitive}
    was, found = {one.field: one for one in old.changes}, []
    for one in new.changes:
        before = was.get(one.field)
        if before is None or one.field in hidden:
            continue
        pairs = ((before.before, one.before), (before.after, one.after))
        labels = ((before.before_label, one.before_label), (before.after_label, one.after_label))
        for (first, last), (was_label, now_label) in zip(pairs, labels, strict=True):
            if first != last:
                found.append(Change(one.field, first, last, False, one.label, was_label, now_label))
                break
    return tuple(found)
