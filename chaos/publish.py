"""The installation that is made hostile: its schema, its documents, its people's tokens."""

from __future__ import annotations

from pathlib import Path

from app import adapters, storage
from app.access import Role, create_token
from chaos import documents
from connectors.catalog import load_catalog
from core.db import ENGINE_ROLE, Database
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.requests.publishing import ensure_tenant, publish_directory, publish_policy, publish_workflow

TENANT = "default"
_ACTOR = Actor("test", "chaos")
_ROLES = frozenset({Role.APPROVER, Role.OPERATOR, Role.TRIGGER})


async def publish(url: str, folder: Path, people: list[str]) -> dict[str, str]:
    """Everything, as ``counterseal`` publishes it; the operations go to ``folder``. A token for each person."""
    (folder / "operations").mkdir(parents=True)
    (folder / "operations" / "chaos.yaml").write_text(documents.OPERATIONS)
    await storage.upgrade(url)
    definitions = Definitions(load_catalog(adapters.documents_in(folder / "operations")))
    async with Database(url, ENGINE_ROLE) as engine:
        async with engine.transaction() as connection:
            await ensure_tenant(connection, TENANT, max_concurrency=documents.MAX_CONCURRENCY)
            await publish_directory(connection, TENANT, documents.DIRECTORY, "directory.yaml", _ACTOR)
            await publish_policy(connection, definitions, TENANT, documents.POLICY, "policy.yaml", _ACTOR)
            # A workflow is published after those that it runs.
            for name in sorted(documents.WORKFLOWS, key=lambda name: name != "inner"):
                await publish_workflow(connection, definitions, TENANT, documents.WORKFLOWS[name], name, _ACTOR)
        return {person: await create_token(engine, TENANT, person, _ROLES, None, _ACTOR) for person in people}
