"""Handlers of what a run orders elsewhere: ending what goes on outside, telling its parent of its end (V-13, P-8)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from connectors.port import Connectors, Done, DurableConnector, NotSent, Refused
from core.canonical import JsonObject
from core.db import Connection, Database
from core.errors import ConsistencyError, CountersealError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.engine import states
from runtime.engine.commit import ReceiptRow
from runtime.engine.intend import call_of
from runtime.engine.moves import OtherRun, last_receipt
from runtime.engine.states import RunState, WaitKind
from runtime.engine.waits import child_result
from runtime.engine.workflow import Workflow
from runtime.keep.dispatcher import Deliver, Delivered, Handler, Later, Result, Undeliverable
from runtime.requests.signaling import RUN, Signal, SignalCode, Signaling
from runtime.requests.starting import cancel_run
from runtime.store import notices, reads
from runtime.store.outbox import Message
from runtime.store.views import load, step_is_over

_WAIT = "SELECT to_jsonb(w) AS wait, w.run_id FROM waits w WHERE w.wait_id = $1"


class Errands(Struct, frozen=True):
    """Delivers messages of the kinds ``cancel`` and ``return``. Both bear being delivered again."""

    database: Database
    definitions: Definitions
    connectors: Connectors

    def handlers(self) -> Mapping[str, Handler]:
        """The handlers by kind of message."""
        return {"cancel": self.cancel, "return": self.give_back}

    async def give_back(self, connection: Connection, message: Message) -> Deliver:
        """A run that another waits for is over: its end is a signal to the wait with its id as the key."""
        run_id = UUID(str(message.payload["run"]))
        return partial(self._give_back, message, run_id, await reads.ending_of(connection, run_id))

    async def _give_back(self, message: Message, run_id: UUID, row: asyncpg.Record) -> Result:
        said = child_result(OtherRun(row["status"], row["result"], row["error"]))
        error = said.get("error")
        signal = Signal(
            tenant_id=message.tenant_id,
            correlation_key=str(run_id),
            id=str(run_id),
            actor=Actor("run", str(run_id)),
            output=said.get("output"),
            error=error if isinstance(error, dict) else None,
            source=RUN,
        )
        answer = await Signaling(self.database, self.definitions).signal(signal)
        if answer.code is not SignalCode.KEPT:
            return Delivered()
        # The parent is about to wait, or has gone on with what it saw of the end itself.
        parent, _, step_key = str(row["trigger_ref"]).partition(":")
        async with self.database.transaction() as connection:
            if not await step_is_over(connection, message.tenant_id, UUID(parent), step_key, self.definitions.graphs):
                return Later("The run that waits for it is not parked yet.")
            result: JsonObject = {"code": str(SignalCode.LATE), "run": parent, "step": step_key}
            await notices.processed(connection, message.tenant_id, RUN, signal.id, result)
        return Delivered()

    async def cancel(self, connection: Connection, message: Message) -> Deliver:
        """End elsewhere what nobody waits for any more: a run, or what a wait was for."""
        return partial(self._cancel, message)

    async def _cancel(self, message: Message) -> Result:
        if "run" in message.payload:
            async with self.database.transaction() as connection:
                return await self._cancel_run(connection, message.tenant_id, UUID(str(message.payload["run"])))
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(_WAIT, UUID(str(message.payload["wait"])))
            if row is None:
                return Undeliverable("There is no such wait.")
            wait: Mapping[str, Any] = row["wait"]
            if wait["kind"] == WaitKind.CHILD:
                return await self._cancel_run(connection, message.tenant_id, UUID(str((wait["context"] or {})["run"])))
            view = await load(connection, row["run_id"], self.definitions.graphs, whole=True)
            receipt = last_receipt(view.run, wait["step_key"])
            workflow = await self.definitions.of_run(connection, view.definition)
        return await self._cancel_outside(workflow, receipt)

    async def _cancel_run(self, connection: Connection, tenant: str, run_id: UUID) -> Result:
        try:
            reason = "The run that waits for it ended."
            await cancel_run(connection, self.definitions, tenant, run_id, Actor("engine", "parent"), reason)
        except ConsistencyError as error:
            status = (await reads.ending_of(connection, run_id))["status"]
            return Delivered() if RunState(status) in states.RUN.terminal else Later(str(error))
        return Delivered()

    async def _cancel_outside(self, workflow: Workflow, receipt: ReceiptRow | None) -> Result:
        if receipt is None:
            return Undeliverable("Nothing was begun outside.")
        operation = workflow.operations[receipt.operation]
        try:
            connector = self.connectors[operation.connector]
        except CountersealError as error:
            return Later(str(error))
        if not isinstance(connector, DurableConnector):
            return Undeliverable(f"The connector of {operation.name} cannot end what it has begun.")
        outcome = await connector.cancel(call_of(operation, receipt), receipt.external_id)
        match outcome:
            case Done():
                return Delivered()
            case Refused(code, text):
                return Undeliverable(f"{code}: {text}")
            case NotSent(text, seconds):
                return Later(text, seconds)
            case _:
                return Later(outcome.message)
