"""The dependencies that a worker's pumps share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from core.db import Database
from runtime.definition.catalog import Definitions
from runtime.engine.book.draft import Ready
from runtime.work.committer import Committer
from runtime.work.lease import Recent


@dataclass(frozen=True)
class WorkerDeps:
    """The dependencies of making appends. ``owner`` names this worker in leases, which last for ``lease``.

    ``systems`` are the targets of its connectors by name. ``ready`` says if the settings forbid a call, and why.
    """

    database: Database
    definitions: Definitions
    committer: Committer
    recent: Recent
    owner: str
    lease: timedelta
    systems: Mapping[str, str]
    ready: Ready
