"""Commits of one worker: those that are ready at the same moment go in one statement, of one run each.

Each commit is guarded for itself, so what is repeated after a crash finds its run moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from core.db import Connection
from core.grouping import WRITERS, Grouping
from runtime.engine.commit import Commit
from runtime.store.commits import Applied, apply, apply_together, can_go_together

# Applies the commits of one worker, or nothing of one: None when its run is not as expected any more.
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
    """True if it is of another run than these, with leases of the same span."""
    if not taken:
        return can_go_together(item)
    return item.lease == taken[0].lease and all(item.run_id != other.run_id for other in taken)
