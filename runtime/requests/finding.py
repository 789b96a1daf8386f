"""Finds what is a person's, such as runs, by any of their names (promise 12)."""

from __future__ import annotations

from msgspec.structs import replace

from core.db import Connection
from core.identity import Directory, Kind, principal
from runtime.store import tenants
from runtime.store.read_models import RunFilter


async def of_person(connection: Connection, tenant: str, wanted: RunFilter, text: str | None) -> RunFilter:
    """The filter for runs that this person requested; as it is if no text is given.

    A text that stands for nobody finds the runs for which exactly that was sent, and that nobody was found for either.
    """
    if text is None:
        return wanted
    people = await tenants.directory(connection, tenant)
    person = people.resolve(text)
    if person is None:
        return replace(wanted, requester="", texts=(text,))
    return replace(wanted, requester=person, texts=tuple(sorted({text, *names_of(people, person)})))


def names_of(people: Directory, person: str) -> set[str]:
    """Every text that names this person or one of the service accounts that the person owns."""
    theirs = [entry for entry in people.entries.values() if entry.person == person]
    names = {principal(Kind.PERSON, person), *(entry.id for entry in theirs)}
    return names | {name for entry in theirs for claim in entry.principals for name in (claim, claim.partition(":")[2])}
