"""The directory as people write it: its people, their accounts in other systems, service accounts and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import Struct
from pydantic import BaseModel, Discriminator, Field, Tag

from approvals.tally import Groups, shortfalls, stuck_requesters
from core.documents import Document, Path, load_document
from core.errors import DefinitionError, Problem
from core.identity import Delegation, Entry, Kind, Role, claims
from core.quiet import Quiet, zone_of
from core.terms import GroupQuorum, Terms, Tier
from core.validation import validate
from policy.evaluate import quorums, terms_of
from policy.model import InDoubt, PolicyDocument
from runtime.definition.delegating import delegated_badly, impossible_days
from runtime.definition.leaves import gate_terms
from runtime.definition.model import (
    AssignDocument,
    DocumentPart,
    EscalationDocument,
    GateDocument,
    PersonName,
    WorkflowDocument,
)

_Text = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^\S+( \S+)*$")]
_SlackAccount = Annotated[str, Field(pattern=r"^([TE][A-Z0-9]{2,20}/)?[UW][A-Z0-9]{2,20}$")]
_Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
_Day = Annotated[str, Field(pattern=r"^2[0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$")]
_Zone = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_+/-]+$")]
_Email = Annotated[str, Field(max_length=300, pattern=r"^[^@\s]+@[^@\s]+$")]
_Account = TypeVar("_Account")
_Accounts = Annotated[
    Annotated[_Account, Tag("one")] | Annotated[tuple[_Account, ...], Tag("several")],
    Discriminator(lambda given: "several" if isinstance(given, list | tuple) else "one"),
]


class PrincipalsDocument(DocumentPart):
    """The accounts of somebody in other systems, one or several of each kind."""

    slack: _Accounts[_SlackAccount] | None = None
    email: _Accounts[_Email] | None = None
    servicenow: _Accounts[_Text] | None = None
    os: _Accounts[_Text] | None = None
    oidc: _Accounts[_Text] | None = None

    @property
    def principals(self) -> tuple[str, ...]:
        """Each of the accounts as a principal."""
        found: list[str] = []
        for kind in PrincipalsDocument.model_fields:
            given: str | tuple[str, ...] | None = getattr(self, kind)
            found += [f"{kind}:{name}" for name in ((given,) if isinstance(given, str) else given or ())]
        return tuple(found)


class QuietDocument(DocumentPart):
    """The hours of every day, by the person's clock, in which direct messages wait. No deadline moves by them."""

    begins: Annotated[_Clock, Field(alias="from")]
    ends: Annotated[_Clock, Field(alias="to")]


class DelegationDocument(DocumentPart):
    """Days on which somebody else may decide for the person as well, by the person's clock; the last one is included.

    `to` is the id of another person. Whoever decides for somebody decides for nobody else through them.
    """

    to: PersonName
    first: Annotated[_Day, Field(alias="from")]
    last: Annotated[_Day, Field(alias="until")]


class PersonDocument(PrincipalsDocument):
    """One person. A person who is not `active` never votes, and has no token that is good, but stays known.

    A Slack account is a member id with its workspace (T…/U…), or without it (U…): then of the app's own workspace.
    `manager` is the id of another person. `time_zone` is a name of the IANA database, such as Europe/Berlin; `quiet`
    counts by its clock.
    """

    id: PersonName
    name: Annotated[str, Field(min_length=1, max_length=200)]
    active: bool = True
    manager: PersonName | None = None
    time_zone: _Zone = "UTC"
    quiet: QuietDocument | None = None
    delegate: DelegationDocument | None = None

    @property
    def quiet_hours(self) -> Quiet | None:
        """The hours in which this person gets no private messages."""
        if self.quiet is None:
            return None
        return Quiet(self.time_zone, time.fromisoformat(self.quiet.begins), time.fromisoformat(self.quiet.ends))

    @property
    def delegation(self) -> Delegation | None:
        """The time in which somebody else may decide for this person."""
        if self.delegate is None:
            return None
        zone = zone_of(self.time_zone) or UTC
        days = (date.fromisoformat(self.delegate.first), date.fromisoformat(self.delegate.last) + timedelta(days=1))
        begins, ends = (datetime.combine(day, time(0), zone).astimezone(UTC) for day in days)
        return Delegation(self.delegate.to, begins, ends)


