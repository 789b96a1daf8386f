"""The dispatcher: leases messages of the outbox and hands each to the handler of its kind (O-1, O-7, O-8).

A delivery is two transactions: one leases the message and reads what is to be sent, one records how it ended. Between
them no transaction is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TypeAlias

import asyncpg
import structlog
from msgspec import Struct, field

from core.clock import rest
from core.db import Connection, Database
from core.outage import is_passing
from runtime.engine.finish import clean
from runtime.engine.states import CommandState
from runtime.store import outbox
from runtime.store.outbox import Message
from runtime.work.setbacks import report

log = structlog.get_logger(__name__)

LEASE = timedelta(seconds=60)
ATTEMPTS_MAX = 20
DELAY_MAX_SECONDS = 600.0

Record: TypeAlias = Callable[[Connection], Awaitable[None]]


class Delivered(Struct, frozen=True):
    """A finished delivery. ``record`` writes what is to be remembered, in the transaction that ends the command.

    ``shows_all``: it showed how things stand, so the messages of its kind and key that were there when it was read are
    done as well.
    """

    record: Record | None = None
    shows_all: bool = False


class Later(Struct, frozen=True):
    """A delivery to try again, at the earliest after ``seconds`` if they are given."""

    message: str
    seconds: float | None = None


class Undeliverable(Struct, frozen=True):
    """A delivery that failed for good: a person has to mend it. ``record`` is as for ``Delivered``."""

    message: str
    record: Record | None = None


Result: TypeAlias = Delivered | Later | Undeliverable

Deliver: TypeAlias = Callable[[], Awaitable[Result]]

# Reads what is to be sent of one kind, in the transaction of the lease; the result sends it, or says why not. It must
# bear being called again for the same message: crashes happen.
Handler: TypeAlias = Callable[[Connection, Message], Awaitable[Deliver]]

_Job: TypeAlias = tuple[Message, Deliver]


class Dispatcher(Struct):
    """Works off messages, several at once, woken by NOTIFY and by a slow look for what a lost wake-up left."""

    database: Database
    handlers: Mapping[str, Handler]
    owner: str
    concurrency: int = 4
    idle: timedelta = timedelta(seconds=5)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """A message may be waiting."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until ``stop`` is set; what is under way is finished.

        One loop leases, so that idling costs one statement per look, however many messages can be under way at once.
        """
        free = asyncio.Semaphore(self.concurrency)
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(stop.wait())
            stopping.add_done_callback(lambda _: self.wake())
            while not stop.is_set():
                await free.acquire()
                job = await self._lease()
                if job is None:
                    free.release()
                    await rest(self._woken, self.idle.total_seconds())
                    self._woken.clear()
                    continue
                task = group.create_task(self._deliver(job))
                task.add_done_callback(lambda _: free.release())
            stopping.cancel()

    async def _lease(self) -> _Job | None:
        """Lease the next message. What its handler cannot read is its own misfortune: it must not stop the others."""
        message = None
        try:
            try:
                async with self.database.transaction() as connection:
                    message = await outbox.lease_message(connection, self.owner, LEASE)
                    return None if message is None else await self._read(connection, message)
            except asyncpg.PostgresError as error:
                if message is None or is_passing(error):
                    raise
                log.exception("a message could not be read", kind=message.kind, command=str(message.command_id))
                failed = _said(error)
            # The transaction is lost, and its lease with it: this one alone is leased again, to note what is wrong.
            async with self.database.connection() as connection:
                message = await outbox.lease_message(connection, self.owner, LEASE, only=message.command_id)
            return None if message is None else (message, failed)
        except Exception as error:
            report("no message could be leased", error)
            return None

    async def _read(self, connection: Connection, message: Message) -> _Job:
        handler = self.handlers.get(message.kind)
        if handler is None:
            unknown = Undeliverable(f"Nobody here delivers messages of kind {message.kind!r}.")
            return message, partial(saying, unknown)
        try:
            return message, await handler(connection, message)
        except asyncpg.PostgresError:
            raise
        except Exception as error:
            log.exception("a message could not be read", kind=message.kind, command=str(message.command_id))
            return message, _said(error)

    async def _deliver(self, job: _Job) -> None:
        try:
            await self._carry(job)
        except Exception as error:
            report("a message was left to its lease", error, command=str(job[0].command_id))
        # The next one for the same card may have waited for this one.
        self._woken.set()

    async def work_off(self) -> int:
        """Deliver, one after the other, until nothing is due; how many messages were tried. For tests."""
        count = 0
        while job := await self._lease():
            await self._carry(job)
            count += 1
        return count

    async def _carry(self, job: _Job) -> None:
        """Deliver one message and record how it ended. A crash in between leaves its lease to expire."""
        message, result = job[0], await self._delivered(*job)
        try:
            await self._end(message, result)
        except Exception as error:
            report("the end of a delivery could not be recorded", error, command=str(message.command_id))
            await self._end(message, Later(f"It was delivered, but: {type(error).__name__}: {error}"))

    async def _delivered(self, message: Message, deliver: Deliver) -> Result:
        try:
            async with asyncio.timeout(LEASE.total_seconds() * 0.8):
                return await deliver()
        except TimeoutError:
            return Later("It took too long.")
        except Exception as error:
            log.exception("a handler failed", kind=message.kind, command=str(message.command_id))
            return Later(f"{type(error).__name__}: {error}")

    async def _end(self, message: Message, result: Result) -> None:
        async with self.database.transaction() as connection:
            if not isinstance(result, Later) and result.record is not None:
                await result.record(connection)
            match result:
                case Delivered():
                    if result.shows_all:
                        await outbox.end_shown(connection, message)
                    await outbox.end_message(connection, message, CommandState.DISPATCHED, None, timedelta(0))
                case Later() if message.attempts < ATTEMPTS_MAX:
                    delay = timedelta(seconds=max(result.seconds or 0.0, min(2.0**message.attempts, DELAY_MAX_SECONDS)))
                    if message.attempts == 1:
                        log.warning("a message comes later", kind=message.kind, reason=clean(result.message))
                    await outbox.end_message(connection, message, CommandState.PENDING, clean(result.message), delay)
                case _:
                    reason = clean(result.message)
                    log.error("a message could not be delivered", kind=message.kind, reason=reason)
                    await outbox.end_message(connection, message, CommandState.FAILED, reason, timedelta(0))


def _said(error: Exception) -> Deliver:
    return partial(saying, Later(f"{type(error).__name__}: {error}"))


async def saying(result: Result) -> Result:
    """The answer of a handler that finds, while it reads, that nothing is to be sent."""
    return result
