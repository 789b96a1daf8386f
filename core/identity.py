"""Identity: principals, the persons of the directory to whom they belong, and the contributors to an action. Pure.

A principal is a text ``kind:id``, such as ``slack:T0TEAM/U0USER`` or ``email:ana.lee@example.com``. People are compared
only by the id of a person of the directory, never by a name that somebody sent (promise 12).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

from msgspec import Struct, convert, to_builtins

from core.budgets import most
from core.canonical import Json, JsonObject, clean
from core.quiet import Quiet


class Kind(StrEnum):
    """The kind of a principal. ``servicenow`` is a user name, a sys_id or an e-mail, as ServiceNow gave it."""

    PERSON = "person"
    SLACK = "slack"
    BEARER = "token"
    OS = "os"
    SERVICENOW = "servicenow"
    EMAIL = "email"
    OIDC = "oidc"


# The kinds with case: subjects of an OIDC issuer are case-sensitive, Slack's ids have capitals. All others ignore case.
_IN_ITS_CASE: Mapping[Kind, Callable[[str], str]] = {Kind.OIDC: str, Kind.SLACK: str.upper}
# Kinds that may also hold another kind's name: ServiceNow may give an e-mail, and a bearer token a person's id.
_SAME = {Kind.SERVICENOW: Kind.EMAIL, Kind.BEARER: Kind.PERSON}


def principal(kind: Kind, name: str) -> str:
    """The principal of a kind with this name, normalised."""
    return f"{kind}:{_IN_ITS_CASE.get(kind, str.casefold)(_plain(name))}"


def normalised(text: str) -> str:
    """The principal in one form: no invisible characters, no compatibility forms, single spaces, and one case if its
    kind ignores case.

    The case of a text without a kind is kept.
    """
    kind, _, name = text.partition(":")
    known = _plain(kind).casefold()
    return principal(Kind(known), name) if name and known in set(Kind) else _plain(text)


def _plain(name: str) -> str:
    """The name in Unicode's compatibility form: no letters of another width, nothing invisible, single spaces."""
    if not name.isascii():  # ASCII has one form, and no letter of the category Cf
        seen = unicodedata.normalize("NFKC", name)
        name = "".join(letter for letter in seen if unicodedata.category(letter) != "Cf")
    return " ".join(name.split())


@lru_cache(maxsize=4096)  # the same few people ask and vote
def readings(text: str) -> tuple[str, ...]:
    """The principals that a text may mean: the one that it names, or, without a kind, one principal of each kind."""
    given = normalised(text)
    kind, _, name = given.partition(":")
    kinds = [Kind(kind)] if name and kind in set(Kind) else [*Kind]
    name = name if len(kinds) == 1 else given
    kinds_read = [each for one in kinds for each in (one, _SAME.get(one)) if each is not None]
    return tuple(principal(one, name) for one in kinds_read) if name else ()


class Standing(StrEnum):
    """The standing of an actor in the directory: only an active ``person`` may vote."""

    PERSON = "person"
    UNKNOWN = "not_in_directory"
    DEACTIVATED = "deactivated"
    MACHINE = "service_account"


# The number of texts whose meaning a directory caches.
_FOUND_MAX = 4096


class Delegation(Struct, frozen=True):
    """A span of time in which the person ``to`` may decide for another person. It ends before ``ends``."""

    to: str
    begins: datetime
    ends: datetime

    def holds(self, at: datetime) -> bool:
        """True if the time is within the delegation."""
        return self.begins <= at < self.ends


class Entry(Struct, frozen=True):
    """A person of a directory, or a service account, which has an ``owner`` (the id of a person). ``groups`` are names.

    ``principals`` are those that the entry claims besides its own id. An entry that is not ``active`` never votes.
    ``quiet`` are the hours in which a person gets no private messages. ``manager`` is the id of the person's manager,
    ``delegate`` is the delegation to somebody who decides for them.
    """

    id: str
    name: str
    active: bool = True
    groups: frozenset[str] = frozenset()
    principals: tuple[str, ...] = ()
    owner: str | None = None
    quiet: Quiet | None = None
    manager: str | None = None
    delegate: Delegation | None = None

    @property
    def person(self) -> str:
        """The id of the person as whom this entry counts: for a service account, its owner."""
        return self.owner or self.id

    @property
    def standing(self) -> Standing:
        """The entry's standing, which says if it may vote and why not."""
        if self.owner is not None:
            return Standing.MACHINE
        return Standing.PERSON if self.active else Standing.DEACTIVATED

    def accounts(self, kind: Kind) -> tuple[str, ...]:
        """The names of the entry's principals of one kind, as they were written."""
        return tuple(text.partition(":")[2] for text in self.principals if text.startswith(f"{kind}:"))


