"""Published documents: workflows and policies, immutable by version and digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson
from msgspec import Struct

from core.canonical import JsonObject
from core.db import Connection
from core.errors import ConsistencyError, NotFoundError, nearest
from evidence.chain import Actor, EventType
from policy.load import Policy
from runtime.store import audit, replication
from runtime.store.statements import statements

NAMED_MAX = 10  # how many numbers an error lists


class StoredWorkflow(Struct, frozen=True):
    """One published version: its exact text, and the declarations of its operations as they were frozen with it.

    ``schedule`` tells the keeper at which moments it starts runs with this version.
    """

    name: str
    version: int
    digest: str
    source: str
    operations: JsonObject
    schedule: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """One published version without its text.

    ``operations`` are the names of the operations that it calls, ``connectors`` the connectors that it needs, both
    sorted. ``waits_for`` is the reason why no run starts with it before an admin activates it; None if there is none.
    """

    name: str
    version: int
    digest: str
    published_by: str
    published_at: datetime
    retired_at: datetime | None
    operations: tuple[str, ...]
    connectors: tuple[str, ...]
    waits_for: str | None = None


class Edition(Struct, frozen=True):
    """The name, version and digest of a document that is or was published, without its text."""

    name: str
    version: int
    digest: str

    def __str__(self) -> str:
        return f"{self.name} version {self.version} ({self.digest[:12]})"


class Past(Struct, frozen=True):
    """All documents of one kind that a tenant ever published, and which are in use: at most one of each name."""

    editions: tuple[Edition, ...]
    in_use: tuple[Edition, ...]

    def used(self, name: str) -> Edition | None:
        """The edition of this name that is in use; None if none is."""
        return next((one for one in self.in_use if one.name == name), None)


_SQL = statements("documents")
_VERSIONS = _SQL["versions"]
_RETIRE = _SQL["retire"]
_ACTIVATE = _SQL["activate"]
_NEWEST = _SQL["newest"]
_ALIVE = _SQL["alive"]
_BY_DIGEST = _SQL["by_digest"]
_PUBLISH_WORKFLOW = _SQL["publish_workflow"]
_PUBLISH_POLICY = _SQL["publish_policy"]
_SAME_POLICY_VERSION = _SQL["same_policy_version"]
_IN_FORCE = _SQL["in_force"]
_CHANGE_POLICIES = _SQL["change_policies"]
_POLICIES = _SQL["policies"]
_DIRECTORIES = _SQL["directories"]
_DIRECTORY_SINCE = _SQL["directory_since"]
_DIRECTORY_TEXTS = _SQL["directory_texts"]
_POLICY_OF = _SQL["policy_of"]
_PROPOSED = _SQL["proposed"]
_POLICY = _SQL["policy"]


async def newest_workflows(
    connection: Connection, tenant: str, name: str | None = None, version: int | None = None
) -> list[StoredWorkflow]:
    """The newest startable version of every workflow, or of the named one: neither retired nor waiting for an admin."""
    return [StoredWorkflow(**row) for row in await connection.fetch(_NEWEST, tenant, name, version)]


async def living_workflows(connection: Connection, tenant: str) -> list[StoredWorkflow]:
    """Every version of every workflow with which a run may start, also on demand, or with which an open run goes on."""
    return [StoredWorkflow(**row) for row in await connection.fetch(_ALIVE, tenant)]


async def workflow(connection: Connection, tenant: str, name: str, version: int) -> StoredWorkflow | None:
    """One version, retired or not: a run goes on with the version that it started with."""
    row = await connection.fetchrow(_BY_DIGEST, tenant, name, version)
    return None if row is None else StoredWorkflow(**row)


async def workflow_versions(connection: Connection, tenant: str, name: str | None = None) -> list[PublishedVersion]:
    """Every version of every workflow, or of the named one; ordered by name, the newest version first."""
    rows = await connection.fetch(_VERSIONS, tenant, name)
    lists = ("operations", "connectors")
    return [PublishedVersion(**{**row, **{name: tuple(row[name]) for name in lists}}) for row in rows]


async def startable_workflow(connection: Connection, tenant: str, name: str, version: int | None) -> StoredWorkflow:
    """The version that a run may be started with now: the one named, or the newest that is not retired.

    ``NotFoundError`` if nothing of that name or number is published, ``ConsistencyError`` if it is retired; both list
    the published versions.
    """
    found = await newest_workflows(connection, tenant, name, version)
    if found:
        return found[0]
    known = await known_versions(connection, tenant, name)
    waiting = known if version is None else [of_number(known, version)]
    if one := next((one for one in waiting if one.waits_for and one.retired_at is None), None):
        raise ConsistencyError(
            f"Workflow {name!r} version {one.version} waits for an admin, because {one.waits_for}.",
            remedy=f"`counterseal workflow activate {name}@{one.version}` lets runs start with it.",
        )
    open_ = ", ".join(str(one.version) for one in known if one.retired_at is None)
    what = f"Workflow {name!r} version {version}" if version is not None else f"Every version of workflow {name!r}"
    raise ConsistencyError(
        f"{what} is retired, so no run starts with it.",
        remedy=f"New runs can have: {open_}." if open_ else "Publish a new version.",
    )


async def known_versions(connection: Connection, tenant: str, name: str) -> list[PublishedVersion]:
    """The versions of one workflow, the newest first. Without any, ``NotFoundError`` names the published workflows."""
    known = await workflow_versions(connection, tenant, name)
    unusable = () if known else await replication.listed(connection, tenant, "workflow", name)
    for one in unusable:
        words = f"The workflow {name!r} is unavailable since the last start: {one.reason}"
        raise ConsistencyError(words, remedy=f"Repair {one.place} and start anew, or publish it.")
    if not known:
        names = {one.name for one in await workflow_versions(connection, tenant)}
        remedy = nearest(name, names, "Published") or "Nothing is published: see `counterseal workflow publish`."
        raise NotFoundError(f"There is no workflow {name!r}.", remedy=remedy)
    return known


def of_number(known: Sequence[PublishedVersion], version: int) -> PublishedVersion:
    """The version with this number; ``NotFoundError`` lists the existing versions. ``known`` is not empty."""
    for one in known:
        if one.version == version:
            return one
    numbers = ", ".join(f"{one.version}{' (retired)' if one.retired_at else ''}" for one in known[:NAMED_MAX])
    raise NotFoundError(f"There is no workflow {known[0].name!r} version {version}.", remedy=f"Published: {numbers}.")


async def retire_workflow(connection: Connection, tenant: str, name: str, version: int) -> bool:
    """Keep new runs from starting with this version; False if it was retired already. Open runs go on."""
    return await connection.fetchrow(_RETIRE, tenant, name, version) is not None


async def activate_workflow(connection: Connection, tenant: str, name: str, version: int) -> bool:
    """Let runs start with a version that waited for an admin; False if it did not wait."""
    return await connection.fetchrow(_ACTIVATE, tenant, name, version) is not None


async def publish_workflow(
    connection: Connection, tenant: str, stored: StoredWorkflow, by: str, waits_for: str | None = None
) -> bool:
    """Store a version; False if exactly this was stored before. ``ConsistencyError`` if the version has another text.

    ``waits_for`` is the reason why no run starts with it before an admin activates it.
    """
    values = (
        stored.name,
        stored.version,
        stored.digest,
        stored.source,
        stored.operations,
        by,
        waits_for,
        stored.schedule,
    )
    row = await connection.fetchrow(_PUBLISH_WORKFLOW, tenant, *values)
    if row is not None:
        return True
    known = await workflow(connection, tenant, stored.name, stored.version)
    if known is not None and (known.source == stored.source or known.digest == stored.digest):
        return False
    raise ConsistencyError(
        f"{stored.name} version {stored.version} is published with another text, and versions never change.",
        remedy=f"Give this text a new number, such as version: {stored.version + 1}.",
    )


async def store_policy(
    connection: Connection, tenant: str, policy: Policy, source: str, actor: Actor, operations: JsonObject | None = None
) -> bool:
    """Store a policy with its text and its audit line; False if it was stored before.

    ``ConsistencyError`` if its version has another text. ``operations`` are the installation's own declarations that it
    was compiled against. A crash leaves both the policy and its line, or neither.
    """
    name, version, digest = policy.name, policy.version, policy.digest
    if await connection.fetchval(_SAME_POLICY_VERSION, tenant, name, version) not in (None, digest):
        raise ConsistencyError(
            f"Policy {name} version {version} is published with another text, and versions never change.",
            remedy=f"Give this text a new number, such as version: {version + 1}.",
        )
    line = await audit.line(connection, tenant, EventType.POLICY_PUBLISHED, actor, policy.named.to_json())
    return bool(await connection.fetchval(_PUBLISH_POLICY, line, source, operations, tenant))


async def change_policies(connection: Connection, tenant: str, kind: EventType, actor: Actor, data: JsonObject) -> None:
    """Put a policy in force, or take it out of force, as the event says, and append the event.

    It returns when every append with a decision that began before it has ended. A decision that is being committed at
    that moment fails its guard, and is judged again. A crash before the commit leaves the former policies.
    """
    await connection.execute(_CHANGE_POLICIES, await audit.line(connection, tenant, kind, actor, data), tenant)


async def in_force(connection: Connection, tenant: str) -> tuple[str, ...]:
    """The digests of the policies in force, ordered by name. Whoever changes them holds the tenant's lock."""
    return tuple(await connection.fetchval(_IN_FORCE, tenant) or ())


