"""Handles events of triggers with ``overrun`` or ``debounce``: one run a reference, only the newest, or one for many.

Everything about one reference of a workflow is decided by one transaction at a time, under a lock. An event is decided
once: a repeated delivery gets the same answer. Only runs that the trigger has started count: a run that somebody starts
by hand under the same reference neither delays an event nor is canceled by one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from core.db import Connection, savepoint
from core.errors import ConsistencyError
from runtime.definition.catalog import Definitions
from runtime.engine.model.states import RUN, RunState
from runtime.engine.model.workflow import Overrun, Workflow
from runtime.requests.naming import reference_of
from runtime.requests.starting import Started, StartRequest, start_run
from runtime.requests.steering import cancel_run
from runtime.store import runs, triggered
from runtime.store.triggered import FAILED, MERGED, SKIPPED, STARTED, PastOutcome, Place


class Arrival(Struct, frozen=True):
    """The outcome of an event for a workflow: a run, or the ``reason`` for none; ``until``: a run starts only then."""

    started: Started | None
    reason: str = ""
    until: datetime | None = None


async def arrive(
    connection: Connection,
    definitions: Definitions,
    workflow: Workflow,
    request: StartRequest,
    source: str,
    notification: str,
    debounce: timedelta | None = None,
) -> Arrival:
    """Decide the outcome of an event. The caller's transaction has stored the event in the inbox already.

    A crash before the commit leaves neither, and the sender repeats; after it, a keeper finds the row of a waiting
    event.
    """
    tenant = request.tenant_id
    reference = reference_of(workflow, {"trigger": request.trigger})
    await triggered.lock(connection, tenant, workflow.name, reference)
    if (known := await triggered.find(connection, tenant, workflow.name, request.trigger_ref)) is not None:
        return _again(known, reference)
    ran = await runs.run_of_trigger(connection, tenant, workflow.name, request.trigger_type, request.trigger_ref)
    if ran is not None:  # it was started before the trigger had `overrun`
        return Arrival(Started(ran["run_id"], False, ran["reference"]))
    named = (tenant, workflow.name, request.trigger_ref, reference)
    place = Place(*named, request.workspace_id, source, notification)
    if debounce is not None:
        until = await triggered.hold(connection, place, debounce)
        return Arrival(None, _waits(reference, until), until)
    # An earlier version of the workflow may have let an event wait: this one takes its place.
    await triggered.merge(connection, place)
    arrival = await begin(connection, definitions, workflow, request, reference)
    run = None if arrival.started is None else arrival.started.run_id
    await triggered.note(connection, place, SKIPPED if run is None else STARTED, run, arrival.reason or None)
    return arrival


def _again(known: PastOutcome, reference: str) -> Arrival:
    """The answer to an event that came before."""
    if known.outcome == STARTED and known.run_id is not None:
        return Arrival(Started(known.run_id, False, reference))
    if known.outcome in (SKIPPED, FAILED):
        return Arrival(None, known.reason or "")
    if known.outcome == MERGED or known.due_at is None:
        return Arrival(None, f"A later event for {reference} has taken its place.")
    return Arrival(None, _waits(reference, known.due_at), known.due_at)


def _waits(reference: str, until: datetime) -> str:
    return f"It waits for further events for {reference}, until {until:%Y-%m-%d %H:%M:%S} UTC."


async def begin(
    connection: Connection, definitions: Definitions, workflow: Workflow, request: StartRequest, reference: str
) -> Arrival:
    """Start a run for the reference if the running ones allow it. Canceling one and the start are one transaction."""
    overrun = workflow.overrun(request.trigger_type)
    going = list[UUID]()
    if overrun is not Overrun.ALL:
        going = await triggered.open_runs(connection, request.tenant_id, workflow.name, reference)
    if going and overrun is Overrun.SKIP:
        return Arrival(None, f"The run {going[0]} for {reference} is not over, so no other is started.")
    async with savepoint(connection):
        for run_id in going:
            await _cancel(connection, definitions, request, run_id, reference)
        return Arrival(await start_run(connection, workflow, request, definitions))


async def _cancel(
    connection: Connection, definitions: Definitions, request: StartRequest, run_id: UUID, reference: str
) -> None:
    """Cancel a run that a newer one replaces. From this append on, no intent of it goes out."""
    reason = f"A newer event for {reference} has started another run in its place."
    try:
        await cancel_run(connection, definitions, request.tenant_id, run_id, request.actor, reason)
    except ConsistencyError:
        if RunState((await runs.ending_of(connection, run_id))["status"]) not in RUN.terminal:
            raise
