"""Commits of one worker: those that are ready at the same moment go in one statement, of one run each.

Each commit is guarded for itself, so what is repeated after a crash finds its run moved on.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.db import Connection
from core.grouping import Grouping
from runtime.engine.commit import Commit
from runtime.store.commits import Applied, apply, apply_together, can_go_together


class Committer(Grouping[Commit, Applied | None]):
    """Applies the commits of one worker, or nothing of one: None when its run is not as expected any more."""

    async def alone(self, connection: Connection, item: Commit) -> Applied | None:
        """See ``commits.apply``."""
        return await apply(connection, item)

    async def together(self, connection: Connection, items: Sequence[Commit]) -> Sequence[Applied | None]:
        """See ``commits.apply_together``."""
        applied = await apply_together(connection, items)
        return [applied.get(commit.run_id) for commit in items]

    def fits(self, item: Commit, taken: Sequence[Commit]) -> bool:
        """Whether it is of another run than these, with leases of the same span."""
        if not taken:
            return can_go_together(item)
        return item.lease == taken[0].lease and all(item.run_id != other.run_id for other in taken)