async def policy_of(connection: Connection, tenant: str, name: str, version: int) -> tuple[str, str, str]:
    """Digest, text and author of a policy's version; ``NotFoundError`` lists the published versions."""
    row = await connection.fetchrow(_POLICY_OF, tenant, name, version)
    if row is None:
        known = sorted(f"{one.name}@{one.version}" for one in (await past_policies(connection, tenant)).editions)
        remedy = nearest(f"{name}@{version}", known, "Published") or "Publish it: `counterseal policy publish FILE`."
        raise NotFoundError(f"There is no policy {name}@{version}.", remedy=remedy)
    return row["digest"], row["source"], row["published_by"]


async def proposers(
    connection: Connection, tenant: str, proposed: str, settled: Sequence[str], digest: str
) -> list[str]:
    """The people who, by the audit, proposed this text after a text of its kind was last put in force."""
    found = []
    for row in await connection.fetch(_PROPOSED, tenant, [proposed, *settled]):
        if row["type"] in settled:
            break
        data = orjson.loads(row["line"])["data"]
        if data["digest"] == digest:
            found.append(str(data["by"]))
    return found


async def past_policies(connection: Connection, tenant: str) -> Past:
    """Every policy that the tenant ever published, by name and version, and which of them are in force."""
    rows = [
        (Edition(row["name"], row["version"], row["digest"]), row["active"])
        for row in await connection.fetch(_POLICIES, tenant)
    ]
    return Past(tuple(one for one, _ in rows), tuple(one for one, active in rows if active))


