"""Compares ServiceNow's records with our runs and receipts: events that started no run, and writes without a receipt.

A table shows only the present state of a record, and who changed it last and when. So a record that has changed since
the event is judged by its present state, and only the last of several writes is seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import structlog
from msgspec import Struct

from core.canonical import JsonObject, clean
from core.db import Database
from core.errors import CountersealError, InputError
from core.identity import normalised
from evidence.events import EventType
from runtime.definition.catalog import Definitions
from runtime.engine.model.workflow import Workflow
from runtime.requests.periods import events_of
from runtime.store import documents, logs

log = structlog.get_logger(__name__)

# The tolerance of comparisons: ServiceNow's times have whole seconds, and its clock differs from ours.
TOLERANCE = timedelta(seconds=5)
_MOMENT = "%Y-%m-%d %H:%M:%S"
_OPERATIONS = "servicenow."

# A function that reads all records of a table that an encoded query selects.
Read: TypeAlias = Callable[[str, str], Awaitable[list[JsonObject]]]


class Row(Struct, frozen=True):
    """An event for a trigger, or a write by our integration user, and the run or receipt that we have for it."""

    what: str
    table: str
    sys_id: str
    number: str | None
    at: str
    outcome: str
    workflow: str | None = None
    run: str | None = None
    receipt: str | None = None


class Window(Struct, frozen=True):
    """The span of time within which a receipt's write was made."""

    since: datetime
    until: datetime
    run: str
    receipt: str


async def reconcile(
    database: Database, definitions: Definitions, tenant: str, period: tuple[datetime, datetime], read: Read, own: str
) -> list[Row]:
    """Compare all tables that the tenant's triggers or the period's receipts name. ``own`` is our integration user.

    It writes nothing, so a crash leaves nothing.
    """
    async with database.connection() as connection:
        stored = await documents.newest_workflows(connection, tenant)
        begun, received = await logs.begun(connection, tenant), await logs.received(connection, tenant)
        windows = defaultdict[tuple[str, str], list[Window]](list)
        for run in await logs.active(connection, tenant, *period):
            for place, window in _windows(str(run), await events_of(connection, run)):
                windows[place].append(window)
    listening = [one for one in map(definitions.compiled, stored) if one.servicenow is not None]
    tables = {one.servicenow.table for one in listening if one.servicenow is not None}
    found = list[Row]()
    for table in sorted(tables | {table for table, _ in windows}):
        for record in await _records(read, table, period):
            for workflow in listening:
                found += _met(workflow, table, record, period, (begun, received, own))
            found += _written(table, record, period, own, windows[table, str(record["sys_id"])])
    return found


async def _records(read: Read, table: str, period: tuple[datetime, datetime]) -> list[JsonObject]:
    since, until = (one.astimezone(UTC).strftime(_MOMENT) for one in period)
    found = dict[str, JsonObject]()
    for column in ("sys_created_on", "sys_updated_on"):
        found |= {str(row["sys_id"]): row for row in await read(table, f"{column}>={since}^{column}<{until}")}
    return [found[key] for key in sorted(found)]


def _met(
    workflow: Workflow,
    table: str,
    record: JsonObject,
    period: tuple[datetime, datetime],
    known: tuple[Mapping[tuple[str, str], Any], set[tuple[str, str, str, str | None]], str],
) -> Iterator[Row]:
    """Yield the events of a record to which this workflow listens, as far as the record shows them."""
    listens, (begun, received, own) = workflow.servicenow, known
    if listens is None or listens.table != table:
        return
    for kind in sorted(listens.events):
        event, at = _event(table, kind, record)
        by_us = _same(str(event.get("sys_updated_by") or ""), own)
        if at is None or not period[0] <= at < period[1] or (by_us and not listens.own_events):
            continue
        try:
            if listens.when is not None and listens.when.render({"trigger": event}) is not True:
                continue
            dedupe = clean(listens.dedupe.render({"trigger": event}))
        except CountersealError as error:
            log.warning("a record cannot be judged", workflow=workflow.name, table=table, reason=str(error))
            continue
        run = begun.get((workflow.name, f"{kind}:{dedupe}"))
        arrived = (table, kind, str(record["sys_id"]), str(event["sys_mod_count"])) in received
        outcome = "run" if run is not None else "received: no run was due" if arrived else "missed"
        number = str(record.get("number") or "") or None
        moment, of_run = at.strftime(_MOMENT), None if run is None else str(run)
        yield Row("record", table, str(record["sys_id"]), number, moment, outcome, workflow.name, of_run)


def _event(table: str, kind: str, record: JsonObject) -> tuple[JsonObject, datetime | None]:
    """Build the event that the record would have sent, with its time, which is None if the record does not show it."""
    event: JsonObject = {**record, "table": table, "event": kind, "opened_by_user_name": record.get("sys_created_by")}
    if kind == "insert":
        event |= {"sys_mod_count": "0", "sys_updated_by": record.get("sys_created_by")}
        return event, _moment(record.get("sys_created_on"))
    changed = str(record.get("sys_mod_count") or "0") != "0"
    return event, _moment(record.get("sys_updated_on")) if changed else None


def _written(
    table: str, record: JsonObject, period: tuple[datetime, datetime], own: str, windows: list[Window]
) -> Iterator[Row]:
    """Yield the last write to a record, if our integration user made it in the period."""
    at = _moment(record.get("sys_updated_on"))
    if at is None or not period[0] <= at < period[1] or not _same(str(record.get("sys_updated_by") or ""), own):
        return
    of = next((one for one in windows if one.since - TOLERANCE <= at <= one.until + TOLERANCE), None)
    place = (table, str(record["sys_id"]), str(record.get("number") or "") or None, at.strftime(_MOMENT))
    if of is None:
        yield Row("write", *place, "not ours")
    else:
        yield Row("write", *place, "receipt", run=of.run, receipt=of.receipt)


def _windows(run: str, events: list[dict[str, Any]]) -> Iterator[tuple[tuple[str, str], Window]]:
    """Yield the writes of a run to ServiceNow, each with its table and record, as far as the run's values are kept."""
    targets = dict[str, tuple[str, str]]()
    begun = dict[str, datetime]()
    for event in events:
        data, at = event["data"], datetime.fromisoformat(event["ts"])
        if event["type"] == EventType.ACTION_INTENDED and data["operation"].startswith(_OPERATIONS):
            begun.setdefault(data["receipt"], at)
            table, _, sys_id = str(data.get("target") or "").rpartition("/")
            if table:
                targets[data["receipt"]] = (table.rpartition("/")[2], sys_id)
        elif event["type"] == EventType.ACTION_SUCCEEDED and data["receipt"] in targets:
            receipt = data["receipt"]
            yield targets[receipt], Window(begun[receipt], at, run, receipt)


def _same(one: str, other: str) -> bool:
    return normalised(one).casefold() == normalised(other).casefold()


def _moment(text: object) -> datetime | None:
    try:
        return datetime.strptime(str(text), _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return None


def check_period(since: datetime, until: datetime) -> None:
    """Raise ``InputError`` if a period ends before it begins."""
    if since >= until:
        raise InputError("is not after --from.", where="--to", remedy="A period has its end after its beginning.")