class ServiceAccountDocument(PrincipalsDocument):
    """A machine that acts, such as an integration user. It counts as its owner wherever people are told apart.

    If it is not `active`, it has no token that is good, and nothing goes out of what it has asked for.
    """

    id: PersonName
    owner: PersonName
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    active: bool = True


class DirectoryDocument(DocumentPart):
    """People, service accounts and groups of one tenant; publishing it replaces what was there."""

    directory: PersonName
    version: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    people: Annotated[tuple[PersonDocument, ...], Field(max_length=10_000)]
    service_accounts: Annotated[tuple[ServiceAccountDocument, ...], Field(max_length=1_000)] = ()
    groups: dict[PersonName, tuple[PersonName, ...]] = Field(default_factory=dict)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The people with their groups, then the service accounts."""
        groups: dict[str, set[str]] = {}
        for group, persons in self.groups.items():
            for person in persons:
                groups.setdefault(person, set()).add(group)
        people = [
            Entry(
                id=one.id,
                name=one.name,
                active=one.active,
                groups=frozenset(groups.get(one.id, ())),
                principals=one.principals,
                quiet=one.quiet_hours,
                manager=one.manager,
                delegate=one.delegation,
            )
            for one in self.people
        ]
        machines = [
            Entry(one.id, one.name or one.id, one.active, principals=one.principals, owner=one.owner)
            for one in self.service_accounts
        ]
        return (*people, *machines)

    @property
    def deciders(self) -> dict[str, frozenset[str]]:
        """The members of each group who may vote, by the group's name."""
        active = frozenset(person.id for person in self.people if person.active)
        return {group: active.intersection(persons) for group, persons in self.groups.items()}


def load_directory(text: str, file: str) -> DirectoryDocument:
    """Read and check a directory. ``DefinitionError`` lists every problem with its place."""
    document = load_document(text, file)
    content = validate(document, DirectoryDocument)
    faults = [*impossible_days(content.people)] or [*_faults(content)]
    if problems := tuple(document.problem(*fault) for fault in faults):
        raise DefinitionError(problems)
    return content


def _faults(content: DirectoryDocument) -> Iterator[tuple[Path, str, str]]:
    """Find the faults that the types do not exclude: the place of each, its description and the remedy."""
    people = {person.id for person in content.people}
    for number, person in enumerate(content.people):
        if zone_of(person.time_zone) is None:
            message = f"There is no time zone {person.time_zone!r}."
            yield ("people", number, "time_zone"), message, "Name one of the IANA database, such as Europe/Berlin."
        if person.quiet is not None and person.quiet.begins == person.quiet.ends:
            message = "These quiet hours begin when they end."
            yield (
                ("people", number, "quiet"),
                message,
                "Name two times: messages wait until they end.",
            )
    yield from _managed_badly(content, people)
    yield from delegated_badly(content.people)
    claimed: dict[str, int] = {}
    for number, entry in enumerate(content.entries):
        machine = entry.owner is not None
        path: Path = ("service_accounts", number - len(content.people)) if machine else ("people", number)
        for claim in dict.fromkeys(claims(entry)):
            kind, _, name = claim.partition(":")
            if claimed.setdefault(claim, number) != number and kind == Kind.PERSON:
                yield (*path, "id"), f"The id {name!r} is here twice; its case makes no difference.", ""
            elif claimed[claim] != number:
                message = f"The {kind} account {name!r} belongs to two, so nobody could tell who acts."
                yield (*path, kind), message, "Name it in one place."
        if machine and entry.owner not in people:
            message = f"{entry.owner!r}, who owns {entry.id!r}, is not among the people."
            yield (*path, "owner"), message, "Name a person: somebody answers for every account."
    for group, persons in content.groups.items():
        for number, name in enumerate(persons):
            if name not in people:
                message = f"The group {group!r} names {name!r}, who is not among the people."
                yield ("groups", group, number), message, "Add the person, or take it out."
            elif name in persons[:number]:
                yield ("groups", group, number), f"{name!r} is in {group!r} twice.", ""


