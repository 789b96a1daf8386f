"""The appends of a worker, and their dependencies. Commits of different runs that are ready together go together.

Each commit has its own guard. So a commit that is repeated after a crash changes nothing: its run has moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from connectors.of_tenants import TenantConnectors
from core.db import Connection, Database
from core.grouping import WRITERS, Grouping
from runtime.definition.catalog import Definitions
from runtime.engine.model.rows import Commit
from runtime.store.commits import Applied, apply, apply_together, can_go_together
from runtime.work.lease import Recent

# Applies each commit whole or not at all. None for a commit that was not applied, because its run has moved on.
Committer: TypeAlias = "Grouping[Commit, Applied | None]"


def committer(
    connection: Callable[[], AbstractAsyncContextManager[Connection]], *, writers: int = WRITERS
) -> Committer:
    """Make a committer on connections from ``connection``; see ``commits.apply`` and ``commits.apply_together``."""
    return Grouping(connection, apply, _together, _fits, writers=writers)


async def _together(connection: Connection, items: Sequence[Commit]) -> list[Applied | None]:
    applied = await apply_together(connection, items)
    return [applied.get(commit.run_id) for commit in items]


def _fits(item: Commit, taken: Sequence[Commit]) -> bool:
    """True if the commit may join the ones taken: none is of the same run, and all have leases of the same duration."""
    if not taken:
        return can_go_together(item)
    return item.lease == taken[0].lease and all(item.run_id != other.run_id for other in taken)


@dataclass(frozen=True)
class WorkerDeps:
    """The dependencies of a worker's appends. ``owner`` names the worker in leases, which last for ``lease``."""

    database: Database
    definitions: Definitions
    committer: Committer
    recent: Recent
    owner: str
    lease: timedelta
    connectors: TenantConnectors
