"""People of the directory, put there without publishing it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import uuid4

from core.db import Database
from tests.support.asking import owning

_PERSON = """
INSERT INTO people (tenant_id, person_id, name, active, owner, principals) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING"""
_MEMBER = "INSERT INTO group_members (tenant_id, group_name, person_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
_ASKED, _SEATS = re.compile(r"\bgroup: *([\w-]+)"), 4
# Whoever knows the directory by its digest reads it anew.
_CHANGED = "UPDATE tenants SET directory_digest = $2 WHERE tenant_id = $1"


async def add_person(
    engine: Database,
    tenant: str,
    person: str,
    groups: Iterable[str] = (),
    *,
    active: bool = True,
    owner: str | None = None,
    principals: Iterable[str] = (),
) -> None:
    """Add a person, or a service account with its ``owner``, unless they are there."""
    async with owning(engine) as connection:
        await connection.execute(_PERSON, tenant, person, person.title(), active, owner, list(principals))
        for group in groups:
            await connection.execute(_MEMBER, tenant, group, person)
        await connection.execute(_CHANGED, tenant, uuid4().hex)


async def fill_groups(engine: Database, tenant: str, text: str) -> None:
    """Put people into every group that a document asks, so that somebody could always answer.

    Whoever is to answer in a test, and whoever may not, the test adds by name.
    """
    groups = sorted(set(_ASKED.findall(text)))
    for number in range(_SEATS) if groups else ():
        await add_person(engine, tenant, f"stand-in-{number}", groups)


async def remove_person(engine: Database, tenant: str, person: str) -> None:
    """Let a person leave the directory."""
    async with owning(engine) as connection:
        for table in ("people", "group_members"):
            await connection.execute(f"DELETE FROM {table} WHERE tenant_id = $1 AND person_id = $2", tenant, person)
        await connection.execute(_CHANGED, tenant, uuid4().hex)


async def leave_group(engine: Database, tenant: str, person: str, group: str) -> None:
    """Take a person out of a group."""
    async with owning(engine) as connection:
        await connection.execute(
            "DELETE FROM group_members WHERE (tenant_id, person_id, group_name) = ($1, $2, $3)", tenant, person, group
        )
        await connection.execute(_CHANGED, tenant, uuid4().hex)


async def deactivate(engine: Database, tenant: str, person: str) -> None:
    """Deactivate a person, as publishing a directory does that says so."""
    async with owning(engine) as connection:
        named = (tenant, person)
        await connection.execute("UPDATE people SET active = false WHERE (tenant_id, person_id) = ($1, $2)", *named)
        await connection.execute("DELETE FROM group_members WHERE (tenant_id, person_id) = ($1, $2)", *named)
        await connection.execute(_CHANGED, tenant, uuid4().hex)
