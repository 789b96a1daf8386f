"""Starts runs from other systems' signed deliveries, which are kept in the inbox before they are used (promise 4)."""

from __future__ import annotations

import structlog
from msgspec import Struct

from core.canonical import Json, JsonObject, clean
from core.db import Connection, savepoint
from core.errors import ConsistencyError, ExpressionError, InputError
from core.templates import Template
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.engine.model.workflow import WebhookStart, Workflow
from runtime.requests.overrun import arrive
from runtime.requests.starting import Started, StartRequest
from runtime.requests.triggers import PRINCIPAL_CHARACTERS_MAX, Unstarted, bounded
from runtime.store import audit, documents, inbox

log = structlog.get_logger(__name__)

WEBHOOK = "webhook"


class Delivery(Struct, frozen=True):
    """A delivery with a valid signature, which covers its ``id``: two deliveries with one id are the same delivery."""

    id: str
    type: str
    body: JsonObject

    @property
    def variables(self) -> dict[str, Json]:
        """The values that a trigger's expressions see."""
        return {"event": {"id": self.id, "type": self.type, "body": self.body}}


async def start_from_delivery(
    connection: Connection, definitions: Definitions, tenant: str, workspace: str, endpoint: str, delivery: Delivery
) -> tuple[list[Started], list[Unstarted]]:
    """Start all workflows that listen to this endpoint, in the caller's transaction; return new and earlier runs.

    The inbox row is written first, under the delivery's id: a repeated delivery finds it, and each workflow's decision
    about it. A crash before the commit leaves nothing, and the sender repeats. A workflow that cannot be started fails
    alone.
    """
    source = f"{WEBHOOK}:{endpoint}"
    await inbox.record(connection, tenant, source, delivery.id, delivery.body)
    started, unstarted, actor = list[Started](), list[Unstarted](), Actor(WEBHOOK, endpoint)
    for stored in await documents.newest_workflows(connection, tenant):
        try:
            workflow = definitions.compiled(stored)
            listens = workflow.webhook
            if listens is None or listens.endpoint != endpoint or not _matches(listens, workflow, delivery):
                continue
            request = _request(listens, workflow, delivery, tenant, workspace)
            async with savepoint(connection):
                arrival = await arrive(connection, definitions, workflow, request, source, delivery.id)
            if arrival.started is not None:
                started.append(arrival.started)
            else:
                unstarted.append(Unstarted(stored.name, stored.version, arrival.reason, ignored=True))
        except (InputError, ConsistencyError) as error:
            log.error("a workflow cannot be started", name=stored.name, version=stored.version, reason=str(error))
            unstarted.append(Unstarted(stored.name, stored.version, str(error)))
    failures = [one for one in unstarted if not one.ignored]
    for one in failures:
        failed: JsonObject = {"name": one.workflow, "version": one.version, "event": delivery.id}
        await audit.record(connection, tenant, EventType.WORKFLOW_UNSTARTED, actor, failed)
    outcome: JsonObject = {"runs": [str(run.run_id) for run in started]}
    outcome |= {"unstarted": [one.to_json() for one in failures]}
    outcome |= {"ignored": [one.to_json() for one in unstarted if one.ignored]}
    await inbox.processed(connection, tenant, source, delivery.id, outcome)
    return started, unstarted


def _matches(listens: WebhookStart, workflow: Workflow, delivery: Delivery) -> bool:
    return listens.when is None or _rendered(listens.when, "when", workflow.name, delivery) is True


def _request(
    listens: WebhookStart, workflow: Workflow, delivery: Delivery, tenant: str, workspace: str
) -> StartRequest:
    """The order to start a run from a delivery; its trigger is computed by the workflow's ``map``."""
    trigger: Json = delivery.body
    if listens.map is not None:
        trigger = _rendered(listens.map, "map", workflow.name, delivery)
    assert isinstance(trigger, dict), "a map of the document, or the object that was sent"
    named = f"webhook:{listens.endpoint}"
    if listens.requested_by is not None:
        by = _rendered(listens.requested_by, "requested_by", workflow.name, delivery)
        named = clean(by, PRINCIPAL_CHARACTERS_MAX).strip() if isinstance(by, str) else ""
        if not named:
            words = f"the requester of workflow {workflow.name} is no text"
            raise InputError(words, where="triggers.webhook.requested_by", remedy="Send whoever caused the event.")
    dedupe: Json = delivery.id
    if listens.dedupe is not None:
        dedupe = _rendered(listens.dedupe, "dedupe", workflow.name, delivery)
    return StartRequest(
        tenant_id=tenant,
        workspace_id=workspace,
        trigger_type=WEBHOOK,
        trigger_ref=bounded(f"{WEBHOOK}:{listens.endpoint}:{clean(dedupe)}"),
        trigger=trigger,
        requested_by=named,
        actor=Actor(WEBHOOK, listens.endpoint),
    )


def _rendered(template: Template, key: str, workflow: str, delivery: Delivery) -> Json:
    """Render a template of the trigger. ``InputError`` names the field of ``map`` that fails, and what it lacks."""
    try:
        return template.render(delivery.variables)
    except ExpressionError as error:
        place = f"triggers.webhook.{key}{f'.{error.where}' if error.where and key == 'map' else ''}"
        words = f"workflow {workflow} cannot be started by this event: {error.message}"
        raise InputError(words, where=place, remedy="Send the field that it reads.") from None
