"""The port by which workers ask for connectors: by tenant, and in no other way."""

from __future__ import annotations

from typing import Protocol

from connectors.port import Connectors
from core.db import Connection


class TenantConnectors(Protocol):
    """The connectors of every tenant. There is none without the name of its tenant (promise 8)."""

    async def of(self, connection: Connection, tenant: str, stop: int) -> Connectors:
        """Those of this tenant, by its settings of that stop number or of a later one."""
