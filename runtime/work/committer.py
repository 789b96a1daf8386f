"""The appends of a worker, and their dependencies: commits of different runs that are ready at once go together.

Each commit has its own guard. So one that is repeated after a crash finds that its run has moved on: a no-op.
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

# Applies each commit whole or not at all. None: its run is not as expected any more, so nothing was applied.
Committer: TypeAlias = "Grouping[Commit, Applied | None]"


def committer(
    connection: Callable[[], AbstractAsyncContextManager[Connection]], *, writers: int = WRITERS
) -> Committer:
    """A committer over connections that ``connection`` gives; see ``commits.apply`` and ``commits.apply_together``."""
    return Grouping(connection, apply, _together, _fits, writers=writers)


async def _together(connection: Connection, items: Sequence[Commit]) -> list[Applied | None]:
    applied = await apply_together(connection, items)
    return [applied.get(commit.run_id) for commit in items]


def _fits(item: Commit, taken: Sequence[Commit]) -> bool:
    """True if the commit may go with those taken: of another run than each of them, with leases of the same span."""
    if not taken:
        return can_go_together(item)
    return item.lease == taken[0].lease and all(item.run_id != other.run_id for other in taken)


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
