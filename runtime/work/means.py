"""The means of making appends: what a worker's pumps share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from core.db import Database
from runtime.definition.catalog import Definitions
from runtime.engine.draft import Ready
from runtime.work.committing import Committer
from runtime.work.lease import Recent


@dataclass(frozen=True)
class Means:
    """The means of making appends. ``owner`` names this worker in leases of ``lease``, ``systems`` is what it calls.

    ``ready`` says what stands in the way of a call by the settings.
    """

    database: Database
    definitions: Definitions
    committer: Committer
    recent: Recent
    owner: str
    lease: timedelta
    systems: Mapping[str, str]
    ready: Ready
