"""Starts runs from outside events, which are kept in the inbox first and then matched with published workflows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog
from msgspec import Struct
from msgspec.structs import replace

from core.budgets import most
from core.canonical import Json, JsonObject, clean, digest, sha256_hex
from core.db import Connection, savepoint
from core.errors import ConsistencyError, ExpressionError, InputError
from core.identity import Role, normalised
from core.templates import Template
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.engine.book.contributors import mark
from runtime.requests.overrun import arrive
from runtime.requests.starting import Started, StartRequest, start_run
from runtime.store import audit, documents, inbox

log = structlog.get_logger(__name__)

REFERENCE_CHARACTERS_MAX = 500
PRINCIPAL_CHARACTERS_MAX = most("person_characters")
_UNMADE = {
    "when": ("the condition of workflow {} cannot be evaluated on", "Send the fields that it reads."),
    "dedupe": (
        "the dedupe text of workflow {} cannot be made from",
        "Send sys_id and sys_mod_count, or whatever it reads.",
    ),
}


class Unstarted(Struct, frozen=True):
    """A workflow that listens to an event, or may listen, and that the event did not start; ``reason`` says why.

    ``ignored``: it should not start; otherwise it could not be started. With ``until`` it is not started yet: the event
    waits for others.
    """

    workflow: str
    version: int
    reason: str
    ignored: bool = False
    until: datetime | None = None

    def to_json(self) -> JsonObject:
        """The workflow and the reason, as the inbox and the answer name them."""
        document: JsonObject = {"workflow": self.workflow, "version": self.version, "reason": self.reason}
        return document if self.until is None else {**document, "until": self.until.isoformat()}


async def start_from_servicenow(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    workspace: str,
    endpoint: str,
    event: JsonObject,
    own: str | None = None,
) -> tuple[list[Started], list[Unstarted]]:
    """Start all workflows that listen to this event, in the caller's transaction; return new and earlier runs.

    ``own`` is our own integration user. A change that it made, or may have made, starts only workflows with
    ``own_events``, so that no workflow starts itself by its own writes.

    The inbox row is written first, keyed by the event's content: a repeated delivery finds it, and each run's unique
    reference makes the rest idempotent. A crash before the commit leaves nothing, and ServiceNow sends it again. A
    workflow that cannot be started fails alone: the others start, and the audit and the inbox name the one that failed.
    """
    table, kind = _read(event)
    source = f"servicenow:{endpoint}"
    notification = digest(event)
    await inbox.record(connection, tenant, source, notification, event)
    request, place = request_of(tenant, workspace, endpoint, event), (endpoint, table, kind, notification)
    started, unstarted = await _start_each(connection, definitions, request, place, _echo(event, own))
    # The tenant's row is locked last, because a start may have to wait for another request that starts the same run.
    waiting = [one for one in unstarted if one.until is not None]
    ignored, failures = (
        [one for one in unstarted if one.ignored is kind and one.until is None] for kind in (True, False)
    )
    for one in failures:
        failed: JsonObject = {"name": one.workflow, "version": one.version, "event": notification}
        await audit.record(connection, tenant, EventType.WORKFLOW_UNSTARTED, request.actor, failed)
    outcome: JsonObject = {"runs": [str(run.run_id) for run in started]}
    outcome["unstarted"] = [one.to_json() for one in failures]
    if ignored:
        outcome["ignored"] = [one.to_json() for one in ignored]
    if waiting:
        outcome["delayed"] = [one.to_json() for one in waiting]
    await inbox.processed(connection, tenant, source, notification, outcome)
    return started, unstarted


def request_of(
    tenant: str, workspace: str, endpoint: str, event: JsonObject, others: Sequence[JsonObject] = ()
) -> StartRequest:
    """The order to start a run from an event. ``others`` are earlier events of the run, whose people shaped it too."""
    requester = _opener(event) or f"servicenow:{endpoint}"
    shaped = {*_changed_by(event, requester)}
    for other in others:
        opener = _opener(other)
        shaped.update(_changed_by(other, requester))
        shaped.update(_changed_by({"sys_updated_by": opener}, requester) if opener else ())
    return StartRequest(
        tenant_id=tenant,
        workspace_id=workspace,
        trigger_type="servicenow",
        trigger_ref="",
        trigger=event,
        requested_by=requester,
        actor=Actor("webhook", endpoint),
        shaped=tuple(sorted(shaped)),
    )


def _opener(event: JsonObject) -> str | None:
    """The person who opened the record: the user name, which the directory may know, before the sys_id."""
    opened_by = event.get("opened_by_user_name") or event.get("opened_by")
    return opened_by if isinstance(opened_by, str) and opened_by else None


async def _start_each(
    connection: Connection, definitions: Definitions, request: StartRequest, place: tuple[str, str, str, str], echo: str
) -> tuple[list[Started], list[Unstarted]]:
    """Start each workflow that listens to this table and kind of event. ``echo`` is why the event may be our own."""
    endpoint, table, kind, notification = place
    started, unstarted = list[Started](), list[Unstarted]()
    for stored in await documents.newest_workflows(connection, request.tenant_id):
        try:
            workflow = definitions.compiled(stored)
            listens = workflow.servicenow
            if listens is None or listens.table != table or kind not in listens.events:
                continue
            if echo and not listens.own_events:
                unstarted.append(Unstarted(stored.name, stored.version, echo, ignored=True))
                continue
            workflow.check_trigger(request.trigger)
            if listens.when is None or _rendered(listens.when, "when", workflow.name, request.trigger) is True:
                dedupe = clean(_rendered(listens.dedupe, "dedupe", workflow.name, request.trigger))
                named = replace(request, trigger_ref=bounded(f"{endpoint}:{kind}:{dedupe}"))
                if not listens.looks:
                    started.append(await start_run(connection, workflow, named, definitions))
                    continue
                async with savepoint(connection):
                    source = (f"servicenow:{endpoint}", notification, listens.debounce)
                    arrival = await arrive(connection, definitions, workflow, named, *source)
                if arrival.started is not None:
                    started.append(arrival.started)
                else:
                    about = (stored.name, stored.version, arrival.reason)
                    unstarted.append(Unstarted(*about, ignored=True, until=arrival.until))
        except (InputError, ConsistencyError) as error:
            # A plain start finds these errors before its first write; the savepoint undoes the rest.
            log.error("a workflow cannot be started", name=stored.name, version=stored.version, reason=str(error))
            unstarted.append(Unstarted(stored.name, stored.version, str(error)))
    return started, unstarted


def _echo(event: JsonObject, own: str | None) -> str:
    """The reason why our own integration user may have made a change; "" if it did not, or if we never write."""
    if own is None:
        return ""
    by = event.get("sys_updated_by")
    if not isinstance(by, str) or not by.strip():
        return "The event does not say who changed the record (`sys_updated_by`), so it may be our own write."
    if normalised(clean(by, PRINCIPAL_CHARACTERS_MAX)).casefold() == normalised(own).casefold():
        return f"The record was changed by {own}, our own integration user."
    return ""


def _changed_by(event: JsonObject, requester: str) -> tuple[str, ...]:
    """The mark of the person who changed the record and so shaped the input; empty if it was the requester."""
    changed_by = event.get("sys_updated_by")
    if not isinstance(changed_by, str) or not changed_by.strip():
        return ()
    named = normalised(clean(changed_by, PRINCIPAL_CHARACTERS_MAX))
    return () if named.casefold() == normalised(requester).casefold() else (mark(Role.UPDATER, named),)


def _read(event: JsonObject) -> tuple[str, str]:
    """The table of the record, and what happened to it."""
    table, kind = event.get("table"), event.get("event")
    if not isinstance(table, str) or not table:
        raise InputError("is missing or not a text", where="table", remedy="Send the name of the record's table.")
    if kind not in ("insert", "update"):
        raise InputError("is neither insert nor update", where="event", remedy="Send what happened to the record.")
    return table, str(kind)


def _rendered(template: Template, key: str, workflow: str, event: JsonObject) -> Json:
    unmade, remedy = _UNMADE[key]
    try:
        return template.render({"trigger": event})
    except ExpressionError as error:
        message = f"{unmade.format(workflow)} this event: {error.message}"
        raise InputError(message, where=f"triggers.servicenow.{key}", remedy=remedy) from None


def bounded(reference: str) -> str:
    """Bound a text to what an index holds. A long one ends with its digest, so that two with one beginning differ."""
    if len(reference) <= REFERENCE_CHARACTERS_MAX:
        return reference
    return f"{reference[: REFERENCE_CHARACTERS_MAX - 65]}:{sha256_hex(reference.encode())}"
