"""Approvers from data: the requester's manager, and people named in a field, both looked up in the directory. Pure.

For each of them exactly one person is asked, or nobody. If that person is not found, is not active, or has shaped the
action, the action is denied with the reason; a wider group is never asked instead (promise 12). The terms bind the
person, so that another manager, or another value of the field, voids the question and people are asked anew.
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

# The rule of a decision that denies because an approver cannot be found.
NOBODY = "contributors:approver"


def are_unresolved(terms: Terms) -> bool:
    """True if these terms name approvers who are not looked up yet."""
    return any(one.person == UNFOUND for one in terms.approvers)


def resolve(terms: Terms, run: Run, people: Iterable[Contributor], directory: Directory) -> Terms | str:
    """Look up the approvers. Returns the terms with them, or the reason why nobody is asked if one cannot decide.

    ``people`` are those who shaped the action, including whoever named an approver.
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
    """Look up the person to be asked, or else the reason why there is none; and where their name comes from."""
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
        problem = f"names {value!r}, who is not one person of the directory" if value.strip() else "names nobody"
        return f"Nobody was asked: {fact} {problem}. {_REMEDY}", fact
    if entry.standing is Standing.MACHINE:
        return f"Nobody was asked: {fact} names {value!r}, a service account, which never decides. {_REMEDY}", fact
    return entry, fact


def chosen(terms: Terms, directory: Directory) -> tuple[str, ...]:
    """The approvers that were looked up, for a card: who they are, and why they are asked."""
    every = ((one, directory.entries.get(one.person or "")) for one in terms.approvers)
    return tuple(f"{entry.name}, {reason_of(one, directory)}" for one, entry in every if entry is not None)
