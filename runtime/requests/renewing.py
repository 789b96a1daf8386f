"""What a folder holds when a process starts is published where it is new, and only there (X-1).

Somebody may have published something else meanwhile, by hand, in an emergency; and the folder may be an old one, on one
machine of several. So a start takes a tenant forward and never back: a text is new that was never published in the
tenant, under the name that is in use, with a version above all that were published under it. Everything else is left
alone, and said. To go back, or over to another name, is a verb: publish it by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct

from core.canonical import sha256_hex
from core.db import Connection
from core.errors import ConsistencyError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.definition.people import load_directory
from runtime.definition.workflow import load_workflow
from runtime.requests import publishing
from runtime.requests.publishing import Published
from runtime.store import documents, tenants
from runtime.store.documents import Edition, Past


@dataclass(frozen=True, slots=True)
class Left:
    """What was not published, and why."""

    name: str
    version: int
    why: str


class Before(Struct, frozen=True):
    """What a tenant had before the folder was looked at. ``connection`` and the tenant's lock are the caller's."""

    tenant: str
    workflows: tuple[Edition, ...]
    policy: Edition | None

    @classmethod
    async def look(cls, connection: Connection, tenant: str) -> Before:
        """Lock the tenant until the transaction ends, and see what it has.

        So of processes that start together one publishes, and the others find it published. A crash before the commit
        leaves everything as it was, and whichever process starts next publishes it.
        """
        await tenants.lock(connection, tenant)
        policies = await documents.past_policies(connection, tenant)
        workflows = await documents.workflow_versions(connection, tenant)
        editions = tuple(Edition(one.name, one.version, one.digest) for one in workflows)
        return cls(tenant, editions, policies.in_use)


Renewed: TypeAlias = Published | Left


async def renew_workflow(
    connection: Connection, definitions: Definitions, before: Before, text: str, file: str, actor: Actor
) -> Renewed:
    """Publish a version, unless a higher one was there before. ``ConsistencyError`` as ``publish_workflow``."""
    found = load_workflow(text, file, definitions.catalog)
    edition = Edition(found.name, found.version, found.digest)
    higher = _higher(edition, before.workflows)
    if higher and not _of_number(edition, before.workflows):
        return Left(found.name, found.version, f"version {higher.version} is published")
    return await publishing.publish_workflow(connection, definitions, before.tenant, text, file, actor)


async def renew_policy(
    connection: Connection, definitions: Definitions, before: Before, text: str, file: str, actor: Actor
) -> Renewed:
    """Publish and activate a policy that takes the active one forward. ``ConsistencyError`` as ``publish_policy``."""
    found = definitions.compile_policy(text, file)
    edition = Edition(found.name, found.version, found.digest)
    past = await documents.past_policies(connection, before.tenant)
    if edition == past.in_use:
        return Published(edition.name, edition.version, edition.digest, False)
    another_text = edition not in past.editions and _of_number(edition, past.editions)
    if not another_text and (why := _not_forward(edition, past, before.policy)):
        return Left(edition.name, edition.version, f"{why}; `counterseal policy publish {file}` activates it")
    return await publishing.publish_policy(connection, definitions, before.tenant, text, file, actor)


async def renew_directory(connection: Connection, before: Before, text: str, file: str, actor: Actor) -> Renewed:
    """Publish a directory that takes the one in use forward. ``ConsistencyError`` for another text of its version."""
    found = load_directory(text, file)
    edition = Edition(found.directory, found.version, sha256_hex(text.encode()))
    past = await documents.past_directories(connection, before.tenant)
    if edition == past.in_use:
        return Published(edition.name, edition.version, edition.digest, False)
    by_hand = f"`counterseal directory publish {file}` publishes it"
    if edition not in past.editions and _of_number(edition, past.editions):
        raise ConsistencyError(
            f"The directory {edition.name} version {edition.version} in {file} was published with another text.",
            remedy=f"Give this text a higher number, such as version: {edition.version + 1}; or {by_hand}.",
        )
    if why := _not_forward(edition, past, past.in_use):
        return Left(edition.name, edition.version, f"{why}; {by_hand}")
    return await publishing.publish_directory(connection, before.tenant, text, file, actor)


def _not_forward(edition: Edition, past: Past, in_use: Edition | None) -> str:
    """Why publishing it would not take the tenant forward; nothing where it would."""
    if past.in_use is not None and edition in past.editions:
        return f"it was published before, and {past.in_use} is in use"
    if in_use is not None and in_use.name != edition.name:
        return f"{in_use} is in use, and a start changes no name"
    higher = _higher(edition, past.editions)
    return f"version {higher.version} was published" if higher else ""


def _of_number(edition: Edition, editions: Iterable[Edition]) -> bool:
    """Whether something with this name and version was published, whatever its text."""
    return any((one.name, one.version) == (edition.name, edition.version) for one in editions)


def _higher(edition: Edition, editions: Iterable[Edition]) -> Edition | None:
    """The highest version of the same name that is above this one."""
    above = [one for one in editions if one.name == edition.name and one.version > edition.version]
    return max(above, key=lambda one: one.version, default=None)
