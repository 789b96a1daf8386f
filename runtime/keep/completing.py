"""Completions that have to be fetched: what a connector's system says is through becomes a signal (V-3, V-10).

Each source is asked in a loop of its own, which waits in the outside system and holds no connection of ours meanwhile.
A completion is acknowledged after its signal is committed, so a crash in between brings it back, and the inbox knows it
by its id. Any number of processes may ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import structlog
from msgspec import Struct

from connectors.port import Completion, CompletionSource
from core.canonical import JsonObject
from core.clock import rest
from core.db import Database
from core.errors import InputError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.engine.errors import UNUSABLE, ErrorClass, StepError
from runtime.engine.finish import clean
from runtime.requests.signaling import Signal, Signaling
from runtime.store import notices
from runtime.work.setbacks import report

log = structlog.get_logger(__name__)

WAIT_SECONDS = 20.0
# Before a source is asked again that failed, or that had nothing to say and did not wait for it.
PAUSE_SECONDS = 1.0


class Completing(Struct, frozen=True):
    """Fetches from every source, by the connector's name, under the engine's role.

    ``pause_seconds`` is how long a source rests that could not be asked, or whose answer came to nothing.
    """

    database: Database
    definitions: Definitions
    sources: Mapping[str, CompletionSource]
    wait_seconds: float = WAIT_SECONDS
    pause_seconds: float = PAUSE_SECONDS

    async def run(self, stop: asyncio.Event) -> None:
        """Fetch until ``stop`` is set. What is being recorded then is finished; what is being waited for is let go."""
        async with asyncio.TaskGroup() as group:
            for name, source in self.sources.items():
                group.create_task(self._follow(name, source, stop))

    async def _follow(self, name: str, source: CompletionSource, stop: asyncio.Event) -> None:
        while not stop.is_set():
            began = asyncio.get_running_loop().time()
            try:
                found = await _unless(stop, source.completions(wait_seconds=self.wait_seconds))
                taken = [await self.take(name, source, completion) for completion in found]
            except Exception as error:
                report("a source of completions could not be asked", error, connector=name)
                taken = []
            waited = asyncio.get_running_loop().time() - began
            if not any(taken) and waited < max(self.wait_seconds, self.pause_seconds):
                await rest(stop, self.pause_seconds)

    async def take(self, name: str, source: CompletionSource, completion: Completion) -> bool:
        """Record one completion, then acknowledge it; whether it was. Its failure is no other completion's business."""
        try:
            if not await self._record(name, completion):
                return False
            await source.acknowledge(completion)
        except Exception as error:
            report("a completion comes again", error, connector=name, completion=completion.id)
            return False
        return True

    async def _record(self, name: str, completion: Completion) -> bool:
        async with self.database.connection() as connection:
            tenant = await notices.tenant_of(connection, completion.correlation_key)
        if tenant is None:
            key = clean(completion.correlation_key, 200)
            log.warning("a completion belongs to no run here, and stays where it is", connector=name, key=key)
            return False
        signaling = Signaling(self.database, self.definitions)
        try:
            await signaling.signal(_signal(tenant, name, completion, completion.output, completion.error))
        except InputError as fault:
            # Said once more it would be no better, so the run is told that there is an end, and that it is unusable.
            error = StepError(ErrorClass.TRANSPORT, UNUSABLE, clean(str(fault)))
            await signaling.signal(_signal(tenant, name, completion, None, error.to_json()))
        return True


def _signal(
    tenant: str, name: str, completion: Completion, output: JsonObject | None, error: JsonObject | None
) -> Signal:
    return Signal(
        tenant_id=tenant,
        correlation_key=completion.correlation_key,
        id=f"{name}:{completion.id}",
        actor=Actor("connector", name),
        output=output,
        error=error,
    )


async def _unless(stop: asyncio.Event, asking: Coroutine[Any, Any, Sequence[Completion]]) -> Sequence[Completion]:
    """What asking brought, or nothing if ``stop`` comes first: nobody waits for a long poll to end."""
    stopping = asyncio.ensure_future(stop.wait())
    task = asyncio.create_task(asking)
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else ()
    finally:
        stopping.cancel()
        task.cancel()
        await asyncio.gather(stopping, task, return_exceptions=True)
