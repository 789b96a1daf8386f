"""Decides the moments of schedules: each starts one run of its workflow, or is recorded as missed or skipped.

A keeper decides about all moments that have come since the last decision, under the lock of the schedule's row. The
newest one starts a run. Each older one was missed, because no keeper was running. A moment has one outcome for the
workflow's name, whatever the version, and one run: two keepers start only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from core.canonical import JsonObject
from core.cron import Cron, parse_cron
from core.db import Connection, Database, savepoint
from core.errors import CountersealError
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.engine.model.workflow import Missed, ScheduleStart, Workflow, utc_text
from runtime.requests.naming import reference_of
from runtime.requests.overrun import begin
from runtime.requests.starting import StartRequest
from runtime.store import audit, documents, schedules, triggered
from runtime.store.schedules import SOURCE, Standing, StoredSchedule
from runtime.store.triggered import FAILED, MISSED, SKIPPED, STARTED, Place

# A moment that is decided about later than this was missed.
LATE = timedelta(minutes=5)
# The most moments that one transaction decides about; the next sweep decides about the others.
MOMENTS_MAX = 100
# The codes of missed moments: no keeper was running, or a newer moment came before a keeper looked.
DOWN, NEWER = "down", "newer"


async def fire(database: Database, definitions: Definitions, tenant: str, workflow: str, now: datetime) -> bool:
    """Decide the moments of a schedule that have come by ``now``, the database's time; False if there are none.

    It is one transaction: after a crash before its commit, the next sweep decides the same moments.
    """
    async with database.transaction(tenant) as connection:
        found = await schedules.lock(connection, tenant, workflow)
        if found is None:
            return False
        stored, standing = found
        if stored.next_at is not None and stored.next_at > now and stored.version == standing.version:
            return False
        due = _due(stored, standing, now)
        if due:
            await _decide(connection, definitions, tenant, workflow, due, now)
        await schedules.move(connection, tenant, workflow, _moved(stored, standing, due, now))
        return bool(due)


def _due(stored: StoredSchedule, standing: Standing, now: datetime) -> list[datetime]:
    """The moments that have come: of the kept schedule while it was valid, then of the schedule in use now."""
    if stored.schedule == standing.schedule and stored.next_at is not None and standing.ended is None:
        return _between(stored.schedule, stored.upto, now)
    switch = _switch(stored, standing, now)
    old = (
        []
        if stored.next_at is None
        else _between(stored.schedule, stored.upto, min(switch, standing.ended or now, now))
    )
    if standing.schedule is None or len(old) == MOMENTS_MAX:
        return old
    new = _between(standing.schedule, max(stored.upto, switch), now)
    return sorted({*old, *new})[:MOMENTS_MAX]


def _switch(stored: StoredSchedule, standing: Standing, now: datetime) -> datetime:
    """The time from which on the version in use counts: when it became startable, or when the kept one was retired.

    Retiring the newest version goes back to the previous one, which became startable long ago.
    """
    if standing.since is None:
        return now
    return standing.since if standing.since > stored.upto else standing.ended or stored.upto


def _between(schedule: JsonObject, after: datetime, until: datetime) -> list[datetime]:
    return _cron(schedule).between(after, until, MOMENTS_MAX)


def _moved(stored: StoredSchedule, standing: Standing, due: Sequence[datetime], now: datetime) -> StoredSchedule:
    """The schedule after these moments. If more moments may have come, its version stays, and it is due at once."""
    if len(due) == MOMENTS_MAX:
        return replace(stored, upto=due[-1], next_at=due[-1])
    if standing.schedule is None or standing.version is None or standing.since is None:
        return replace(stored, upto=max(stored.upto, now), next_at=None)
    upto = max(stored.upto, standing.since, *due)
    return StoredSchedule(standing.version, standing.schedule, upto, _cron(standing.schedule).after(max(upto, now)))


def _cron(schedule: JsonObject) -> Cron:
    return parse_cron(str(schedule["cron"]), str(schedule["timezone"]))


async def _decide(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    workflow: str,
    due: Sequence[datetime],
    now: datetime,
) -> None:
    """Start the run of the newest moment if it should start, and record each other moment as missed."""
    decided = await schedules.known(connection, tenant, workflow, [_ref(moment) for moment in due])
    new = [moment for moment in due if _ref(moment) not in decided]
    more = len(due) == MOMENTS_MAX
    missed = [(moment, NEWER) for moment in (new if more else new[:-1])]
    version = 0
    if new and not more:
        try:
            async with savepoint(connection):
                stored = await documents.startable_workflow(connection, tenant, workflow, None)
                version, found = stored.version, definitions.compiled(stored)
                if not await _started(connection, definitions, found, tenant, new[-1], now):
                    missed.append((new[-1], DOWN))
        except CountersealError as error:
            await _note(connection, tenant, workflow, new[-1], FAILED, str(error))
            failed: JsonObject = {"name": workflow, "version": version, "event": utc_text(new[-1])}
            await audit.record(connection, tenant, EventType.WORKFLOW_UNSTARTED, _actor(workflow), failed)
    for moment, code in missed:
        await _note(connection, tenant, workflow, moment, MISSED, code)
        facts: JsonObject = {"name": workflow, "version": version, "moment": utc_text(moment), "code": code}
        await audit.record(connection, tenant, EventType.SCHEDULE_MISSED, _actor(workflow), facts)


async def _started(
    connection: Connection,
    definitions: Definitions,
    workflow: Workflow,
    tenant: str,
    moment: datetime,
    now: datetime,
) -> bool:
    """Start the run of a moment if running ones allow it; False if the moment was missed, and is to be skipped."""
    schedule = workflow.schedule
    if schedule is None or (now - moment > LATE and schedule.missed is Missed.SKIP):
        return False
    request = _request(workflow, schedule, tenant, moment)
    reference = reference_of(workflow, {"trigger": request.trigger})
    await triggered.lock(connection, tenant, workflow.name, reference)
    arrival = await begin(connection, definitions, workflow, request, reference)
    run = None if arrival.started is None else arrival.started.run_id
    place = Place(tenant, workflow.name, _ref(moment), reference, schedule.workspace, SOURCE, utc_text(moment))
    await triggered.note(connection, place, SKIPPED if run is None else STARTED, run, arrival.reason or None)
    return True


def _request(workflow: Workflow, schedule: ScheduleStart, tenant: str, moment: datetime) -> StartRequest:
    return StartRequest(
        tenant_id=tenant,
        workspace_id=schedule.workspace,
        trigger_type=SOURCE,
        trigger_ref=_ref(moment),
        trigger=schedule.trigger(moment),
        requested_by=f"schedule:{workflow.name}",
        actor=_actor(workflow.name),
    )


async def _note(
    connection: Connection, tenant: str, workflow: str, moment: datetime, outcome: str, reason: str
) -> None:
    place = Place(tenant, workflow, _ref(moment), "", "", SOURCE, utc_text(moment))
    await triggered.note(connection, place, outcome, None, reason)


def _ref(moment: datetime) -> str:
    """The key of a moment. Keys sort in the order of their moments."""
    return f"schedule:{utc_text(moment)}"


def _actor(workflow: str) -> Actor:
    return Actor("schedule", workflow)
