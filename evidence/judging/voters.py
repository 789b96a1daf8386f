"""The right to decide a question, by the people of that time in a bundle: membership, parts in it, delegations."""

from __future__ import annotations

from datetime import datetime

from core.identity import Contributor, Role
from core.quorum import plans_of
from core.terms import GroupSource, Terms
from evidence.judging.case import Case, Extract, Person, Question, may_mean


def barred(case: Case, question: Question, voter: str, directory: object) -> Role | None:
    """The role in what is asked that bars this person from deciding; None if there is none (promise 12)."""
    extract = case.extracts.get(str(directory))
    every = question.contributors
    if every is None:
        every = (Contributor(Role.REQUESTER, question.requester, None),)
    for one in every:
        if one.role in question.terms.allow:
            continue
        if one.person == voter or (extract is not None and voter in extract.meant(one.principal)):
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
    """True if this person is in the group with this key; of one who is asked as themself the key has the id."""
    source, _, group = key.partition(":")
    if source == GroupSource.GROUP:
        return group in person.groups
    return source in (GroupSource.PERSON, GroupSource.MANAGER_OF) and group.partition("/")[0] == voter


def keys_of(terms: Terms, *, escalated: bool) -> frozenset[str]:
    """The keys of the groups that may decide now."""
    return frozenset(group.key for plan in plans_of(terms, escalated=escalated) for group in plan)
