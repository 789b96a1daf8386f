"""Ending a wait with what has come for it, under the run's lock, once (V-10, P-5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

import asyncpg

from core.canonical import JsonObject
from core.db import Connection
from core.errors import ConsistencyError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.engine import waits
from runtime.engine.moves import open_wait
from runtime.engine.states import StepState
from runtime.engine.transition import Transition
from runtime.store import faces
from runtime.store.views import load

CONFLICTS_MAX = 20

Answer = TypeVar("Answer")


class Moved(Exception):
    """The run has moved on since it was looked at: all is undone and looked at again."""


async def persistently(attempt: Callable[[bool], Awaitable[Answer]]) -> Answer:
    """Try until the run holds still; from the second time on with its lock (the argument), so that it has to."""
    for number in range(CONFLICTS_MAX):
        try:
            return await attempt(number > 0)
        except (Moved, asyncpg.TransactionRollbackError):
            continue
    raise ConsistencyError("The run moves too fast to record this.", remedy="Try again.")


async def end_wait(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    place: tuple[UUID, str, UUID],
    result: JsonObject,
    actor: Actor,
    *,
    lock: bool,
    strict: bool = False,
) -> bool:
    """Complete the wait at ``place`` (run, step key, wait) in the caller's transaction. ``Moved`` if it is not there.

    It commutes with what is told of other steps meanwhile, unless it is ``strict``: said of one version of the run.
    False for a task that asks something else by now: it is put anew, and what was said is not taken. A crash before the
    commit leaves nothing, and whoever said it repeats it; after it, the run has resumed.
    """
    run_id, step_key, wait_id = place
    view = await load(connection, run_id, definitions.graphs, lock=lock, tenant=tenant)
    step, wait = view.run.steps.get(step_key), open_wait(view.run, step_key)
    if step is None or wait is None or wait.wait_id != wait_id or step.status is not StepState.WAITING:
        raise Moved
    workflow = await definitions.of_run(connection, view.definition)
    transition = Transition(view, workflow.graph)
    taken = waits.still_asks(transition, step, wait)
    if taken:
        waits.complete(transition, step, wait, result, actor)
    else:
        waits.ask_anew(transition, step, wait, actor)
    if not await faces.append(connection, transition.commit(), answers=None if strict else step_key):
        raise Moved
    return taken
