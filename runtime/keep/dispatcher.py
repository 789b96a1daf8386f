"""The dispatcher: leases messages of the outbox and hands each to the handler of its kind.

A delivery has two transactions: the first leases the message and reads the content to send, the second records how the
delivery ended. Between them no transaction is open.

The messages of one tenant and kind are a lane. Lanes take turns, one message each. Each lane may always have one
delivery under way, so a delivery that hangs, or a backlog, delays its own lane and no other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TypeAlias
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct, field
from msgspec.structs import replace

from core import tracing
from core.canonical import JsonObject, clean
from core.clock import repeat
from core.db import Connection, Database
from core.outage import is_passing, report
from runtime.engine.life.closing import ALARM
from runtime.engine.model.states import CommandState
from runtime.store import outbox
from runtime.store.outbox import Lane, Message

log = structlog.get_logger(__name__)

# The kinds of the order to tell the operators, and of the message to each of them.
ALARMED = "alarmed"
LEASE = timedelta(seconds=60)
# The attempts for a delivery that fails by a bug or by the configuration. If a system is away, it is tried without end.
ATTEMPTS_MAX = 20
DELAY_MAX_SECONDS = 900.0
# At most this many deliveries of one kind are under way at once, whatever the number of tenants.
KIND_MAX = 32

Remember: TypeAlias = Callable[[Connection], Awaitable[None]]


class Delivered(Struct, frozen=True):
    """A finished delivery. ``record`` stores its result, in the transaction that ends the command.

    ``shows_all`` says that it showed the current state, so it also ends the messages of its kind and key that were
    waiting when the state was read. If ``shows`` is given, only those about one of these ids.
    """

    record: Remember | None = None
    shows_all: bool = False
    shows: tuple[UUID, ...] | None = None


class Later(Struct, frozen=True):
    """A delivery to try again, not before ``seconds`` have passed if they are given.

    It is retried without end. With ``counted`` it fails for good after ``ATTEMPTS_MAX``, because waiting does not help.
    """

    message: str
    seconds: float | None = None
    counted: bool = False


class Held(Struct, frozen=True):
    """A delivery put off for ``seconds``, for example by quiet hours. It has not failed."""

    seconds: float


class Undeliverable(Struct, frozen=True):
    """A delivery that failed for good, until a person orders it again. ``record`` is as for ``Delivered``."""

    message: str
    record: Remember | None = None


Result: TypeAlias = Delivered | Later | Held | Undeliverable

Deliver: TypeAlias = Callable[[], Awaitable[Result]]

# Reads the content of a message of one kind, in the transaction of the lease; the result sends it, or says why not. It
# must be idempotent, because after a crash it is called again for the same message.
Handler: TypeAlias = Callable[[Connection, Message], Awaitable[Deliver]]

_Job: TypeAlias = tuple[Message, Deliver]


class Dispatcher(Struct):
    """Delivers messages, several at once. NOTIFY wakes it, and a slow poll finds the messages of a lost wake-up.

    Besides one delivery of each lane, ``concurrency - 1`` others may be under way, in lanes with more messages.
    """

    database: Database
    handlers: Mapping[str, Handler]
    owner: str
    concurrency: int = 4
    idle: timedelta = timedelta(seconds=5)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _under_way: Counter[Lane] = field(default_factory=Counter)
    _last: Lane = ("", "")

    def wake(self) -> None:
        """Look for messages at once, because one may be waiting."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until ``stop`` is set, and finish the deliveries under way.

        Only one loop leases, so that an idle look costs one statement, however many deliveries may run at once.
        """
        async with asyncio.TaskGroup() as group:

            async def turn() -> bool:
                job = await self._lease()
                if job is not None:
                    self._under_way[job[0].lane] += 1
                    group.create_task(self._deliver(job))
                return job is not None

            await repeat(stop, turn, self.idle.total_seconds(), "no message could be leased", woken=self._woken)

    def _full(self) -> list[str]:
        """The kinds and lanes that are full, so that no message of them is leased now."""
        kinds = Counter(kind for _, kind in self._under_way.elements())
        busy = self._under_way if self._under_way.total() - len(self._under_way) >= self.concurrency - 1 else ()
        return [":".join(lane) for lane in busy] + [kind for kind, count in kinds.items() if count >= KIND_MAX]

    async def _lease(self) -> _Job | None:
        """Lease the next message, and let its handler read. If the handler fails, only this message fails."""
        message, asked = None, (self.owner, LEASE, self._last, self._full())
        until = monotonic() + LEASE.total_seconds() * 0.8
        try:
            async with self.database.transaction() as connection:
                message = await outbox.lease_message(connection, *asked)
                if message is None:
                    return None
                message = replace(message, until=until)
                self._last = message.lane
                with structlog.contextvars.bound_contextvars(tenant=message.tenant_id):  # whose turn long work is
                    return message, await self.handlers.get(message.kind, _unknown)(connection, message)
        except Exception as error:
            if message is None or (isinstance(error, asyncpg.PostgresError) and is_passing(error)):
                raise
            report("a message could not be read", error, kind=message.kind, command=str(message.command_id))
            failed = partial(saying, _failed(error))
        # The transaction was rolled back, and the lease with it: lease this message again, to record the error.
        async with self.database.connection() as connection:
            message = await outbox.lease_message(connection, *asked, only=message.command_id)
        return None if message is None else (message, failed)

    async def _deliver(self, job: _Job) -> None:
        try:
            await self._carry(job)
        except Exception as error:
            report("delivery abandoned until the lease of its message runs out", error, command=str(job[0].command_id))
        self._under_way -= Counter([job[0].lane])
        # The next message for the same card, or of the same lane, may have waited for this one.
        self._woken.set()

    async def work_off(self) -> int:
        """Deliver, one message after the other, until none is due; return the number of messages tried. For tests."""
        count = 0
        while job := await self._lease():
            await self._carry(job)
            count += 1
        return count

    async def _carry(self, job: _Job) -> None:
        """Deliver one message and record how it ended. A crash in between leaves its lease to expire."""
        (message, deliver), began = job, monotonic()
        structlog.contextvars.bind_contextvars(tenant=message.tenant_id)  # for all lines about it
        try:
            async with asyncio.timeout(LEASE.total_seconds() * 0.8):
                result = await deliver()
        except TimeoutError:
            result = Later("It took too long.")
        except Exception as error:
            report("a handler failed", error, kind=message.kind, command=str(message.command_id))
            result = _failed(error)
        _watched(message, result, began)
        try:
            await self._end(message, result)
        except Exception as error:
            report("the end of a delivery could not be recorded", error, command=str(message.command_id))
            await self._end(message, _failed(error, "It was delivered, but: "))

    async def _end(self, message: Message, result: Result) -> None:
        async with self.database.transaction() as connection:
            if isinstance(result, Delivered | Undeliverable) and result.record is not None:
                await result.record(connection)
            match result:
                case Delivered():
                    if result.shows_all:
                        await outbox.end_shown(connection, message, result.shows)
                    await outbox.end_message(connection, message, CommandState.DISPATCHED, None, timedelta(0))
                case Held(seconds):
                    await outbox.end_message(
                        connection, message, CommandState.PENDING, None, timedelta(seconds=seconds)
                    )
                case Later() if not result.counted or message.attempts < ATTEMPTS_MAX:
                    longest = min(2.0 ** min(message.attempts, ATTEMPTS_MAX), DELAY_MAX_SECONDS)
                    delay = timedelta(seconds=max(result.seconds or 0.0, longest))
                    if message.attempts == 1:
                        log.warning("delivery failed; retrying", **_facts(message, result.message))
                    await outbox.end_message(connection, message, CommandState.PENDING, clean(result.message), delay)
                case _:
                    reason = clean(result.message)
                    log.error("a message could not be delivered", **_facts(message, reason))
                    await outbox.end_message(connection, message, CommandState.FAILED, reason, timedelta(0))
                    await self._alarm(connection, message, reason)

    async def _alarm(self, connection: Connection, message: Message, reason: str) -> None:
        """Order an alarm about a message that failed for good, in the transaction that records the failure.

        A failed alarm causes no alarm, because that would fail again; `doctor` reports it.
        """
        if ALARM in self.handlers and message.kind not in (ALARM, ALARMED) and message.run_id is not None:
            payload: JsonObject = {"run": str(message.run_id), "topic": f"message:{message.kind}", "reason": reason}
            await outbox.order(connection, message.tenant_id, message.run_id, ALARM, payload)


def _facts(message: Message, reason: str) -> dict[str, str]:
    """The members of a log line about a message, by which an operator finds it and its run."""
    of_run = {} if message.run_id is None else {"run": str(message.run_id)}
    facts = {"tenant": message.tenant_id, "message": str(message.command_id), "kind": message.kind}
    return {**facts, **of_run, "reason": clean(reason)}


def _watched(message: Message, result: Result, began: float) -> None:
    """Report a delivery for a run to the watcher of this process."""
    if not tracing.watchers or message.run_id is None:
        return
    try:
        approval = UUID(str(message.payload.get("approval", "")))
    except ValueError:
        approval = None
    about = (message.tenant_id, message.run_id, message.command_id, message.kind, message.attempts)
    done = tracing.Delivered(*about, tracing.kind_of(result), approval, monotonic() - began)
    for watcher in tracing.watchers:
        watcher.delivered(done)


def _failed(error: Exception, words: str = "") -> Later:
    return Later(f"{words}{type(error).__name__}: {error}", counted=not is_passing(error))


async def _unknown(_: Connection, message: Message) -> Deliver:
    return partial(saying, Undeliverable(f"Nobody here delivers messages of kind {message.kind!r}."))


LATE = Later("This process stood still for longer than its lease.", counted=False)


async def saying(result: Result) -> Result:
    """Return this result without sending anything: the answer of a handler that has nothing to send."""
    return result


class Lanes:
    """Background tasks by name. ``done`` is set when one has done work, so that the next turn follows at once."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def begin(self, name: str, work: Callable[[], Awaitable[int]], due: object) -> None:
        """Begin work in a lane, unless it is still at work: then work that is due is found again in a later turn.

        After a crash the work is still due.
        """
        under_way = self._under_way.get(name)
        if due and (under_way is None or under_way.done()):
            self._under_way[name] = asyncio.create_task(self._work(name, work), name=name)

    async def end(self) -> None:
        """Wait until all tasks under way have ended."""
        if self._under_way:
            await asyncio.wait(self._under_way.values())

    async def _work(self, name: str, work: Callable[[], Awaitable[int]]) -> None:
        try:
            if await work():
                self.done.set()
        except Exception as error:
            report("a sweep failed", error, lane=name)
