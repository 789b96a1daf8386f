"""Cancels a run's work elsewhere once nobody waits for it, and reports the ends of such work.

Messages go out: they cancel an outside operation or a child run, or tell a parent that its child is over. Completions
come in: from some connectors' systems they have to be fetched. Each such source is asked in a loop of its own, which
waits in the outside system and holds no connection to the database meanwhile. A completion is acknowledged after its
signal is committed. After a crash in between it is offered again, and the inbox knows it by its id. Any number of
processes may ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct
from msgspec.structs import replace

from connectors.masking import Secrets
from connectors.port import Completion, CompletionSource, Connectors, Done, DurableConnector, NotSent, Refused
from core.canonical import JsonObject, clean
from core.clock import repeat, unless
from core.db import Connection, Database
from core.errors import ConsistencyError, CountersealError, InputError
from core.outage import report
from core.unkept import storable
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.engine.book import shared_effects
from runtime.engine.book.instructions import OtherRun, last_receipt
from runtime.engine.life.outside import call_of, system_of
from runtime.engine.life.waits import child_result
from runtime.engine.model import states
from runtime.engine.model.errors import UNUSABLE, ErrorClass, StepError
from runtime.engine.model.rows import ReceiptRow
from runtime.engine.model.states import EffectState, RunState, WaitKind
from runtime.engine.model.workflow import Workflow
from runtime.keep.dispatcher import Deliver, Delivered, Handler, Later, Result, Undeliverable
from runtime.requests.sharing import wake
from runtime.requests.signaling import OF_RUNS, Signal, SignalCode, Signaling
from runtime.requests.steering import cancel_run
from runtime.store import effects, inbox, runs
from runtime.store.outbox import Message
from runtime.store.views import load, step_is_over

log = structlog.get_logger(__name__)

WAIT_SECONDS = 20.0
# The pause before the next request to a source that failed, or that answered at once with nothing.
PAUSE_SECONDS = 1.0


class Errands(Struct, frozen=True):
    """Delivers messages of the kinds ``cancel``, ``return`` and ``shared``. All of them are idempotent."""

    database: Database
    definitions: Definitions
    connectors: Connectors

    def handlers(self) -> Mapping[str, Handler]:
        """The handlers by kind of message."""
        return {"cancel": self.cancel, "return": self.give_back, "shared": self.tell}

    async def tell(self, connection: Connection, message: Message) -> Deliver:
        """Tell those who share an effect that it is over, or that its holder has left it."""
        return partial(self._tell, message)

    async def _tell(self, message: Message) -> Result:
        await wake(self.database, self.definitions, message.tenant_id, str(message.payload["key"]))
        return Delivered()

    async def give_back(self, connection: Connection, message: Message) -> Deliver:
        """Signal the end of a run to the run that waits for it; the ended run's id is the correlation key."""
        run_id = UUID(str(message.payload["run"]))
        return partial(self._give_back, message, run_id, await runs.ending_of(connection, run_id))

    async def _give_back(self, message: Message, run_id: UUID, row: asyncpg.Record) -> Result:
        child = child_result(OtherRun(row["status"], row["result"], row["error"]))
        error = child.get("error")
        signal = Signal(
            tenant_id=message.tenant_id,
            correlation_key=str(run_id),
            id=str(run_id),
            actor=Actor("run", str(run_id)),
            output=child.get("output"),
            error=error if isinstance(error, dict) else None,
            source=OF_RUNS,
        )
        answer = await Signaling(self.database, self.definitions).signal(signal)
        if answer.code is not SignalCode.KEPT:
            return Delivered()
        # No wait was found: the parent is about to wait, or has seen the end itself and gone on.
        parent, _, named = str(row["trigger_ref"]).partition(":")
        step_key = named.partition("#")[0]  # behind "#" is the number of the parent's retry
        async with self.database.transaction() as connection:
            if not await step_is_over(connection, message.tenant_id, UUID(parent), step_key, self.definitions.graphs):
                return Later("The run that waits for it is not parked yet.")
            result: JsonObject = {"code": str(SignalCode.ENDED), "run": parent, "step": step_key}
            await inbox.processed(connection, message.tenant_id, OF_RUNS, str(run_id), result)
        return Delivered()

    async def cancel(self, connection: Connection, message: Message) -> Deliver:
        """Cancel work that nobody waits for any more: a run, or an outside operation."""
        return partial(self._cancel, message)

    async def _cancel(self, message: Message) -> Result:
        async with self.database.transaction() as connection:
            if "run" in message.payload:
                return await self._cancel_run(connection, message.tenant_id, UUID(str(message.payload["run"])))
            row = await runs.wait(connection, UUID(str(message.payload["wait"])))
            if row is None:
                return Undeliverable("There is no such wait.")
            wait: Mapping[str, Any] = row["wait"]
            if wait["kind"] == WaitKind.CHILD:
                return await self._cancel_run(connection, message.tenant_id, UUID(str((wait["context"] or {})["run"])))
            view = await load(connection, row["run_id"], self.definitions.graphs, whole=True)
            receipt = last_receipt(view.run, wait["step_key"])
            workflow = await self.definitions.of_run(connection, view.definition)
            key = (wait["context"] or {}).get(shared_effects.KEY)
            if key is None and receipt is not None and receipt.shared:
                key = receipt.idempotency_key
            if key is not None:
                ended, receipt = await self._leave(connection, message.tenant_id, key, UUID(wait["wait_id"]), receipt)
                if ended is not None:
                    return ended
        return await self._cancel_outside(workflow, receipt)

    async def _leave(
        self, connection: Connection, tenant: str, key: str, wait_id: UUID, receipt: ReceiptRow | None
    ) -> tuple[Result | None, ReceiptRow | None]:
        """Leave a shared effect. None means that nobody shares it any more, so the caller ends it outside."""
        row = await effects.row_of(connection, tenant, key)
        if row is None or row["wait_id"] is None:
            return None, receipt  # perhaps it never began outside; to cancel it then does no harm
        if row["wait_id"] != wait_id or row["status"] in (EffectState.BEGUN, EffectState.SUCCEEDED):
            return Delivered(), None
        for place in await effects.sharing(connection, tenant, key):
            if not await step_is_over(connection, tenant, place["run_id"], place["step_key"], self.definitions.graphs):
                return Later("Others share it, and one of them is to take it over."), None
        if row["status"] == EffectState.LEFT and not await effects.abandon(connection, tenant, key, wait_id):
            return Later("Somebody has just taken it over."), None
        shared = await effects.by_key(connection, self.definitions.graphs, tenant, key)
        return None, None if shared is None else shared.receipt

    async def _cancel_run(self, connection: Connection, tenant: str, run_id: UUID) -> Result:
        try:
            reason = "The run that waits for it ended."
            await cancel_run(connection, self.definitions, tenant, run_id, Actor("engine", "parent"), reason)
        except ConsistencyError as error:
            status = (await runs.ending_of(connection, run_id))["status"]
            return Delivered() if RunState(status) in states.RUN.terminal else Later(str(error))
        return Delivered()

    async def _cancel_outside(self, workflow: Workflow, receipt: ReceiptRow | None) -> Result:
        if receipt is None:
            return Undeliverable("Nothing was begun outside.")
        operation = workflow.operations[receipt.operation]
        try:
            connector = self.connectors[operation.connector]
        except CountersealError as error:
            return Later(str(error), counted=True)
        if not isinstance(connector, DurableConnector):
            return Undeliverable(f"The connector of {operation.name} cannot end what it has begun.")
        if (begun := system_of(receipt)) not in ("", connector.target):
            return Undeliverable(f"It was begun at {begun}, and {connector.target or 'another system'} is called now.")
        call = call_of(operation, receipt)
        outcome = await connector.cancel(call, receipt.external_id)
        match outcome if isinstance(outcome, Done) else Secrets.of(operation, call.input).failure(outcome):
            case Done():
                return Delivered()
            case Refused(code, text):
                return Undeliverable(f"{code}: {text}")
            case NotSent(text, seconds):
                return Later(text, seconds)
            case other:
                return Later(other.message)


