"""The dependencies that a worker's pumps share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from connectors.of_tenants import TenantConnectors
from core.db import Database
from runtime.definition.catalog import Definitions
from runtime.work.committer import Committer
from runtime.work.lease import Recent


@dataclass(frozen=True)
class WorkerDeps:
    """The dependencies of making appends. ``owner`` names this worker in leases, which last for ``lease``."""

    database: Database
    definitions: Definitions
    committer: Committer
    recent: Recent
    owner: str
    lease: timedelta
    connectors: TenantConnectors
