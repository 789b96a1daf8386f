"""The case: all that a bundle tells its judges besides the events: definition, questions, people. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct, ValidationError, convert, field

from core.canonical import JsonObject, digest
from core.errors import InputError
from core.identity import Contributor, Delegation, readings
from core.terms import Terms
from evidence.members import check_members

# The time for which people may answer if the terms of their question name none.
EXPIRES_SECONDS = 7 * 24 * 3600
# The tolerance of comparisons of times: the database refuses a line that is further ahead of its clock.
CLOCK_SECONDS = 10.0


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One step as it was compiled. ``within`` is the step around it, ``branch`` the part of that step (``then``, ...).

    ``tools`` are the sources of an agent's tools, each with the operation of its calls; ``terms`` those of a gate;
    ``workflow`` is the one that it starts.
    """

    operation: str
    needs: tuple[str, ...] = ()
    within: str | None = None
    branch: str | None = None
    loops: bool = False
    branches: tuple[str, ...] = ()
    terms: JsonObject | None = None
    tools: Mapping[str, str] | None = None
    workflow: str | None = None
    model: str | None = None


_INSIDE = ("transform",)
COMPOSITES = frozenset({"if", "foreach", "while"})


# The members of a declaration that are judged, and the member that holds its digest if the rest is withheld.
JUDGED, WITHHELD = ("connector", "side_effects", "in_doubt"), "withheld"


class Migrated(Struct, frozen=True, forbid_unknown_fields=True):
    """A migration: the number of the edition that it began, the digest of its text, and the names of its operations."""

    edition: int
    text: str
    operations: tuple[str, ...]


class Definition(Struct, frozen=True, forbid_unknown_fields=True):
    """The definition of a run: the declarations of its operations, and its steps at first and after each change.

    ``added`` are the declarations that extensions and migrations brought, ``migrated`` the migrations.
    """

    operations: Mapping[str, JsonObject]
    editions: Sequence[Mapping[str, Step]]
    added: Mapping[str, JsonObject] = field(default_factory=dict)
    migrated: tuple[Migrated, ...] = ()

    @classmethod
    def read(cls, document: JsonObject, named: object, text: object) -> Definition:
        """Read ``definition.json``. ``InputError`` unless it is the one that ``run.opened`` names, for this text."""
        try:
            found = convert(document, cls)
        except ValidationError as error:
            raise InputError(f"cannot be read: {error}") from None
        found.check_closed()
        if found.digest_of(text, found.operations) != named:
            raise InputError("has other declarations than the definition that run.opened names")
        if not found.editions:
            raise InputError("has no steps")
        return found

    def digest_of(self, text: object, names: Iterable[str]) -> str:
        """The digest of the definition with this text and the declarations with these names."""
        parts: JsonObject = {}
        for name in names:
            declared = self.declared(name) or {}
            parts[name] = declared[WITHHELD] if WITHHELD in declared else digest(declared)
        return digest([text if isinstance(text, str) else None, parts])

    def moved_to(self, edition: int) -> Migrated | None:
        """The migration that began this edition; None if an extension did."""
        return next((one for one in self.migrated if one.edition == edition), None)

    def check_closed(self) -> None:
        """Refuse members that no digest covers: unjudged ones of a withheld declaration, unknown terms of a gate."""
        for declared in (*self.operations.values(), *self.added.values()):
            if WITHHELD in declared:
                check_members("declaration", declared, frozenset({"name", *JUDGED, WITHHELD}))
        for step in (step for edition in self.editions for step in edition.values()):
            check_members("terms", step.terms, frozenset(Terms.__struct_fields__))

    @property
    def unbound(self) -> frozenset[str]:
        """The declarations that no digest of a definition covers: those that extensions brought."""
        return frozenset(self.added) - {name for one in self.migrated for name in one.operations}

    @property
    def withheld(self) -> int:
        """The number of declarations of which the bundle holds only the digest and the judged members."""
        return sum(WITHHELD in declared for declared in (*self.operations.values(), *self.added.values()))

    def effect(self, operation: str) -> bool | None:
        """True if the operation changes something outside; None if it is not declared."""
        declared = self.declared(operation)
        return None if declared is None else declared.get("side_effects") != "none"

    def stays_inside(self, operation: str) -> bool:
        """True if a call reaches nothing outside and changes nothing, so that no policy judges it."""
        declared = self.declared(operation) or {}
        handler = str(declared.get("handler") or declared.get("connector") or operation)
        return re.split("[.:]", handler, maxsplit=1)[0] in _INSIDE and self.effect(operation) is False

    def at_agents(self, operation: str) -> bool | None:
        """True if agents carry it out themselves, by permits; None if its declaration is withheld."""
        handler = (self.declared(operation) or {}).get("handler")
        return handler.startswith("agent:") if isinstance(handler, str) else None

    def declared(self, operation: str) -> JsonObject | None:
        """The declaration of an operation; None if there is none."""
        return self.operations.get(operation) or self.added.get(operation)