async def past_directories(connection: Connection, tenant: str) -> Past:
    """Every directory that the tenant ever published, by its audit, and which one is in use."""
    lines = [orjson.loads(row["line"])["data"] for row in await connection.fetch(_DIRECTORIES, tenant)]
    editions = tuple(Edition(data["name"], data["version"], data["digest"]) for data in lines)
    return Past(editions, editions[:1])


async def directory_since(connection: Connection, tenant: str) -> datetime | None:
    """The time at which the directory in use was published; None if there is none."""
    line = await connection.fetchval(_DIRECTORY_SINCE, tenant)
    return None if line is None else datetime.fromisoformat(orjson.loads(line)["ts"])


async def directory_texts(connection: Connection, tenant: str) -> dict[str, str]:
    """The text of every directory that the tenant published, by digest; older releases kept no texts."""
    return {row["digest"]: row["source"] for row in await connection.fetch(_DIRECTORY_TEXTS, tenant)}


class StoredPolicy(Struct, frozen=True):
    """One version of a policy: its exact text, and the installation's own declarations that it was compiled against."""

    name: str
    version: int
    source: str
    operations: JsonObject | None = None


async def policy(connection: Connection, tenant: str, digest: str) -> StoredPolicy | None:
    """The policy with this digest; None if there is none."""
    row = await connection.fetchrow(_POLICY, tenant, digest)
    return None if row is None else StoredPolicy(row["name"], row["version"], row["source"], row["operations"])
