"""The port by which workers get connectors: always for one tenant."""

from __future__ import annotations

from typing import Protocol

from connectors.port import Connectors
from core.db import Connection


class TenantConnectors(Protocol):
    """The connectors of every tenant. A connector is available only with its tenant's name (promise 8)."""

    async def of(self, connection: Connection, tenant: str, stop: int) -> Connectors:
        """The connectors of this tenant by its settings, which are as new as the stop number or newer."""
