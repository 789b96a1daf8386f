"""The people and accounts in whose name a step acts: who has asked for it, who asks now, and if they are active. Pure.

A run acts for its requester. If a person goes on with the failed run, it acts for that person from then on. A step that
somebody added acts for them as well, and so does the token that was used.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.identity import Directory, Entry, Kind, Role, Standing
from runtime.engine import contributors
from runtime.engine.run import Run, RunView

# The decision that denies what is done for them, and the code with which its step fails.
BY_ACCOUNT, INACTIVE = "contributors:inactive", "requester_inactive"


def latest(run: Run, key: str) -> list[str]:
    """The principals that ask now: who added the step, else who went on with the run last, else its requester.

    In a run within another, those who did that to the run above ask.
    """
    node = key.partition("/")[0].rpartition(".")[2]
    if node in run.adders:
        return [run.adders[node]]
    if run.retried_by:
        return [run.retried_by]
    above = [who for role, _, who in marks_of_run(run) if role in (Role.RETRIER, Role.STEP_ADDER)]
    return above or [run.requested_by]


def marks_of_run(run: Run) -> Iterator[tuple[Role, str, str]]:
    """The parts of those who shaped the run as a whole."""
    return map(contributors.parted, run.state.shaped.get(contributors.RUN, ()))


def everybody(run: Run, key: str) -> list[str]:
    """All principals that have asked so far, the latest first."""
    others = [who for role, _, who in marks_of_run(run) if role in (Role.RETRIER, Role.STEP_ADDER)]
    return [*dict.fromkeys([*latest(run, key), *others, run.requested_by])]


def name_of(people: Directory, who: str) -> str:
    """The id of the person for whom a principal stands; the principal itself if the directory knows none."""
    return people.resolve(who) or who


def person_of(people: Directory, who: str) -> Entry | None:
    """The active person who is this principal; None for an account of a machine, for leavers and for strangers."""
    entry = people.entry(who)
    return entry if entry is not None and entry.standing is Standing.PERSON else None


def acting(run: Run, key: str) -> list[tuple[str, str]]:
    """The principals for which a step acts, each with its part in words."""
    found = [(who, "asked for it") for who in [*latest(run, key), run.retried_by or run.requested_by]]
    if not run.retried_by:
        found += [(who, "had the token that was used") for role, _, who in marks_of_run(run) if role is Role.BEARER]
    return [*dict.fromkeys(found)]


def inactive_for(view: RunView, run: Run, key: str) -> str | None:
    """The reason why nothing may go out for a step any more; None if all for whom it acts are active.

    Whom the directory does not know at all is no account that somebody has switched off, unless it had a token.
    """
    people = view.directory
    for who, part in acting(run, key):
        entry = people.entry(who)
        # Only accounts of the directory have tokens: one that it has no more was taken out of it.
        by_token = who.startswith(f"{Kind.BEARER}:") or (run.started_by is not None and who == run.requested_by)
        taken_out = entry is None and by_token and people.digest
        why = "is not in the directory any more" if taken_out else None if entry is None else off(people, entry)
        if why is not None:
            remedy = "Whoever is responsible now may retry the run, which then acts for them."
            return f"{who!r}, who {part}, {why}: nothing goes out for them any more. {remedy}"
    return None


def off(people: Directory, entry: Entry) -> str | None:
    """The reason why an entry of the directory may ask for nothing; None if it is active, and its owner too."""
    if not entry.active:
        return "is not active any more"
    owner = people.entries.get(entry.owner) if entry.owner is not None else None
    if entry.owner is not None and (owner is None or not owner.active):
        return f"belongs to {entry.owner!r}, who is not active any more"
    return None