def _managed_badly(content: DirectoryDocument, people: set[str]) -> Iterator[tuple[Path, str, str]]:
    """Find managers who are not in the directory, and people who would manage themselves, directly or not."""
    above = {person.id: person.manager for person in content.people}
    for number, person in enumerate(content.people):
        place: Path = ("people", number, "manager")
        if person.manager is None:
            continue
        if person.manager not in people:
            message = f"{person.manager!r}, who manages {person.id!r}, is not among the people."
            yield place, message, "Add the person, or leave `manager` out."
            continue
        chain: list[str] = [person.id]
        one: str | None = person.manager
        while one is not None and one not in chain:
            chain.append(one)
            one = above.get(one)
        if one == person.id:  # a cycle is reported for each person in it, and for nobody below it
            line = " → ".join([*chain, person.id])
            message = f"{person.id!r} would manage themselves: {line}."
            yield place, message, "Let the highest of them have no `manager`."


UNCHECKED = "the tenant has no directory yet, so whether anybody can decide was not checked."
# A question: its path, the key of the question and of its escalation, the part that asks, and the terms.
_Asked: TypeAlias = tuple[Path, tuple[str, str], str, Terms]
_REMEDY = "Publish the directory first: `counterseal directory publish FILE`."


class Findings(Struct):
    """Questions that nobody could decide: always (``problems``), or only in some cases or unchecked (``warnings``)."""

    problems: list[Problem]
    warnings: list[str]


def of_policy(text: str, file: str, groups: Groups | None) -> Findings:
    """Check each rule that asks people, apart from other rules. ``groups`` is None if there is no directory."""
    document = load_document(text, file)
    content = validate(document, PolicyDocument)
    asked = [
        (("rules", index), ("approvers", "escalate"), f", rule {rule.id}", terms_of([rule]))
        for index, rule in enumerate(content.rules)
        if rule.asks
    ]
    asked += [
        (("rules", index), ("in_doubt", "in_doubt"), f", rule {rule.id}: in doubt", _in_doubt(rule.in_doubt))
        for index, rule in enumerate(content.rules)
        if rule.in_doubt is not None
    ]
    return _findings(document, f"policy {content.policy} version {content.version}", asked, groups)


def _in_doubt(named: InDoubt) -> Terms:
    # The requester never answers this question; ``allow`` keeps this check from warning about that.
    return Terms(Tier.HIGH, quorums(named.approvers), allow=(Role.REQUESTER,))


def of_workflow(text: str, file: str, groups: Groups | None) -> Findings:
    """Check every gate, every task and every escalation of a workflow."""
    document = load_document(text, file)
    content = validate(document, WorkflowDocument)
    return _findings(document, f"workflow {content.workflow} version {content.version}", _asked(content, ()), groups)


def _asked(part: BaseModel, path: Path) -> Iterator[_Asked]:
    match part:
        case GateDocument():
            yield path, ("approvers", "approvers"), "", gate_terms(part)
        case AssignDocument():
            # Any member of the group may do the task, also the requester.
            terms = Terms(Tier.MEDIUM, (GroupQuorum(part.group),), allow=(Role.REQUESTER,))
            yield path, ("group", "group"), "", terms
        case EscalationDocument():
            yield path, ("escalate", "escalate"), "", Terms(Tier.MEDIUM, (GroupQuorum(part.escalate),))
    for name, info in type(part).model_fields.items():
        value: Any = getattr(part, name)
        here = (*path, info.alias or name)
        for index, item in enumerate(value) if isinstance(value, tuple) else ((None, value),):
            if isinstance(item, BaseModel):
                yield from _asked(item, here if index is None else (*here, index))


def _findings(document: Document, name: str, asked: Iterable[_Asked], groups: Groups | None) -> Findings:
    found = Findings([], [])
    for path, keys, which, terms in asked:
        if groups is None:
            return Findings([], [str(document.problem(path, UNCHECKED, _REMEDY))])  # each finding is reported once
        short = shortfalls(terms, groups)
        for one in short:
            message = f"{name}{which}: {'its escalation: ' if one.escalation else ''}{one.message}"
            found.problems.append(document.problem((*path, keys[one.escalation]), message, one.remedy))
        if not short and (stuck := stuck_requesters(terms, groups)):
            shown = f"{', '.join(stuck[:5])}{' and others' if len(stuck) > 5 else ''}"
            message = f"{name}{which}: nobody could decide what {shown} requested, for want of others."
            found.warnings.append(str(document.problem((*path, keys[0]), message, "Put more people into the groups.")))
    return found
