"""Declarations of operations as faces show them: those in use, and one with its versions."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from app.faces import Faces
from core.canonical import JsonObject
from runtime.requests import declaring
from runtime.store import operations
from runtime.store.operations import StoredOperation

PACKAGED = "counterseal"


async def in_use(faces: Faces, tenant: str) -> list[dict[str, Any]]:
    """The operations that workflows may name: published ones in use, and those that are part of Counterseal."""
    now = await faces.ask(tenant, faces.definitions.published)
    used = {one.name: one for one in await faces.ask(tenant, operations.newest)}
    rows = []
    for name in sorted({*now.operations, *now.broken}):
        declared, stored = now.operations.get(name), used.get(name)
        mine = stored is not None and name not in now.packaged
        rows.append({
            "name": name,
            "version": stored.version if stored is not None and mine else None,
            "connector": "" if declared is None else declared.connector,
            "risk": "" if declared is None else str(declared.risk),
            "digest": stored.digest if stored is not None and mine else "" if declared is None else declared.digest,
            "published_by": stored.published_by if stored is not None and mine else PACKAGED,
            "published_at": stored.published_at if stored is not None and mine else None,
            "problem": now.broken.get(name, ""),
        })  # fmt: skip
    return rows


async def shown(faces: Faces, tenant: str, name: str, version: int | None) -> dict[str, Any]:
    """One declaration as it was published, with all version numbers of its name."""
    async with faces.database.transaction(tenant) as connection:
        found = await declaring.find(connection, faces.definitions, tenant, name, version)
        every = await operations.listed(connection, tenant, name)
    facts = {"name": name, "version": None, "digest": found.digest, "published_by": PACKAGED, "published_at": None}
    if isinstance(found, StoredOperation):
        facts = {key: value for key, value in structs.asdict(found).items() if key != "source"}
    return {**facts, "versions": [one.version for one in every], "declaration": declaring.declaration_of(found)}


def hidden(declaration: JsonObject) -> JsonObject:
    """A declaration without the values of its fixed inputs."""
    params = declaration.get("params")
    names: JsonObject = dict.fromkeys(params, "withheld") if isinstance(params, dict) else {}
    return {**declaration, "params": names} if names else declaration
