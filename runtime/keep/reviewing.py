"""Judges open questions again, at once when the policy in force has changed (promise 3), in bounded turns (promise 9).

A question may belong to a run with a long book, which is folded whole. So a turn is bounded by the lines that it folds,
and the run is not locked meanwhile: if an append came in between, the decision is refused and made again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals.model import ApprovalStatus
from core.db import Connection, Database
from runtime.definition.catalog import Definitions
from runtime.engine.life import readers
from runtime.engine.life.readers import still_asks, void
from runtime.engine.life.transition import Transition
from runtime.store import approvals, pauses
from runtime.store.commits import apply
from runtime.store.views import load

# The lines after which a turn ends, so that others get their turn.
LINES_MAX = 4_000
# The tries to judge a question without a lock on its run. The next try has the lock, which wins every race.
TRIES = 3

# Resumes a waiting step, and says if it did. A failure at one step stops no other.
EndWait: TypeAlias = Callable[[tuple[UUID, str, UUID]], Awaitable[int]]
# Makes one repair, and returns how much it did. A failure is logged, and counts as nothing.
Guard: TypeAlias = Callable[[Awaitable[int]], Awaitable[int]]


class Reviewed(Struct, frozen=True):
    """The result for one question: if it was voided, and the number of lines of its run's book that were folded."""

    voided: bool
    lines: int


async def follow(
    database: Database, definitions: Definitions, tenant: str, most: int, end_wait: EndWait, guard: Guard
) -> tuple[int, bool]:
    """Follow a change of a tenant's policy or pauses for one turn; return the number of repairs, and if more is left.

    It resumes steps and judges questions, up to ``most`` of each, and up to ``LINES_MAX`` lines. After a crash the turn
    is done again, which does no harm.
    """
    async with database.connection() as connection:
        change = await pauses.change(connection, tenant)
        steps = await pauses.parked(connection, tenant, change.resumed, most) if change.resumed else []
        after = change.after
        asked = [] if after is None else await pauses.questions(connection, tenant, after, most)
    moved = 0
    for step in steps:
        moved += await end_wait(step)
    lines, judged = 0, list[UUID]()
    for approval_id in asked:

        async def judge(approval_id: UUID = approval_id) -> bool:
            nonlocal lines
            found = await review_question(database, definitions, approval_id)
            lines += found.lines
            return found.voided

        moved += await guard(judge())
        judged.append(approval_id)
        if lines >= LINES_MAX:
            break
    more = len(judged) == most or len(judged) < len(asked)
    last = judged[-1] if more else None
    async with database.connection() as connection:
        await pauses.redraw(connection, change, judged)
        await pauses.followed(connection, change, last, over=not steps and last is None)
    return moved, more


async def review_question(database: Database, definitions: Definitions, approval_id: UUID) -> Reviewed:
    """Judge an open question in its run's current state, and void it if it would no longer be asked like this.

    A crash before the commit leaves the question to the next sweep, and its votes are judged again before any intent.
    """
    for _ in range(TRIES):
        async with database.connection() as connection:
            found = await _judged(connection, definitions, approval_id, lock=False)
        if found is not None:
            return found
    async with database.transaction() as connection:
        found = await _judged(connection, definitions, approval_id, lock=True)
    return found or Reviewed(False, 0)


async def _judged(
    connection: Connection, definitions: Definitions, approval_id: UUID, *, lock: bool
) -> Reviewed | None:
    """Judge a question; None if the run has moved on meanwhile."""
    run_id = await approvals.run_of(connection, approval_id)
    view = await load(connection, run_id, definitions.graphs, lock=lock, whole=True)
    asked, answer, lines = view.run.approvals.get(approval_id), view.run.answers.get(approval_id), view.head.count
    if asked is None or answer is None or answer.status != ApprovalStatus.REQUESTED or view.run.canceling:
        return Reviewed(False, lines)
    workflow = await definitions.of_run(connection, view.definition)
    policy = await definitions.policies(connection, view.tenant_id, view.policies, workflow)
    people = await definitions.directory(connection, view.tenant_id, view.directory_digest)
    transition = Transition(replace(view, directory=people), workflow.graph)
    step = view.run.steps[asked.step_key]
    why = readers.gone(transition, step, asked)
    voided = why is not None or not still_asks(transition, step, workflow, policy, asked)
    if voided:
        void(transition, step, asked, why)
    elif readers.moves(transition, asked):
        readers.move(transition, step, approval_id)
    else:
        return Reviewed(False, lines)
    # The version guards the append: any append in between refuses it.
    return Reviewed(voided, lines) if await apply(connection, transition.commit()) is not None else None
