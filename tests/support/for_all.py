"""The same connectors for every tenant: a stage of a test is no installation."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.port import Connectors
from core.db import Connection


@dataclass(frozen=True)
class ForAll:
    """Gives every tenant the same connectors."""

    connectors: Connectors

    async def of(self, connection: Connection, tenant: str, stop: int) -> Connectors:
        """Those of everybody."""
        return self.connectors