class Question(Struct, frozen=True):
    """A question: the terms by which its answers are judged, and the card as it was shown, if that is disclosed."""

    kind: str
    requester: str
    terms: Terms
    contributors: tuple[Contributor, ...] | None = None
    card: JsonObject | None = None

    @classmethod
    def read(cls, asked: JsonObject, card: JsonObject | None) -> Question:
        """Read the opened values of an approval. ``InputError`` if they are no question."""
        try:
            shaped = asked.get("contributors")
            people = None if shaped is None else convert(shaped, tuple[Contributor, ...])
            return cls(str(asked["kind"]), str(asked["requester"]), convert(asked["terms"], Terms), people, card)
        except (KeyError, ValidationError, ValueError) as error:
            raise InputError(f"its question cannot be read: {error!r}") from None


class Person(Struct, frozen=True, forbid_unknown_fields=True):
    """A person in an extract of a directory. ``standing`` is ``person`` for those who may vote.

    ``delegate`` says who may decide for them meanwhile.
    """

    groups: frozenset[str]
    standing: str
    delegate: Delegation | None = None


class Extract(Struct, frozen=True, forbid_unknown_fields=True):
    """The part of one directory that concerns a run: its voters, and the people whom its principals may be."""

    people: Mapping[str, Person]
    principals: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, document: JsonObject) -> Extract:
        """Read an extract. ``InputError`` for anything else."""
        try:
            return convert(document, cls)
        except ValidationError as error:
            raise InputError(f"cannot be read: {error}") from None

    def people_of(self, principal: str) -> frozenset[str]:
        """The people whom a principal may be."""
        return frozenset(self.principals.get(principal, ()))


# Gives the question with this id, or None if the bundle withholds it.
Questions: TypeAlias = Callable[[str], Question | None]


class Case(Struct):
    """Everything besides the events. With ``sidecar_missing``, the cards are in a sidecar that is not here."""

    questions: Questions
    definition: Definition | None = None
    extracts: Mapping[str, Extract] = field(default_factory=dict)
    policies: Mapping[str, JsonObject] = field(default_factory=dict)
    tenant: Sequence[dict[str, Any]] | None = None
    sidecar_missing: bool = False


def split_key(key: str) -> tuple[str, str, str]:
    """Split a step's key: the iterations around it with their last dot, its node, the turn and call of an agent."""
    outer, _, inner = key.partition("/")
    around, dot, node = outer.rpartition(".")
    return around + dot, node, inner


def may_mean(principal: str, person: str) -> bool:
    """True if a principal may be this person by their id, which needs no directory."""
    return f"person:{person.casefold()}" in readings(principal)


def seconds_between(first: str, last: str) -> float:
    """The seconds from the time of one line to that of another."""
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


class Judge:
    """One part of the judgement: follows the events in order, and collects faults with their numbers."""

    name = ""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.whole = False
        self.faults: list[str] = []

    def observe(self, event: dict[str, Any]) -> None:
        """Follow one event of the chain. The base class judges nothing."""

    def end(self) -> None:
        """Judge what only the whole history shows."""

    def fault(self, event: Mapping[str, Any], words: str) -> None:
        """Note a fault of an event."""
        self.faults.append(f"event {event['seq']}: {words}")
