"""Ends a trigger's window (``debounce``): its events become one run, with the content of the last event."""

from __future__ import annotations

from msgspec.structs import replace

from core.canonical import JsonObject
from core.db import Database, savepoint
from core.errors import CountersealError
from evidence.chain import EventType
from runtime.definition.catalog import Definitions
from runtime.requests.overrun import begin
from runtime.requests.triggers import request_of
from runtime.store import audit, documents, inbox, triggered
from runtime.store.triggered import FAILED, SKIPPED, STARTED


async def end_window(database: Database, definitions: Definitions, tenant: str, workflow: str, reference: str) -> bool:
    """Start the one run of a window whose time is over; False if another process has started it.

    It is one transaction: a crash before its commit leaves the window to the next sweep, which starts the same run.
    """
    async with database.transaction(tenant) as connection:
        await triggered.lock(connection, tenant, workflow, reference)
        window = await triggered.due(connection, tenant, workflow, reference)
        if window is None:
            return False
        named, version = (tenant, window.source, window.notification_id), 0
        event = await inbox.read(connection, *named)
        assert event is not None, "the inbox keeps every event that waits"
        others = await triggered.others(connection, tenant, window)
        endpoint = window.source.partition(":")[2]
        request = request_of(tenant, window.workspace_id, endpoint, dict(event.payload), others)
        request = replace(request, trigger_ref=window.trigger_ref)
        try:
            async with savepoint(connection):
                stored = await documents.startable_workflow(connection, tenant, workflow, None)
                version = stored.version
                arrival = await begin(connection, definitions, definitions.compiled(stored), request, reference)
        except CountersealError as error:
            failure: JsonObject = {"workflow": workflow, "version": version, "reason": str(error)}
            await triggered.settle(connection, tenant, window, FAILED, None, str(error))
            await inbox.add(connection, *named, "unstarted", failure)
            failed: JsonObject = {"name": workflow, "version": version, "event": window.notification_id}
            await audit.record(connection, tenant, EventType.WORKFLOW_UNSTARTED, request.actor, failed)
            return True
        run, why = None if arrival.started is None else arrival.started.run_id, arrival.reason
        await triggered.settle(connection, tenant, window, STARTED if run else SKIPPED, run, why or None)
        if run is not None:
            await inbox.add(connection, *named, "runs", str(run))
        else:
            ignored: JsonObject = {"workflow": workflow, "version": version, "reason": why}
            await inbox.add(connection, *named, "ignored", ignored)
        return True
