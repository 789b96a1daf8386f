"""Publishes documents from a process's folder when the process starts, but only the new ones.

Somebody may have published something else by hand in an emergency, and one machine of several may have an old folder.
So a start takes a tenant forward and never back. A text is new if it was never published in the tenant, and its version
is above all published versions of its name; a retired name stays retired. Everything else is left alone, and reported.
To go back, publish by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from core.canonical import sha256_hex
from core.db import Connection
from core.errors import ConsistencyError
from core.identity import Directory
from core.terms import POLICY_APPROVERS
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.definition.people import load_directory
from runtime.definition.workflow import load_workflow
from runtime.requests.directory import approvers
from runtime.requests.policies import Published, publish_policy
from runtime.requests.publishing import publish_directory, publish_workflow
from runtime.store import documents, tenants
from runtime.store.documents import Edition, Past


class Left(Struct, frozen=True):
    """A document that was not published, and the reason."""

    name: str
    version: int
    why: str


class Before(Struct, frozen=True):
    """The tenant's documents before the renewal. The caller owns ``connection`` and holds the tenant's lock."""

    tenant: str
    workflows: tuple[Edition, ...]
    policies: Past

    @classmethod
    async def look(cls, connection: Connection, tenant: str) -> Before:
        """Lock the tenant until the transaction ends, and read its documents.

        So if processes start together, one publishes, and the others find the documents published. A crash before the
        commit leaves everything as it was, and the next start publishes it.
        """
        await tenants.lock(connection, tenant)
        policies = await documents.past_policies(connection, tenant)
        workflows = await documents.workflow_versions(connection, tenant)
        editions = tuple(Edition(one.name, one.version, one.digest) for one in workflows)
        return cls(tenant, editions, policies)


Renewed: TypeAlias = Published | Left


async def renew_workflow(
    connection: Connection, definitions: Definitions, before: Before, text: str, file: str, actor: Actor
) -> Renewed:
    """Publish a version, unless a higher one is published. ``ConsistencyError`` as for ``publish_workflow``."""
    found = load_workflow(text, file, await definitions.published(connection, before.tenant))
    edition = Edition(found.name, found.version, found.digest)
    higher = _higher(edition, before.workflows)
    if higher and not _of_number(edition, before.workflows):
        return Left(found.name, found.version, f"version {higher.version} is published")
    return await publish_workflow(connection, definitions, before.tenant, text, file, actor)


async def renew_policy(
    connection: Connection, definitions: Definitions, before: Before, text: str, file: str, actor: Actor
) -> Renewed:
    """Publish and activate a policy with a new name or a higher version. Errors as for ``publish_policy``."""
    found = definitions.compile_policy(text, file, await definitions.published(connection, before.tenant))
    edition = Edition(found.name, found.version, found.digest)
    past = await documents.past_policies(connection, before.tenant)
    if edition in past.in_use:
        return Published(edition.name, edition.version, edition.digest, False)
    if approvers(await tenants.directory(connection, before.tenant)):
        return Left(edition.name, edition.version, f"a policy is put in force by two of the group {POLICY_APPROVERS}")
    another_text = edition not in past.editions and _of_number(edition, past.editions)
    if not another_text and (why := _not_forward(edition, past) or _put_away(edition, before.policies)):
        return Left(edition.name, edition.version, f"{why}; `counterseal policy publish {file}` activates it")
    return await publish_policy(connection, definitions, before.tenant, text, file, actor)


async def renew_directory(connection: Connection, before: Before, text: str, file: str, actor: Actor) -> Renewed:
    """Publish a directory with a higher version than the one in use. ``ConsistencyError`` if the version is taken."""
    found = load_directory(text, file)
    edition = Edition(found.directory, found.version, sha256_hex(text.encode()))
    past = await documents.past_directories(connection, before.tenant)
    if edition in past.in_use:
        return Published(edition.name, edition.version, edition.digest, False)
    by_hand = f"`counterseal directory publish {file}` publishes it"
    people = Directory.of(edition.digest, found.entries)
    now = approvers(await tenants.directory(connection, before.tenant))
    if now and now != approvers(people):
        why = f"it changes the group {POLICY_APPROVERS}, which takes two of it; {by_hand}"
        return Left(edition.name, edition.version, why)
    if edition not in past.editions and _of_number(edition, past.editions):
        raise ConsistencyError(
            f"The directory {edition.name} version {edition.version} in {file} was published with another text.",
            remedy=f"Give this text a higher number, such as version: {edition.version + 1}; or {by_hand}.",
        )
    if why := _not_forward(edition, past) or _renamed(edition, past):
        return Left(edition.name, edition.version, f"{why}; {by_hand}")
    return await publish_directory(connection, before.tenant, text, file, actor)


def _not_forward(edition: Edition, past: Past) -> str:
    """The reason why publishing the text would not take the tenant forward; "" if it would."""
    if edition in past.editions:
        used = past.used(edition.name) or next(iter(past.in_use), None)
        return f"it was published before, and {used} is in use" if used else "it was published before"
    higher = _higher(edition, past.editions)
    return f"version {higher.version} was published" if higher else ""


def _put_away(edition: Edition, before: Past) -> str:
    """The reason why a start does not put a policy of this name in force: somebody took it out of force; or ""."""
    known = any(one.name == edition.name for one in before.editions)
    return "a policy of this name is published and not in force" if known and before.used(edition.name) is None else ""


def _renamed(edition: Edition, past: Past) -> str:
    """The reason why a directory is not replaced by one of another name."""
    if past.in_use and past.in_use[0].name != edition.name:
        return f"{past.in_use[0]} is in use, and a start changes no name"
    return ""


def _of_number(edition: Edition, editions: Iterable[Edition]) -> bool:
    """True if this name and version was published, whatever its text."""
    return any((one.name, one.version) == (edition.name, edition.version) for one in editions)


def _higher(edition: Edition, editions: Iterable[Edition]) -> Edition | None:
    """The highest published version of the same name, if it is above this one; else None."""
    above = [one for one in editions if one.name == edition.name and one.version > edition.version]
    return max(above, key=lambda one: one.version, default=None)
