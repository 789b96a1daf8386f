"""Approvers from the record: the requester's manager, and people whom a field names, found in the directory. Pure.

Exactly one person is asked in such a place, or nobody: whoever is not found, not active, or has shaped what they would
decide, is a denial with its reason, never a wider group (promise 12). Who was found is bound by the terms, so that
another manager, or another value of the field, voids the question and asks anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from approvals.content import PARTS
from approvals.electorate import reason_of
from approvals.tally import excluded
from core.identity import Contributor, Directory, Entry, Standing
from core.terms import UNFOUND, GroupQuorum, GroupSource, Terms
from runtime.engine.book import contributors
from runtime.engine.model.run import Run

# The rule of a decision that denies because a person who is to approve is not found.
NOBODY = "contributors:approver"


def wanted(terms: Terms) -> bool:
    """True if people are still to be found for these terms."""
    return any(one.person == UNFOUND for one in terms.approvers)


def found(terms: Terms, run: Run, people: Iterable[Contributor], directory: Directory) -> Terms | str:
    """The terms with the people found; the reason why nobody is asked if one of them cannot decide.

    ``people`` are those who shaped the action, whoever named an approver included.
    """
    barred, asked = excluded(terms, people), []
    for one in terms.approvers:
        if one.person != UNFOUND:
            asked.append(one)
            continue
        entry, comes_from = _entry(one, run, directory)
        if isinstance(entry, str):
            return entry
        one = replace(one, group=f"{entry.id}/{comes_from}")
        who = f"{entry.name}, {reason_of(one, directory)}"
        if entry.standing is not Standing.PERSON:
            return f"Nobody was asked: {who}, is not active in the directory. {_REMEDY}"
        if entry.id in barred:
            return f"Nobody was asked: {who}, {PARTS[barred[entry.id]]}, and does not decide on it. {_REMEDY}"
        asked.append(one)
    return replace(terms, approvers=tuple(asked))


_REMEDY = "Correct the directory or the record, or let the policy ask others."


def _entry(one: GroupQuorum, run: Run, directory: Directory) -> tuple[Entry | str, str]:
    """The person who is to be asked, and where that comes from; in place of the person the reason if none is found."""
    if one.source is GroupSource.MANAGER_OF:
        requester = contributors.requester_in(run, directory)
        managed = directory.entries.get(requester)
        if managed is None:
            return f"Nobody was asked: the directory does not know the manager of {requester!r}. {_REMEDY}", ""
        entry = directory.entries.get(managed.manager or "")
        none = f"Nobody was asked: the directory names no manager of {managed.name}. {_REMEDY}"
        return entry or none, managed.id
    fact, _, value = one.comes_from.partition("=")
    entry = directory.entry(value) if value.strip() else None
    if entry is None:
        told = f"names {value!r}, who is not one person of the directory" if value.strip() else "names nobody"
        return f"Nobody was asked: {fact} {told}. {_REMEDY}", fact
    if entry.standing is Standing.MACHINE:
        return f"Nobody was asked: {fact} names {value!r}, a service account, which never decides. {_REMEDY}", fact
    return entry, fact


def chosen(terms: Terms, directory: Directory) -> tuple[str, ...]:
    """The approvers that come from the record, for a card: who they are, and why they are asked."""
    every = ((one, directory.entries.get(one.person or "")) for one in terms.approvers)
    return tuple(f"{entry.name}, {reason_of(one, directory)}" for one, entry in every if entry is not None)
