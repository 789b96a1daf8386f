"""Delegations: a person names somebody who decides for them for some days. Only that changes in the directory."""

from __future__ import annotations

from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from core.canonical import check_text
from core.db import Connection
from core.errors import ConsistencyError, NotFoundError
from evidence.chain import Actor
from runtime.requests.policies import Published
from runtime.requests.publishing import publish_directory
from runtime.store import bundles, tenants

_WIDTH = 4096


async def delegate(
    connection: Connection, tenant: str, person: str, days: tuple[str, str, str] | None, actor: Actor
) -> Published:
    """Let somebody else decide for a person: ``days`` is (their id, first day, last day), or None to end a delegation.

    The caller has established that the actor is this person, or an admin. The rest of the directory's text stays.
    ``DefinitionError`` if the delegate is away too, or is the person themselves. A crash before the commit leaves the
    directory as it was.
    """
    for text in days or ():
        check_text(text, "delegate")
    await tenants.lock(connection, tenant)
    digest = await tenants.directory_digest(connection, tenant)
    known = await bundles.directories(connection, tenant, [digest] if digest else [])
    if digest is None or digest not in known:
        raise ConsistencyError(
            "The text of the directory in use is not kept, so it cannot be changed here.",
            remedy="Publish it once more: `counterseal directory publish FILE`.",
        )
    return await publish_directory(connection, tenant, _changed(known[digest], person, days), "directory", actor)


def _changed(text: str, person: str, days: tuple[str, str, str] | None) -> str:
    """The directory's text with this one person's delegation changed."""
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, _WIDTH
    document: Any = yaml.load(text)
    entry = next((one for one in document["people"] if one["id"] == person), None)
    if entry is None:
        raise NotFoundError(
            f"There is no person {person!r} in the directory.", remedy="See `counterseal directory show`."
        )
    entry.pop("delegate", None)
    if days is not None:
        entry["delegate"] = dict(zip(("to", "from", "until"), days, strict=True))
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()