class Completing(Struct, frozen=True):
    """Fetches completions from every source of one tenant, by the connector's name, under the engine's role.

    A completion ends only a wait of this ``tenant``, whatever key the outside system names. After an error, or a quick
    answer without anything to record, a source is not asked for ``pause_seconds``.
    """

    database: Database
    definitions: Definitions
    sources: Mapping[str, CompletionSource]
    tenant: str
    wait_seconds: float = WAIT_SECONDS
    pause_seconds: float = PAUSE_SECONDS

    async def run(self, stop: asyncio.Event) -> None:
        """Fetch until ``stop`` is set, then finish a completion that is being recorded, or cancel a waiting request."""
        async with asyncio.TaskGroup() as group:
            for name, source in self.sources.items():
                group.create_task(self._follow(name, source, stop))

    async def _follow(self, name: str, source: CompletionSource, stop: asyncio.Event) -> None:
        now = asyncio.get_running_loop().time

        async def turn() -> bool:
            began = now()
            found = await unless(stop, source.completions(wait_seconds=self.wait_seconds)) or ()
            taken = [await self.take(name, source, completion) for completion in found]
            return any(taken) or now() - began >= max(self.wait_seconds, self.pause_seconds)

        await repeat(stop, turn, self.pause_seconds, "a source of completions could not be asked", connector=name)

    async def take(self, name: str, source: CompletionSource, completion: Completion) -> bool:
        """Record one completion, then acknowledge it; true if that succeeded. A failure does not stop the others."""
        try:
            if not await self._record(name, completion):
                return False
            await source.acknowledge(completion)
        except Exception as error:
            report("completion not recorded; it is offered again", error, connector=name, completion=completion.id)
            return False
        return True

    async def _record(self, name: str, completion: Completion) -> bool:
        async with self.database.connection() as connection:
            tenant = await inbox.tenant_of(connection, completion.correlation_key)
        if tenant != self.tenant:
            key = clean(completion.correlation_key, 200)
            words = "completion ignored: no run of its tenant waits for its key"
            log.warning(words, tenant=self.tenant, connector=name, key=key)
            return False
        signaling = Signaling(self.database, self.definitions)
        signal = Signal(
            tenant_id=self.tenant,
            correlation_key=completion.correlation_key,
            id=f"{name}:{completion.id}",
            actor=Actor("connector", name),
            output=completion.output,
            error=completion.error,
            writers=completion.writers,
        )
        try:
            await signaling.signal(signal)
        except InputError as fault:
            # The work outside has ended. Parts of its output that cannot be stored become markers; the step goes on.
            if completion.output is not None and (output := storable(completion.output)) != completion.output:
                await signaling.signal(replace(signal, output=output))
                return True
            # Retrying cannot fix this payload, so end the wait with the error ``UNUSABLE``.
            error = StepError(ErrorClass.TRANSPORT, UNUSABLE, clean(str(fault)))
            await signaling.signal(replace(signal, output=None, error=error.to_json()))
        return True
