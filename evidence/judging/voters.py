"""The right to decide a question, by the people of that time in a bundle: membership, parts in it, delegations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from core.identity import Contributor, Role
from core.quorum import plans_of
from core.terms import GroupSource, Terms
from evidence.judging.case import CLOCK_SECONDS, Case, Extract, Person, Question, may_mean

# The ways in which a voter may log in again.
_STEP_UPS = ("oidc", "token")


def barred(case: Case, question: Question, voter: str, directory: object) -> Role | None:
    """The role in what is asked that bars this person from deciding; None if there is none (promise 12)."""
    return _part(case, question, voter, directory, frozenset(Role) - {*question.terms.allow})


def gave(case: Case, question: Question, who: str, directory: object) -> bool:
    """True if this person has asked for it, or filled in a form that it comes from: they may correct it."""
    return _part(case, question, who, directory, frozenset({Role.REQUESTER, Role.FORM_FILLER})) is not None


def _part(case: Case, question: Question, voter: str, directory: object, roles: frozenset[Role]) -> Role | None:
    """The first of these roles that this person has in what is asked; None if they have none of them."""
    extract = case.extracts.get(str(directory))
    every = question.contributors
    if every is None:
        every = (Contributor(Role.REQUESTER, question.requester, None),)
    for one in every:
        if one.role not in roles:
            continue
        if one.person == voter or (extract is not None and voter in extract.people_of(one.principal)):
            return one.role
        if extract is None and one.person is None and may_mean(one.principal, voter):
            return one.role
    return None


def decides_for(extract: Extract, voter: str, behalf: str, at: str) -> bool:
    """True if the record of one person said at that time that the other decides for them."""
    whose = extract.people.get(behalf)
    if whose is None or whose.standing != "person" or whose.delegate is None or voter == behalf:
        return False
    return whose.delegate.to == voter and whose.delegate.holds(datetime.fromisoformat(at))


def holds(key: str, voter: str, person: Person) -> bool:
    """True if this person is in the group with this key; the key of a single person holds their id."""
    source, _, group = key.partition(":")
    if source == GroupSource.GROUP:
        return group in person.groups
    return source in (GroupSource.PERSON, GroupSource.MANAGER_OF) and group.partition("/")[0] == voter


def no_login(event: Mapping[str, Any], asked_at: str, seconds: int | None) -> str | None:
    """The reason why a vote lacks the fresh login that the terms of its question ask for; None if it has one.

    Whoever approves must have logged in again in the console, after the question was asked, and not too long ago.
    """
    data, voter = event["data"], event["actor"]["id"]
    if seconds is None or data["choice"] != "approve":
        return None
    identity = data.get("identity")
    step_up = identity.get("step_up") if isinstance(identity, dict) else None
    at, by = (step_up.get("at"), step_up.get("by")) if isinstance(step_up, dict) else (None, None)
    if by not in _STEP_UPS or data["channel"] != "console" or (login := _time(at)) is None:
        return f"its terms ask for a login anew, and {voter} approved without one"
    if (login - datetime.fromisoformat(asked_at)).total_seconds() < -CLOCK_SECONDS:
        return f"{voter} logged in before the question was asked"
    age = (datetime.fromisoformat(event["ts"]) - login).total_seconds()
    return None if -CLOCK_SECONDS <= age <= seconds + CLOCK_SECONDS else f"the login of {voter} was too old for this"


def broke(terms: Terms, choice: str, groups: frozenset[str]) -> bool:
    """True if this is an approval by emergency access (break-glass), which alone lets the action out."""
    return terms.break_glass is not None and choice == "approve" and terms.break_glass.keys <= groups


def no_glass(kind: str, terms: Terms, data: Mapping[str, Any], groups: frozenset[str]) -> str | None:
    """The reason why this vote may not use emergency access (break-glass); None if it may."""
    if kind != "action" or terms.break_glass is None:
        return "no rule lets anybody"
    if data["choice"] != "approve" or data.get("on_behalf") or data.get("grant"):
        return "it is no approval of one's own, of this alone"
    if data.get("reason_given") is not True:
        return "it gives no reason"
    return None if groups == terms.break_glass.keys else "not as one of those who may"


def glass_closed(terms: Terms, decided_at: str, at: str, glass: Iterable[bool]) -> bool:
    """True if an approval rests on emergency access (break-glass) that had expired when the approval was used."""
    if terms.break_glass is None or not any(glass):
        return False
    age = (datetime.fromisoformat(at) - datetime.fromisoformat(decided_at)).total_seconds()
    return age > terms.break_glass.seconds + CLOCK_SECONDS


def _time(text: object) -> datetime | None:
    """A time with its zone; None for anything else."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def keys_of(terms: Terms, *, escalated: bool) -> frozenset[str]:
    """The keys of the groups that may decide now."""
    return frozenset(group.key for plan in plans_of(terms, escalated=escalated) for group in plan)
