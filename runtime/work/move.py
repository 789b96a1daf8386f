"""A move: what the holder of a lease has to append, and what it has led to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from runtime.engine.active_policy import ActivePolicy
from runtime.engine.commit import Claim, Commit, StepRow
from runtime.engine.moves import Next
from runtime.engine.transition import Transition
from runtime.engine.workflow import Workflow
from runtime.work.claiming import Met

Build: TypeAlias = Callable[[Transition, StepRow, Workflow, ActivePolicy], Next]


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move has led to: the run as it is now, what is to be done next, and when its append began."""

    met: Met
    work: Next
    began: float


@dataclass(slots=True, eq=False)
class Move:
    """What the holder of a lease has to append. ``goes_on`` says that it takes the next step under the same lease.

    ``known`` says that the move records an outcome, which also a lease that is over does, as long as nobody has a newer
    one. ``unanswered`` are appends of it whose answers were lost.
    """

    claim: Claim
    build: Build
    goes_on: bool
    known: bool
    unanswered: list[Sent]
    done: asyncio.Future[Moved] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def settle(self, moved: Moved) -> None:
        """Tell whoever waits; who was canceled meanwhile does not listen, and leaves the step to its lease."""
        if not self.done.done():
            self.done.set_result(moved)

    def fail(self, error: BaseException) -> None:
        """As ``settle``, where nothing was appended."""
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """An append that was sent to PostgreSQL, and what each of its moves does next if it was applied."""

    met: Met
    transition: Transition
    commit: Commit
    works: dict[Claim, Next]
    began: float

    def settle(self, moves: Sequence[Move], met: Met) -> None:
        """Tell those of the moves that are in it what they have led to."""
        for move in moves:
            if move.claim in self.works:
                move.settle(Moved(met, self.works[move.claim], self.began))

    def unanswered(self, moves: Sequence[Move]) -> None:
        """Note for those of the moves that are in it that its answer was lost."""
        for move in moves:
            if move.claim in self.works:
                move.unanswered.append(self)
