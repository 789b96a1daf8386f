"""Events from outside that start runs: kept in the inbox first, then matched with published workflows (Q-1, P-11)."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from core.canonical import JsonObject, digest, sha256_hex
from core.db import Connection
from core.errors import CountersealError, ExpressionError, InputError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.engine.finish import clean
from runtime.engine.workflow import ServiceNowStart, Workflow
from runtime.requests.starting import Started, StartRequest, start_run
from runtime.store import documents, notices

log = structlog.get_logger(__name__)

REFERENCE_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class ServiceNowEvent:
    """One change of one record, as the business rule sent it."""

    endpoint: str
    table: str
    event: str
    body: JsonObject


async def start_from_servicenow(
    connection: Connection, definitions: Definitions, tenant: str, workspace: str, endpoint: str, event: JsonObject
) -> list[Started]:
    """Start what listens to this event, in the caller's transaction; the runs, those started before included.

    The inbox row is written first, under the event's own content: the same delivery again finds it, and the runs' own
    uniqueness makes the rest idempotent. A crash before the commit leaves nothing, and ServiceNow sends it again.
    """
    parsed = _parse(endpoint, event)
    source = f"servicenow:{endpoint}"
    notification = digest(event)
    await notices.record(connection, tenant, source, notification, event)
    started = []
    for stored in await documents.newest_workflows(connection, tenant):
        try:
            workflow = definitions.compiled(stored)
        except CountersealError as error:
            # This one is unavailable; the others start all the same.
            log.error("a workflow cannot be read", name=stored.name, version=stored.version, reason=str(error))
            continue
        listens = workflow.servicenow
        if listens is None or listens.table != parsed.table or parsed.event not in listens.events:
            continue
        if _wanted(listens, parsed, workflow):
            started.append(await _start(connection, tenant, workspace, workflow, listens, parsed))
    runs: JsonObject = {"runs": [str(run.run_id) for run in started]}
    await notices.processed(connection, tenant, source, notification, runs)
    return started


def _parse(endpoint: str, event: JsonObject) -> ServiceNowEvent:
    table, kind = event.get("table"), event.get("event")
    if not isinstance(table, str) or not table:
        raise InputError("is missing or not a text", where="table", remedy="Send the name of the record's table.")
    if kind not in ("insert", "update"):
        raise InputError("is neither insert nor update", where="event", remedy="Send what happened to the record.")
    assert isinstance(kind, str)
    return ServiceNowEvent(endpoint, table, kind, event)


def _wanted(listens: ServiceNowStart, event: ServiceNowEvent, workflow: Workflow) -> bool:
    if listens.when is None:
        return True
    try:
        return listens.when.render({"trigger": event.body}) is True
    except ExpressionError as error:
        raise InputError(
            f"the condition of workflow {workflow.name} cannot be evaluated on this event: {error.message}",
            where="triggers.servicenow.when",
            remedy="Send the fields that it reads.",
        ) from None


async def _start(
    connection: Connection,
    tenant: str,
    workspace: str,
    workflow: Workflow,
    listens: ServiceNowStart,
    event: ServiceNowEvent,
) -> Started:
    try:
        dedupe = clean(listens.dedupe.render({"trigger": event.body}))
    except ExpressionError as error:
        raise InputError(
            f"the dedupe text of workflow {workflow.name} cannot be made from this event: {error.message}",
            where="triggers.servicenow.dedupe",
            remedy="Send sys_id and sys_mod_count, or whatever it reads.",
        ) from None
    # Separation of duties needs the person whom the directory knows, not the record id of a user.
    opened_by = event.body.get("opened_by_user_name") or event.body.get("opened_by")
    request = StartRequest(
        tenant_id=tenant,
        workspace_id=workspace,
        trigger_type="servicenow",
        trigger_ref=_bounded(f"{event.endpoint}:{event.event}:{dedupe}"),
        trigger=event.body,
        requested_by=opened_by if isinstance(opened_by, str) and opened_by else f"servicenow:{event.endpoint}",
        actor=Actor("webhook", event.endpoint),
    )
    return await start_run(connection, workflow, request)


def _bounded(reference: str) -> str:
    """A text that an index holds. A long one is told apart by its digest: cut, it would swallow others."""
    if len(reference) <= REFERENCE_CHARACTERS_MAX:
        return reference
    return f"{reference[: REFERENCE_CHARACTERS_MAX - 65]}:{sha256_hex(reference.encode())}"
