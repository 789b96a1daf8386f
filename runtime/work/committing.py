"""Commits that are ready at the same moment go in one statement (hybrid group commit).

A commit that finds a free writer goes at once, by the statement of its own shape. While all writers are busy, commits
wait; whoever is free next takes all that wait, of one run each, in one statement. So one run at a time waits for
nothing, and many share transactions and flushes. A crash loses or keeps all of a statement; each commit is guarded for
itself, so what is repeated finds its run moved on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from core.db import Database
from runtime.engine.commit import Commit
from runtime.store.commits import Applied, apply, apply_together, can_go_together
from runtime.work.setbacks import is_away

WRITERS = 2
TOGETHER_MAX = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    commit: Commit
    applied: asyncio.Future[Applied | None]


class Committer:
    """Applies the commits of one worker."""

    def __init__(self, database: Database, *, writers: int = WRITERS) -> None:
        self._database = database
        self._free = writers
        self._waiting: list[_Waiting] = []
        self._writing: set[asyncio.Task[None]] = set()

    async def apply(self, commit: Commit) -> Applied | None:
        """Apply all of a commit, or nothing: None when its run is not as expected any more. See ``commits.apply``."""
        if not self._free and can_go_together(commit):
            waiting = _Waiting(commit, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            return await waiting.applied
        self._free -= 1
        try:
            return await self._alone(commit)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        """A writer is free: it takes what waits."""
        self._free += 1
        if self._waiting and self._free > 0:
            self._free -= 1
            task = asyncio.get_running_loop().create_task(self._write(self._take()))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    def _take(self) -> list[_Waiting]:
        """What can go together: one commit of each run, all with leases of one span."""
        runs: set[UUID] = set()
        taken: list[_Waiting] = []
        left: list[_Waiting] = []
        for waiting in self._waiting:
            commit = waiting.commit
            fits = len(taken) < TOGETHER_MAX and commit.run_id not in runs
            if fits and (not taken or commit.lease == taken[0].commit.lease):
                runs.add(commit.run_id)
                taken.append(waiting)
            else:
                left.append(waiting)
        self._waiting = left
        return taken

    async def _write(self, together: Sequence[_Waiting]) -> None:
        try:
            if len(together) > 1 and await self._all(together):
                return
            for waiting in together:
                await self._each(waiting)
        finally:
            self._go_on()

    async def _all(self, together: Sequence[_Waiting]) -> bool:
        """Whether the statement said what became of each; if not, nothing was applied and each is tried alone."""
        try:
            async with self._database.connection() as connection:
                applied = await apply_together(connection, [waiting.commit for waiting in together])
        except Exception as error:
            # Where its answer was lost it may have been applied: whoever waits finds out for its own run.
            lost = is_away(error) and not isinstance(error, asyncpg.TransactionRollbackError)
            if isinstance(error, asyncpg.PostgresError) and not lost:
                return False
            for waiting in together:
                _fail(waiting, error)
            return True
        for waiting in together:
            _tell(waiting, applied.get(waiting.commit.run_id))
        return True

    async def _each(self, waiting: _Waiting) -> None:
        try:
            _tell(waiting, await self._alone(waiting.commit))
        except Exception as error:
            _fail(waiting, error)

    async def _alone(self, commit: Commit) -> Applied | None:
        async with self._database.connection() as connection:
            return await apply(connection, commit)


def _tell(waiting: _Waiting, applied: Applied | None) -> None:
    # Whoever was canceled meanwhile does not listen any more; the lease says what becomes of its step.
    if not waiting.applied.done():
        waiting.applied.set_result(applied)


def _fail(waiting: _Waiting, error: Exception) -> None:
    if not waiting.applied.done():
        waiting.applied.set_exception(error)
