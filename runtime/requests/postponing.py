"""Postpones the deadline of a wait for an outside process, because the people who work there need longer.

The operation's declaration limits how far (``timeouts.extend_to``, counted from the wait's beginning). An event of the
run moves the deadline.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from core.db import Connection, Database
from core.errors import ConsistencyError, InputError, NotFoundError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.engine.book.instructions import open_wait
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import WaitPostponed
from runtime.engine.model.states import WaitKind
from runtime.requests.signaling import Moved, persistently
from runtime.store import faces, inbox
from runtime.store.views import load


class PutOff(Struct, frozen=True):
    """An order to postpone the end of a wait: to the moment ``until``, or to ``span`` from now."""

    tenant_id: str
    correlation_key: str
    actor: Actor
    token: str | None = None
    until: datetime | None = None
    span: timedelta | None = None


class Later(Struct, frozen=True):
    """The new deadline of the wait; ``changed`` is False if it was that late already."""

    run_id: UUID
    step: str
    due_at: datetime
    changed: bool


async def put_off(database: Database, definitions: Definitions, order: PutOff) -> Later:
    """Move the deadline of a wait. ``InputError`` for a moment beyond the limit.

    ``NotFoundError`` if nothing ever waited for the key, ``ConsistencyError`` if the wait is over, the token is stale,
    or the operation does not allow it. It is one transaction: a crash before its end leaves the deadline as it was, and
    the caller repeats the call.
    """
    if (order.until is None) == (order.span is None):
        raise InputError("Say `until` or `for`, one of them.", where="until")
    if order.until is not None and order.until.tzinfo is None:
        raise InputError("has no time zone", where="until", remedy="Write it as in 2026-01-31T12:00:00Z.")

    async def attempt(lock: bool) -> Later:
        async with database.transaction(order.tenant_id) as connection:
            return await _attempt(connection, definitions, order, lock=lock)

    return await persistently(attempt)


async def _attempt(connection: Connection, definitions: Definitions, order: PutOff, *, lock: bool) -> Later:
    found = await inbox.find(connection, order.tenant_id, order.correlation_key, (WaitKind.EXTERNAL,))
    if found is None:
        raise NotFoundError("Nothing outside was begun with this correlation key.")
    if not found.waiting or not found.parked:
        raise ConsistencyError("The wait for this key is over, or has not begun.")
    if order.token not in (None, found.token):
        raise ConsistencyError("The token is stale: it is of another wait.", remedy="Leave it out, or send the newest.")
    view = await load(connection, found.run_id, definitions.graphs, lock=lock, tenant=order.tenant_id)
    wait = open_wait(view.run, found.step_key)
    if wait is None or wait.wait_id != found.wait_id:
        raise Moved
    workflow = await definitions.of_run(connection, view.definition)
    operation = workflow.operations[str((wait.context or {}).get("operation"))]
    if operation.timeouts.extend_to is None:
        words = f"{operation.name} lets nobody outside put its end off."
        raise ConsistencyError(words, remedy="Declare `timeouts.extend_to`; it holds for runs that start then.")
    began, due_at, now = await inbox.times_of(connection, found.wait_id)
    latest = began + operation.timeouts.extend_to
    until = order.until if order.until is not None else now + (order.span or timedelta(0))
    if until > latest:
        raise InputError(f"is beyond {latest.isoformat()}, to which {operation.name} may be put off", where="until")
    if due_at is not None and until <= due_at:
        return Later(found.run_id, found.step_key, due_at, changed=False)
    transition = Transition(view, workflow.graph)
    seconds = math.ceil((until - now).total_seconds())
    event = WaitPostponed(wait.wait_id, wait.kind, seconds)
    transition.tell(event, step=found.step_key, actor=order.actor)
    if not await faces.append(connection, transition.commit(), answers=found.step_key):
        raise Moved
    return Later(found.run_id, found.step_key, now + timedelta(seconds=seconds), changed=True)
