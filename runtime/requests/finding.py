"""Finds what is a person's, such as runs, by any of their names (promise 12)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from core.canonical import Json, canonical_bytes
from core.db import Connection
from core.errors import InputError
from core.identity import Directory, Kind, principal
from runtime.store import tenants
from runtime.store.read_models import RunFilter

# A longer value is no name for anything, and an index is no store of values.
SEARCHED_MAX = 200


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


def by_values(wanted: RunFilter, pairs: Iterable[str]) -> RunFilter:
    """The filter for runs that are found by all of these, each as NAME=VALUE. ``InputError`` for anything else."""
    found = dict[str, str]()
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals) or name in found:
            raise InputError(f"{pair!r} is no NAME=VALUE of its own.", where="search", remedy="Such as customer=ACME.")
        found[name] = search_text(name, value)
    return replace(wanted, names=tuple(found), values=tuple(found.values()))


def search_text(name: str, value: Json) -> str:
    """A value as it is compared: a text, a number, true or false, in few characters."""
    text = value if isinstance(value, str) else canonical_bytes(value).decode()
    if isinstance(value, dict | list) or not 0 < len(text) <= SEARCHED_MAX:
        words = f"the value by which a run is found as {name!r} is no text or number of 1 to {SEARCHED_MAX} characters"
        raise InputError(words, where="search", remedy="Send another value, or mend the workflow's `search`.")
    return text