class Directory(Struct, frozen=True, dict=True):
    """The people of a tenant as one version of its directory lists them, known by ``digest``; "" if there is none."""

    digest: str
    entries: Mapping[str, Entry]
    claimed: Mapping[str, str | None]

    @classmethod
    def of(cls, digest: str, entries: Iterable[Entry]) -> Directory:
        """The directory of these entries. A principal that two entries claim belongs to neither."""
        found = {entry.id: entry for entry in entries}
        claimed: dict[str, str | None] = {}
        for entry in found.values():
            for claim in claims(entry):
                claimed[claim] = entry.id if claimed.get(claim, entry.id) == entry.id else None
        return cls(digest, found, claimed)

    def entry(self, *texts: str) -> Entry | None:
        """The one entry to which all these principals, or names of any kind, belong; else None."""
        found = self._entries(texts[0]) if len(texts) == 1 else frozenset().union(*map(self._entries, texts))
        return self.entries[next(iter(found))] if len(found) == 1 else None

    def resolve(self, text: str) -> str | None:
        """The id of the one person whom a principal, or a name of any kind, means; None is *unresolved*.

        A service account means its owner.
        """
        people = self.people(text)
        return next(iter(people)) if len(people) == 1 else None

    def members(self, group: str) -> list[Entry]:
        """The active people of a group; never a machine."""
        return [one for one in self.entries.values() if group in one.groups and one.standing is Standing.PERSON]

    def delegates(self, person: str, to: str, at: datetime) -> bool:
        """True if the person's own record lets ``to`` decide for them at that time: delegations do not chain."""
        whose, deputy = self.entries.get(person), self.entries.get(to)
        if whose is None or deputy is None or whose.delegate is None or person == to:
            return False
        both = whose.standing is Standing.PERSON and deputy.standing is Standing.PERSON
        return both and whose.delegate.to == to and whose.delegate.holds(at)

    def named(self, text: str) -> str:
        """The person whom the text means, as facts name them: their id, or ``unresolved:<text>``."""
        return self.resolve(text) or unresolved(text)

    def people(self, text: str) -> frozenset[str]:
        """The ids of all persons whom the text may mean: more than one if a name without a kind is ambiguous."""
        return frozenset([self.entries[entry_id].person for entry_id in self._entries(text)])

    def _entries(self, text: str) -> frozenset[str]:
        """The ids of all entries that the text may mean; kept, because the same few people ask and vote."""
        found = self._cache.get(text)
        if found is None:
            every = () if is_unknown(text) else (self.claimed.get(reading) for reading in readings(text))
            found = frozenset(entry_id for entry_id in every if entry_id is not None)
            if len(self._cache) >= _FOUND_MAX:
                self._cache.clear()
            self._cache[text] = found
        return found

    @cached_property
    def _cache(self) -> dict[str, frozenset[str]]:
        return {}


NOBODY = Directory("", {}, {})


def claims(entry: Entry) -> Iterator[str]:
    """Yield every principal of an entry, normalised, its id included."""
    yield principal(Kind.PERSON, entry.id)
    for text in entry.principals:
        yield normalised(text)


class Role(StrEnum):
    """The role of a contributor in an action."""

    REQUESTER = "requester"
    UPDATER = "updater"
    STEP_ADDER = "step_adder"
    FORM_FILLER = "form_filler"
    SIGNAL_SENDER = "signal_sender"
    EDITOR = "editor"
    BEARER = "token_owner"
    AGENT_OWNER = "agent_owner"
    RETRIER = "retrier"
    SOURCE_REQUESTER = "source_requester"
    OUTSIDE_WRITER = "outside_writer"
    SUBJECT = "subject"
    ANSWERER = "answerer"


PRINCIPAL_CHARACTERS_MAX = most("person_characters")


def named_in(value: Json) -> tuple[str, ...]:
    """The people whom a value (a text or a list of texts) names. A value without a name counts as somebody unknown."""
    every = value if isinstance(value, list) and value else [value]
    texts = (clean(one, PRINCIPAL_CHARACTERS_MAX).strip() if isinstance(one, str) else "" for one in every)
    return tuple(dict.fromkeys(text or UNKNOWN for text in texts))


# The principal of an outside person about whom nothing is known. No directory has an entry for it.
UNKNOWN = "unknown"


def is_unknown(principal: str) -> bool:
    """True if the principal stands for an unknown person."""
    return _plain(principal).casefold() == UNKNOWN


UNRESOLVED = "unresolved:"


def unresolved(text: str) -> str:
    """The text by which facts name somebody whom the directory does not know. It is no id of a person."""
    return text if text.startswith(UNRESOLVED) else f"{UNRESOLVED}{text}"


class Contributor(Struct, frozen=True):
    """A contributor to an action. ``person`` is their person in the directory of that time; None is *unresolved*."""

    role: Role
    principal: str
    person: str | None

    def to_json(self) -> JsonObject:
        """A JSON object that ``from_json`` reads back to an equal value."""
        facts: JsonObject = to_builtins(self)
        return facts

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Contributor:
        """Read what ``to_json`` wrote; ``ValueError`` for anything else."""
        return convert(value, cls)
