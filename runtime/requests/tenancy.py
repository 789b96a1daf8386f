"""Applies settings of tenants, and suspends tenants. Only the installation's operator may do so, through no face."""

from __future__ import annotations

from dataclasses import dataclass

from core.canonical import check_text
from core.db import Database
from core.errors import InputError, NotFoundError
from core.terms import Stopped
from evidence.chain import Actor
from runtime.definition.tenant import load_tenant
from runtime.engine.life.pausing import key_of
from runtime.store import pauses, tenant_settings, tenants


@dataclass(frozen=True, slots=True)
class Applied:
    """The settings in force after ``apply``; ``changed`` is False if they were in force before."""

    tenant: str
    version: int
    digest: str
    changed: bool


async def apply(database: Database, text: str, file: str, actor: Actor) -> Applied:
    """Put settings in force for the tenant that they name. ``DefinitionError`` lists what is wrong with them.

    Needs the engine's role. The text, its line in the tenant's audit and the stop number that guards every intent
    change in one transaction: after it, no intent goes out by the former settings. A crash before its end leaves these
    in force.
    """
    settings = load_tenant(text, file)
    tenant = settings.content.tenant
    async with database.transaction() as connection:
        if not await tenants.exists(connection, tenant):
            remedy = f"`counterseal tenant create {tenant}` creates it."
            raise NotFoundError(f"There is no tenant {tenant!r}.", remedy=remedy)
        await tenants.lock(connection, tenant)
        version, changed = await tenant_settings.apply(connection, tenant, text, actor)
    return Applied(tenant, version, settings.digest, changed)


async def suspend(database: Database, tenant: str, reason: str, actor: Actor, *, lift: bool = False) -> bool:
    """Suspend a tenant, or ``lift`` that; False if nothing changes. ``NotFoundError`` if there is no such tenant.

    Needs the engine's role. Once this has returned, no run of the tenant starts, and no action of it is intended or
    sent; it waits for calls under way. Messages wait in the outbox. A crash before its end leaves the tenant as it was.
    """
    check_text(reason, "reason")
    if not lift and not reason.strip():
        raise InputError("is empty.", where="reason", remedy="Say why: whoever meets it reads it.")
    async with database.transaction() as connection:
        if not await tenants.exists(connection, tenant):
            raise NotFoundError(f"There is no tenant {tenant!r}.", remedy="See `counterseal tenant list`.")
        await tenants.lock(connection, tenant)
        change = pauses.resume if lift else pauses.pause
        return await change(connection, tenant, key_of(Stopped.SUSPENDED), actor, reason)
