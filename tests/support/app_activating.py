"""Helpers of tests/app that several test files share: from test_activating."""

from __future__ import annotations

from typing import Any

from app.access import Role
from evidence.chain import Actor
from runtime.requests import publishing
from tests.support.app_stage import PEOPLE, POLICY

TWO = POLICY.replace("version: 1", "version: 2").replace("because: It is a test.", "because: Two.")


GROUP = PEOPLE + "  policy_approvers: [ann, bob]\n"


async def admin(installation: Any, subject: str) -> Any:
    return await installation.client(Role.ADMIN, subject=subject)


async def active(installation: Any) -> str:
    row = await installation.one(
        "SELECT p.name || '@' || p.version FROM tenants t JOIN policies p ON p.digest = ANY (t.policy_digests)"
    )
    return str(row[0])


async def people(installation: Any, text: str, person: str = "ann") -> Any:
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        return await publishing.publish_directory(connection, "default", text, "p.yaml", Actor("person", person))
