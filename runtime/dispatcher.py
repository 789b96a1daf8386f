"""The dispatcher: leases messages of the outbox and hands each to the handler of its kind (O-1, O-7, O-8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias

import structlog

from core.db import Connection, Database
from runtime.store import outbox
from runtime.store.outbox import Message

log = structlog.get_logger(__name__)

LEASE = timedelta(seconds=60)
ATTEMPTS_MAX = 20
DELAY_MAX_SECONDS = 600.0

Record: TypeAlias = Callable[[Connection], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Delivered:
    """It is done. ``record`` writes what is to be remembered of it, in the transaction that ends the command."""

    record: Record | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """It is not done; try again, at the earliest after ``seconds`` where somebody named them."""

    message: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """It cannot be done, and trying again will not help; a person has to."""

    message: str


Result: TypeAlias = Delivered | Later | Undeliverable


class Handler(Protocol):
    """Delivers the messages of one kind. It must bear being called again for the same message: crashes happen."""

    async def __call__(self, message: Message) -> Result:
        """Deliver it, or say why not."""


class Dispatcher:
    """Works off messages, several at once, woken by NOTIFY and by a slow look for what a lost wake-up left."""

    def __init__(
        self,
        database: Database,
        handlers: Mapping[str, Handler],
        owner: str,
        *,
        concurrency: int = 4,
        idle: timedelta = timedelta(seconds=2),
    ) -> None:
        self._database = database
        self._handlers = handlers
        self._owner = owner
        self._concurrency = concurrency
        self._idle = idle.total_seconds()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """A message may be waiting."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until ``stop`` is set; what is under way is finished."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._concurrency):
                group.create_task(self._work(stop, f"{self._owner}:{number}"))
            group.create_task(self._wake_at(stop))

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._woken.set()

    async def _work(self, stop: asyncio.Event, owner: str) -> None:
        while not stop.is_set():
            try:
                delivered = await self.deliver_one(owner)
            except Exception:
                log.exception("a message was left to its lease")
                delivered = False
            if not delivered:
                await self._rest()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._idle):
                await self._woken.wait()
                self._woken.clear()
        except TimeoutError:
            return

    async def work_off(self) -> int:
        """Deliver until nothing is due; how many messages were tried. For tests and for `up` at its end."""
        count = 0
        while await self.deliver_one(self._owner):
            count += 1
        return count

    async def deliver_one(self, owner: str) -> bool:
        """Lease and deliver one message; False if none was due. A crash in between leaves its lease to expire."""
        async with self._database.connection() as connection:
            message = await outbox.lease_message(connection, owner, LEASE)
        if message is None:
            return False
        handler = self._handlers.get(message.kind)
        result: Result = Undeliverable(f"Nobody here delivers messages of kind {message.kind!r}.")
        if handler is not None:
            result = await self._handled(handler, message)
        await self._end(message, owner, result)
        return True

    async def _handled(self, handler: Handler, message: Message) -> Result:
        try:
            async with asyncio.timeout(LEASE.total_seconds() * 0.8):
                return await handler(message)
        except TimeoutError:
            return Later("It took too long.")
        except Exception as error:
            log.exception("a handler failed", kind=message.kind, command=str(message.command_id))
            return Later(f"{type(error).__name__}: {error}")

    async def _end(self, message: Message, owner: str, result: Result) -> None:
        async with self._database.transaction() as connection:
            match result:
                case Delivered():
                    if result.record is not None:
                        await result.record(connection)
                    await outbox.end_message(connection, message, owner, "dispatched", None, timedelta(0))
                case Later() if message.attempts < ATTEMPTS_MAX:
                    delay = timedelta(seconds=max(result.seconds or 0.0, _backoff(message.attempts)))
                    await outbox.end_message(connection, message, owner, "pending", result.message, delay)
                case _:
                    log.error("a message could not be delivered", kind=message.kind, reason=result.message)
                    await outbox.end_message(connection, message, owner, "failed", result.message, timedelta(0))


def _backoff(attempts: int) -> float:
    return float(min(2**attempts, DELAY_MAX_SECONDS))
