"""The rates of tenants in words, for `counterseal doctor`: what is used up, and what waits for a target."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

from app.settings import Settings
from core.db import Database
from runtime.definition.tenant import load_tenant
from runtime.store import tenant_settings, tenants, turns


async def standing(settings: Settings, database: Database) -> AsyncIterator[tuple[str, bool, str]]:
    """Yield the rates of each tenant that the login may see, and the targets that want no calls, each with its words.

    True: it is as it should be.
    """
    async with database.transaction(settings.tenant) as connection:
        for row in await tenants.listed(connection):
            tenant = row["tenant_id"]
            stored = await tenant_settings.in_force(connection, tenant)
            rates: Mapping[str, int] = settings.rates if stored is None and tenant == settings.tenant else {}
            if stored is not None:
                rates = load_tenant(stored.source, f"settings of the tenant {tenant}").content.rates
            found = await turns.standing(connection, tenant)
            for target, most in sorted(rates.items()):
                now = found.get(target) or turns.Standing(target)
                words = f"{target}: {now.used} of {most} calls in the last minute{_waiting(now.waiting, now.oldest)}"
                yield f"rate of {tenant}", True, words
            for one in await turns.busy(connection, tenant):
                words = f"{one.target} asks for no calls until {one.until.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
                yield f"busy for {tenant}", False, words + _waiting(one.waiting, one.oldest)


def _waiting(count: int, oldest: datetime | None) -> str:
    if not count or oldest is None:
        return "; no step waits"
    steps = "1 step waits" if count == 1 else f"{count} steps wait"
    return f"; {steps}, since {oldest.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
