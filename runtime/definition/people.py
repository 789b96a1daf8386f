"""The directory of people and groups as it is written: models of the YAML, and the faults that they cannot see."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from core.documents import Document, load_document
from core.errors import DefinitionError, Problem
from core.validation import validate


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Identifier = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]


class PersonDocument(_Part):
    """One person; ``slack`` is their Slack account: the member id (U…), or with its workspace (T…/U…).

    A member id alone is one of the workspace in which the app is installed.
    """

    id: Identifier
    name: Annotated[str, Field(min_length=1, max_length=200)]
    slack: Annotated[str, Field(pattern=r"^([TE][A-Z0-9]{2,20}/)?[UW][A-Z0-9]{2,20}$")] | None = None


class DirectoryDocument(_Part):
    """People and groups of one tenant; publishing it replaces what was there."""

    directory: Identifier
    version: Annotated[int, Field(ge=1)] = 1
    people: Annotated[tuple[PersonDocument, ...], Field(max_length=10_000)]
    groups: dict[Identifier, tuple[Identifier, ...]] = {}


def load_directory(text: str, file: str) -> DirectoryDocument:
    """Read and check a directory. ``DefinitionError`` lists every problem with its place."""
    document = load_document(text, file)
    content = validate(document, DirectoryDocument)
    problems = _problems(document, content)
    if problems:
        raise DefinitionError(tuple(problems))
    return content


def _problems(document: Document, content: DirectoryDocument) -> list[Problem]:
    problems = []
    ids: set[str] = set()
    accounts: set[str] = set()
    for number, person in enumerate(content.people):
        if person.id in ids:
            problems.append(document.problem(("people", number, "id"), f"The person {person.id!r} is here twice."))
        if person.slack is not None and person.slack in accounts:
            message = f"The Slack account {person.slack} belongs to two people."
            problems.append(document.problem(("people", number, "slack"), message))
        ids.add(person.id)
        accounts |= {person.slack} if person.slack else set()
    for group, persons in content.groups.items():
        for number, name in enumerate(persons):
            if name not in ids:
                message = f"The group {group!r} names {name!r}, who is not among the people."
                problems.append(document.problem(("groups", group, number), message, "Add the person, or take it out."))
            elif name in persons[:number]:
                problems.append(document.problem(("groups", group, number), f"{name!r} is in {group!r} twice."))
    return problems
