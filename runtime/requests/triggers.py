"""Events from outside that start runs: kept in the inbox first, then matched with published workflows (Q-1, P-11)."""

from __future__ import annotations

import structlog

from core.canonical import Json, JsonObject, clean, digest, sha256_hex
from core.db import Connection
from core.errors import CountersealError, ExpressionError, InputError
from core.templates import Template
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.requests.starting import Started, StartRequest, start_run
from runtime.store import documents, inbox

log = structlog.get_logger(__name__)

REFERENCE_CHARACTERS_MAX = 500
_UNMADE = {
    "when": ("the condition of workflow {} cannot be evaluated on", "Send the fields that it reads."),
    "dedupe": (
        "the dedupe text of workflow {} cannot be made from",
        "Send sys_id and sys_mod_count, or whatever it reads.",
    ),
}


async def start_from_servicenow(
    connection: Connection, definitions: Definitions, tenant: str, workspace: str, endpoint: str, event: JsonObject
) -> list[Started]:
    """Start what listens to this event, in the caller's transaction; the runs, those started before included.

    The inbox row is written first, under the event's own content: the same delivery again finds it, and the runs' own
    uniqueness makes the rest idempotent. A crash before the commit leaves nothing, and ServiceNow sends it again.
    """
    table, kind = _read(event)
    source = f"servicenow:{endpoint}"
    notification = digest(event)
    await inbox.record(connection, tenant, source, notification, event)
    # Separation of duties needs the person whom the directory knows, not the record id of a user.
    opened_by = event.get("opened_by_user_name") or event.get("opened_by")
    started = []
    for stored in await documents.newest_workflows(connection, tenant):
        try:
            workflow = definitions.compiled(stored)
        except CountersealError as error:
            # This one is unavailable; the others start all the same.
            log.error("a workflow cannot be read", name=stored.name, version=stored.version, reason=str(error))
            continue
        listens = workflow.servicenow
        if listens is None or listens.table != table or kind not in listens.events:
            continue
        if listens.when is None or _rendered(listens.when, "when", workflow.name, event) is True:
            dedupe = clean(_rendered(listens.dedupe, "dedupe", workflow.name, event))
            request = StartRequest(
                tenant_id=tenant,
                workspace_id=workspace,
                trigger_type="servicenow",
                trigger_ref=_bounded(f"{endpoint}:{kind}:{dedupe}"),
                trigger=event,
                requested_by=opened_by if isinstance(opened_by, str) and opened_by else source,
                actor=Actor("webhook", endpoint),
            )
            started.append(await start_run(connection, workflow, request))
    runs: JsonObject = {"runs": [str(run.run_id) for run in started]}
    await inbox.processed(connection, tenant, source, notification, runs)
    return started


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


def _bounded(reference: str) -> str:
    """A text that an index holds. A long one is told apart by its digest: cut, it would swallow others."""
    if len(reference) <= REFERENCE_CHARACTERS_MAX:
        return reference
    return f"{reference[: REFERENCE_CHARACTERS_MAX - 65]}:{sha256_hex(reference.encode())}"
